"""
Full text at the grain of notes, recovered from BM25 of passages.

FTS5 scores passages; an answer is a note. Summing passage scores favours long notes, taking the best one loses notes that
say half of it in two places. The term frequency can be read back from a BM25 contribution (idf and k1 are known), so the
note is scored as the one document that it is, and the best passage has its share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..runs import begins
from .params import Params
from .query import SCAFFOLD, Question
from .types import Catalog, TextEvidence

FTS5_K1 = 1.2
FTS5_MIN_IDF = 1e-6
"""FTS5's auxiliary bm25() has these built in."""
SHARE_MAX = 0.98
"""Of the most that a term can contribute to a passage: above it the frequency read back from it is without bounds."""
NO_NOTE = -1

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Lexical(msgspec.Struct, kw_only=True):
    """What full text says of each note. ``score`` and ``coverage`` are shares of the question's IDF mass, 0…1."""

    score: dict[int, float]
    order: list[int]
    """The notes, best first, ties by id."""
    idf: dict[str, float]
    gate: float = 0.0
    """0…1: how much the words can be trusted, from the coverage of the best note."""
    terms: Sequence[str]
    """Most telling first: the columns of ``held``."""
    notes: Ints
    """Ascending: the rows of ``held``, and of what follows it."""
    held: NDArray[np.bool_]
    """Which terms occur in which note."""
    covered: Floats
    best: Ints
    """Passages."""

    def coverage(self, note: int) -> float:
        """Of the terms that occur in ``note``; 0 for one without any."""
        return float(self.covered[self._row(note)]) if note in self.score else 0.0

    def chunk(self, note: int) -> int:
        """Best passage of a note that has a score."""
        return int(self.best[self._row(note)])

    def matched(self, note: int) -> list[str]:
        """Terms that occur in a note that has a score, most telling first."""
        return [self.terms[column] for column in np.flatnonzero(self.held[self._row(note)]).tolist()]

    def _row(self, note: int) -> int:
        return int(np.searchsorted(self.notes, note))


def read(
    question: Question, text: TextEvidence, note_of: Mapping[int, int], catalog: Catalog, params: Params
) -> Lexical:
    """Note scores from passage scores. Notes that are not in the catalog are left out."""
    total = max(1, text.chunks_total)
    # A word that occurs but was not searched (too common) tells nothing; one that occurs nowhere does.
    terms = [
        term.text
        for term in question.terms
        if (term.text in text.scores or text.df.get(term.text) == 0) and not term.text.startswith("“")
    ]
    idf = {term: math.log1p((total - min(df, total) + 0.5) / (df + 0.5)) for term in terms for df in (_df(text, term),)}
    framing = {term.text for term in question.terms if term.stem in SCAFFOLD and term.stem not in question.name_stems}
    idf = {term: value * (params.text_framing if term in framing else 1.0) for term, value in idf.items()}
    mass = sum(idf.values()) or 1.0
    terms.sort(key=lambda term: -idf[term])
    cards = catalog.cards
    if any(note not in cards for note in set(note_of.values())):
        note_of = {chunk: note for chunk, note in note_of.items() if note in cards}
    found = [text.scores.get(term, {}) for term in terms]
    widths = [len(one) for one in found]
    count = sum(widths)
    chunks = np.fromiter(chain.from_iterable(found), np.int64, count)
    owners = np.fromiter(map(note_of.get, chain.from_iterable(found), repeat(NO_NOTE)), np.int64, count)
    values = np.fromiter(chain.from_iterable(one.values() for one in found), np.float64, count)
    columns = np.repeat(np.arange(len(terms)), widths)
    kept = owners != NO_NOTE
    if not kept.all():
        chunks, values, owners, columns = chunks[kept], values[kept], owners[kept], columns[kept]
    # One sort for both: the passages of a note, and the terms of a passage, stand together in it.
    order = np.lexsort((chunks, owners))
    notes, rows, _ = _grouped(owners, order)
    passages, places, first = _grouped(chunks, order)
    lengths = np.array([cards[note].words or 1 for note in notes.tolist()], np.float64)
    units = np.array([_unit(_df(text, term), total) for term in terms])
    weights = np.array([idf[term] / mass for term in terms])
    share = np.minimum(values / units[columns], SHARE_MAX)
    shape = len(notes), len(terms)
    cells = rows * len(terms) + columns
    held = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape) > 0
    frequency = np.bincount(cells, share / (1.0 - share), minlength=shape[0] * shape[1]).reshape(shape)
    mean = catalog.mean_words
    halved = (1.0 - params.text_b) + params.text_b * lengths / mean
    whole, covered = np.zeros(shape[0]), np.zeros(shape[0])
    # Term by term, so that sums do not depend on how many terms are added at a time.
    for column, weight in enumerate(weights.tolist()):
        tf = frequency[:, column]
        whole += weight * tf / (tf + halved)
        covered += np.where(held[:, column], weight, 0.0)
    sums = np.bincount(places, weights[columns] * share, minlength=len(passages)).astype(np.float64, copy=False)
    best, worth = _best_passages(passages, sums, rows[first])
    part = min(1.0, params.text_chunk_share)
    scores = (1.0 - part) * whole + part * worth
    top = float(covered.max(initial=0.0))
    width = max(1e-6, params.text_gate_width)
    return Lexical(
        score=dict(zip(notes.tolist(), scores.tolist(), strict=True)),
        order=notes[np.argsort(-scores, kind="stable")].tolist(),
        idf=idf,
        gate=min(1.0, max(0.0, (top - params.text_gate) / width + 1.0)) if top else 0.0,
        terms=terms,
        notes=notes,
        held=held,
        covered=covered,
        best=best,
    )


def _grouped(values: Ints, order: Ints) -> tuple[Ints, Ints, Ints]:
    """Of ``values``, equal ones together in ``order``: the distinct ones, for each value which it is, and where each is first."""
    ordered = values[order]
    first = begins(ordered)
    which = np.empty(len(values), np.int64)
    which[order] = np.cumsum(first) - 1
    return ordered[first], which, order[first]


def _best_passages(passages: Ints, sums: Floats, rows: Ints) -> tuple[Ints, Floats]:
    """Of each row, in order: the passage with the largest sum, the first of equal ones, and that sum."""
    ordered = np.lexsort((-sums, rows))  # passages ascend, and the sort is stable
    leading = ordered[begins(rows[ordered])]
    return passages[leading], sums[leading]


def _unit(df: int, total: int) -> float:
    """The most that a term in ``df`` passages can contribute to one."""
    return max(FTS5_MIN_IDF, math.log((total - min(df, total) + 0.5) / (df + 0.5))) * (FTS5_K1 + 1.0)


def _df(text: TextEvidence, term: str) -> int:
    return text.df.get(term, len(text.scores.get(term, ())))
