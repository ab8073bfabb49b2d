"""
From an entry to the disk and into the index: one line of work, in the journal's order.

Stage one appends what waits to the journal (one fsync for all of it): then an event is acknowledged. Stage two applies the
same entries to the index in the same order, one transaction a batch. What the index cannot take now stays queued, bounded;
what a crash takes from the queue is replayed from the journal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import anyio
import msgspec

from ...memory.capture import ledger
from ...memory.capture.ledger import Entry
from ...memory.capture.sessions import Finish, Refresh
from ...protocol.envelope import Overloaded, ProtocolError, Unavailable
from ...protocol.messages.control import QueueStat
from .database import Database
from .journal import Journal
from .records import capture as records
from .records import captured
from .records.capture import Granted

log = logging.getLogger("recalld.writer.capture")

BATCH = 256
"""Entries per journal write and fsync."""
APPLY = 1024
"""Entries per transaction of the index."""
LIMIT = 8192
"""Durable entries that may wait for the index: a second's work. Beyond it stage one waits, and then callers are refused."""
REPLAY_CHUNK = 2000
RETRY_S = 0.5
FRESH_STEPS, FRESH_STEP_S = 40, 0.005
"""A caller waits at most 0.2 s for what was acknowledged before it asked."""
LINGER_S = 0.1
"""How long entries that nobody waits for are gathered before they go into the index."""


Durable = Callable[[int, ProtocolError | None], None]
"""Called once an entry is in the journal (its seq), or could not be written (0 and why)."""


class _Item:
    __slots__ = ("applied", "durable", "entry", "record")

    def __init__(
        self, entry: Entry, record: bytes, durable: Durable | None, applied: asyncio.Future[Granted] | None
    ) -> None:
        self.entry = entry
        self.record = record
        self.durable = durable
        self.applied = applied


