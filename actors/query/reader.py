"""
Read-only access to the database: a small pool of connections, each on a thread of its own.

A request runs as one function inside one read transaction, which ends with the request: the writer's checkpoints are
never held up by a reader. Its deadline interrupts SQLite itself. The file may be absent, damaged or replaced at any time;
the pool notices, forgets its connections and opens what is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiosqlite
import anyio

from ...protocol.envelope import Overloaded, TimedOut
from ..sqlite import sqlite3
from .streams import bm25

T = TypeVar("T")
Connection = sqlite3.Connection

READERS = 3
"""Connections. More than cores makes no answer faster; each holds a page cache."""
WAITING_MAX = 128
"""Requests that wait for a connection; more are refused."""
PROGRESS_OPCODES = 4000
"""Opcodes between two looks at the deadline: about 0.1 ms."""
CACHE_KIB = 2048
"""Page cache of one connection; the rest is the operating system's, which is not copied per connection."""
BUSY_MS = 250
"""How long to wait while the writer recovers the WAL after a crash."""
CLOSE_S = 2.0


class NoIndex(Exception):
    """Raised when there is no database to read: absent, damaged, or of another version. The text says which."""


class Deadline:
    """When a request must end; ``expire`` ends it at once. ``at`` is in seconds of the monotonic clock."""

    __slots__ = ("at", "expired")

    def __init__(self, budget_ms: float) -> None:
        self.at = time.monotonic() + budget_ms / 1000
        self.expired = False

    def expire(self) -> None:
        self.expired = True

    def passed(self) -> bool:
        return self.expired or time.monotonic() >= self.at

    def left_s(self) -> float:
        return max(0.0, self.at - time.monotonic())


def connect(path: Path, *, immutable: bool = False) -> Connection:
    """
    A read-only connection. ``immutable`` promises that nobody writes, and then creates no file beside the database.

    Raises NoIndex when the file is absent, is not a database, or has no tables of ours.
    """
    if not path.exists():
        raise NoIndex(f"there is no index yet at {path}")
    uri = f"file:{quote(str(path))}?mode=ro" + ("&immutable=1" if immutable else "")
    try:
        conn = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=64)
    except sqlite3.Error as error:
        raise NoIndex(f"the index at {path} cannot be opened: {error}") from error
    try:
        conn.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        conn.execute("PRAGMA temp_store=MEMORY")
        bm25.prepare(conn)
        conn.execute("PRAGMA query_only=1")
        conn.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        conn.execute("PRAGMA mmap_size=0")  # mapped pages would count as this process's memory
        conn.execute("SELECT value FROM meta WHERE key='revision'").fetchone()
    except sqlite3.Error as error:
        conn.close()
        raise NoIndex(f"the index at {path} cannot be read: {error}") from error
    return conn


class _Threaded(aiosqlite.Connection):
    """aiosqlite runs one statement a hop; a request here is one hop as a whole."""

    deadline: Deadline | None = None
    identity: tuple[int, int] = (0, 0)
    failure: NoIndex | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: self._open(path), iter_chunk_size=64)

    def _open(self, path: Path) -> Connection:
        # aiosqlite leaves its thread to itself when connecting fails; one that is connected can be closed and waited for.
        try:
            return connect(path)
        except NoIndex as error:
            self.failure = error
            return sqlite3.connect(":memory:", check_same_thread=False)

    async def call(self, function: Callable[[Connection], T]) -> T:
        run = cast("Callable[..., Awaitable[T]]", self._execute)
        return await run(function, self._conn)

    def over(self) -> int:
        return 1 if self.deadline is not None and self.deadline.passed() else 0


