"""
The vector stream's memory: every current chunk's vector, and as many sentences as fit.

The mean of a note's chunks needs no row: its cosine is the sum of the chunks' cosines over the length of their sum. The
search is exact. Rows never move while a search reads them: loads append, and publish a new ``Layout`` at their end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from .chunks import SLOT_NONE, ChunkTable
from .quantised import BLOCK_ROWS, Floats, Ints, Quantised, floats, ranges
from .similar import Fetch, Similarities
from .streams.vectors import SentenceRow

SENTENCE_ROWS = 120_000
"""
Sentences held: 46 MB at 384 dimensions, those of about 10,000 passages. Where there are more, none are: those that fit would
spare a question little of its reading, which is for the FETCHED best notes of it.
"""
JUDGED = 256
"""Passages whose sentences were counted before it is said how many all of them have."""

SPARE_ROWS = 512
"""Rows of replaced texts that are kept however few are live: about 1 MB with their sentences."""

MEAN_ROWS = 4096
"""Passages, evenly spaced, of which the mean is taken: enough for two digits of it, about 2 ms."""
MEAN_FEW = 20
"""Passages of mean zero that are added to it: of a handful of notes the mean says what they are about."""


class Layout(msgspec.Struct, frozen=True):
    """Which rows belong to which note, sorted by note: note ``i`` owns pairs ``starts[i]:starts[i + 1]``."""

    note_ids: Ints
    starts: Ints
    slots: Ints
    chunks: Ints
    norms: Floats
    """Length of the sum of the note's chunk vectors."""
    live_slots: int
    """Distinct texts that notes hold, whether or not they have a vector yet."""


