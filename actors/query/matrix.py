"""
The vector stream's memory: every current chunk's vector as int8 with one scale each, and as many sentences as fit.

The mean of a note's chunks needs no row: its cosine is the sum of the chunks' cosines over the length of their sum. The
search is exact. int8 costs about 0.0005 of cosine and is ten times faster to widen than float16 in numpy.

Rows never move while a search reads them: loads append, and publish a new ``Layout`` at their end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...memory.recall.types import VectorMatch
from .streams.vectors import SentenceRow

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Fetch = Callable[[list[bytes]], Sequence[SentenceRow]]
"""Sentences of the chunks with these hashes, read from the database."""

BLOCK_ROWS = 1024
"""Rows widened to float32 at a time: 1.5 MB at 384 dimensions, which stays in the cache."""
RESCORED = 160
"""Notes whose sentences are compared when they are in memory."""
FETCHED = 48
"""Notes whose sentences are fetched when they are not: about 1 ms."""
NEAR = 0.15
"""A chunk this far below the best of its note does not hold the best sentence."""
SENTENCE_ROWS = 60_000
"""Sentences held: 23 MB at 384 dimensions. What does not fit is read for the FETCHED best notes of a question."""
SLOT_NONE = -1


class Layout(msgspec.Struct, frozen=True):
    """Which rows belong to which note, sorted by note: note ``i`` owns pairs ``starts[i]:starts[i + 1]``."""

    note_ids: Ints
    starts: Ints
    slots: Ints
    chunks: Ints
    norms: Floats
    """Length of the sum of the note's chunk vectors."""
    live_slots: int


