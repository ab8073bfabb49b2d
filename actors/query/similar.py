"""One question compared with every note: what ranking asks of the vector stream."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...memory.recall.types import Grains, VectorMatch
from .quantised import Floats, Ints, floats, ranges
from .streams.vectors import SentenceRow

if TYPE_CHECKING:
    from .matrix import Layout, Matrix

Fetch = Callable[[list[bytes]], Sequence[SentenceRow]]
"""Sentences of the chunks with these hashes, those of one hash together and in order, read from the database."""

RESCORED = 160
"""Notes whose sentences are compared when they are in memory: more than ranking takes from any stream."""
ORDERED = 4 * RESCORED
"""Notes that ``top`` knows the order of."""
FETCHED = 32
"""Notes whose sentences are fetched when they are not: about 1 ms."""
NEAR = 0.15
"""A chunk this far below the best of its note does not hold the best sentence."""
NOT_COMPARED = -2.0
"""No cosine."""


class Taken(NamedTuple):
    """The sentences that were fetched, one row a chunk."""

    slots: Ints
    """Ascending."""
    counts: Ints
    values: Floats
    """Cosine of the best."""
    bares: Floats
    """The largest cosine to the bare question."""


def _nothing_taken(slots: Sequence[int] = (), counts: Sequence[int] = ()) -> Taken:
    values, bares = np.zeros((2, len(slots)), np.float32)
    return Taken(np.array(slots, np.int64), np.array(counts, np.int64), values, bares)


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
        self._queries = query[None] if bare is None else np.stack((query, bare))
        self._best = np.maximum.reduceat(cosines, layout.starts[:-1]) if len(cosines) else cosines
        self._score = (note_cos + self._best) / 2
        # By place, of the notes that were compared sentence by sentence.
        self._sentence_cos = np.full(len(note_cos), NOT_COMPARED, np.float32)
        self._bare_cos = np.full(len(note_cos), NOT_COMPARED, np.float32)
        """The largest cosine of a sentence to ``bare``."""
        # By pair, of those that were compared; which sentence is nearest is looked up for the notes that are shown.
        self._values = np.full(len(cosines), NOT_COMPARED, np.float32)
        """The cosine of its best sentence at hand."""
        self._rows = np.zeros(len(cosines), np.int32)
        """Where the cosines of its sentences in memory begin, counted from 1 over all of ``_batches``; 0: none in memory."""
        self._batches: list[Floats] = []
        self._matches: dict[int, VectorMatch | None] = {}
        self._fetched: dict[int, tuple[Floats, Sequence[SentenceRow]]] = {}
        """By slot: cosines of sentences that are not in memory."""
        self._taken = _nothing_taken()

    def rescore(self, fetch: Fetch) -> None:
        """Replace the best chunk by the best sentence where it matters: in the notes that may come out on top."""
        # A score may fall: so many more are kept that ORDERED are left.
        self._places = self._leaders(self._places, ORDERED + RESCORED)
        notes = self._best_of(self._places, RESCORED)
        if not len(notes):
            return
        pairs, bounds = self._near_pairs(notes)
        slots = self._layout.slots[pairs[: bounds[min(FETCHED, len(notes))]]]
        absent = slots[self._matrix.many[slots] < 0]
        if len(absent):
            self._take(fetch, np.unique(absent).tolist())
        self._compare(notes, pairs, bounds)

    def top(self, n: int) -> list[int]:
        """Ids of the ``n`` notes with the largest mean of note and sentence cosine, best first; at most ORDERED."""
        ids: list[int] = self._layout.note_ids[self._best_of(self._places, min(n, ORDERED))].tolist()
        return ids

    def get(self, note_id: int) -> VectorMatch | None:
        """The match of one note, None when it has no vectors yet. The slice is (0, 0) where no sentence was compared."""
        if note_id not in self._matches:
            self.look_up((note_id,))
        return self._matches[note_id]

    def look_up(self, notes: Iterable[int]) -> None:
        """Prepare what ``get`` says of these ``notes``: many at once cost little more than one."""
        fresh = [note for note in notes if note not in self._matches]
        self._matches.update(dict.fromkeys(fresh))
        places = self._places_of(fresh)
        if not len(places):
            return
        self._compare_some(places[self._sentence_cos[places] == NOT_COMPARED])
        layout, matrix = self._layout, self._matrix
        pairs, bounds = ranges(layout.starts[places], layout.starts[places + 1])
        slots = layout.slots[pairs]
        cosines, chunks = self._cosines[pairs].tolist(), layout.chunks[pairs].tolist()
        nearest, rows = self._nearest(pairs, slots, bounds.tolist())
        spans = matrix.spans[rows].tolist() if len(matrix.spans) else [(0, 0)] * len(rows)
        by_note = (layout.note_ids, self._note_cos, self._best, self._sentence_cos, self._bare_cos)
        ends = [*bounds[1:].tolist(), len(cosines)]
        for begin, end, holder, row, span, note, note_cos, best, sentence, bare in zip(
            bounds.tolist(), ends, nearest, rows, spans, *(column[places].tolist() for column in by_note), strict=True
        ):
            pair = max(range(begin, end), key=cosines.__getitem__)
            compared = sentence != NOT_COMPARED
            if row < 0:
                span = self._slice_fetched(int(slots[holder]))
            self._matches[note] = VectorMatch(
                note_cos=note_cos,
                chunk_cos=best,
                chunk_id=chunks[pair],
                sentence_cos=sentence if compared else best,
                sentence_chunk_id=chunks[holder if compared else pair],
                char_from=span[0] if compared else 0,
                char_to=span[1] if compared else 0,
                bare_cos=None if bare == NOT_COMPARED else bare,
            )

    def _nearest(self, pairs: Ints, slots: Ints, bounds: list[int]) -> tuple[list[int], list[int]]:
        """
        Of each note (``bounds``: where its pairs begin), the pair with the best sentence, and the row of that in memory, -1
        when it is not there.
        """
        values, begins = self._values[pairs].tolist(), self._rows[pairs].tolist()
        nearest, rows = [], []
        for begin, end in itertools.pairwise((*bounds, len(values))):
            best = max(values[begin:end])
            equal = [pair for pair in range(begin, end) if values[pair] == best]
            # Of equal ones: the last in memory, else the first.
            holder = next((pair for pair in reversed(equal) if begins[pair]), equal[0])
            row = -1
            if begins[holder]:
                slot = int(slots[holder])
                of_slot = self._cosines_from(begins[holder] - 1)[: int(self._matrix.many[slot])]
                row = int(self._matrix.first[slot]) + int(of_slot.argmax())
            nearest.append(holder)
            rows.append(row)
        return nearest, rows

    def _cosines_from(self, at: int) -> Floats:
        """What ``_batches`` hold from there on, to the end of one."""
        for batch in self._batches:
            if at < len(batch):
                return batch[at:]
            at -= len(batch)
        raise IndexError(at)

    def _slice_fetched(self, slot: int) -> tuple[int, int]:
        """Of a passage whose sentences are not in memory, the nearest of those that were fetched; (0, 0) without any."""
        cosines, found = self._fetched.get(slot, _NOTHING_FETCHED)
        if not len(cosines):
            return 0, 0
        row = found[int(cosines.argmax())]
        return row.char_from, row.char_to

    def grains(self, notes: Sequence[int]) -> Grains:
        """Of those ``notes`` that have vectors, in their order: many at once cost little more than one."""
        layout = self._layout
        if not notes or not len(layout.note_ids):
            nothing = np.zeros(0, np.float32)
            return Grains((), nothing, nothing, nothing, nothing)
        places = self._places_of(notes)
        self._compare_some(places[self._sentence_cos[places] == NOT_COMPARED])
        chunk_cos, sentence_cos, bare_cos = self._best[places], self._sentence_cos[places], self._bare_cos[places]
        sentence_cos = np.where(sentence_cos == NOT_COMPARED, chunk_cos, sentence_cos)
        bare_cos[bare_cos == NOT_COMPARED] = np.nan
        return Grains(layout.note_ids[places].tolist(), self._note_cos[places], chunk_cos, sentence_cos, bare_cos)

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

    def _places_of(self, notes: Sequence[int]) -> Ints:
        """Places of those of ``notes`` that have vectors, in their order."""
        known = self._layout.note_ids
        if not notes or not len(known):
            return np.zeros(0, np.int64)
        ids = np.array(notes, np.int64)
        places = np.minimum(known.searchsorted(ids), len(known) - 1)
        found: Ints = places[known[places] == ids]
        return found

    def _place_of(self, note_id: int) -> int | None:
        places = self._places_of((note_id,))
        return int(places[0]) if len(places) else None

    def _bounds(self, at: int) -> tuple[int, int]:
        return int(self._layout.starts[at]), int(self._layout.starts[at + 1])

    def _best_of(self, places: Ints | None, n: int) -> Ints:
        """The ``n`` of these places (ascending; None = all) with the largest scores, best first, equal ones by id."""
        places = self._leaders(places, n)
        return places[np.argsort(-self._score[places], kind="stable")[:n]]

    def _leaders(self, places: Ints | None, n: int) -> Ints:
        """The ``n`` of these places with the largest scores, and those that equal the last; ascending as the places are."""
        values = self._score if places is None else self._score[places]
        if len(values) > n:
            least = np.partition(values, len(values) - n)[len(values) - n]
            best = np.flatnonzero(values >= least)
            return best if places is None else places[best]
        return np.arange(len(values)) if places is None else places

    def _near_pairs(self, notes: Ints) -> tuple[Ints, Ints]:
        """The pairs of these places that may hold the best sentence, and where those of each begin, and the end."""
        starts, ends = self._layout.starts[notes], self._layout.starts[notes + 1]
        pairs, bounds = ranges(starts, ends)
        near = self._cosines[pairs] >= (self._best[notes] - NEAR).repeat(ends - starts)
        kept = np.zeros(len(near) + 1, np.int64)
        near.cumsum(out=kept[1:])
        return pairs[near], kept[np.append(bounds, len(near))]

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
            row = row_of[slot]
            self._fetched[slot] = (part, group)
            taken.values[row], taken.bares[row] = part.max(), bares[start : start + len(group)].max()
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

    def _compare_some(self, notes: Ints) -> None:
        """Find the best sentence of each of the notes at these places among those at hand."""
        if len(notes):
            self._compare(notes, *self._near_pairs(notes))

    def _compare(self, notes: Ints, pairs: Ints, bounds: Ints) -> None:
        """The same, where ``_near_pairs`` of the notes are known."""
        matrix = self._matrix
        slots = self._layout.slots[pairs]
        many = matrix.many[slots]
        held, at_hand = many > 0, many >= 0
        # A passage of one sentence has no vector but its own.
        values = self._cosines[pairs]
        bares = np.zeros(len(pairs), np.float32)
        held_count = np.count_nonzero(held)
        if held_count:
            firsts, widths = matrix.first[slots[held]], many[held]
            wanted, begins = ranges(firsts, firsts + widths)
            cosines = matrix.sentences.dot_rows(self._queries, wanted)
            values[held] = np.maximum.reduceat(cosines[0], begins)
            if self._bare is not None:
                bares[held] = np.maximum.reduceat(cosines[1], begins)
            self._rows[pairs[held]] = begins + (1 + sum(map(len, self._batches)))
            self._batches.append(cosines[0])
        if self._bare is not None and held_count < len(held):
            bares[~held] = matrix.rows.wide(slots[~held]) @ self._bare
        if len(taken := self._taken.slots):
            at = np.minimum(np.searchsorted(taken, slots), len(taken) - 1)
            at_hand |= taken[at] == slots
            filled = (taken[at] == slots) & (self._taken.counts[at] > 0)
            values[filled], bares[filled] = self._taken.values[at[filled]], self._taken.bares[at[filled]]
        values[~at_hand] = NOT_COMPARED
        self._values[pairs] = values
        best = np.maximum.reduceat(values, bounds[:-1])
        known = best != NOT_COMPARED
        self._sentence_cos[notes] = best
        self._score[notes[known]] = (self._note_cos[notes] + best)[known] / 2
        if self._bare is not None:
            self._bare_cos[notes] = np.maximum.reduceat(bares, bounds[:-1])


_NOTHING_FETCHED: tuple[Floats, Sequence[SentenceRow]] = (np.zeros(0, np.float32), ())
_hash_of = operator.attrgetter("hash")
