"""
The ways in: lines on ``events.sock``, spooled files, imported transcripts. Each becomes a redacted event and is put to the
recorder; what is acknowledged is in the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from ...memory.capture import events, ledger, lines, sessions
from ...memory.capture.events import Dropped, Event, Intake
from ...protocol.envelope import ProtocolError
from ...protocol.messages import capture as asks
from ...protocol.messages.control import QueueStat
from .database import Database
from .ends import Ends
from .places import Places
from .recorder import Recorder, now_ms
from .records import captured
from .seen import Seen
from .spool import Undeliverable, problem_with

IN_FLIGHT = 1024
"""Events between arrival and acknowledgement; the next one is told to come again, and its client spools it."""
RETRY_AFTER_MS = 250
RECENT = 10
"""Lines that status shows of what happened here."""

OVERLOADED = b'{"error":"overloaded","retry_after_ms":%d}\n' % RETRY_AFTER_MS
DUPLICATE = b'{"ok":true,"duplicate":true}\n'


class Reception:
    """``take`` is the door's, ``deliver`` the spool's. ``intake`` says how events are taken in; it may be set anew."""

    def __init__(
        self, db: Database, recorder: Recorder, places: Places, ends: Ends, is_lone: Callable[[], bool]
    ) -> None:
        """``is_lone``: whether whoever sends now is the only one who is connected."""
        self.intake = Intake()
        self._db = db
        self._recorder = recorder
        self._places = places
        self._ends = ends
        self._is_lone = is_lone
        self._seen = Seen()
        self._in_flight = self._peak = self._refused = 0
        self._rate: deque[tuple[float, int]] = deque(maxlen=8)
        self._events_total = self._duplicates_total = self._dropped_total = self._invalid_total = 0
        self._last_event_ms = 0
        self._recent: deque[str] = deque(maxlen=RECENT)
        self.redactions: dict[str, int] = {}
        """Removed secrets by kind."""

    def take(self, line: bytes, answer: Callable[[bytes], None]) -> None:
        """One line; ``answer`` is called with its acknowledgement, which for a stored event means: it is on the disk."""
        if self._in_flight >= IN_FLIGHT or self._recorder.behind:
            self._refused += 1
            answer(OVERLOADED)
            return
        try:
            received = self._event_of(line, comes_now=True)
        except Undeliverable as error:
            self._invalid_total += 1
            answer(b'{"error":"invalid","text":%s}\n' % msgspec.json.encode(str(error)))
            return
        if isinstance(received, Dropped):
            self._dropped_total += 1
            answer(b'{"ok":true,"stored":false,"reason":%s}\n' % msgspec.json.encode(received.reason))
            return
        event = received.event
        known = self._seen.known_as(event)
        if known:
            # Acknowledging the copy of what is under way would promise what the disk has not said yet.
            if self._seen.share(known, answer):
                self._arrived()
            else:
                self._duplicates_total += 1
                answer(DUPLICATE)
            return

        def durable(seq: int, error: ProtocolError | None) -> None:
            others = self._seen.ended(event.id, error is None)
            self._in_flight -= 1 + len(others)
            if error is not None:
                after = error.retry_after_ms or RETRY_AFTER_MS
                refusal = b'{"error":"%s","retry_after_ms":%d}\n' % (error.code.encode(), after)
                for each in (answer, *others):
                    each(refusal)
                return
            self._count_event(event)
            self._duplicates_total += len(others)
            answer(b'{"ok":true,"seq":%d}\n' % seq)
            for each in others:
                each(DUPLICATE)

        self._arrived()
        self._seen.under_way(event.id)
        self._ends.heard(event)
        self._recorder.put_nowait(received, durable, lone=self._is_lone())

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
            received = event if isinstance(event, Dropped) else self._places.settle(event)
        except Exception as error:
            raise Undeliverable(problem_with(error)) from None
        if isinstance(received, Dropped) or received.event.kind not in sessions.REVIVING:
            return received
        if comes_now or (is_dated and 0 < wire.sent_ms <= now + events.FUTURE_MS):
            return msgspec.structs.replace(received, taken_ms=now)
        return received

    def _count_event(self, event: Event) -> None:
        self._events_total += 1
        self._last_event_ms = max(self._last_event_ms, event.at_ms)
        if event.kind in ("session-start", "session-end", "post-compaction"):
            self._recent.append(f"{event.kind} {event.host} {event.project}")
        for kind, number in event.redacted.items():
            self.redactions[kind] = self.redactions.get(kind, 0) + number

    async def deliver(self, body: bytes) -> None:
        """One spooled event. Redacted once more: whoever wrote the file may have been an older client."""
        received = self._event_of(body, is_dated=True)
        if isinstance(received, Dropped):
            self._dropped_total += 1
            return
        self._ends.heard(received.event)
        await self._recorder.put_durable(received)
        self._seen.known_as(received.event)
        self._count_event(received.event)

    async def import_lines(self, message: asks.ImportEvents) -> asks.Imported:
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
        known = await self._db.read(captured.known_ids, ids)
        waiting = []
        for entry in wanted:
            if entry.event.id in known or any(near in known for near in events.near_ids(entry.event)):
                duplicates += 1
                continue
            known.add(entry.event.id)
            waiting.append(self._recorder.put_durable(entry))
            self._count_event(entry.event)
            stored += 1
        await asyncio.gather(*waiting)
        return asks.Imported(stored=stored, duplicates=duplicates, refused=refused)

    # -- status

    def figures(self) -> dict[str, float]:
        """Counters and gauges for status."""
        now = time.monotonic()
        self._rate.append((now, self._events_total))
        first_at, first = self._rate[0]
        rate = (self._events_total - first) / (now - first_at) if now > first_at else 0.0
        return {
            "events_total": self._events_total,
            "events_per_s": round(rate, 1),
            "duplicates_total": self._duplicates_total,
            "dropped_total": self._dropped_total,
            "invalid_total": self._invalid_total,
            "last_event_ms": self._last_event_ms,
        }

    def recent(self) -> tuple[str, ...]:
        """The last sessions and prompts, newest last."""
        return tuple(self._recent)

    def stats(self) -> QueueStat:
        """The queue of events that are not acknowledged yet."""
        return QueueStat(
            depth=self._in_flight, peak=self._peak, limit=IN_FLIGHT, policy="refuse", refused=self._refused
        )
