"""
The journal: append-only JSON lines, the canonical record of everything that was captured.

One record is one line ``{"seq":12,"crc":"0a1b2c3d","rec":{…}}``: ``seq`` only ever grows, ``crc`` is the CRC-32 of the
bytes of ``rec``. Files are named ``<yyyymmdd>-<n>.jsonl`` and ordered by ``n`` alone, so that a clock that jumps back
cannot reorder them. Records are opaque here; whoever writes them has redacted them first.

What is promised: when ``append`` returns, its records are on the disk (one fsync for all that waited), in order, and
``read`` gives them back after any crash. What is not: a record whose ``append`` raised may still be found by ``read``
(the disk decided); readers apply records idempotently.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from ...protocol.envelope import Invalid, Overloaded, Unavailable
from ...protocol.messages.control import QueueStat
from .disk import in_words, make_folder, replace_file, sync
from .journal_lines import decode_line, encode_line, measure

log = logging.getLogger("recalld.writer.journal")
T = TypeVar("T")

BATCH = 256
"""Records per fsync: at 20,000 records/s a batch fills in 13 ms, beyond it latency grows and throughput does not."""
LIMIT = 4096
"""Records that may wait. At the measured 0.4 ms per fsync this is under 50 ms of work."""
ROTATE_BYTES = 32 * 1024 * 1024
"""A file of this size is scanned in well under a second when it is opened after a crash."""
QUICK_S = 0.001
"""A write and fsync that took less may be done on the event loop: handing it to the thread and back costs as much."""
QUICK_RUN = 8
"""So many in a row must have been quick; one that was not is reason to leave it to the thread again."""
RETRY_AFTER_MS = 1000
CLOSE_S = 5.0

NAME = re.compile(r"^\d{8}-(\d{6,})\.jsonl$")


class Repair(NamedTuple):
    """What opening the journal had to mend."""

    file: str
    torn_bytes: int


class Journal:
    """
    The only writer of the journal folder. One thread does all its file work; the event loop never blocks.

    Use ``await open()`` first and ``await aclose()`` last. ``append`` may be called by any number of tasks.
    """

    def __init__(self, folder: Path, *, rotate_bytes: int = ROTATE_BYTES, limit: int = LIMIT) -> None:
        self.folder = folder
        self.last_seq = 0
        """The highest seq on the disk (or handed to ``reserve``)."""
        self.repaired: list[Repair] = []
        self.problem = ""
        """Why the last write failed, in words for a person; '' when it did not."""
        self.appended_total = 0
        self.bytes_total = 0
        self.damaged_total = 0
        """Lines that ``read`` had to skip."""
        self._rotate_bytes = rotate_bytes
        self._limit = limit
        self._fd = -1
        self._size = 0
        self._number = 0
        self._lock = threading.Condition()
        self._waiting: deque[_Work] = deque()
        self._depth = self._peak = self._refused = 0
        self._closing = self._busy = False
        self._quick = 0
        self._thread: threading.Thread | None = None

    # --- the event loop's side

    async def open(self) -> None:
        """Start the thread, mend a torn tail, learn ``last_seq``. An unusable folder becomes ``problem``."""
        self._thread = threading.Thread(target=self._serve, name="journal", daemon=True)
        self._thread.start()
        await self.call(self._scan)

    async def append(self, records: list[bytes]) -> list[int]:
        """
        Write records (each one JSON value without a newline) and return their seqs when they are durable.

        All of them are in one write; other callers' records may share the fsync. Cancelling the caller does not take
        the records back. Raises Unavailable (with retry_after) when the disk refuses, Overloaded when too many wait,
        Invalid when a record contains a newline or is empty.
        """
        if not records:
            return []
        if any(not record or b"\n" in record for record in records):
            raise Invalid("a journal record is one JSON value on one line")
        work = _Work(records, None, asyncio.get_running_loop())
        self._submit(work, len(records))
        return cast("list[int]", await work.future)

    def append_now(self, record: bytes) -> int | None:
        """
        Write one record on the caller's thread and return its seq once it is durable; None when it must go through
        ``append``: something else is being written, or the disk has not been quick of late. Raises Unavailable.
        """
        if self._quick < QUICK_RUN or b"\n" in record or not self._lock.acquire(blocking=False):
            return None
        try:
            if self._busy or self._waiting or self._closing or self._fd < 0 or self._size >= self._rotate_bytes:
                return None
            self.last_seq += 1
            self._put(encode_line(self.last_seq, record))
        except OSError as error:
            raise self._refusal(error) from None
        finally:
            self._lock.release()
        self.appended_total += 1
        return self.last_seq

    async def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the journal's thread, between two batches."""
        work = _Work([], function, asyncio.get_running_loop())
        self._submit(work, 0)
        return cast("T", await work.future)

    async def reserve(self, seq: int) -> None:
        """Never give out ``seq`` or less again: the index has applied that far, whatever files somebody deleted."""
        await self.call(lambda: self._reserve(seq))

    async def purge(self, doomed: Callable[[int, bytes], bool]) -> int:
        """
        Take the records that ``doomed(seq, record)`` names out of every file, and return how many they were.

        Each file is replaced atomically; a purged line keeps its seq and an empty record, so seqs are never reused.
        ``doomed`` runs on the journal's thread.
        """
        return await self.call(lambda: self._purge(doomed))

    def read(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """
        (seq, record) of every whole record with a seq > ``after``, in order. Blocking: iterate it in a thread.

        Damaged lines in the middle are skipped and counted; records appended after the start may or may not be seen.
        """
        for path in self.files():
            try:
                stream = path.open("rb")
            except FileNotFoundError:
                continue
            with stream:
                for line in stream:
                    try:
                        seq, record = decode_line(line)
                    except ValueError:
                        self.damaged_total += line.endswith(b"\n")
                        continue
                    if seq > after and record is not None:
                        after = seq
                        yield seq, record

    def files(self) -> list[Path]:
        """The journal's files, oldest first."""
        return [path for _, path in self._numbered()]

    def stats(self) -> dict[str, QueueStat]:
        return {
            "journal": QueueStat(
                depth=self._depth, peak=self._peak, limit=self._limit, policy="refuse", refused=self._refused
            )
        }

    async def aclose(self) -> None:
        """Write what waits, then stop. Returns after at most CLOSE_S."""
        thread = self._thread
        if thread is None:
            return
        with self._lock:
            self._closing = True
            self._lock.notify()
        await asyncio.to_thread(thread.join, CLOSE_S)

    def _submit(self, work: _Work, size: int) -> None:
        with self._lock:
            if self._closing or self._thread is None:
                raise Unavailable("the journal is closed", retry_after_ms=RETRY_AFTER_MS)
            if self._depth + size > self._limit and self._depth:
                self._refused += 1
                raise Overloaded("too many events wait for the disk", retry_after_ms=RETRY_AFTER_MS // 10)
            self._waiting.append(work)
            self._depth += size
            self._peak = max(self._peak, self._depth)
            self._lock.notify()

    # --- the thread's side

    def _serve(self) -> None:
        while True:
            with self._lock:
                self._busy = False
                while not self._waiting and not self._closing:
                    self._lock.wait()
                if not self._waiting:
                    break
                batch = self._take()
                self._busy = True
            for work in batch:
                if work.function is not None:
                    work.run()
            self._write([work for work in batch if work.function is None])
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self) -> list[_Work]:
        """Up to BATCH records; a function call ends the batch, so that it runs between writes in the order asked."""
        batch: list[_Work] = []
        size = 0
        while self._waiting and size < BATCH:
            if self._waiting[0].function is not None and batch:
                break
            work = self._waiting.popleft()
            batch.append(work)
            size += len(work.records)
            if work.function is not None:
                break
        self._depth -= size
        return batch

    def _write(self, batch: list[_Work]) -> None:
        if not batch:
            return
        lines: list[bytes] = []
        answers: list[list[int]] = []
        seq = self.last_seq
        for work in batch:
            answers.append(list(range(seq + 1, seq + 1 + len(work.records))))
            for record in work.records:
                seq += 1
                lines.append(encode_line(seq, record))
        # Seqs of a failed write are not given out again: its bytes may be on the disk all the same.
        self.last_seq = seq
        try:
            self._put(b"".join(lines))
        except OSError as error:
            failure = self._refusal(error)
            for work in batch:
                work.fail(failure)
            return
        if self.problem:
            log.info("journal writes work again")
            self.problem = ""
        self.appended_total += len(lines)
        for work, answer in zip(batch, answers, strict=True):
            work.succeed(answer)

    def _refusal(self, error: OSError) -> Unavailable:
        self.problem = in_words(error)
        log.error("journal write failed: %s", error)
        return Unavailable(self.problem, retry_after_ms=RETRY_AFTER_MS)

    def _put(self, data: bytes) -> None:
        """Append and fsync ``data`` wholly, or leave the file as it was and raise OSError."""
        started = time.monotonic()
        if self._fd >= 0 and (self._size >= self._rotate_bytes or os.fstat(self._fd).st_nlink == 0):
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0:
            self._new_file()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
            os.fsync(self._fd)
        except OSError:
            self._quick = 0
            # After a failed fsync the kernel may forget dirty pages: what is in this file is no longer known. Cut it to
            # the last acknowledged byte and go on in another file.
            fd, self._fd = self._fd, -1
            try:
                os.ftruncate(fd, self._size)
            except OSError:
                log.exception("a half-written journal line stays in %06d; it will be skipped", self._number)
            os.close(fd)
            raise
        self._quick = self._quick + 1 if time.monotonic() - started < QUICK_S else 0
        self._size += len(data)
        self.bytes_total += len(data)

    def _new_file(self) -> None:
        make_folder(self.folder)
        day = time.strftime("%Y%m%d", time.gmtime())
        path = self.folder / f"{day}-{self._number + 1:06d}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._number += 1
        self._size = 0
        sync(self.folder)

    def _scan(self) -> None:
        """Find the end of the journal and mend the tail of its last file."""
        try:
            make_folder(self.folder)
            numbered = self._numbered()
            self._number = numbered[-1][0] if numbered else 0
            for _, path in reversed(numbered):
                last, end = measure(path)
                self.last_seq = max(self.last_seq, last)
                if path == numbered[-1][1]:
                    self._mend(path, end)
                if last:
                    break
            if numbered:
                self._reopen(numbered[-1][1])
        except OSError as error:
            self.problem = in_words(error)
            log.error("journal cannot be opened: %s", error)

    def _reopen(self, path: Path) -> None:
        if not self.problem and path.stat().st_size < self._rotate_bytes:
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            self._size = os.fstat(self._fd).st_size

    def _mend(self, path: Path, end: int) -> None:
        """Cut what follows byte ``end`` of ``path`` into a ``.torn`` file beside it."""
        with path.open("rb") as stream:
            stream.seek(end)
            torn = stream.read()
        if not torn:
            return
        aside = path.with_name(f"{path.name}.{time.time_ns()}.torn")
        try:
            replace_file(aside, torn)
            os.truncate(path, end)
        except OSError as error:
            # Trigger: the disk is full or read-only. Why: appending to a torn line would spoil the new record too.
            # Outcome: this file stays as it is, the next record starts a new one.
            self.problem = in_words(error)
            return
        self.repaired.append(Repair(path.name, len(torn)))
        log.warning("%s ended in a torn record: %d bytes moved to %s", path.name, len(torn), aside.name)

    def _reserve(self, seq: int) -> None:
        self.last_seq = max(self.last_seq, seq)

    def _purge(self, doomed: Callable[[int, bytes], bool]) -> int:
        purged = 0
        current = self._numbered()[-1][1] if self._fd >= 0 else None
        for path in self.files():
            lines: list[bytes] = []
            here = 0
            with path.open("rb") as stream:
                for line in stream:
                    try:
                        seq, record = decode_line(line)
                    except ValueError:
                        lines.append(line)
                        continue
                    if record is not None and doomed(seq, record):
                        line = encode_line(seq, b"null")
                        here += 1
                    lines.append(line)
            if here:
                replace_file(path, b"".join(lines))
                purged += here
                if path == current:
                    os.close(self._fd)
                    self._reopen(path)
        for aside in self.folder.glob("*.torn"):
            # Torn bytes may hold what is being purged, and nothing else of worth.
            if purged:
                aside.unlink(missing_ok=True)
        return purged

    def _numbered(self) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted((int(match[1]), self.folder / name) for name in names if (match := NAME.match(name)))


class _Work:
    """Records to append, or a function to run, and who waits for it."""

    __slots__ = ("function", "future", "loop", "records")

    def __init__(
        self, records: list[bytes], function: Callable[[], object] | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.records = records
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[object] = loop.create_future()

    def run(self) -> None:
        assert self.function is not None
        try:
            self.succeed(self.function())
        except OSError as error:
            self.fail(Unavailable(in_words(error), retry_after_ms=RETRY_AFTER_MS))
        except Exception as error:
            self.fail(error)

    def succeed(self, value: object) -> None:
        self._later(self.future.set_result, value)

    def fail(self, error: Exception) -> None:
        self._later(self.future.set_exception, error)

    def _later(self, settle: Callable[[Any], None], value: object) -> None:
        try:
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else settle(value))
        except RuntimeError:
            log.debug("the event loop ended before an answer of the journal")
