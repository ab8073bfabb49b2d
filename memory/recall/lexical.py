"""
Full text at the grain of notes, recovered from BM25 of passages.

FTS5 scores passages; an answer is a note. Summing passage scores favours long notes, taking the best one loses notes that
say half of it in two places. The term frequency can be read back from a BM25 contribution (idf and k1 are known), so the
note is scored as the one document that it is, and the best passage has its share.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, compress

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..runs import begins
from .params import Params
from .query import SCAFFOLD, Question
from .types import Catalog, Floats, Ints, Matches, TextEvidence

FTS5_K1 = 1.2
FTS5_MIN_IDF = 1e-6
"""FTS5's auxiliary bm25() has these built in."""
SHARE_MAX = 0.98
"""Of the most that a term can contribute to a passage: above it the frequency read back from it is without bounds."""
NOWHERE = Matches(np.zeros(0, np.int64), np.zeros(0))


class Lexical(msgspec.Struct, kw_only=True):
    """What full text says of each note. ``score`` and ``coverage`` are shares of the question's IDF mass, 0…1."""

    score: dict[int, float]
    order: list[int]
    """The notes, best first, ties by id."""
    idf: dict[str, float]
    gate: float = 0.0
    """0…1: how much the words can be trusted, from the coverage of the best note."""
    terms: Sequence[str]
    """Most telling first: the rows of ``held``."""
    notes: list[int]
    """Ascending: the columns of ``held``, and what ``covered`` and ``starts`` are of."""
    held: NDArray[np.bool_]
    """Which terms occur in which note."""
    covered: Floats
    passages: Ints
    """Those of the first note, ascending, then those of the next."""
    starts: list[int]
    """Where the passages of each note begin; one more for the end."""
    sums: Floats
    """Of each passage, what is said of it by itself."""
    places: dict[str, Ints]
    """Of each term, which of ``passages`` hold it."""

    def coverage(self, note: int) -> float:
        """Of the terms that occur in ``note``; 0 for one without any."""
        return float(self.covered[self._row(note)]) if note in self.score else 0.0

    def chunk(self, note: int) -> int:
        """Best passage of a note that has a score, the first of equal ones."""
        rows = self.rows_of(note)
        return int(self.passages[rows.start + self.sums[rows].argmax()])

    def rows_of(self, note: int) -> slice:
        """Which of ``passages`` are those of a note that has a score."""
        row = self._row(note)
        return slice(self.starts[row], self.starts[row + 1])

    def matched(self, note: int) -> list[str]:
        """Terms that occur in a note that has a score, most telling first."""
        return list(compress(self.terms, self.held[:, self._row(note)].tolist()))

    def _row(self, note: int) -> int:
        return bisect_left(self.notes, note)


def read(
    question: Question, text: TextEvidence, note_of: Callable[[Ints], Ints], catalog: Catalog, params: Params
) -> Lexical:
    """
    Note scores from passage scores. ``note_of``: of each passage, the note that holds it; 0 where none does. Passages of
    notes that are not in the catalog are left out.
    """
    total = max(1, text.chunks_total)
    # A word that occurs but was not searched (too common) tells nothing; one that occurs nowhere does.
    terms = [
        term.text
        for term in question.terms
        if (term.text in text.matches or text.df.get(term.text) == 0) and not term.text.startswith("“")
    ]
    idf = {term: math.log1p((total - min(df, total) + 0.5) / (df + 0.5)) for term in terms for df in (_df(text, term),)}
    framing = {term.text for term in question.terms if term.stem in SCAFFOLD and term.stem not in question.name_stems}
    idf = {term: value * (params.text_framing if term in framing else 1.0) for term, value in idf.items()}
    mass = sum(idf.values()) or 1.0
    terms.sort(key=lambda term: -idf[term])
    found = [text.matches.get(term, NOWHERE) for term in terms]
    chunks = np.concatenate([NOWHERE.chunks, *(one.chunks for one in found)])
    values = np.concatenate([NOWHERE.scores, *(one.scores for one in found)])
    widths = [len(one.chunks) for one in found]
    columns = np.arange(len(terms)).repeat(widths)
    owners = note_of(chunks)
    words = catalog.lengths(owners)
    if np.count_nonzero(words) < len(words):
        kept = words > 0
        chunks, values, owners = chunks[kept], values[kept], owners[kept]
        columns, words = columns[kept], words[kept]
        widths = np.bincount(columns, minlength=len(terms)).tolist()
    # One sort for both: the passages of a note, and the terms of a passage, stand together in it.
    order = np.lexsort((chunks, owners))
    first = begins(chunks.take(order))
    places = np.empty(len(order), np.int64)
    places[order] = first.cumsum() - 1
    leading = order[first]
    passages, passage_notes = chunks.take(leading), owners.take(leading)
    first = begins(passage_notes)
    rows = first.cumsum() - 1
    starts = first.nonzero()[0]
    notes, lengths = passage_notes.take(starts), words.take(leading.take(starts))
    units = np.array([_unit(_df(text, term), total) for term in terms])
    weights = np.array([idf[term] / mass for term in terms])
    share = np.minimum(values / units.take(columns), SHARE_MAX)
    shape = len(terms), len(notes)
    cells = columns * shape[1] + rows.take(places)
    frequency = np.bincount(cells, share / (1.0 - share), minlength=shape[0] * shape[1]).reshape(shape)
    held = frequency > 0.0
    halved = (1.0 - params.text_b) + params.text_b * lengths / catalog.mean_words
    worth = weights[:, None]
    parts = worth * frequency / (frequency + halved)
    whole, covered = np.zeros(shape[1]), np.zeros(shape[1])
    # Term by term, so that sums do not depend on how many terms are added at a time.
    for part, shown in zip(parts, worth * held, strict=True):
        whole += part
        covered += shown
    sums = np.bincount(places, weights.take(columns) * share, minlength=len(passages)).astype(np.float64, copy=False)
    part = min(1.0, params.text_chunk_share)
    scores = (1.0 - part) * whole + part * np.maximum.reduceat(sums, starts)
    top = float(covered.max(initial=0.0))
    width = max(1e-6, params.text_gate_width)
    ids = notes.tolist()
    return Lexical(
        score=dict(zip(ids, scores.tolist(), strict=True)),
        order=notes.take((-scores).argsort(kind="stable")).tolist(),
        idf=idf,
        gate=min(1.0, max(0.0, (top - params.text_gate) / width + 1.0)) if top else 0.0,
        terms=terms,
        notes=ids,
        held=held,
        covered=covered,
        passages=passages,
        starts=[*starts.tolist(), len(passages)],
        sums=sums,
        places={
            term: places[end - width : end] for term, width, end in zip(terms, widths, accumulate(widths), strict=True)
        },
    )


def _unit(df: int, total: int) -> float:
    """The most that a term in ``df`` passages can contribute to one."""
    return max(FTS5_MIN_IDF, math.log((total - min(df, total) + 0.5) / (df + 0.5))) * (FTS5_K1 + 1.0)


def _df(text: TextEvidence, term: str) -> int:
    return text.df.get(term, len(text.matches.get(term, NOWHERE).chunks))