EMPTY = Layout(
    np.zeros(0, np.int64),
    np.zeros(1, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
    0,
)


class Matrix:
    """The vectors of one model over one set of chunks."""

    def __init__(self, model_id: int, dim: int, table: ChunkTable) -> None:
        self.model_id = model_id
        self.dim = dim
        self.table = table
        self.rows = Quantised(dim)
        self.sentences = Quantised(dim)
        self.has = np.zeros(0, np.bool_)
        self.first = np.zeros(0, np.int64)
        """By slot: its first sentence row; with ``many`` < 0, sentences have not been fetched."""
        self.many = np.zeros(0, np.int32)
        self.spans = np.zeros((0, 2), np.int32)
        self.sentence_count = 0
        self.full = False
        """Further sentences are read from the database when a question needs them."""
        self._counted = 0
        """Passages whose sentences ``put_sentences`` was given."""
        self.layout = EMPTY
        self._mean: tuple[Layout, Floats] = (EMPTY, np.zeros(dim, np.float32))

    @property
    def notes(self) -> int:
        """Notes that have at least one vector."""
        return len(self.layout.note_ids)

    def nbytes(self) -> int:
        arrays = (self.rows.data, self.sentences.data, self.rows.scale, self.sentences.scale, self.has, self.first,
                  self.many, self.spans, self.layout.note_ids, self.layout.slots, self.layout.chunks)  # fmt: skip
        return sum(array.nbytes for array in arrays)

    def missing(self) -> list[bytes]:
        """Hashes of the chunks in the table whose vector is not here."""
        _, _, slots = self.table.live()
        known = np.zeros(len(self.table.hashes), np.bool_)
        known[: len(self.has)] = self.has[: len(known)]
        return [self.table.hashes[slot] for slot in np.unique(slots[~known[slots]]).tolist()] if len(slots) else []

    def put(self, vectors: Sequence[tuple[bytes, bytes]]) -> None:
        """Take in vectors (float16, little-endian) of chunks that the table knows; ``publish`` makes them visible."""
        slots = [self.table.slots.get(key, SLOT_NONE) for key, _ in vectors]
        wanted = [i for i, slot in enumerate(slots) if slot >= 0 and len(vectors[i][1]) == 2 * self.dim]
        if not wanted:
            return
        self._reserve(len(self.table.hashes))
        places = np.array([slots[i] for i in wanted], np.int64)
        for start in range(0, len(wanted), BLOCK_ROWS):
            part = wanted[start : start + BLOCK_ROWS]
            self.rows.put(places[start : start + len(part)], floats([vectors[i][1] for i in part], self.dim))
        self.has[places] = True

    def put_sentences(self, hashes: Iterable[bytes], rows: Sequence[SentenceRow]) -> None:
        """Keep the sentences of ``hashes`` (``rows``: all of them, those of one hash together) as long as there is room."""
        widths = dict.fromkeys(hashes, 0)
        for row in rows:
            widths[row.hash] += 1
        start = at = self.sentence_count
        firsts: dict[bytes, int] = {}
        for row in rows:
            if row.hash not in firsts:
                if at + widths[row.hash] > SENTENCE_ROWS:
                    self.full = True
                    break
                firsts[row.hash] = at
                at += widths[row.hash]
        kept = rows[: at - start]
        self.sentences.reserve(at)
        self._reserve_spans(at)
        for offset in range(0, len(kept), BLOCK_ROWS):
            part = kept[offset : offset + BLOCK_ROWS]
            places = np.arange(start + offset, start + offset + len(part))
            self.sentences.put(places, floats([row.vec for row in part], self.dim))
            self.spans[places] = [(row.char_from, row.char_to) for row in part]
        self.sentence_count = at
        for key, width in widths.items():
            slot = self.table.slots.get(key, SLOT_NONE)
            if 0 <= slot < len(self.many) and (key in firsts or not width):
                self.first[slot] = firsts.get(key, 0)
                self.many[slot] = width
        self._counted += len(widths)
        if self._counted >= JUDGED and at / self._counted * self.layout.live_slots > SENTENCE_ROWS:
            self.full = True

    def knows(self, key: bytes) -> bool:
        """Whether the vector of the chunk with this hash is here."""
        slot = self.table.slots.get(key, len(self.has))
        return slot < len(self.has) and bool(self.has[slot])

    def keys_of(self, slots: Sequence[int]) -> dict[bytes, int]:
        """Hashes of these slots."""
        return {self.table.hashes[slot]: slot for slot in slots}

    def unfetched(self, limit: int) -> list[bytes]:
        """Hashes of live chunks whose sentences could still be kept, at most ``limit``."""
        if self.full:
            return []
        slots = self.layout.slots
        waiting = np.unique(slots[self.many[slots] < 0])[:limit]
        return [self.table.hashes[slot] for slot in waiting.tolist()]

    def publish(self, changed: Collection[int] = ()) -> None:
        """
        Make what the table and ``put`` say now visible to searches that begin after this.

        ``changed``: notes that may hold other chunks than before; those with more or fewer vectors are noticed anyway.
        """
        chunks, notes, slots = self.table.live()
        self._reserve(len(self.table.hashes))
        live_slots = len(np.unique(slots))
        known = self.has[slots]
        chunks, notes, slots = chunks[known], notes[known], slots[known]
        if not len(slots):
            self.layout = msgspec.structs.replace(EMPTY, live_slots=live_slots)
            return
        note_ids, first = np.unique(notes, return_index=True)
        starts = np.append(first, len(slots)).astype(np.int64)
        norms = self._norms(note_ids, starts, slots, changed)
        self.layout = Layout(note_ids, starts, slots, chunks, norms, live_slots)

    def wasteful(self) -> bool:
        """Most rows belong to texts that no note holds any more: worth loading anew."""
        return len(self.has) > 2 * self.layout.live_slots + SPARE_ROWS

    def mean(self, layout: Layout) -> Floats:
        """What the passages have in common: the mean of their vectors, nearer to zero where they are few."""
        known, mean = self._mean
        if known is not layout:
            slots = layout.slots[:: 1 + len(layout.slots) // MEAN_ROWS]
            total = self.rows.scale[slots] @ self.rows.data[slots].astype(np.float32)
            mean = (total / (len(slots) + MEAN_FEW)).astype(np.float32)
            self._mean = (layout, mean)
        return mean

    def search(
        self, queries: Floats, fetch: Fetch, allowed: set[int] | None = None, common: float = 0.0
    ) -> tuple[Similarities, ...]:
        """
        Compare every note with each of ``queries`` (one a row, L2-normalised).

        ``fetch`` is called with the hashes of chunks whose sentences are wanted and not here; its answer is used for these
        queries and not kept. ``allowed`` limits ``top`` to these notes, not ``get``.
        ``common`` > 0: sentences are also compared with the first query less this share of ``mean``.
        """
        layout = self.layout
        if not len(layout.note_ids):
            nothing = np.zeros(0, np.float32)
            return tuple(Similarities(self, layout, query, nothing, nothing) for query in queries)
        places = None
        if allowed is not None:
            places = np.flatnonzero(np.isin(layout.note_ids, np.fromiter(allowed, np.int64, len(allowed))))
        bare = queries[0] - common * self.mean(layout) if common and len(queries) else None
        if bare is not None:
            bare /= max(float(np.linalg.norm(bare)), 1e-6)
        found: list[Similarities] = []
        for query, cosines in zip(queries, self.rows.dot(queries, len(self.has)), strict=True):
            of_pairs = cosines[layout.slots]
            note_cos: Floats = (np.add.reduceat(of_pairs, layout.starts[:-1]) / layout.norms).astype(np.float32)
            similar = Similarities(self, layout, query, of_pairs, note_cos, places, None if found else bare)
            similar.rescore(fetch)
            found.append(similar)
        return tuple(found)

    def _norms(self, note_ids: Ints, starts: Ints, slots: Ints, changed: Collection[int]) -> Floats:
        """Lengths of the sums of the notes' rows, taken over from the last layout where a note has the same rows."""
        old = self.layout
        norms = np.zeros(len(note_ids), np.float32)
        todo = np.ones(len(note_ids), np.bool_)
        if len(old.note_ids):
            place = np.minimum(np.searchsorted(old.note_ids, note_ids), len(old.note_ids) - 1)
            width, old_width = np.diff(starts), np.diff(old.starts)
            same = (old.note_ids[place] == note_ids) & (old_width[place] == width)
            if changed:
                same &= ~np.isin(note_ids, np.fromiter(changed, np.int64, len(changed)))
            norms[same], todo = old.norms[place[same]], ~same
        todo_at = np.flatnonzero(todo)
        for at in range(0, len(todo_at), 256):
            part = todo_at[at : at + 256]
            rows, bounds = ranges(starts[part], starts[part + 1])
            sums = np.add.reduceat(self.rows.wide(slots[rows]), bounds, axis=0)
            norms[part] = np.linalg.norm(sums, axis=1)
        return np.maximum(norms, 1e-6)

    def _reserve(self, slots: int) -> None:
        if slots > len(self.has):
            self.rows.reserve(slots)
            more = slots - len(self.has)
            self.first = np.concatenate((self.first, np.zeros(more, np.int64)))
            self.many = np.concatenate((self.many, np.full(more, -1, np.int32)))
            self.has = np.concatenate((self.has, np.zeros(more, np.bool_)))

    def _reserve_spans(self, rows: int) -> None:
        if rows > len(self.spans):
            spans = np.zeros((max(rows, len(self.spans) * 5 // 4), 2), np.int32)
            spans[: len(self.spans)] = self.spans
            self.spans = spans