class Recorder:
    """``await replay()`` first, then ``run()`` in a task. ``work`` is called with the pages that a batch made due."""

    def __init__(self, db: Database, journal: Journal, work: Callable[[list[Finish | Refresh]], None]) -> None:
        self._db = db
        self._journal = journal
        self._work = work
        self._cache = records.Cache()
        self._waiting: deque[_Item] = deque()
        self._arrived = asyncio.Event()
        self._appending = False
        self._durable: deque[tuple[int, _Item]] = deque()
        self._to_apply = asyncio.Event()
        self._urgent = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._applying = asyncio.Lock()
        self._peak = 0
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._settling = 0
        """Callers of ``settle``: nothing is gathered while there are any."""
        self.applied_seq = 0
        self._caught_up = False
        """Everything before what is queued here is in the index. An entry must not go in over a gap: no replay fills it."""
        self.passed_over = 0
        """Entries that could not be applied."""
        self.stuck = ""
        """Why the index does not take entries now; '' when it does."""

    def put_nowait(self, entry: Entry, durable: Durable, *, lone: bool = False) -> None:
        """
        Queue an entry; ``durable`` is called on the loop when its fate is known.

        ``lone``: nobody else is about to send one. It is then written at once where the disk is quick enough for that.
        """
        if not (lone and self._put_now(entry, durable)):
            self._put(entry, durable, None)

    def _put_now(self, entry: Entry, durable: Durable) -> bool:
        if self._waiting or self._appending or self.behind:
            return False
        item = _Item(entry, ledger.encode(entry), durable, None)
        try:
            seq = self._journal.append_now(item.record)
        except ProtocolError as error:
            durable(0, error)
            return True
        if seq is None:
            return False
        self._open += 1
        self._idle.clear()
        self._durable.append((seq, item))
        durable(seq, None)
        self._to_apply.set()
        if len(self._durable) >= APPLY:
            self._urgent.set()
        return True

    async def put_durable(self, entry: Entry) -> int:
        """Record an entry; its seq, once it is in the journal. Raises Unavailable."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def known(seq: int, error: ProtocolError | None) -> None:
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(seq)

        self._put(entry, known, None)
        return await future

    async def put(self, entry: Entry) -> Granted:
        """Record an entry and wait until it is applied; what it was granted. Raises Unavailable, Overloaded."""
        if len(self._durable) >= LIMIT:
            raise Overloaded("the index is behind", retry_after_ms=500)
        applied: asyncio.Future[Granted] = asyncio.get_running_loop().create_future()
        self._put(entry, None, applied)
        return await applied

    def _put(self, entry: Entry, durable: Durable | None, applied: asyncio.Future[Granted] | None) -> None:
        self._waiting.append(_Item(entry, ledger.encode(entry), durable, applied))
        self._arrived.set()
        self._open += 1
        self._idle.clear()

    @property
    def behind(self) -> bool:
        """More is durable than the index can be expected to take soon: nothing further should be accepted."""
        return len(self._durable) >= LIMIT

    def stats(self) -> dict[str, QueueStat]:
        return {"index backlog": QueueStat(depth=len(self._durable), peak=self._peak, limit=LIMIT, policy="wait")}

    async def run(self) -> None:
        """Both stages until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._append)
            group.start_soon(self._apply)

    async def settle(self) -> None:
        """Return when everything that was put before is applied."""
        self._urgent.set()
        self._settling += 1
        try:
            await self._idle.wait()
        finally:
            self._settling -= 1

    async def catch_up(self) -> None:
        """Return when what is durable now is in the index, or after FRESH_STEPS steps: a caller reads what it sent."""
        target = self._journal.last_seq
        for _ in range(FRESH_STEPS):
            if self.applied_seq >= target:
                return
            self._urgent.set()
            await anyio.sleep(FRESH_STEP_S)

    async def replay(self) -> int:
        """Apply what the journal has and the index has not: after a crash, a fresh database, or a swap. Returns how much."""
        async with self._applying:
            return await self._catch_up(None)

    async def _catch_up(self, before: int | None) -> int:
        """Replay the journal up to, and without, ``before``. Pages that this makes due are found as unfinished sessions."""
        self._cache.clear()
        self._caught_up = False
        self.applied_seq = await self._db.read(captured.applied_seq)
        await self._journal.reserve(self.applied_seq)
        count = 0
        after = self.applied_seq
        while chunk := await self._journal_chunk(after):
            after = chunk[-1][0]
            entries = [(seq, entry) for seq, entry in chunk if entry is not None and (before is None or seq < before)]
            count += len((await self._take(entries)).answers)
            if before is not None and after >= before - 1:
                break
        self._caught_up = True
        return count

    async def _journal_chunk(self, after: int) -> list[tuple[int, Entry | None]]:
        return await asyncio.to_thread(
            lambda: [(s, _decoded(r)) for s, r in islice(self._journal.read(after), REPLAY_CHUNK)]
        )

    # -- stage one

    async def _append(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            self._appending = True
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                await self._append_batch(batch)
            self._appending = False

    async def _append_batch(self, batch: list[_Item]) -> None:
        try:
            seqs = await self._journal.append([item.record for item in batch])
        except ProtocolError as error:
            for item in batch:
                if item.durable is not None:
                    item.durable(0, error)
                _fail(item, error)
            self._closed(len(batch))
            return
        for seq, item in zip(seqs, batch, strict=True):
            if item.durable is not None:
                item.durable(seq, None)
            self._durable.append((seq, item))
        self._peak = max(self._peak, len(self._durable))
        self._to_apply.set()
        if len(self._durable) >= APPLY or any(item.applied is not None for item in batch):
            self._urgent.set()
        if len(self._durable) >= LIMIT:
            self._room.clear()
            await self._room.wait()

    # -- stage two

    async def _apply(self) -> None:
        while True:
            await self._to_apply.wait()
            self._to_apply.clear()
            if not self._settling and not any(item.applied is not None for _, item in self._durable):
                # Nobody waits for these: a transaction costs the same for one entry as for thirty.
                with anyio.move_on_after(LINGER_S):
                    await self._urgent.wait()
            self._urgent.clear()
            # What comes meanwhile is gathered again: else a steady sender would get a transaction for every few events.
            due = len(self._durable)
            while due > 0:
                async with self._applying:
                    batch = [self._durable.popleft() for _ in range(min(APPLY, due))]
                    await self._apply_batch(batch)
                due -= len(batch)
                if len(self._durable) < LIMIT // 2:
                    self._room.set()
            if self._durable:
                self._to_apply.set()

    async def _take(self, entries: list[tuple[int, Entry]]) -> records.Applied:
        """Apply ``entries``; one that cannot be applied at all is passed over with a log line, never the others with it."""
        if not entries:
            return records.Applied([], [])
        try:
            applied = await self._db.run(records.apply, entries, self._cache, self.applied_seq)
        except (ProtocolError, records.Behind):
            self._cache.clear()
            raise
        except Exception:
            self._cache.clear()
            if len(entries) == 1:
                log.exception("journal entry %d cannot be applied: it is passed over", entries[0][0])
                self.passed_over += 1
                await self._db.run(records.pass_over, entries[0][0])
                applied = records.Applied([None], [])
            else:
                parts = [await self._take([entry]) for entry in entries]
                return records.Applied([a for p in parts for a in p.answers], [w for p in parts for w in p.work])
        self.applied_seq = max(self.applied_seq, entries[-1][0])
        return applied

    async def _apply_batch(self, batch: list[tuple[int, _Item]]) -> None:
        entries = [(seq, item.entry) for seq, item in batch]
        while True:
            try:
                if not self._caught_up:
                    await self._catch_up(entries[0][0])
                applied = await self._take(entries)
            except records.Behind:
                # Trigger: another database took the place of the one that was applied to.
                # Why: it has not seen what came before this batch.
                # Outcome: it is shown the journal first.
                log.warning("the index is behind the journal: replaying")
                self._caught_up = False
                continue
            except (Unavailable, Overloaded) as error:
                # Trigger: the disk is full, or the database is being begun anew.
                # Why: these entries are acknowledged; skipping them would tear a hole that no replay fills.
                # Outcome: whoever waits for the answer is told now, the entries are tried until they are in.
                self.stuck = error.text
                for _, item in batch:
                    _fail(item, error)
                await anyio.sleep(RETRY_S)
                continue
            self.stuck = ""
            break
        for (_, item), answer in zip(batch, applied.answers, strict=True):
            if item.applied is not None and not item.applied.done():
                item.applied.set_result(answer)
        if applied.work:
            self._work(applied.work)
        self._closed(len(batch))

    def _closed(self, count: int) -> None:
        self._open -= count
        if not self._open:
            self._idle.set()


def _fail(item: _Item, error: ProtocolError) -> None:
    if item.applied is not None and not item.applied.done():
        item.applied.set_exception(error)


def _decoded(record: bytes) -> Entry | None:
    """An entry, None for a kind that this version does not know (a newer one wrote it)."""
    try:
        return ledger.decode(record)
    except msgspec.MsgspecError:
        return None


def now_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000
