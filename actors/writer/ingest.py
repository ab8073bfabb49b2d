"""
Capture, put together: what comes in (``reception``), what is made of it, and the requests about what was captured.

An event is journalled and acknowledged; everything after the acknowledgement happens behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ...memory import redact
from ...memory.capture.events import Intake
from ...protocol.config import Config
from ...protocol.envelope import ProtocolError
from ...protocol.messages import capture as asks
from ...protocol.messages.common import Message
from ...protocol.messages.control import QueueStat
from ..base import BootFailure, Env
from .brief import Briefer
from .database import Database
from .desk import Desk
from .door import Door
from .ends import Ends
from .feedback import FeedbackDesk
from .finisher import Finisher
from .journal import Journal
from .mail import Mail
from .pageindex import PageIndex
from .places import Places
from .reception import Reception
from .recorder import Recorder
from .records import captured
from .spool import Spool
from .wallclock import WallClock
from .wiki.store import Wiki
from .wikipages import WikiPages

log = logging.getLogger("recalld.writer.capture")

COUNT_S = 2.0
TICK_COUNTS = 10
"""Looks for sessions that are over: every so many counts, 20 s."""
EXPIRY_COUNTS = 30
"""Looks for pages that are over: every so many counts, 60 s. They are hidden from the moment itself."""
TAKE_UP_S = 1.0

Handler = Callable[[Any], Awaitable[Message]]


class Ingest:
    """The capture half of the writer. ``handlers`` answers every CaptureRequest; ``run`` serves until cancelled."""

    def __init__(self, env: Env, db: Database, clock: WallClock | None = None) -> None:
        self.env = env
        self.db = db
        self.journal = Journal(env.paths.journal)
        self.wiki = Wiki(env.paths.wiki)
        clock = clock or WallClock()
        self.index = PageIndex(db, env.paths.wiki, lambda: clock.rules(env.config))
        self.recorder = Recorder(db, self.journal, lambda work: self.finisher.due(work))
        self.finisher = Finisher(db, self.wiki, self.index, self.recorder)
        self.pages = WikiPages(db, self.wiki, self.index)
        self.ends = Ends(db, self.recorder, self.pages, clock)
        self.briefer = Briefer(db, self.wiki, self.recorder, self.index.root)
        self.places = Places(db)
        self.reception = Reception(db, self.recorder, self.places, self.ends, self._is_lone)
        self.door = Door(self.reception.take)
        self.spool = Spool(env.paths.spool, self.reception.deliver)
        self.desk = Desk(self)
        self.feedback = FeedbackDesk(self)
        self.mail = Mail(self)
        self.intake = Intake()
        self._counts: dict[str, int] = {}
        self.started = asyncio.Event()
        """Set when everything is open and events are taken."""
        self._another = asyncio.Event()

    def configure(self, config: Config) -> None:
        """Take up a changed configuration. Raises redact.BadPattern, naming the pattern."""
        self.intake = self.reception.intake = self.finisher.intake = self.pages.intake = Intake(
            extra=redact.compile_extra(config.capture.redact_patterns),
            allow=config.capture.redact_allow,
            assistant_messages=config.capture.assistant_messages,
            home=self.places.home,
        )
        self.places.configure(config)

    @property
    def handlers(self) -> dict[type[Message], Handler]:
        """One coroutine per member of CaptureRequest. Calls that come before everything is open wait within their budget."""
        return {kind: self._once_started(handler) for kind, handler in self._handlers().items()}

    def _once_started(self, handler: Handler) -> Handler:
        async def answer(message: Any) -> Message:
            await self.started.wait()
            return await handler(message)

        return answer

    def _handlers(self) -> dict[type[Message], Handler]:
        return {
            asks.WritePage: self._write_page,
            asks.DeletePage: self._delete_page,
            asks.ReadPage: self._read_page,
            asks.PageLog: self._page_log,
            asks.HandoffBegin: self.desk.begin,
            asks.HandoffAccept: self.desk.accept,
            asks.HandoffList: self.desk.list_handoffs,
            asks.HandoffCancel: self.desk.cancel,
            asks.Brief: self._brief,
            asks.SessionList: self.desk.list_sessions,
            asks.SessionEvents: self.desk.list_events,
            asks.EndSession: self.desk.end,
            asks.PurgeSession: self.desk.purge,
            asks.PurgeProject: self.desk.purge_project,
            asks.ImportEvents: self.reception.import_lines,
            asks.Feedback: self.feedback.note,
            asks.MessageSend: self.mail.send,
            asks.MessageList: self.mail.listed,
            asks.MessagePop: self.mail.pop,
            asks.MessageCancel: self.mail.cancel,
        }

    def _is_lone(self) -> bool:
        return len(self.door.connections) == 1

    async def start(self) -> None:
        """Open journal and wiki, replay what the index lacks, find unfinished sessions. The database is open."""
        try:
            self.configure(self.env.config)
        except redact.BadPattern as error:
            raise BootFailure(f"config.toml: capture.redact_patterns: {error}") from None
        await self.journal.open()
        await self.wiki.start()
        await self._take_up()
        try:
            await self._count()
            roots = await self.db.read(captured.project_roots)
            for session in await self.ends.start():
                self.places.remember(session, roots.get(session.project, ""))
        except ProtocolError as error:
            log.warning("what was captured cannot be counted yet: %s", error.text)

    async def run(self, events_listener: socket.socket) -> None:
        """Serve until cancelled. Calls ``start`` first; what waits for git is committed at the end."""
        try:
            await self.start()
            async with anyio.create_task_group() as group:
                group.start_soon(self.recorder.run)
                group.start_soon(self.finisher.run)
                group.start_soon(self.spool.run)
                group.start_soon(self._tick)
                group.start_soon(self._replay)
                self.started.set()
                await self.door.run(events_listener)
        finally:
            with anyio.move_on_after(5, shield=True):
                await self.wiki.aclose()
                await self.journal.aclose()

    def reborn(self) -> None:
        """Another database took the place of the index: it is shown the journal soon."""
        self._another.set()

    async def _replay(self) -> None:
        while True:
            await self._another.wait()
            self._another.clear()
            await self._take_up()
            if self._another.is_set():
                await anyio.sleep(TAKE_UP_S)

    async def _take_up(self) -> None:
        """Show the index the journal; again later where it cannot be written now."""
        try:
            await self.recorder.replay()
            await self.finisher.find_unfinished()
        except ProtocolError as error:
            # Capture goes on without the index: what is journalled now is applied when the index can be written.
            log.warning("the index does not take the journal yet: %s", error.text)
            self._another.set()

    async def settle(self) -> None:
        """Return when everything acknowledged before is in index and wiki."""
        await self.recorder.settle()
        await self.finisher.settle()
        await self.recorder.settle()
        await self.wiki.flush()

    async def _tick(self) -> None:
        counted = -1
        for tick in itertools.count(1):
            await anyio.sleep(COUNT_S)
            try:
                if counted != self.recorder.applied_seq:
                    counted = self.recorder.applied_seq
                    await self._count()
                if tick % TICK_COUNTS == 0:
                    await self.ends.end_overdue(self.env.config.capture)
                if tick % EXPIRY_COUNTS == 0:
                    await self.ends.remove_expired()
            except ProtocolError as error:
                log.info("looking for sessions that are over waits: %s", error.text)

    async def _count(self) -> None:
        self._counts = await self.db.read(captured.counts)

    # -- requests about pages

    async def _write_page(self, message: asks.WritePage) -> asks.PageWritten:
        return await self.pages.write(message, await self.places.of(message.place))

    async def _delete_page(self, message: asks.DeletePage) -> asks.PageDeleted:
        return await self.pages.delete(message, await self.places.of(message.place))

    async def _read_page(self, message: asks.ReadPage) -> asks.PageText:
        return await self.pages.read(message, await self.places.of(message.place))

    async def _page_log(self, message: asks.PageLog) -> asks.PageHistory:
        return await self.pages.log(message, await self.places.of(message.place))

    async def _brief(self, message: asks.Brief) -> asks.Briefing:
        policy = self.places.policy_of(message.place.cwd)
        return await self.briefer.brief(message, await self.places.of(message.place), self.env.config, policy)

    # -- status

    def figures(self) -> dict[str, float]:
        """Counters and gauges for status. Cheap: no I/O."""
        return {
            **self.reception.figures(),
            "redactions_total": sum(self.reception.redactions.values()) + sum(self.pages.redacted.values()),
            "spool_waiting": self.spool.waiting,
            "spool_delivered": self.spool.delivered_total,
            "dead_letters": self.spool.dead_letters,
            "pages_waiting": self.finisher.waiting,
            "commits_total": self.wiki.commits_total,
            **self._counts,
        }

    def facts(self) -> dict[str, str]:
        """What a person should know; only what is not as it should be."""
        found = {
            "wiki": self.wiki.note,
            "wiki_packing": self.wiki.packing_problem,
            "spool": self.spool.problem,
            "spool_held": self.spool.held_problem,
            "capture": self.journal.problem or self.recorder.stuck,
        }
        if redactions := self.reception.redactions:
            found["redacted"] = ", ".join(f"{kind} {number}" for kind, number in sorted(redactions.items()))
        return {key: value for key, value in found.items() if value}

    def recent(self) -> tuple[str, ...]:
        """The last sessions and prompts, newest last."""
        return self.reception.recent()

    def stats(self) -> dict[str, QueueStat]:
        """The bounded queues of capture."""
        return {"events": self.reception.stats(), **self.recorder.stats(), **self.journal.stats()}
