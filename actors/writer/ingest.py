"""
Capture at the door: lines on ``events.sock``, spooled files, imported transcripts; and the requests about what was captured.

A line becomes a redacted event, is journalled and acknowledged; everything after the acknowledgement happens behind it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec

from ...memory import redact
from ...memory.capture import events, ledger, lines, sessions
from ...memory.capture.events import Dropped, Event, Intake
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
from .recorder import Recorder, now_ms
from .records import captured
from .seen import Seen
from .spool import Spool, Undeliverable, problem_with
from .wallclock import WallClock
from .wiki.store import Wiki
from .wikipages import WikiPages

log = logging.getLogger("recalld.writer.capture")

IN_FLIGHT = 1024
"""Events between arrival and acknowledgement; the next one is told to come again, and its client spools it."""
RETRY_AFTER_MS = 250
COUNT_S = 2.0
TICK_COUNTS = 10
"""Looks for sessions that are over: every so many counts, 20 s."""
EXPIRY_COUNTS = 30
"""Looks for pages that are over: every so many counts, 60 s. They are hidden from the moment itself."""
TAKE_UP_S = 1.0
RECENT = 10
"""Lines that status shows of what happened here."""

Handler = Callable[[Any], Awaitable[Message]]

OVERLOADED = b'{"error":"overloaded","retry_after_ms":%d}\n' % RETRY_AFTER_MS
DUPLICATE = b'{"ok":true,"duplicate":true}\n'


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
        self.door = Door(self.take)
        self.spool = Spool(env.paths.spool, self._deliver)
        self.desk = Desk(self)
        self.feedback = FeedbackDesk(self)
        self.mail = Mail(self)
        self.intake = Intake()
        self.seen = Seen()
        self._in_flight = self._peak = self._refused = 0
        self._rate: deque[tuple[float, int]] = deque(maxlen=8)
        self.events_total = self.duplicates_total = self.dropped_total = self.invalid_total = 0
        self.redactions: dict[str, int] = {}
        self.last_event_ms = 0
        self._counts: dict[str, int] = {}
        self.started = asyncio.Event()
        """Set when everything is open and events are taken."""
        self._another = asyncio.Event()
        self._recent: deque[str] = deque(maxlen=RECENT)

    def configure(self, config: Config) -> None:
        """Take up a changed configuration. Raises redact.BadPattern, naming the pattern."""
        self.intake = self.finisher.intake = self.pages.intake = Intake(
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
            asks.ImportEvents: self._import,
            asks.Feedback: self.feedback.note,
            asks.MessageSend: self.mail.send,
            asks.MessageList: self.mail.listed,
            asks.MessagePop: self.mail.pop,
            asks.MessageCancel: self.mail.cancel,
        }

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

    # -- the socket

    def take(self, line: bytes, answer: Callable[[bytes], None]) -> None:
        """One line; ``answer`` is called with its acknowledgement, which for a stored event means: it is on the disk."""
        if self._in_flight >= IN_FLIGHT or self.recorder.behind:
            self._refused += 1
            answer(OVERLOADED)
            return
        try:
            received = self._event_of(line, comes_now=True)
        except Undeliverable as error:
            self.invalid_total += 1
            answer(b'{"error":"invalid","text":%s}\n' % msgspec.json.encode(str(error)))
            return
        if isinstance(received, Dropped):
            self.dropped_total += 1
            answer(b'{"ok":true,"stored":false,"reason":%s}\n' % msgspec.json.encode(received.reason))
            return
        event = received.event
        known = self.seen.known_as(event)
        if known:
            # Acknowledging the copy of what is under way would promise what the disk has not said yet.
            if self.seen.share(known, answer):
                self._arrived()
            else:
                self.duplicates_total += 1
                answer(DUPLICATE)
            return

        def durable(seq: int, error: ProtocolError | None) -> None:
            others = self.seen.ended(event.id, error is None)
            self._in_flight -= 1 + len(others)
            if error is not None:
                after = error.retry_after_ms or RETRY_AFTER_MS
                refusal = b'{"error":"%s","retry_after_ms":%d}\n' % (error.code.encode(), after)
                for each in (answer, *others):
                    each(refusal)
                return
            self._count_event(event)
            self.duplicates_total += len(others)
            answer(b'{"ok":true,"seq":%d}\n' % seq)
            for each in others:
                each(DUPLICATE)

        self._arrived()
        self.seen.under_way(event.id)
        self.ends.heard(event)
        self.recorder.put_nowait(received, durable, lone=len(self.door.connections) == 1)

    def _arrived(self) -> None:
        self._in_flight += 1
        if self._in_flight > self._peak:
            self._peak = self._in_flight

    def _event_of(self, line: bytes, *, comes_now: bool = False, is_dated: bool = False) -> ledger.Happened | Dropped:
        """
        What a line tells. ``comes_now``: it was just sent. ``is_dated``: it bears the time at which it was sent, which tells
        when that was unless it is of a clock that was ahead. Raises Undeliverable.
        """
        try:
            wire, now = lines.read(line), now_ms()
            event = events.accept(wire, now, self.intake)
            received = event if isinstance(event, Dropped) else self.places.settle(event)
        except Exception as error:
            raise Undeliverable(problem_with(error)) from None
        if isinstance(received, Dropped) or received.event.kind not in sessions.REVIVING:
            return received
        if comes_now or (is_dated and 0 < wire.sent_ms <= now + events.FUTURE_MS):
            return msgspec.structs.replace(received, taken_ms=now)
        return received

    def _count_event(self, event: Event) -> None:
        self.events_total += 1
        self.last_event_ms = max(self.last_event_ms, event.at_ms)
        if event.kind in ("session-start", "session-end", "post-compaction"):
            self._recent.append(f"{event.kind} {event.host} {event.project}")
        for kind, number in event.redacted.items():
            self.redactions[kind] = self.redactions.get(kind, 0) + number

    # -- the other ways in

    async def _deliver(self, body: bytes) -> None:
        """One spooled event. Redacted once more: whoever wrote the file may have been an older client."""
        received = self._event_of(body, is_dated=True)
        if isinstance(received, Dropped):
            self.dropped_total += 1
            return
        self.ends.heard(received.event)
        await self.recorder.put_durable(received)
        self.seen.known_as(received.event)
        self._count_event(received.event)

    async def _import(self, message: asks.ImportEvents) -> asks.Imported:
        stored = duplicates = refused = 0
        wanted: list[ledger.Happened] = []
        for line in message.lines:
            try:
                received = self._event_of(line.encode("utf-8", "surrogatepass"))
            except Undeliverable:
                refused += 1
                continue
            if isinstance(received, Dropped):
                refused += 1
            else:
                wanted.append(received)
        ids = [each for entry in wanted for each in (entry.event.id, *events.near_ids(entry.event))]
        known = await self.db.read(captured.known_ids, ids)
        waiting = []
        for entry in wanted:
            if entry.event.id in known or any(near in known for near in events.near_ids(entry.event)):
                duplicates += 1
                continue
            known.add(entry.event.id)
            waiting.append(self.recorder.put_durable(entry))
            self._count_event(entry.event)
            stored += 1
        await asyncio.gather(*waiting)
        return asks.Imported(stored=stored, duplicates=duplicates, refused=refused)

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
        now = time.monotonic()
        self._rate.append((now, self.events_total))
        first_at, first = self._rate[0]
        rate = (self.events_total - first) / (now - first_at) if now > first_at else 0.0
        return {
            "events_total": self.events_total,
            "events_per_s": round(rate, 1),
            "duplicates_total": self.duplicates_total,
            "dropped_total": self.dropped_total,
            "invalid_total": self.invalid_total,
            "redactions_total": sum(self.redactions.values()) + sum(self.pages.redacted.values()),
            "spool_waiting": self.spool.waiting,
            "spool_delivered": self.spool.delivered_total,
            "dead_letters": self.spool.dead_letters,
            "last_event_ms": self.last_event_ms,
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
        if self.redactions:
            found["redacted"] = ", ".join(f"{kind} {number}" for kind, number in sorted(self.redactions.items()))
        return {key: value for key, value in found.items() if value}

    def recent(self) -> tuple[str, ...]:
        """The last sessions and prompts, newest last."""
        return tuple(self._recent)

    def stats(self) -> dict[str, QueueStat]:
        """The bounded queues of capture."""
        events_in_flight = QueueStat(
            depth=self._in_flight, peak=self._peak, limit=IN_FLIGHT, policy="refuse", refused=self._refused
        )
        return {"events": events_in_flight, **self.recorder.stats(), **self.journal.stats()}
