"""One question compared with every note: what ranking asks of the vector stream."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...memory.recall.types import Grains, VectorMatch
from .quantised import Floats, Ints, firsts, floats, ranges
from .streams.vectors import SentenceRow

if TYPE_CHECKING:
    from .matrix import Layout, Matrix

Fetch = Callable[[list[bytes]], Sequence[SentenceRow]]
"""Sentences of the chunks with these hashes, those of one hash together and in order, read from the database."""

RESCORED = 160
"""Notes whose sentences are compared when they are in memory: more than ranking takes from any stream."""
FETCHED = 32
"""Notes whose sentences are fetched when they are not: about 1 ms."""
NEAR = 0.15
"""A chunk this far below the best of its note does not hold the best sentence."""
NOT_COMPARED = -2.0
"""No cosine."""

Ints32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


class Taken(NamedTuple):
    """The sentences that were fetched, one row a chunk."""

    slots: Ints
    """Ascending."""
    counts: Ints
    spans: Ints32
    """Slice of the best, and its cosine:"""
    values: Floats
    bares: Floats
    """The largest cosine to the bare question."""


def _nothing_taken(slots: Sequence[int] = (), counts: Sequence[int] = ()) -> Taken:
    values, bares = np.zeros((2, len(slots)), np.float32)
    return Taken(
        np.array(slots, np.int64), np.array(counts, np.int64), np.zeros((len(slots), 2), np.int32), values, bares
    )


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
        bare: Floats | None = None,
    ) -> None:
        """``bare``: the question without what all passages have in common, for ``VectorMatch.bare_cos``."""
        self._matrix = matrix
        self._layout = layout
        self._query = query
        self._cosines = cosines
        self._note_cos = note_cos
        self._places = places
        self._bare = bare
        self._best = np.maximum.reduceat(cosines, layout.starts[:-1]) if len(cosines) else cosines
        self._score = (note_cos + self._best) / 2
        # By place, of the notes that were compared sentence by sentence.
        self._compared = np.zeros(len(note_cos), np.bool_)
        self._sentence_cos = np.zeros(len(note_cos), np.float32)
        self._holder = np.zeros(len(note_cos), np.int64)
        """The chunk with the best sentence."""
        self._span = np.zeros((len(note_cos), 2), np.int32)
        self._bare_cos = np.full(len(note_cos), NOT_COMPARED, np.float32)
        """The largest cosine of a sentence to ``bare``."""
        self._matches: dict[int, VectorMatch | None] = {}
        self._fetched: dict[int, tuple[Floats, Sequence[SentenceRow]]] = {}
        """By slot: cosines of sentences that are not in memory."""
        self._taken = _nothing_taken()

    def rescore(self, fetch: Fetch) -> None:
        """Replace the best chunk by the best sentence where it matters: in the notes that may come out on top."""
        notes = self._order()[:RESCORED]
        if not len(notes):
            return
        slots = np.unique(self._layout.slots[self._near_pairs(notes[:FETCHED])[0]])
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
            self._matches[note_id] = self._match(note_id)
        return self._matches[note_id]

    def grains(self, notes: Sequence[int]) -> Grains:
        """Of those ``notes`` that have vectors, in their order: many at once cost little more than one."""
        layout = self._layout
        if not notes or not len(layout.note_ids):
            nothing = np.zeros(0, np.float32)
            return Grains((), nothing, nothing, nothing, nothing)
        ids = np.array(notes, np.int64)
        places = np.minimum(np.searchsorted(layout.note_ids, ids), len(layout.note_ids) - 1)
        places = places[layout.note_ids[places] == ids]
        self._compare(places[~self._compared[places]])
        compared = self._compared[places]
        chunk_cos, bare_cos = self._best[places], self._bare_cos[places]
        bare_cos[bare_cos == NOT_COMPARED] = np.nan
        sentence_cos = np.where(compared, self._sentence_cos[places], chunk_cos)
        return Grains(layout.note_ids[places].tolist(), self._note_cos[places], chunk_cos, sentence_cos, bare_cos)

    def _match(self, note_id: int) -> VectorMatch | None:
        at = self._place_of(note_id)
        if at is None:
            return None
        if not self._compared[at]:
            self._compare(np.array([at], np.int64))
        start, end = self._bounds(at)
        chunk = int(self._layout.chunks[start + int(self._cosines[start:end].argmax())])
        bare = float(self._bare_cos[at])
        begin, stop = self._span[at].tolist()
        compared = bool(self._compared[at])
        return VectorMatch(
            note_cos=float(self._note_cos[at]),
            chunk_cos=float(self._best[at]),
            chunk_id=chunk,
            sentence_cos=float((self._sentence_cos if compared else self._best)[at]),
            sentence_chunk_id=int(self._holder[at]) if compared else chunk,
            char_from=begin,
            char_to=stop,
            bare_cos=None if bare == NOT_COMPARED else bare,
        )

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

    def _near_pairs(self, notes: Ints) -> tuple[Ints, Ints]:
        """The pairs of these places that may hold the best sentence, and the place of each."""
        starts = self._layout.starts[notes]
        widths = self._layout.starts[notes + 1] - starts
        pairs, _ = ranges(starts, starts + widths)
        near = self._cosines[pairs] >= np.repeat(self._best[notes], widths) - NEAR
        return pairs[near], np.repeat(notes, widths)[near]

    def _take(self, fetch: Fetch, slots: list[int]) -> None:
        """Fetch the sentences of these slots (ascending)."""
        keys = self._matrix.keys_of(slots)
        groups = {keys[key]: list(group) for key, group in itertools.groupby(fetch(list(keys)), key=_hash_of)}
        wide = floats([row.vec for group in groups.values() for row in group], self._matrix.dim)
        cosines = wide @ self._query
        bares = wide @ self._bare if self._bare is not None else cosines
        taken = _nothing_taken(slots, [len(groups.get(slot, ())) for slot in slots])
        self._fetched = dict.fromkeys(slots, (cosines[:0], ()))
        row_of = {slot: row for row, slot in enumerate(slots)}
        start = 0
        for slot, group in groups.items():
            part = cosines[start : start + len(group)]
            best, row = int(part.argmax()), row_of[slot]
            self._fetched[slot] = (part, group)
            taken.spans[row] = group[best].char_from, group[best].char_to
            taken.values[row], taken.bares[row] = part[best], bares[start : start + len(group)].max()
            start += len(group)
        self._taken = taken

    def _of_slot(self, slot: int) -> tuple[Floats, list[tuple[int, int]]]:
        if slot in self._fetched:
            cosines, found = self._fetched[slot]
            return cosines, [(row.char_from, row.char_to) for row in found]
        first, many = int(self._matrix.first[slot]), max(0, int(self._matrix.many[slot]))
        rows = np.arange(first, first + many)
        of_rows: Floats = self._matrix.sentences.wide(rows) @ self._query
        return of_rows, [(begin, end) for begin, end in self._matrix.spans[rows].tolist()]

    def _compare(self, notes: Ints) -> None:
        """Find the best sentence of each of the notes at these places among those at hand."""
        if not len(notes):
            return
        pairs, places = self._near_pairs(notes)
        slots = self._layout.slots[pairs]
        many = self._matrix.many[slots]
        held, at_hand = many > 0, many >= 0
        # A passage of one sentence has no vector but its own.
        values = self._cosines[pairs].copy()
        spans = np.zeros((len(pairs), 2), np.int32)
        bares = np.zeros(len(pairs), np.float32)
        if held.any():
            values[held], spans[held], bares[held] = self._of_rows(slots[held])
        if self._bare is not None and not held.all():
            bares[~held] = self._matrix.rows.wide(slots[~held]) @ self._bare
        if len(taken := self._taken.slots):
            at = np.minimum(np.searchsorted(taken, slots), len(taken) - 1)
            at_hand |= taken[at] == slots
            filled = (taken[at] == slots) & (self._taken.counts[at] > 0)
            values[filled], spans[filled] = self._taken.values[at[filled]], self._taken.spans[at[filled]]
            bares[filled] = self._taken.bares[at[filled]]
        if self._bare is not None:
            bounds = firsts(places)
            own = places[bounds]
            self._bare_cos[own] = np.maximum(self._bare_cos[own], np.maximum.reduceat(bares, bounds))
        self._keep(pairs, places, np.flatnonzero(at_hand), held, values, spans)

    def _of_rows(self, slots: Ints) -> tuple[Floats, Ints32, Floats]:
        """Of chunks whose sentences are in memory: cosine and slice of the best, and the largest cosine to ``bare``."""
        matrix = self._matrix
        widths = matrix.many[slots]
        rows, bounds = ranges(matrix.first[slots], matrix.first[slots] + widths)
        queries = self._query[None] if self._bare is None else np.stack((self._query, self._bare))
        cosines = matrix.sentences.dot_rows(queries, rows)
        values = np.maximum.reduceat(cosines[0], bounds)
        # The first row of each chunk that has its largest cosine: written last.
        equal = np.flatnonzero(cosines[0] == np.repeat(values, widths))[::-1]
        first = np.zeros(len(widths), np.int64)
        first[np.repeat(np.arange(len(widths)), widths)[equal]] = equal
        return values, matrix.spans[rows[first]], np.maximum.reduceat(cosines[-1], bounds)

    def _keep(self, pairs: Ints, places: Ints, among: Ints, held: Bools, values: Floats, spans: Ints32) -> None:
        """Write down the best ``among`` the pairs of each place. Of equal ones: the last in memory, else the first."""
        if not len(among):
            return
        tie = np.where(held[among], -1 - among, among)
        ordered = among[np.lexsort((tie, -values[among], places[among]))]
        best = ordered[firsts(places[ordered])]
        own = places[best]
        self._compared[own] = True
        self._sentence_cos[own] = values[best]
        self._holder[own] = self._layout.chunks[pairs[best]]
        self._span[own] = spans[best]
        self._score[own] = (self._note_cos[own] + values[best]) / 2


_hash_of = operator.attrgetter("hash")
