"""
The view of what is current now, kept up to date with the database by its revision counter.

Text comes from SQLite at each question, and so does the revision: a question that meets a newer one lets the view catch
up first, so that what full text finds is always known.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
import anyio.to_thread

from ...memory.notes.resolve import Answer
from ...protocol.envelope import Overloaded, TimedOut
from .. import heap
from ..sqlite import sqlite3
from .catalog import View
from .matrix import Matrix
from .reader import NoIndex, Reader
from .streams import bm25, feedback, notes, past, vectors
from .streams.notes import NoteRow

log = logging.getLogger("recalld.query")

POLL_S = 0.25
"""How often the revision is looked at when nobody asks. A question looks by itself."""
REST = 4
"""A refresh is followed by at least this many times its duration of rest: while many notes come in, it would take a core."""
REST_MAX_S = 1.0
"""Longer would let the next question wait for too much at once."""
WAIT_POLL_S = 0.01
"""The same while somebody waits for a revision."""
LOAD_BUDGET_MS = 120_000
CLOSE_S = 1.0
WARM_HASHES = 400
"""Chunks whose sentences are fetched at a time: about 10 ms."""
PUT_AT_ONCE = 200
"""Notes that change under one hold of the view's lock: a question waits for it about 10 ms at most."""
VECTORS_AT_ONCE = 2000
PAST_VIEWS = 2
TRIM_S = 2.0
"""Memory is given back once nothing has changed for this long."""
TRIM_MEANWHILE_S = 10.0
"""And this often while things change without an end: a first load with vectors takes many minutes."""


