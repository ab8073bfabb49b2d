"""
Two lanes to one model: questions on a thread of their own, bulk work on others that step aside.

Bulk threads run at a lower priority and start no batch while a question is being embedded. So a question waits for
nothing but its turn among questions, and on a machine with one core for the rest of a batch that is running (some 10 ms
of it, as the scheduler prefers the question).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import ParamSpec, TypeVar

from ...protocol.envelope import Overloaded
from ...protocol.messages.control import QueueStat
from .native import run_in_background

P = ParamSpec("P")
T = TypeVar("T")

MAX_QUERIES = 64
"""Questions that may wait: at 3 ms each, the last one still answers within 200 ms."""
YIELD_S = 0.5
"""Bulk work stops aside for no longer than this per batch: a stream of questions must not end indexing."""
RATE_WINDOW_S = 10.0


class Gate:
    """Where bulk threads wait while a question is in flight. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queries = 0

    @contextmanager
    def query(self) -> Iterator[None]:
        """Keep bulk work from starting a batch until the block ends."""
        with self._changed:
            self._queries += 1
        try:
            yield
        finally:
            with self._changed:
                self._queries -= 1
                self._changed.notify_all()

    def step_aside(self) -> None:
        """Block while questions are in flight, at most YIELD_S."""
        with self._changed:
            self._changed.wait_for(lambda: self._queries == 0, timeout=YIELD_S)


class QueryLane:
    """One thread for questions, in the order in which they come. Not thread-safe: called from the event loop."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._waiting = 0
        self._peak = 0
        self._refused = 0
        self._took_ms: deque[float] = deque(maxlen=256)
        self.total = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """
        ``function`` on the query thread. Raises Overloaded when MAX_QUERIES wait already.

        A caller that is cancelled leaves; what it asked for is dropped if it has not started.
        """
        if self._waiting >= MAX_QUERIES:
            self._refused += 1
            raise Overloaded("too many questions wait for the embedding model", retry_after_ms=100)
        self._waiting += 1
        self._peak = max(self._peak, self._waiting)
        started = time.perf_counter()
        try:
            with self._gate.query():
                found = await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))
        finally:
            self._waiting -= 1
        self._took_ms.append((time.perf_counter() - started) * 1000)
        self.total += 1
        return found

    def p50_ms(self) -> float:
        """Median of the last 256 questions, waiting included; 0 before the first."""
        return round(median(self._took_ms), 2) if self._took_ms else 0.0

    def stat(self) -> QueueStat:
        return QueueStat(
            depth=self._waiting, peak=self._peak, limit=MAX_QUERIES, policy="refuse", refused=self._refused
        )

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class BulkLane:
    """Threads of low priority for indexing. ``threads`` jobs run at once; whoever submits more waits."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bulk", initializer=run_in_background)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``function`` on a bulk thread. A cancelled caller leaves; the thread finishes what it began."""
        return await asyncio.wrap_future(self._pool.submit(function, *args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class Rate:
    """Things per second while there was work, over the last RATE_WINDOW_S. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._done: deque[tuple[float, float, int]] = deque(maxlen=4096)

    def add(self, count: int, started: float, ended: float) -> None:
        self._done.append((started, ended, count))

    def per_s(self, now: float) -> float:
        """0 when nothing ended within the window."""
        while self._done and now - self._done[0][1] > RATE_WINDOW_S:
            self._done.popleft()
        if not self._done:
            return 0.0
        span = max(self._done[-1][1] - min(started for started, _, _ in self._done), 1e-3)
        return round(sum(count for _, _, count in self._done) / span, 2)
