"""
Ends that nobody sends: sessions that were left, handoffs and pages whose time is over.

What removes or ends for its age waits for a clock that is believed; how long ago somebody was heard of is counted by a
clock that nobody sets.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from ...memory.capture import ledger, sessions
from ...memory.capture.events import Event
from ...memory.capture.sessions import Session
from ...protocol.config import Capture
from ...protocol.envelope import ProtocolError
from .database import Database
from .recorder import Recorder, now_ms
from .records import captured, walltime
from .wallclock import WallClock, elapsed_ms
from .wikipages import WikiPages

log = logging.getLogger("recalld.writer.capture")

STEADY_NOTED_MS = 86_400_000
"""A start within 30 days of what was noted is believed: once a day is enough, and does not wake a disk that sleeps."""


class Ends:
    """``start`` once the journal is taken up; ``heard`` for each event, before it is put."""

    def __init__(self, db: Database, recorder: Recorder, pages: WikiPages, clock: WallClock) -> None:
        self.clock = clock
        self._db = db
        self._recorder = recorder
        self._pages = pages
        self._live: dict[str, list[Any]] = {}
        """Sessions that run: [as they began, when they were last heard of, in elapsed time]."""

    async def start(self) -> list[Session]:
        """The sessions that have not ended, from the index. Raises what the database raises."""
        self.clock.compare(await self._db.read(walltime.newest_ms), await self._db.read(walltime.steady_ms))
        live = await self._db.read(captured.live_sessions)
        for session in live:
            self._live[session.id] = [session, elapsed_ms() - max(0, now_ms() - session.last_ms)]
        return live

    def heard(self, event: Event) -> None:
        """Remember who is live, and end whom the start of another session in the same place shows to be over."""
        if event.kind == "session-end":
            self._live.pop(event.session, None)
            return
        known = self._live.get(event.session)
        if known is None:
            known = self._live[event.session] = [sessions.begin(event), 0]
        known[1] = elapsed_ms()
        if event.kind == "session-start":
            now = now_ms()
            live = [msgspec.structs.replace(each, last_ms=self._heard_ms(each, now)) for each, _ in self._live.values()]
            for session in sessions.replaced(live, event, now):
                self._live.pop(session.id, None)
                end = sessions.end_event(session, "replaced")
                self._recorder.put_nowait(ledger.Happened(event=end), _nobody_waits)

    async def end_overdue(self, capture: Capture) -> None:
        """End sessions that have been idle too long, expire old handoffs; neither by a clock that was just set."""
        if not self.clock.is_believed:
            return
        now = now_ms()
        live = await self._db.read(captured.live_sessions)
        # A session that ran while the clock was ahead bears a time that may be years away: it counts from its last sign.
        live = [msgspec.structs.replace(each, last_ms=min(each.last_ms, self._heard_ms(each, now))) for each in live]
        for session in sessions.overdue(live, now, capture.idle_end_min * 60_000):
            await self._recorder.put_durable(ledger.Happened(event=sessions.end_event(session, "idle")))
            self._live.pop(session.id, None)
        for key in await self._db.read(captured.expire_handoffs, now, capture.handoff_expire_days):
            await self._recorder.put_durable(ledger.HandedOff(op="expire", at_ms=now, id=key))

    async def remove_expired(self) -> None:
        """Remove pages that are over. They are hidden from the moment itself; their files wait for a clock that is believed."""
        if self.clock.is_believed:
            await self._pages.expire(now_ms())
        await self._note_steady()

    async def _note_steady(self) -> None:
        """
        Remember where a clock stands that has gone on evenly: events that were recorded years ahead would make every start
        doubt it again.
        """
        if self.clock.is_steady:
            now = now_ms()
            if not now - STEADY_NOTED_MS < await self._db.read(walltime.steady_ms) <= now:
                await self._db.run(walltime.note_steady, now)

    def _heard_ms(self, session: Session, now: int) -> int:
        """When ``session`` was last heard of, by a wall clock that shows ``now``, whatever it showed then."""
        known = self._live.get(session.id)
        return session.last_ms if known is None else now - (elapsed_ms() - int(known[1]))


def _nobody_waits(seq: int, error: ProtocolError | None) -> None:
    if error is not None:
        log.warning("the end of a session is recorded later: %s", error.text)
