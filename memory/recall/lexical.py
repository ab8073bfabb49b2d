"""
Full text at the grain of notes, recovered from BM25 of passages.

FTS5 scores passages; an answer is a note. Summing passage scores favours long notes, taking the best one loses notes that
say half of it in two places. The term frequency can be read back from a BM25 contribution (idf and k1 are known), so the
note is scored as the one document that it is, and the best passage has its share.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import msgspec

from .params import Params
from .query import SCAFFOLD, Question
from .types import Catalog, TextEvidence

FTS5_K1 = 1.2
FTS5_MIN_IDF = 1e-6
"""FTS5's auxiliary bm25() has these built in."""


class Lexical(msgspec.Struct, kw_only=True):
    """What full text says of each note. ``score`` and ``coverage`` are shares of the question's IDF mass, 0…1."""

    score: dict[int, float]
    coverage: dict[int, float]
    chunk: dict[int, int]
    """Best passage of each note."""
    matched: dict[int, list[str]]
    """Terms that occur in the note, most telling first."""
    idf: dict[str, float]
    gate: float = 0.0
    """0…1: how much the words can be trusted, from the coverage of the best note."""


def read(
    question: Question, text: TextEvidence, note_of: Mapping[int, int], catalog: Catalog, params: Params
) -> Lexical:
    """Note scores from passage scores. Notes that are not in the catalog are left out."""
    cards = catalog.cards
    note_of = {chunk: note for chunk, note in note_of.items() if note in cards}
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
    mean = catalog.mean_words
    flat = 1.0 - params.text_b
    whole: dict[int, float] = defaultdict(float)
    coverage: dict[int, float] = defaultdict(float)
    matched: dict[int, list[str]] = defaultdict(list)
    passages: dict[int, float] = defaultdict(float)
    for term in sorted(terms, key=lambda term: -idf[term]):
        weight = idf[term] / mass
        frequency: dict[int, float] = defaultdict(float)
        df = _df(text, term)
        unit = max(FTS5_MIN_IDF, math.log((total - min(df, total) + 0.5) / (df + 0.5))) * (FTS5_K1 + 1.0)
        for chunk, found in text.scores.get(term, {}).items():
            note = note_of.get(chunk)
            if note is None:
                continue
            share = found / unit
            if share > 0.98:
                share = 0.98
            passages[chunk] += weight * share
            frequency[note] += share / (1.0 - share)
        for note, tf in frequency.items():
            whole[note] += weight * tf / (tf + (flat + params.text_b * (cards[note].words or 1) / mean))
            coverage[note] += weight
            matched[note].append(term)
    best: dict[int, tuple[float, int]] = {}
    for chunk, value in passages.items():
        note = note_of[chunk]
        first = best.get(note)
        if first is None or value > first[0] or (value == first[0] and chunk < first[1]):
            best[note] = (value, chunk)
    part = min(1.0, params.text_chunk_share)
    score = {note: (1.0 - part) * value + part * best[note][0] for note, value in whole.items()}
    top = max(coverage.values(), default=0.0)
    width = max(1e-6, params.text_gate_width)
    return Lexical(
        score=score,
        coverage=dict(coverage),
        chunk={note: chunk for note, (_, chunk) in best.items()},
        matched=dict(matched),
        idf=idf,
        gate=min(1.0, max(0.0, (top - params.text_gate) / width + 1.0)) if top else 0.0,
    )


def _df(text: TextEvidence, term: str) -> int:
    return text.df.get(term, len(text.scores.get(term, ())))