class Reader:
    """The pool. ``generation`` grows whenever another file is found: what was loaded from the old one is void."""

    def __init__(self, path: Path, size: int = READERS) -> None:
        self.path = path
        self.generation = 0
        self._identity = (0, 0)
        self._free: list[_Threaded] = []
        self._slots = anyio.Semaphore(size, fast_acquire=True)
        self._waiting = 0
        self.peak = 0
        self.refused = 0

    @property
    def waiting(self) -> int:
        return self._waiting

    async def run(self, function: Callable[[Connection], T], budget_ms: float) -> T:
        """
        ``function(connection)`` inside one read transaction, on a reader's thread.

        Raises NoIndex, TimedOut when ``budget_ms`` is spent (SQLite is interrupted), Overloaded when too many wait.
        """
        if self._waiting >= WAITING_MAX:
            self.refused += 1
            raise Overloaded("too many questions at once", retry_after_ms=200)
        deadline = Deadline(budget_ms)
        self._waiting += 1
        self.peak = max(self.peak, self._waiting)
        try:
            with anyio.move_on_after(deadline.left_s()) as scope:
                await self._slots.acquire()
            if scope.cancelled_caught:
                raise TimedOut("every reader was busy until the budget was spent")
        finally:
            self._waiting -= 1
        try:
            return await self._on_some_connection(function, deadline)
        finally:
            self._slots.release()

    async def _on_some_connection(self, function: Callable[[Connection], T], deadline: Deadline) -> T:
        for attempt in (1, 2):
            conn = await self._take()
            try:
                result = await conn.call(lambda raw, conn=conn: _guarded(raw, conn, self.path, function, deadline))  # type: ignore[misc]
            except _Stale as stale:
                await self._discard(conn)
                if attempt == 2:
                    raise NoIndex(stale.args[0]) from stale
                continue
            except BaseException:
                # The thread may still be inside SQLite: the deadline makes it stop, and it serves its queue in order.
                deadline.expire()
                self._free.append(conn)
                raise
            self._free.append(conn)
            return result
        raise AssertionError("unreachable")

    async def _take(self) -> _Threaded:
        while self._free:
            conn = self._free.pop()
            if conn.identity == self._identity:
                return conn
            await self._discard(conn)
        conn = _Threaded(self.path)
        # Opening takes about a millisecond; a thread whose connection nobody knows could not be ended any more.
        with anyio.CancelScope(shield=True):
            await conn
            if conn.failure is not None:
                await self._discard(conn)
                raise conn.failure
            identity = await conn.call(lambda raw: _prepare(raw, conn, self.path))
        if identity != self._identity:
            self._identity = identity
            self.generation += 1
        return conn

    async def _discard(self, conn: _Threaded) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await conn.close()

    async def aclose(self) -> None:
        """Close every connection; bounded, and safe to await in a cancelled task."""
        conns, self._free = self._free, []
        for conn in conns:
            if conn.deadline is not None:
                conn.deadline.expire()
            await self._discard(conn)


class _Stale(Exception):
    """Raised when the file under a connection is gone, replaced or damaged."""


def _identity_of(path: Path) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0)
    return (info.st_dev, info.st_ino)


def _prepare(raw: Connection, conn: _Threaded, path: Path) -> tuple[int, int]:
    raw.set_progress_handler(conn.over, PROGRESS_OPCODES)
    conn.identity = _identity_of(path)
    return conn.identity


def _guarded(
    raw: Connection, conn: _Threaded, path: Path, function: Callable[[Connection], T], deadline: Deadline
) -> T:
    if _identity_of(path) != conn.identity:
        raise _Stale(f"there is no index at {path}: it was removed or replaced")
    conn.deadline = deadline
    try:
        raw.execute("BEGIN")
        try:
            return function(raw)
        finally:
            conn.deadline = None
            if raw.in_transaction:
                raw.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if deadline.passed():
            raise TimedOut("the search was stopped: its budget is spent") from error
        if _file_is_at_fault(error):
            raise _Stale(f"the index at {path} cannot be read: {error}") from error
        raise
    except sqlite3.DatabaseError as error:
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.IntegrityError, sqlite3.NotSupportedError)):
            raise
        raise _Stale(f"the index at {path} cannot be read: {error}") from error
    finally:
        conn.deadline = None


def _file_is_at_fault(error: Any) -> bool:
    text = str(error)
    return "no such table" in text or "disk I/O error" in text or "unable to open" in text or "locked" in text
