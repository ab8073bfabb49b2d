"""
One vault: keeps the index equal to a folder.

Hints (events) and sweeps end in the same pass: look, ``tree.diff``, move, read, drop. What the index holds is asked of the
writer and then kept, changed only by what the writer has acknowledged.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from typing import Any

import anyio
import anyio.to_thread

from ...memory.notes import tree
from ...memory.notes.tree import Breaker, Plan, Scan
from ...protocol.config import Watcher
from ...protocol.envelope import ProtocolError
from ...protocol.messages.index import Vault
from . import events
from .batches import MAX_NOTES, Batch, Progress, read_batch
from .index import RETRY_MAX_S, Index, IndexReset, Writer
from .scan import MAX_UNREADABLE, Scanner

HOLD_S = 0.1
"""A file that is missing is looked for again after this long: many programs save by moving the old file away first."""
READ_DEADLINE_S = 30.0
"""For one batch. A file whose read takes longer (a dead network mount) is set aside until the next sweep."""
SCAN_DEADLINE_S = 120.0
CONFIRM_S = 5.0
"""Least time between the two sweeps that confirm a mass disappearance; less when sweeps are set closer."""
IN_FLIGHT = 2
"""Batches at the writer: one in its transaction, one decoded and waiting."""
READ_AHEAD = 3
"""Batches that wait to be sent: the writer brings its log into the database for a third of a second now and then."""
MAX_DIRTY = 10_000
"""Paths that wait to be looked at; beyond that one look at everything is cheaper."""
ROOT_CHECK_S = 2.0
"""Between looks for a root that is gone: nothing tells that it is back."""
REOPEN_SWEEPS = 10
"""After the time of so many sweeps the index is asked again what it holds, in case it was replaced without a sign."""
CLOCK_JUMP_MS = 60_000
"""Less is a correction of the wall clock, and not worth moving a time for."""
POLL_SHARE = 20
"""In poll mode a look may take one part in this many of the time."""

log = logging.getLogger("recalld.watcher")


class VaultWatch:
    """Runs until cancelled; nothing that happens to files or to the writer ends it."""

    def __init__(
        self, vault: Vault, config: Watcher, writer: Writer, backend: str = "", swept: Callable[[], None] | None = None
    ) -> None:
        """``swept`` is called when a sweep has ended that was asked for."""
        self.vault = vault
        self._on_swept = swept or (lambda: None)
        self.sweeps = 0
        self._swept = (0, 0.0)
        """When the last full diff that ended began, by the wall clock as it stood then, and by the loop's."""
        self.notes_read = 0
        self.events = 0
        self.dirty_peak = 0
        self.last_sweep_ms = 0.0
        self.unreadable: dict[str, str] = {}
        self.suspended = ""
        self.mode = "starting"
        self._config = config
        self._index = Index(vault, writer)
        self._backend = backend
        self._breaker = Breaker(config.vanish_fraction, config.vanish_min)
        self._watch: events.Watch | None = None
        self._scanner = Scanner(vault.root, config.ignore, config.max_bytes, self._enter)
        self._limiter = anyio.CapacityLimiter(1)
        self._dirty: set[str] = set()
        self._stuck: set[str] = set()
        self._racy: set[str] = set()
        self._vanished: frozenset[str] = frozenset()
        self._wake = anyio.Event()
        self._sweep_wanted = True
        self._failed = False
        self._root_gone = False
        self._opened = self._told = self._vanished_at = 0.0
        self._resumed = anyio.Event()
        self._resumed.set()

    @property
    def swept_ms(self) -> int:
        """
        When the last full diff that ended began, by the wall clock; 0 = none yet.

        Somebody waits for it to pass a moment of theirs: a wall clock that was set since then counts as it stands now.
        """
        then_ms, at = self._swept
        as_now_ms = time.time_ns() // 1_000_000 - int((anyio.current_time() - at) * 1000)
        return as_now_ms if then_ms and abs(as_now_ms - then_ms) > CLOCK_JUMP_MS else then_ms

    @property
    def files(self) -> int:
        return len(self._index.known)

    @property
    def waiting_for_writer(self) -> str:
        return self._index.waiting

    @property
    def dirty(self) -> int:
        return len(self._dirty)

    @property
    def watch_problem(self) -> str:
        """What the watch cannot see, '' when nothing."""
        return self._watch.problem if self._watch is not None else ""

    def sweep_now(self) -> None:
        """Ask for a full diff as soon as possible."""
        self._sweep_wanted = True
        self._wake.set()

    def index_replaced(self) -> None:
        """The writer has another database than before: learn what it holds, and bring it everything else."""
        self._index.is_open = False
        self.sweep_now()

    def pause(self, paused: bool) -> None:
        """Hold back all passes, or let them go on; hints are kept meanwhile."""
        if paused:
            self._resumed = anyio.Event()
        else:
            self._resumed.set()
            self._wake.set()

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            armed = anyio.Event()
            group.start_soon(self._listen, armed)
            await armed.wait()
            await self._loop()

    async def _loop(self) -> None:
        next_sweep = anyio.current_time()
        while True:
            now = anyio.current_time()
            if not self._sweep_wanted and not self._dirty and now < next_sweep:
                with anyio.move_on_after(next_sweep - now):
                    await self._wake.wait()
            self._wake = anyio.Event()
            await self._resumed.wait()
            if self._sweep_wanted or anyio.current_time() >= next_sweep:
                asked, self._sweep_wanted = self._sweep_wanted, False
                began = anyio.current_time()
                await self._safely(self._sweep)
                if asked:
                    self._on_swept()
                took = anyio.current_time() - began
                next_sweep = anyio.current_time() + self._pause_s(took)
            elif self._dirty:
                await self._gather()
                await self._safely(self._look_at_hints)

    def _pause_s(self, took_s: float) -> float:
        if self._root_gone:
            return min(ROOT_CHECK_S, self._config.sweep_s)
        if self.mode.startswith("poll"):
            return max(self._config.poll_ms / 1000, POLL_SHARE * took_s)
        return self._config.sweep_s

    async def _safely(self, work: Callable[[], Any]) -> None:
        """A pass that fails is repeated from a fresh look at the index; it never ends the vault."""
        try:
            await work()
        except* IndexReset as resets:
            log.info("%s: looking at everything again: %s", self.vault.root, resets.exceptions[0])
            self._index.is_open = False
            self._sweep_wanted = True
        except* (ProtocolError, OSError) as error:
            log.warning("%s: pass given up: %s", self.vault.root, _first(error))
            self._index.is_open = False
            self._sweep_wanted = True
            self._failed = True
        if self._failed:
            self._failed = False
            await anyio.sleep(RETRY_MAX_S)

    # Hints

    def _enter(self, folder: str) -> None:
        if self._watch is not None:
            self._watch.enter(folder, os.path.join(self._scanner.root, folder) if folder else self._scanner.root)

    def _hint(self, path: str) -> None:
        self.events += 1
        name = path.rpartition("/")[2]
        if not path or name in {".gitignore", ".recalldignore"}:
            self._sweep_wanted = True
        elif len(self._dirty) >= MAX_DIRTY:
            self._dirty.clear()
            self._sweep_wanted = True
        else:
            self._dirty.add(path)
            self.dirty_peak = max(self.dirty_peak, len(self._dirty))
        self._wake.set()

    async def _listen(self, armed: anyio.Event) -> None:
        """Keep a watch on the root; one that ends is set up again, and a sweep covers what it missed."""
        delay = events.REARM_MIN_S
        while True:
            silent = events.silent_file_system(self._scanner.root) if self._config.mode == "native" else ""
            mode: events.Mode = "poll" if silent else self._config.mode
            why = ""
            try:
                self._watch = events.open_watch(
                    self._scanner.root, mode, self._config.step_ms, self._hint, self._backend
                )
                self.mode = mode if not silent else f"poll (no events from {silent})"
            except OSError as error:
                why = error.strerror or str(error)
            if self._watch is None:
                if why:
                    self.mode = f"poll (no native events: {why})"
                armed.set()
                if not why:
                    return
            else:
                self._sweep_wanted = self._sweep_wanted or armed.is_set()
                self._wake.set()
                armed.set()
                began = anyio.current_time()
                try:
                    await self._watch.run()
                except Exception as error:  # whatever a foreign watcher raises, the sweep goes on
                    why = str(_first(error))
                if anyio.current_time() - began > delay:
                    delay = events.REARM_MIN_S
                self._watch = None
                self.mode = f"poll (watch ended: {why or 'no reason given'})"
                log.warning("%s: the watch ended (%s); looking every %d ms", self.vault.root, why, self._config.poll_ms)
            self.sweep_now()
            await anyio.sleep(delay)
            delay = min(2 * delay, events.REARM_MAX_S)

    async def _gather(self) -> None:
        """Wait for the rest of a burst: until nothing comes for a quarter of the step, at most one step."""
        step_s = self._config.step_ms / 1000
        end = anyio.current_time() + step_s
        count = -1
        while self.events != count and anyio.current_time() < end:
            count = self.events
            await anyio.sleep(step_s / 4)

    # Passes

    async def _sweep(self) -> None:
        began, swept = time.perf_counter(), (time.time_ns() // 1_000_000, anyio.current_time())
        if not self._index.is_open or anyio.current_time() - self._opened > REOPEN_SWEEPS * self._config.sweep_s:
            await self._index.open()
            self._opened = anyio.current_time()
        self._dirty.clear()
        self._stuck.clear()
        racy, self._racy = self._racy, set()
        # Sweeps can follow each other at once (hints, a changed configuration): that is one look at the same hiccup.
        sure = anyio.current_time() - self._vanished_at >= min(CONFIRM_S, self._config.sweep_s)
        before = self._vanished if sure else frozenset()
        seen = await self._in_thread(SCAN_DEADLINE_S, self._scanner.all)
        if seen is None:
            seen = Scan(files={}, root_gone="the folder does not answer")
        self._root_gone = bool(seen.root_gone)
        plan = self._diff(seen, before, racy)
        if plan.vanished != self._vanished:
            self._vanished, self._vanished_at = plan.vanished, anyio.current_time()
        unreadable_before, self.unreadable = self.unreadable, dict(seen.unreadable)
        await self._carry_out(plan, seen)
        news = not plan.empty or plan.suspended != self.suspended or self.unreadable != unreadable_before
        self.suspended = plan.suspended
        # In poll mode a sweep may end every second, which is not worth a transaction each time.
        if news or not self.mode.startswith("poll") or anyio.current_time() - self._told >= self._config.sweep_s:
            await self._index.swept(
                time.time_ns() // 1_000_000, tuple(self.unreadable.items())[:MAX_UNREADABLE], self.suspended
            )
            self._told = anyio.current_time()
        self.sweeps += 1
        self._swept = swept
        self.last_sweep_ms = (time.perf_counter() - began) * 1000

    async def _look_at_hints(self) -> None:
        if not self._index.is_open:
            await self._index.open()
        hints, self._dirty = self._dirty, set()
        seen = await self._in_thread(SCAN_DEADLINE_S, self._scanner.some, hints)
        if seen is None:
            return
        plan = self._diff(seen, frozenset(), self._racy & hints)
        self._racy -= hints
        if plan.suspended:
            self.suspended = plan.suspended
            self._sweep_wanted = self._sweep_wanted or not self._vanished
        for path in hints:
            self.unreadable.pop(path, None)
        self.unreadable.update(seen.unreadable)
        await self._carry_out(plan, seen)

    def _diff(self, seen: Scan, vanished_before: frozenset[str], doubtful: set[str]) -> Plan:
        return tree.diff(
            self._index.known, seen, breaker=self._breaker, vanished_before=vanished_before, doubtful=doubtful
        )

    async def _carry_out(self, plan: Plan, seen: Scan) -> None:
        drop = await self._still_gone(plan.drop) if plan.drop else ()
        await self._index.move([(old, new, seen.files[new]) for old, new in plan.move])
        await self._index.touch([(path, seen.files[path]) for path in plan.touch])
        left = await self._read(plan.read, drop)
        await self._index.drop(sorted(left))

    async def _still_gone(self, drop: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are missing at a second look: a save that moves the old file away first takes a moment."""
        await anyio.sleep(HOLD_S)
        again = await self._in_thread(SCAN_DEADLINE_S, self._scanner.some, drop)
        if again is None or again.root_gone:
            return ()
        back = again.files.keys() | {path for path, _ in again.unreadable}
        # A file that came back is looked at like any other that changed.
        self._dirty.update(path for path in drop if path in back)
        return tuple(path for path in drop if path not in back)

    async def _read(self, paths: tuple[str, ...], drop: Collection[str]) -> set[str]:
        """Read, parse and send ``paths``; returns what is left of ``drop`` after moves were recognised."""
        left = set(drop)
        send, receive = anyio.create_memory_object_stream[Batch](READ_AHEAD)
        async with anyio.create_task_group() as group:
            # Reading the next batch while the writer works on these.
            group.start_soon(self._produce, [path for path in paths if path not in self._stuck], send)
            async with receive:
                for _ in range(IN_FLIGHT):
                    group.start_soon(self._consume, receive.clone(), left)
        return left

    async def _consume(self, receive: Any, left: set[str]) -> None:
        async with receive:
            async for batch in receive:
                await self._take(batch, left)

    async def _produce(self, paths: list[str], send: Any) -> None:
        async with send:
            at = 0
            while at < len(paths):
                progress = Progress()
                batch = await self._in_thread(
                    READ_DEADLINE_S, read_batch, self._scanner, paths[at : at + MAX_NOTES], self._index.known, progress
                )
                if batch is None:
                    path = progress.path or paths[at]
                    batch = Batch(unreadable=[(path, f"reading it took longer than {READ_DEADLINE_S:.0f} s")])
                    self._stuck.add(path)
                    paths = [*paths[:at], *(each for each in paths[at:] if each != path)]
                at += batch.done
                await send.send(batch)

    async def _take(self, batch: Batch, left: set[str]) -> None:
        """Bring one batch to the writer; files of ``left`` that turn up in it under a new name are moved, not dropped."""
        self._racy.update(batch.racy)
        self.unreadable.update(batch.unreadable)
        self._dirty.update(batch.gone)
        await self._index.touch(batch.touched)
        notes = batch.notes
        known = self._index.known
        if left and notes:
            moved = tree.match_moved(known, left, {note.path: note.hash for note in notes if note.path not in known})
            left.difference_update(moved.values())  # before anything is awaited: another batch must not take them too
            await self._index.move([(moved[note.path], note.path, note.stat) for note in notes if note.path in moved])
            notes = [note for note in notes if note.path not in moved]
        if notes:
            refused = await self._index.upsert(notes)
            self.unreadable.update(refused)
            self.notes_read += len(notes) - len(refused)

    async def _in_thread(self, deadline_s: float, work: Callable[..., Any], *args: Any) -> Any:
        """``work`` in the vault's thread; None when it takes longer than ``deadline_s``: that thread is left behind."""
        try:
            with anyio.fail_after(deadline_s):
                return await anyio.to_thread.run_sync(work, *args, abandon_on_cancel=True, limiter=self._limiter)
        except TimeoutError:
            self._limiter = anyio.CapacityLimiter(1)
            return None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
