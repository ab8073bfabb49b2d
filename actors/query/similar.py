"""One question compared with every note: what ranking asks of the vector stream."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
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


class Compared(NamedTuple):
    """Notes that were compared sentence by sentence at once. Which sentence is nearest is looked up for those that are shown."""

    bounds: Ints
    """Where the pairs of each note begin, and the end."""
    pairs: Ints
    values: Floats
    """By pair: the cosine of its best sentence, NOT_COMPARED where none is at hand."""
    rows: Ints
    """By pair: where its sentences in memory begin in ``cosines``; -1 where there are none."""
    cosines: Floats


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
        self._sentence_cos = np.full(len(note_cos), NOT_COMPARED, np.float32)
        self._bare_cos = np.full(len(note_cos), NOT_COMPARED, np.float32)
        """The largest cosine of a sentence to ``bare``."""
        self._number = np.zeros(len(note_cos), np.int64)
        """Its number among them all, in ``_batches`` one after the other."""
        self._batches: list[Compared] = []
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
        absent = np.unique(slots[self._matrix.many[slots] < 0]).tolist()
        if absent:
            self._take(fetch, absent)
        self._compare(notes, pairs, bounds)

    def top(self, n: int) -> list[int]:
        """Ids of the ``n`` notes with the largest mean of note and sentence cosine, best first; at most ORDERED."""
        ids: list[int] = self._layout.note_ids[self._best_of(self._places, min(n, ORDERED))].tolist()
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
        places = np.minimum(layout.note_ids.searchsorted(ids), len(layout.note_ids) - 1)
        places = places[layout.note_ids[places] == ids]
        self._compare_some(places[self._sentence_cos[places] == NOT_COMPARED])
        chunk_cos, sentence_cos, bare_cos = self._best[places], self._sentence_cos[places], self._bare_cos[places]
        sentence_cos = np.where(sentence_cos == NOT_COMPARED, chunk_cos, sentence_cos)
        bare_cos[bare_cos == NOT_COMPARED] = np.nan
        return Grains(layout.note_ids[places].tolist(), self._note_cos[places], chunk_cos, sentence_cos, bare_cos)

    def _match(self, note_id: int) -> VectorMatch | None:
        at = self._place_of(note_id)
        if at is None:
            return None
        if self._sentence_cos[at] == NOT_COMPARED:
            self._compare_some(np.array([at], np.int64))
        start, end = self._bounds(at)
        pair = start + int(self._cosines[start:end].argmax())
        sentence, bare = float(self._sentence_cos[at]), float(self._bare_cos[at])
        best = float(self._best[at])
        holder, (begin, stop) = (pair, (0, 0)) if sentence == NOT_COMPARED else self._nearest(at)
        return VectorMatch(
            note_cos=float(self._note_cos[at]),
            chunk_cos=best,
            chunk_id=int(self._layout.chunks[pair]),
            sentence_cos=best if sentence == NOT_COMPARED else sentence,
            sentence_chunk_id=int(self._layout.chunks[holder]),
            char_from=begin,
            char_to=stop,
            bare_cos=None if bare == NOT_COMPARED else bare,
        )

    def _nearest(self, at: int) -> tuple[int, Sequence[int]]:
        """The pair with the best sentence of a note that was compared, and that sentence's slice."""
        number = int(self._number[at])
        for batch in self._batches:
            if number < len(batch.bounds) - 1:
                break
            number -= len(batch.bounds) - 1
        start, end = batch.bounds[number : number + 2].tolist()
        values, rows = batch.values[start:end].tolist(), batch.rows[start:end].tolist()
        # Of equal ones: the last in memory, else the first.
        best = max(values)
        equal = [i for i, value in enumerate(values) if value == best]
        i = next((i for i in reversed(equal) if rows[i] >= 0), equal[0])
        pair = int(batch.pairs[start + i])
        slot = int(self._layout.slots[pair])
        if rows[i] >= 0:
            of_slot = batch.cosines[rows[i] : rows[i] + int(self._matrix.many[slot])]
            span: list[int] = self._matrix.spans[int(self._matrix.first[slot]) + int(of_slot.argmax())].tolist()
            return pair, span
        cosines, found = self._fetched.get(slot, (None, ()))
        if cosines is None or not len(cosines):
            return pair, (0, 0)
        row = found[int(cosines.argmax())]
        return pair, (row.char_from, row.char_to)

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
        at = int(ids.searchsorted(note_id))
        return at if at < len(ids) and ids[at] == note_id else None

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
        near = self._cosines[pairs] >= np.repeat(self._best[notes] - NEAR, ends - starts)
        kept = np.zeros(len(near) + 1, np.int64)
        np.cumsum(near, out=kept[1:])
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
        rows = np.full(len(pairs), -1, np.int64)
        bares = np.zeros(len(pairs), np.float32)
        cosines = values[:0]
        if held.any():
            firsts, widths = matrix.first[slots[held]], many[held]
            wanted, begins = ranges(firsts, firsts + widths)
            queries = self._query[None] if self._bare is None else np.stack((self._query, self._bare))
            of_rows = matrix.sentences.dot_rows(queries, wanted)
            cosines, rows[held] = of_rows[0], begins
            values[held] = np.maximum.reduceat(cosines, begins)
            if self._bare is not None:
                bares[held] = np.maximum.reduceat(of_rows[1], begins)
        if self._bare is not None and not held.all():
            bares[~held] = matrix.rows.wide(slots[~held]) @ self._bare
        if len(taken := self._taken.slots):
            at = np.minimum(np.searchsorted(taken, slots), len(taken) - 1)
            at_hand |= taken[at] == slots
            filled = (taken[at] == slots) & (self._taken.counts[at] > 0)
            values[filled], bares[filled] = self._taken.values[at[filled]], self._taken.bares[at[filled]]
        values[~at_hand] = NOT_COMPARED
        best = np.maximum.reduceat(values, bounds[:-1])
        known = best != NOT_COMPARED
        self._sentence_cos[notes] = best
        self._score[notes[known]] = (self._note_cos[notes] + best)[known] / 2
        if self._bare is not None:
            self._bare_cos[notes] = np.maximum.reduceat(bares, bounds[:-1])
        self._number[notes] = np.arange(len(notes)) + sum(len(batch.bounds) - 1 for batch in self._batches)
        self._batches.append(Compared(bounds, pairs, values, rows, cosines))


_hash_of = operator.attrgetter("hash")