EMPTY = Layout(
    np.zeros(0, np.int64),
    np.zeros(1, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
    0,
)


class ChunkTable:
    """chunk -> note, and chunk -> slot (one per distinct text). Arrays by chunk id: ids are dense row numbers."""

    def __init__(self) -> None:
        self._note = np.zeros(1024, np.int64)
        self._slot = np.full(1024, SLOT_NONE, np.int32)
        self._by_note: dict[int, tuple[int, ...]] = {}
        self.slots: dict[bytes, int] = {}
        self.hashes: list[bytes] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def note_of(self, chunk: int) -> int:
        """The current note that holds ``chunk``; 0 when none does."""
        return int(self._note[chunk]) if 0 <= chunk < len(self._note) else 0

    def chunks_of(self, note: int) -> tuple[int, ...]:
        return self._by_note.get(note, ())

    def load(self, owners: Iterable[tuple[int, int]], hashes: Iterable[tuple[int, bytes]], current: set[int]) -> None:
        """Take in all chunks of the notes in ``current``."""
        pairs = np.array(list(owners), np.int64).reshape(-1, 2)
        pairs = pairs[np.isin(pairs[:, 1], np.fromiter(current, np.int64, len(current)))]
        if not len(pairs):
            return
        self._reserve(int(pairs[:, 0].max()))
        self._note[pairs[:, 0]] = pairs[:, 1]
        self.count = len(pairs)
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        ids, starts = np.unique(pairs[order, 1], return_index=True)
        bounds = [*starts.tolist(), len(pairs)]
        chunk_ids = pairs[order, 0].tolist()
        self._by_note = {note: tuple(chunk_ids[bounds[i] : bounds[i + 1]]) for i, note in enumerate(ids.tolist())}
        for chunk, key in hashes:
            if chunk < len(self._note) and self._note[chunk]:
                self._slot[chunk] = self._slot_for(key)

    def replace(self, notes: Iterable[int], rows: Iterable[tuple[int, int, bytes]]) -> None:
        """``notes`` now have exactly the chunks in ``rows``: none for those that are no longer current."""
        for note in notes:
            for chunk in self._by_note.pop(note, ()):
                if self._note[chunk] == note:
                    self._note[chunk] = 0
                    self._slot[chunk] = SLOT_NONE
                    self.count -= 1
        gathered: dict[int, list[int]] = {}
        for chunk, note, key in rows:
            self._reserve(chunk)
            self.count += 0 if self._note[chunk] else 1
            self._note[chunk] = note
            self._slot[chunk] = self._slot_for(key)
            gathered.setdefault(note, []).append(chunk)
        self._by_note |= {note: tuple(sorted(chunks)) for note, chunks in gathered.items()}

    def live(self) -> tuple[Ints, Ints, Ints]:
        """(chunk, note, slot) of every chunk, sorted by note, then chunk."""
        chunks = np.flatnonzero(self._note)
        notes = self._note[chunks]
        order = np.argsort(notes, kind="stable")
        return chunks[order], notes[order], self._slot[chunks[order]].astype(np.int64)

    def _slot_for(self, key: bytes) -> int:
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = len(self.hashes)
            self.hashes.append(key)
        return slot

    def _reserve(self, chunk: int) -> None:
        if chunk >= len(self._note):
            more = max(chunk + 1, len(self._note) * 3 // 2) - len(self._note)
            self._note = np.concatenate((self._note, np.zeros(more, np.int64)))
            self._slot = np.concatenate((self._slot, np.full(more, SLOT_NONE, np.int32)))


class Quantised:
    """Rows of int8 with a scale each; only ever appended to or filled in, so that a reader needs no lock."""

    def __init__(self, dim: int, rows: int = 0) -> None:
        self.dim = dim
        self.data: Bytes = np.zeros((rows, dim), np.int8)
        self.scale: Floats = np.zeros(rows, np.float32)

    def reserve(self, rows: int) -> None:
        if rows > len(self.scale):
            grown = max(rows, len(self.scale) * 5 // 4)
            data, scale = np.zeros((grown, self.dim), np.int8), np.zeros(grown, np.float32)
            data[: len(self.scale)], scale[: len(self.scale)] = self.data, self.scale
            self.data, self.scale = data, scale

    def put(self, rows: Ints, vectors: Floats) -> None:
        largest = np.abs(vectors).max(axis=1, initial=0.0)
        scale = (largest / 127).astype(np.float32)
        self.data[rows] = np.rint(vectors / np.maximum(scale, 1e-12)[:, None]).astype(np.int8)
        self.scale[rows] = scale

    def wide(self, rows: Ints) -> Floats:
        """These rows as float32."""
        widened: Floats = self.data[rows].astype(np.float32)
        widened *= self.scale[rows, None]
        return widened

    def dot(self, queries: Floats, rows: int) -> Floats:
        """Each of ``queries`` with the first ``rows`` rows: one line of results per query."""
        data, scale = self.data, self.scale
        out = np.empty((len(queries), rows), np.float32)
        block = np.empty((BLOCK_ROWS, self.dim), np.float32)
        for start in range(0, rows, BLOCK_ROWS):
            end = min(rows, start + BLOCK_ROWS)
            np.copyto(block[: end - start], data[start:end])
            for line, query in enumerate(queries):
                np.dot(block[: end - start], query, out=out[line, start:end])
        out *= scale[:rows]
        return out


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
        self.layout = EMPTY

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
        known = self.has[slots] if len(slots) else np.zeros(0, np.bool_)
        chunks, notes, slots = chunks[known], notes[known], slots[known]
        if not len(slots):
            self.layout = EMPTY
            return
        note_ids, first = np.unique(notes, return_index=True)
        starts = np.append(first, len(slots)).astype(np.int64)
        norms = self._norms(note_ids, starts, slots, changed)
        self.layout = Layout(note_ids, starts, slots, chunks, norms, len(np.unique(slots)))

    def wasteful(self) -> bool:
        """Most rows belong to texts that no note holds any more: worth loading anew."""
        return len(self.has) > 2 * self.layout.live_slots + 4096

    def search(self, queries: Floats, fetch: Fetch, allowed: set[int] | None = None) -> tuple[Similarities, ...]:
        """
        Compare every note with each of ``queries`` (one a row, L2-normalised).

        ``fetch`` is called with the hashes of chunks whose sentences are wanted and not here; its answer is used for these
        queries and not kept. ``allowed`` limits ``top`` to these notes, not ``get``.
        """
        layout = self.layout
        if not len(layout.note_ids):
            nothing = np.zeros(0, np.float32)
            return tuple(Similarities(self, layout, query, nothing, nothing) for query in queries)
        places = None
        if allowed is not None:
            places = np.flatnonzero(np.isin(layout.note_ids, np.fromiter(allowed, np.int64, len(allowed))))
        found: list[Similarities] = []
        for query, cosines in zip(queries, self.rows.dot(queries, len(self.has)), strict=True):
            of_pairs = cosines[layout.slots]
            note_cos: Floats = (np.add.reduceat(of_pairs, layout.starts[:-1]) / layout.norms).astype(np.float32)
            similar = Similarities(self, layout, query, of_pairs, note_cos, places)
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


class Similarities:
    """What one question has in common with every note: ``VectorEvidence`` of ranking."""

    def __init__(
        self,
        matrix: Matrix,
        layout: Layout,
        query: Floats,
        cosines: Floats,
        note_cos: Floats,
        places: Ints | None = None,
    ) -> None:
        self._matrix = matrix
        self._layout = layout
        self._query = query
        self._cosines = cosines
        self._note_cos = note_cos
        self._places = places
        self._best = np.maximum.reduceat(cosines, layout.starts[:-1]) if len(cosines) else cosines
        self._score = (note_cos + self._best) / 2
        self._sentence: dict[int, tuple[float, int, int, int]] = {}
        """By place: cosine, chunk, slice of the best sentence."""
        self._matches: dict[int, VectorMatch | None] = {}
        self._fetched: dict[int, tuple[Floats, list[tuple[int, int]]]] = {}
        """By slot: cosines and slices of sentences that are not in memory."""

    def rescore(self, fetch: Fetch) -> None:
        """Replace the best chunk by the best sentence where it matters: in the notes that may come out on top."""
        notes = self._order()[:RESCORED]
        if not len(notes):
            return
        slots = np.unique(self._layout.slots[self._near_pairs(notes[:FETCHED])])
        absent = slots[self._matrix.many[slots] < 0].tolist()
        if absent:
            self._take(fetch, absent)
        self._compare(notes)

    def top(self, n: int) -> list[int]:
        """Ids of the ``n`` notes with the largest mean of note and sentence cosine, best first."""
        ids: list[int] = self._layout.note_ids[self._order()[:n]].tolist()
        return ids

    def get(self, note_id: int) -> VectorMatch | None:
        """The match of one note, None when it has no vectors yet. The slice is (0, 0) where no sentence was compared."""
        if note_id not in self._matches:
            self.prepare((note_id,))
        return self._matches[note_id]

    def prepare(self, note_ids: Iterable[int]) -> None:
        """Have the matches of these notes at hand: many at once cost little more than one."""
        wanted = [note for note in note_ids if note not in self._matches]
        self._matches.update(dict.fromkeys(wanted))
        layout = self._layout
        if not wanted or not len(layout.note_ids):
            return
        ids = np.array(wanted, np.int64)
        places = np.minimum(np.searchsorted(layout.note_ids, ids), len(layout.note_ids) - 1)
        places = places[layout.note_ids[places] == ids]
        if not len(places):
            return
        compared = np.fromiter((at not in self._sentence for at in places.tolist()), np.bool_, len(places))
        if compared.any():
            self._compare(places[compared])
        pairs, bounds = ranges(layout.starts[places], layout.starts[places + 1])
        owner = np.repeat(np.arange(len(places)), layout.starts[places + 1] - layout.starts[places])
        # The first of each note in order of (note, cosine downwards) is its best chunk.
        best = pairs[np.lexsort((-self._cosines[pairs], owner))][bounds]
        for at, note, note_cos, chunk, chunk_cos in zip(
            places.tolist(),
            layout.note_ids[places].tolist(),
            self._note_cos[places].tolist(),
            layout.chunks[best].tolist(),
            self._cosines[best].tolist(),
            strict=True,
        ):
            sentence = self._sentence.get(at, (chunk_cos, chunk, 0, 0))
            self._matches[note] = VectorMatch(note_cos, chunk_cos, chunk, *sentence)

    def sentences(self, note_id: int) -> list[tuple[int, int, int, float]]:
        """All sentences of one note: (chunk id, char from, char to, cosine), in order; [] where none are at hand."""
        at = self._place_of(note_id)
        if at is None:
            return []
        found: list[tuple[int, int, int, float]] = []
        for pair in range(*self._bounds(at)):
            chunk = int(self._layout.chunks[pair])
            cosines, spans = self._of_slot(int(self._layout.slots[pair]))
            found += [(chunk, *span, value) for span, value in zip(spans, cosines.tolist(), strict=True)]
        return found

    def _place_of(self, note_id: int) -> int | None:
        ids = self._layout.note_ids
        at = int(np.searchsorted(ids, note_id))
        return at if at < len(ids) and ids[at] == note_id else None

    def _bounds(self, at: int) -> tuple[int, int]:
        return int(self._layout.starts[at]), int(self._layout.starts[at + 1])

    def _order(self) -> Ints:
        """Places of the best notes, best first: as many as can matter."""
        places = self._places if self._places is not None else np.arange(len(self._score))
        values = self._score[places]
        keep = 4 * RESCORED
        if len(places) > keep:
            part = np.argpartition(-values, keep)[:keep]
            places, values = places[part], values[part]
        ordered: Ints = places[np.argsort(-values, kind="stable")]
        return ordered

    def _near_pairs(self, notes: Ints) -> Ints:
        starts = self._layout.starts
        pairs, _ = ranges(starts[notes], starts[notes + 1])
        floor = np.repeat(self._best[notes], starts[notes + 1] - starts[notes]) - NEAR
        near: Ints = pairs[self._cosines[pairs] >= floor]
        return near

    def _take(self, fetch: Fetch, slots: list[int]) -> None:
        keys = self._matrix.keys_of(slots)
        by_hash: dict[bytes, list[SentenceRow]] = {key: [] for key in keys}
        for row in fetch(list(keys)):
            by_hash[row.hash].append(row)
        for key, rows in by_hash.items():
            cosines: Floats = floats([row.vec for row in rows], self._matrix.dim) @ self._query
            self._fetched[keys[key]] = (cosines, [(row.char_from, row.char_to) for row in rows])

    def _of_slot(self, slot: int) -> tuple[Floats, list[tuple[int, int]]]:
        if slot in self._fetched:
            return self._fetched[slot]
        first, many = int(self._matrix.first[slot]), max(0, int(self._matrix.many[slot]))
        rows = np.arange(first, first + many)
        cosines: Floats = self._matrix.sentences.wide(rows) @ self._query
        return cosines, [(begin, end) for begin, end in self._matrix.spans[rows].tolist()]

    def _compare(self, notes: Ints) -> None:
        """Find the best sentence of each of these notes among those at hand."""
        matrix, layout = self._matrix, self._layout
        pairs = self._near_pairs(notes)
        slots = layout.slots[pairs]
        place_of = np.searchsorted(layout.starts, pairs, side="right") - 1
        best: dict[int, tuple[float, int, int, int]] = {}
        counts = np.maximum(matrix.many[slots], 0)
        held = counts > 0
        if held.any():
            firsts, widths = matrix.first[slots[held]], counts[held]
            rows, bounds = ranges(firsts, firsts + widths)
            cosines = matrix.sentences.data[rows].astype(np.float32) @ self._query
            cosines *= matrix.sentences.scale[rows]
            ends = bounds + widths
            values = np.maximum.reduceat(cosines, bounds)
            ordered = np.argsort(values, kind="stable")
            winner = dict(zip(place_of[held][ordered].tolist(), ordered.tolist(), strict=True))
            chunks = layout.chunks[pairs[held]]
            for at, i in winner.items():
                row = rows[bounds[i] + int(np.argmax(cosines[bounds[i] : ends[i]]))]
                begin, end = matrix.spans[row].tolist()
                best[at] = (float(values[i]), int(chunks[i]), begin, end)
        for i in np.flatnonzero(~held).tolist():
            at, chunk = int(place_of[i]), int(layout.chunks[pairs[i]])
            fetched = self._fetched.get(int(slots[i]))
            if fetched is not None and len(fetched[0]):
                j = int(np.argmax(fetched[0]))
                value, span = float(fetched[0][j]), fetched[1][j]
            elif fetched is not None or matrix.many[slots[i]] == 0:
                # A passage of one sentence has no vector but its own.
                value, span = float(self._cosines[pairs[i]]), (0, 0)
            else:
                continue
            if at not in best or value > best[at][0]:
                best[at] = (value, chunk, *span)
        self._sentence |= best
        if best:
            places = np.fromiter(best, np.int64, len(best))
            found = np.fromiter((match[0] for match in best.values()), np.float32, len(best))
            self._score[places] = (self._note_cos[places] + found) / 2


def floats(vectors: Sequence[bytes], dim: int) -> Floats:
    """Float16 little-endian vectors as rows of float32."""
    return np.frombuffer(b"".join(vectors), "<f2").reshape(-1, dim).astype(np.float32)


def ranges(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The integers of ``starts[i]:ends[i]`` in a row, and where each range begins in them. No range is empty."""
    widths = (ends - starts).astype(np.int64)
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(widths)[:-1]))
    return np.arange(int(widths.sum())) - np.repeat(bounds - starts, widths), bounds
