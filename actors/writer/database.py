"""
The only read-write connection to the index, on a thread of its own.

``await db.run(function, *args)`` ships a function of the connection to that thread. What waits is drained into one
transaction (BEGIN IMMEDIATE, a savepoint for each function) and answered after its commit: one commit costs 0.1 ms and
serves up to GROUP callers. A caller that is cancelled does not stop its function.

A disk that refuses makes calls fail with Unavailable; the thread lives on and works again when the disk does. A file
that is damaged, deleted or replaced while running is set aside and a fresh one opened: ``reborn`` is then called on the
event loop, and whoever feeds the index feeds it again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from ...protocol.envelope import Overloaded, ProtocolError, Unavailable
from ...protocol.messages.control import QueueStat
from .. import heap
from ..sqlite import sqlite3
from .jobs import Job, Kind, settle_all
from .opening import (
    BUSY_TIMEOUT_MS,
    birth_of,
    change_places,
    failure_words,
    identity,
    is_damage,
    is_environment,
    open_database,
    remove_companions,
    set_aside,
    state_of,
    verify,
)  # fmt: skip
from .records.maintenance import merge_some_words
from .schema import SCHEMA, Schema

log = logging.getLogger("recalld.writer.database")
T = TypeVar("T")

LIMIT = 512
"""Functions that may wait. The server admits 256 calls; the rest is for our own work."""
GROUP = 64
"""Functions per transaction: from here on more do not make a commit cheaper by anything that can be measured."""
GROUP_S = 0.1
"""A transaction takes no further function after this long, so that nobody's write waits longer for the lock."""
WATCH_S = 1.0
"""How often the thread looks whether its file is still there, and whether it has been idle."""
LOOK_S = 2.0
"""For a full look at a file that somebody else has written, while nothing else waits."""
CHECKPOINT_IDLE_S = 2.0
REOPEN_S = 1.0
RETRY_AFTER_MS = 1000
CLOSE_S = 10.0