class Live:
    """Owns the current ``view``; ``run`` keeps it current until cancelled."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.view = View()
        self.absent = "the index has not been opened yet"
        """Why there is no index; '' when there is one."""
        self.loaded = anyio.Event()
        """Set once it is known whether there is an index, and its cards are in memory."""
        self._announce: Callable[[], object] = lambda: None
        """Lets waiting questions go on while vectors are still being loaded; called on a reader's thread."""
        self._generation = 0
        self._refreshing = anyio.Lock()
        self._apart: asyncio.Task[None] | None = None
        self._past: OrderedDict[tuple[int, int], View] = OrderedDict()

    async def run(self) -> None:
        """Refresh, load sentences in the background, give back what that needed, repeat."""
        try:
            await self._keep_current()
        finally:
            if (apart := self._apart) is not None:
                apart.cancel()
                with anyio.move_on_after(CLOSE_S, shield=True):
                    await asyncio.wait({apart})

    async def _keep_current(self) -> None:
        changed_at: float | None = None
        trimmed_at = time.monotonic()
        seen = -1
        while True:
            started = time.monotonic()
            rest = POLL_S
            try:
                await self.refresh()
                rest = max(POLL_S, min(REST_MAX_S, REST * (time.monotonic() - started)))
                while await self._warm():
                    changed_at = time.monotonic()
                if self.view.revision != seen:
                    seen, changed_at = self.view.revision, time.monotonic()
                now = time.monotonic()
                if changed_at is not None and (now - changed_at > TRIM_S or now - trimmed_at > TRIM_MEANWHILE_S):
                    changed_at = None if now - changed_at > TRIM_S else changed_at
                    trimmed_at = now
                    await anyio.to_thread.run_sync(heap.trim)
            except TimedOut:
                log.warning("loading the index took longer than %d s", LOAD_BUDGET_MS // 1000)
            except Overloaded:
                pass  # as many questions as may wait do: the next turn is soon enough for what is new
            await anyio.sleep(rest)

    async def refresh(self) -> None:
        """Take in what changed. An index that is absent, damaged or replaced empties the view; it does not raise."""
        loop = asyncio.get_running_loop()
        self._announce = lambda: loop.call_soon_threadsafe(self.loaded.set)
        async with self._refreshing:
            try:
                await self.reader.run(self._step, LOAD_BUDGET_MS)
            except NoIndex as error:
                self._forget(str(error))
            except (sqlite3.Error, ValueError, MemoryError) as error:
                # Rows that cannot be understood: an index of another version, or a damaged one.
                log.exception("the index cannot be loaded")
                self._forget(f"the index cannot be read: {error}")
            self.loaded.set()

    async def refreshed(self) -> None:
        """
        ``refresh``, for those who may give up waiting: it goes on without them. Raises what it raises.

        A load of a large index takes longer than a question may: if each cut it off, and the next began anew, it would
        never end.
        """
        if self._apart is not None:
            await asyncio.wait({self._apart})  # it may have begun before what the caller has to see
        if self._apart is None:
            self._apart = asyncio.create_task(self.refresh())
            self._apart.add_done_callback(self._is_over)
        task = self._apart
        await asyncio.wait({task})
        task.result()

    def _is_over(self, task: asyncio.Task[None]) -> None:
        self._apart = None
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits any more

    @property
    def is_usable(self) -> bool:
        """Whether the view is of the very database that the readers have open, if not of its last revision."""
        return not self.absent and self._generation == self.reader.generation

    def is_fresh(self, revision: int) -> bool:
        """Whether the view has seen ``revision`` of the very database that the readers have open."""
        return self.view.revision >= revision and self._generation == self.reader.generation

    async def catch_up(self, revision: int) -> None:
        """Return once the view has seen ``revision`` (or there is no index)."""
        while self.view.revision < revision:
            before = self.view.revision
            await self.refreshed()
            if self.absent:
                return
            if self.view.revision == before:
                await anyio.sleep(WAIT_POLL_S)

    async def at(self, when_ms: int) -> View:
        """The view of what was current at ``when_ms``. Raises NoIndex, TimedOut."""
        key = (when_ms, self.view.revision)
        view = self._past.get(key)
        if view is None:
            view = await self.reader.run(lambda conn: load_past(conn, when_ms), LOAD_BUDGET_MS)
            self._past[key] = view
            while len(self._past) > PAST_VIEWS:
                self._past.popitem(last=False)
        return view

    def _forget(self, why: str) -> None:
        if not self.absent:
            log.warning("%s", why)
        self.absent = why
        self.view = View()
        self._past.clear()

    def _step(self, conn: sqlite3.Connection) -> None:
        """On a reader's thread: bring the view to the revision that this transaction sees."""
        revision = notes.revision(conn)
        replaced = self._generation != self.reader.generation
        if self.absent or replaced or revision < self.view.revision or _is_wasteful(self.view):
            fresh = View()
            # Nothing that a load makes is garbage, and looking for some would take a fifth of its time.
            gc.disable()
            try:
                load_notes(conn, fresh)
            finally:
                gc.enable()
            self._generation = self.reader.generation
            self.view, self.absent = fresh, ""
            self._announce()
            load_vectors(conn, fresh)
            # Cards live as long as the process: the collector need not look at a hundred thousand of them again.
            gc.collect()
            gc.freeze()
        elif revision != self.view.revision:
            if not apply_changes(conn, self.view, revision):
                self.absent = "the index is being loaded again"
                self._step(conn)
        else:
            self.view.vaults = {row.id: row for row in notes.vaults(conn)}

    async def _warm(self) -> bool:
        """Fetch some sentences ahead of questions; False when there is nothing left to fetch."""
        matrix = self.view.matrix
        hashes = matrix.unfetched(WARM_HASHES) if matrix is not None else []
        if matrix is None or not hashes:
            return False
        try:
            await self.reader.run(
                lambda conn: matrix.put_sentences(hashes, vectors.sentences(conn, matrix.model_id, hashes)), 10_000
            )
        except (NoIndex, sqlite3.Error):
            return False  # the next refresh finds out what is the matter
        return True


def load_notes(conn: sqlite3.Connection, view: View) -> None:
    """Fill an empty view with the cards, links and chunks that are current."""
    view.vaults = {row.id: row for row in notes.vaults(conn)}
    view.change((), notes.current_notes(conn))
    view.judge(feedback.of_all(conn))
    owners, hashes = notes.all_chunk_keys(conn)
    view.chunks.load(owners, hashes, set(view.cards), bm25.lengths_of(conn))
    view.revision = notes.revision(conn)


def load_vectors(conn: sqlite3.Connection, view: View) -> None:
    """Fill the matrix of a view with the vectors of its chunks by the active model."""
    model = vectors.active_model(conn)
    if model is None:
        view.matrix = None
        return
    matrix = Matrix(model.id, model.dim, view.chunks)
    _put_missing(conn, matrix)
    matrix.publish()
    view.matrix = matrix


def load_past(conn: sqlite3.Connection, when_ms: int) -> View:
    """The view of what was current at ``when_ms``."""
    view = View()
    load_past_notes(conn, view, when_ms)
    load_vectors(conn, view)
    view.unembedded = len(view.matrix.missing()) if view.matrix is not None else 0
    return view


def load_past_notes(conn: sqlite3.Connection, view: View, when_ms: int) -> None:
    """Fill an empty view with the cards, links and chunks that were current at ``when_ms``."""
    view.past_ms = when_ms
    view.vaults = {row.id: row for row in notes.vaults(conn)}
    rows = list(past.notes_at(conn, when_ms))
    view.change((), rows)
    view.stood = {row.card.id: (row.valid_from, row.valid_to) for row in rows}
    view.earliest_ms = past.earliest_ms(conn)
    keys = notes.chunk_keys(conn, list(view.cards))
    measured = (bm25.lengths_of(conn, [chunk for chunk, _, _ in keys], table) for table in bm25.TABLES)
    view.chunks.replace((), keys, itertools.chain.from_iterable(measured))
    view.revision = notes.revision(conn)


def apply_changes(conn: sqlite3.Connection, view: View, revision: int) -> bool:
    """Take in what changed since the view's revision; False when rows vanished without a trace: load it all again."""
    # Versions of the past, and their vectors, come by the thousand when a history is read: nothing here changes by them.
    rows = [row for row in notes.notes_since(conn, view.revision) if row.current or row.card.id in view.cards]
    gone = [row.card.id for row in rows if not row.current]
    current = [row for row in rows if row.current]
    keys = notes.chunk_keys(conn, [row.card.id for row in current])
    lengths = list(bm25.lengths_of(conn, [chunk for chunk, _, _ in keys]))
    tallies = feedback.of_notes(conn, [row.card.id for row in current])
    if len(rows) <= PUT_AT_ONCE:
        with view.lock:
            view.change(gone, current)
    else:
        _change_many(view, gone, current)
    with view.lock:
        view.judge(tallies)
        view.chunks.replace([row.card.id for row in rows], keys, lengths)
        view.vaults = {row.id: row for row in notes.vaults(conn)}
    if notes.count_current(conn) != len(view.cards):
        return False
    model = vectors.active_model(conn)
    if model is None or view.matrix is None or view.matrix.model_id != model.id:
        load_vectors(conn, view)
    else:
        fresh = [row for row in vectors.since(conn, model.id, view.revision) if row[0] in view.chunks.slots]
        view.matrix.put(fresh)
        _put_missing(conn, view.matrix, {key for _, _, key in keys})
        if fresh or rows:
            view.matrix.publish({row.card.id for row in rows})
    view.revision = revision
    return True


def _change_many(view: View, gone: list[int], current: list[NoteRow]) -> None:
    """A change of many notes in parts, so that no question waits for all of it."""
    names: set[str] = set()
    fresh: list[int] = []
    gc.disable()  # nothing of this is garbage
    try:
        for start in range(0, max(len(gone), len(current)), PUT_AT_ONCE):
            part = slice(start, start + PUT_AT_ONCE)
            with view.lock:
                more, ids = view.file(gone[part], current[part])
            names |= more
            fresh += ids
        sources = list(view.affected(names).union(fresh))
        answers: dict[tuple[int, str], Answer] = {}
        for start in range(0, len(sources), PUT_AT_ONCE):
            with view.lock:
                view.link(sources[start : start + PUT_AT_ONCE], answers)
    finally:
        gc.enable()


def _put_missing(conn: sqlite3.Connection, matrix: Matrix, among: set[bytes] | None = None) -> None:
    hashes = matrix.missing() if among is None else [key for key in among if not matrix.knows(key)]
    for start in range(0, len(hashes), VECTORS_AT_ONCE):
        part = hashes[start : start + VECTORS_AT_ONCE]
        matrix.put(list(vectors.of_chunks(conn, matrix.model_id, part)))


def _is_wasteful(view: View) -> bool:
    return view.matrix is not None and view.matrix.wasteful()
