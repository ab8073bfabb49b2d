"""One question compared with every note: what ranking asks of the vector stream."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...memory.recall.types import VectorMatch
from .quantised import Floats, Ints, floats, ranges
from .streams.vectors import SentenceRow

if TYPE_CHECKING:
    from .matrix import Layout, Matrix

Fetch = Callable[[list[bytes]], Sequence[SentenceRow]]
"""Sentences of the chunks with these hashes, read from the database."""

RESCORED = 160
"""Notes whose sentences are compared when they are in memory: more than ranking takes from any stream."""
FETCHED = 32
"""Notes whose sentences are fetched when they are not: about 1 ms."""
NEAR = 0.15
"""A chunk this far below the best of its note does not hold the best sentence."""


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
        self._sentence: dict[int, tuple[float, int, int, int]] = {}
        """By place: cosine, chunk, slice of the best sentence."""
        self._bare_cos: dict[int, float] = {}
        """By place: the largest cosine of a sentence to ``bare``."""
        self._bare_of_slot: dict[int, float] = {}
        """The same by slot, for sentences that are not in memory."""
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
            value, holder, begin, end = self._sentence.get(at, (chunk_cos, chunk, 0, 0))
            bare_cos = self._bare_cos.get(at)
            self._matches[note] = VectorMatch(note_cos, chunk_cos, chunk, value, holder, begin, end, bare_cos)

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
        rows = sorted(fetch(list(keys)), key=_hash_of)
        wide = floats([row.vec for row in rows], self._matrix.dim)
        cosines = wide @ self._query
        bares = wide @ self._bare if self._bare is not None else cosines
        self._fetched = {slot: (cosines[:0], []) for slot in slots}
        start = 0
        for key, group in itertools.groupby(rows, key=_hash_of):
            spans = [(row.char_from, row.char_to) for row in group]
            end = start + len(spans)
            self._fetched[keys[key]] = (cosines[start:end], spans)
            self._bare_of_slot[keys[key]] = float(bares[start:end].max())
            start = end

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
            wide, scale = matrix.sentences.data[rows].astype(np.float32), matrix.sentences.scale[rows]
            cosines = wide @ self._query
            cosines *= scale
            if self._bare is not None:
                self._note_bare(place_of[held], np.maximum.reduceat((wide @ self._bare) * scale, bounds))
            values = np.maximum.reduceat(cosines, bounds)
            ordered = np.argsort(values, kind="stable")
            winner = dict(zip(place_of[held][ordered].tolist(), ordered.tolist(), strict=True))
            # The first row of each chunk that has its largest cosine: written last.
            equal = np.flatnonzero(cosines == np.repeat(values, widths))[::-1]
            first = np.zeros(len(widths), np.int64)
            first[np.repeat(np.arange(len(widths)), widths)[equal]] = equal
            chosen = np.fromiter(winner.values(), np.int64, len(winner))
            best = dict(
                zip(
                    winner,
                    zip(
                        values[chosen].tolist(),
                        layout.chunks[pairs[held]][chosen].tolist(),
                        *matrix.spans[rows[first[chosen]]].T.tolist(),
                        strict=True,
                    ),
                    strict=True,
                )
            )
        if self._bare is not None and not held.all():
            self._note_bare(place_of[~held], self._bare_without_rows(slots[~held]))
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

    def _note_bare(self, places: Ints, values: Floats) -> None:
        known = self._bare_cos
        for at, value in zip(places.tolist(), values.tolist(), strict=True):
            if value > known.get(at, -1.0):
                known[at] = value

    def _bare_without_rows(self, slots: Ints) -> Floats:
        """Of chunks whose sentences were fetched, or that stand for them."""
        assert self._bare is not None
        values: Floats = self._matrix.rows.wide(slots) @ self._bare
        for i, slot in enumerate(slots.tolist()):
            values[i] = self._bare_of_slot.get(slot, values[i])
        return values


_hash_of = operator.attrgetter("hash")