class Database:
    """``await open()`` first, ``await aclose()`` last; everything else in between. See the module's docstring."""

    def __init__(self, path: Path, *, schema: Schema = SCHEMA, limit: int = LIMIT) -> None:
        self.path = path
        self.reborn: Callable[[str], None] = lambda why: None
        """Called on the event loop with the reason, after a fresh or another database has taken the place of this one."""
        self.read_only = ""
        """Why nothing can be written (the database is of a newer version); '' when it can."""
        self.problem = ""
        """Why the last transaction failed, in words for a person; '' when it did not."""
        self.set_aside = ""
        """Where a damaged database was moved to, or why a new one was begun; '' when neither."""
        self.birth = 0
        """Tells this database from every other one; 0 when none is open."""
        self.generation = 0
        """Counts the databases that were opened under this path."""
        self.last_write_ms = 0
        self.transactions_total = self.functions_total = self.failures_total = 0
        self.busy_op = ""
        self.busy_since = 0.0
        self.wal_bytes = self.file_bytes = 0
        self._schema = schema
        self._limit = limit
        self._conn: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._wal_identity: tuple[int, int] | None = None
        self._opened_at = -REOPEN_S
        self._lock = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._peak = self._refused = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked_at = self._written_at = self._used_at = 0.0
        self._unchecked = self._unmerged = True
        """What has been written since is not yet in one file, or not yet merged."""
        self._caching = True
        """Whether pages may be cached that the last look at an idle connection has not let go of."""
        self._mtime_ns = 0
        self._looked_functions = -1
        self._checked_in = False
        """False when the file was touched by something other than a counted function since the last look."""

    # --- the event loop's side

    async def open(self) -> None:
        """Start the thread and open the file. A file that cannot be opened now is a ``problem`` and is tried again."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="database", daemon=True)
        self._thread.start()
        try:
            await self.alone(lambda conn: None)
        except Unavailable as error:
            log.error("the index cannot be opened: %s", error)

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """
        ``function(conn, *args)`` in a write transaction; its result once that is committed.

        When it raises, what it did is rolled back and the exception is raised here. Raises Unavailable when the database
        cannot be written now (nothing happened), Overloaded when too many functions wait.
        """
        return cast("T", await self._submit("write", function, args))

    async def read(self, function: Callable[..., T], *args: Any) -> T:
        """``function(conn, *args)`` on the same thread for reading: works on a read-only database too."""
        return cast("T", await self._submit("read", function, args))

    async def alone(self, function: Callable[..., T], *args: Any) -> T:
        """``function(conn, *args)`` outside of any transaction (VACUUM, checkpoints). It must leave none open."""
        return cast("T", await self._submit("alone", function, args))

    async def replace(self, successor: Path) -> None:
        """
        Put the closed database ``successor`` (same folder) in the place of this one, by rename, and open it.

        What waits goes to the successor. Readers see another inode under the old name. Raises OSError or sqlite3.Error,
        and then the old database goes on.
        """
        await self._submit("alone", self._replace, (successor,))

    async def distrust(self, why: str) -> None:
        """The file was found to be damaged: set it aside and begin again."""
        await self._submit("alone", lambda conn: self._begin_again(f"the index was damaged ({why})", "corrupt"), ())

    def stats(self) -> dict[str, QueueStat]:
        return {
            "database": QueueStat(
                depth=len(self._waiting), peak=self._peak, limit=self._limit, policy="refuse", refused=self._refused
            )
        }

    @property
    def writable(self) -> bool:
        return not self.read_only and not self.problem

    async def aclose(self) -> None:
        """Finish what waits, checkpoint, close. Returns after at most CLOSE_S."""
        thread = self._thread
        if thread is None:
            return
        with self._lock:
            self._closing = True
            self._lock.notify()
        await asyncio.to_thread(thread.join, CLOSE_S)

    async def _submit(self, kind: Kind, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        job = Job(kind, function, args, future)
        with self._lock:
            if self._closing or self._thread is None:
                raise Unavailable("the writer is stopping", retry_after_ms=RETRY_AFTER_MS)
            if len(self._waiting) >= self._limit:
                self._refused += 1
                raise Overloaded("too many writes wait for the index", retry_after_ms=RETRY_AFTER_MS // 4)
            self._waiting.append(job)
            self._peak = max(self._peak, len(self._waiting))
            self._lock.notify()
        return await future

    # --- the thread's side

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._waiting and not self._closing:
                    self._lock.wait(WATCH_S)
                closing = self._closing and not self._waiting
                batch = self._take()
            if time.monotonic() - self._looked_at >= WATCH_S:
                self._look()
            if batch:
                self._perform(batch)
            elif closing:
                break
            else:
                self._idle()
        self._close()

    def _take(self) -> list[Job]:
        """Functions of one kind, in the order of their arrival; 'alone' comes by itself."""
        batch: list[Job] = []
        while self._waiting and len(batch) < GROUP:
            if batch and (self._waiting[0].kind != batch[0].kind or batch[0].kind == "alone"):
                break
            batch.append(self._waiting.popleft())
        return batch

    def _perform(self, batch: list[Job]) -> None:
        try:
            conn = self._connection()
            if batch[0].kind == "write" and self.read_only:
                raise Unavailable(f"read_only: {self.read_only}", retry_after_ms=60_000)
            rest = self._alone(conn, batch[0]) if batch[0].kind == "alone" else self._group(conn, batch)
        except Exception as error:
            self._failed(batch, error)
        else:
            # What was beyond the time of this transaction is first in the next one.
            with self._lock:
                self._waiting.extendleft(reversed(rest))
            self._answer(batch[: len(batch) - len(rest)])
        self.busy_op = ""
        self._used_at, self._caching = time.monotonic(), True

    def _group(self, conn: sqlite3.Connection, batch: list[Job]) -> list[Job]:
        """Run functions in one transaction; return those that must wait for the next. Raises what broke all of them."""
        write = batch[0].kind == "write"
        conn.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        started = time.monotonic()
        done = 0
        try:
            for job in batch:
                if done and time.monotonic() - started > GROUP_S:
                    break
                self._one(conn, job)
                done += 1
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
        if write:
            self._succeeded(done)
        return batch[done:]

    def _one(self, conn: sqlite3.Connection, job: Job) -> None:
        self.busy_op, self.busy_since = job.name, time.monotonic()
        conn.execute("SAVEPOINT job")
        try:
            job.value = job.function(conn, *job.args)
        except Exception as error:
            if not conn.in_transaction or is_environment(error):
                raise  # the disk, not the function: nothing of this transaction can be kept
            conn.execute("ROLLBACK TO job")
            job.error = error
        conn.execute("RELEASE job")

    def _alone(self, conn: sqlite3.Connection, job: Job) -> list[Job]:
        self.busy_op, self.busy_since = job.name, time.monotonic()
        self._checked_in = False
        try:
            job.value = job.function(conn, *job.args)
        except Exception as error:
            if is_environment(error):
                raise
            job.error = error
        finally:
            if self._conn is conn and conn.in_transaction:
                conn.execute("ROLLBACK")
        return []

    def _succeeded(self, functions: int) -> None:
        if self.problem:
            log.info("the index can be written again")
        self.problem = ""
        self.transactions_total += 1
        self.functions_total += functions
        self.last_write_ms = time.time_ns() // 1_000_000
        self._written_at = time.monotonic()
        self._unchecked = self._unmerged = True

    def _failed(self, batch: list[Job], error: Exception) -> None:
        """Answer all with what happened; on damage begin again with a fresh database."""
        if isinstance(error, ProtocolError):
            failure: ProtocolError = error
        else:
            words = failure_words(error)
            if words != self.problem:
                log.error("a transaction failed: %s (%s)", words, error)
            self.problem = words
            failure = Unavailable(words, retry_after_ms=RETRY_AFTER_MS)
        self.failures_total += 1
        if is_damage(error):
            self._begin_again(f"the index was damaged ({error})", "corrupt")
        for job in batch:
            job.error = failure
        self._answer(batch)

    def _answer(self, jobs: list[Job]) -> None:
        self._call_loop(settle_all, jobs)

    def _call_loop(self, function: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            log.debug("the event loop ended before an answer of the database")

    # --- the file under the connection

    def _connection(self) -> sqlite3.Connection:
        if self._conn is None:
            now = time.monotonic()
            if now - self._opened_at < REOPEN_S:
                raise Unavailable(self.problem or "the index is being opened", retry_after_ms=RETRY_AFTER_MS)
            self._opened_at = now
            opened = open_database(self.path, self._schema)
            self._conn = opened.conn
            self._identity = identity(self.path)
            self.read_only = opened.read_only
            self.problem = ""
            self.birth = birth_of(opened.conn)
            self.file_bytes = state_of(self.path)[0]
            self.generation += 1
            if opened.set_aside:
                self.set_aside = f"the index was damaged: moved to {opened.set_aside}, rebuilt from files"
        return self._conn

    def _look(self) -> None:
        """Notice a file that was deleted, replaced or cut short under us."""
        self._looked_at = time.monotonic()
        if self._conn is None:
            return
        wal = Path(f"{self.path}-wal")
        try:
            found = identity(self.path)
            size, mtime_ns = state_of(self.path)
            self.wal_bytes = state_of(wal)[0]
            if found != self._identity:
                what = "deleted" if found is None else "replaced"
                self._begin_again(f"the index file was {what} while running", "")
                return
            if size < self.file_bytes and size < self._expected_bytes():
                self._begin_again("the index file was cut short while running", "corrupt")
                return
            if mtime_ns != self._mtime_ns:
                # Written by us, or by somebody else: only where we were idle can that be told, and is worth a full look.
                ours = self._looked_functions != self.functions_total or not self._checked_in
                verify(self.path, 0 if ours else LOOK_S)
            self._looked_functions, self._checked_in = self.functions_total, True
            self.file_bytes, self._mtime_ns = size, mtime_ns
            self._wal_identity = identity(wal) or self._wal_identity
        except OSError:
            return  # unreadable is not absent
        except sqlite3.Error as error:
            self._failed([], error)

    def _expected_bytes(self) -> int:
        """What the file must at least have once its log is in it: smaller than before after a VACUUM."""
        assert self._conn is not None
        pages = self._conn.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * self._conn.execute("PRAGMA page_size").fetchone()[0])

    def _begin_again(self, why: str, word: str) -> None:
        """Close what is open, set the file aside under ``word`` ('' = leave what is there), open, tell ``reborn``."""
        log.error("%s: starting over, your files fill it again", why)
        self._close()
        self.set_aside = why
        try:
            if word:
                self.set_aside = f"{why}: moved to {set_aside(self.path, word)}, rebuilt from files"
            elif identity(Path(f"{self.path}-wal")) == self._wal_identity:
                remove_companions(self.path)
            self._opened_at = -REOPEN_S
            self._connection()
        except (OSError, sqlite3.Error) as error:
            self.problem = failure_words(error)
            log.exception("the index cannot be opened")
        self._call_loop(lambda: self.reborn(why))

    def _replace(self, conn: sqlite3.Connection, successor: Path) -> None:
        self._close()
        try:
            change_places(self.path, successor)
        finally:
            self._opened_at = -REOPEN_S
            self._connection()
        self._call_loop(lambda: self.reborn("the index was rebuilt"))

    def _idle(self) -> None:
        """
        When nobody writes, merge pieces of full text step by step; then bring the log into the database and cut it: readers
        start from one small file. Let go of cached pages when nobody reads either.

        After a failure, try a small write first: the state that others see must not wait for somebody's call.
        """
        if self.problem:
            self._perform([Job("write", _probe, (), None)])
        if self._conn is not None and self._caching and time.monotonic() - self._used_at > CHECKPOINT_IDLE_S:
            self._caching = False
            self._conn.execute("PRAGMA shrink_memory")
            heap.trim()
        if self._conn is None or self.read_only or not self._unchecked:
            return
        if self.problem or time.monotonic() - self._written_at < CHECKPOINT_IDLE_S:
            return
        self._checked_in = False
        try:
            if self._unmerged:
                self._unmerged, self._caching = merge_some_words(self._conn), True
                return
            self._unchecked = False
            self._conn.execute("PRAGMA busy_timeout = 100")
            self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._conn.execute("PRAGMA optimize")
            self._conn.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        except sqlite3.Error as error:
            self._failed([], error)

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        self._identity = None
        self.birth = 0
        self.file_bytes = self._mtime_ns = 0
        if conn is not None:
            try:
                conn.close()
            except sqlite3.Error:
                log.exception("closing the index failed")


def _probe(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?)", (time.time_ns(),))
