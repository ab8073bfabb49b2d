"""
How likely it is that the hits contain the answer.

Three different things look alike to a ranking: an answer in other words (no word in common, low cosines), a thing that the
notes do not know (a name that occurs nowhere), and a known thing of which the asked fact is not written down (high scores,
but nothing about the fact). So the confidence is a small logistic model over features that tell these apart; its
coefficients are in ``calibration`` with where they were fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from . import calibration
from .dense import Dense
from .entities import Name
from .lexical import Lexical
from .query import Question
from .types import Catalog, Evidence, TextEvidence


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What the confidence rests on; each is 0…1 or about that."""

    cosine: float
    """Best sentence cosine among the first hits."""
    lift: float
    """How far the best sentence of the first hits stands out from the other sentences of its note."""
    coverage: float
    """Share of the question's IDF mass in the best hit and the note that brought it."""
    attributes: float
    """Share of the IDF mass outside names in one passage of the named notes or of a first hit."""
    named: float
    """1 when the question names something that the notes know."""
    unknown: float
    """1 when it names something that occurs nowhere."""
    margin: float
    """First score minus the mean of the next nine."""
    apart: float
    """1 - the largest share of the question's words that stand together in one passage, names included."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Logistic regression: ``bias`` + sum of weight x (feature - mean) / scale."""

    bias: float
    weights: dict[str, float]
    means: dict[str, float]
    scales: dict[str, float]
    threshold: float = 0.5
    provenance: str = ""


def default_model() -> Model:
    return msgspec.convert(calibration.MODEL, Model)


def estimate(features: Features, model: Model) -> float:
    """Probability, 0…1, that the hits contain the answer."""
    total = model.bias
    for name, weight in model.weights.items():
        total += weight * (getattr(features, name) - model.means.get(name, 0.0)) / (model.scales.get(name) or 1.0)
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


def features(
    question: Question,
    hits: Sequence[int],
    scores: Mapping[int, float],
    lexical: Lexical | None,
    dense: Dense,
    evidence: Evidence,
    catalog: Catalog,
) -> Features:
    """Features of one answer; ``hits`` best first."""
    first = list(hits[:5])
    cosine, lift = _sentence_evidence(first, dense, evidence)
    text = evidence.text
    attributes = apart = coverage = unknown = 0.0
    if text is not None and lexical is not None:
        named = {note for name in question.names for note in name.notes}
        attributes = _attribute_share(question, lexical, text, evidence.note_of_chunk, {*first[:3], *named})
        apart = 1.0 - _together(question, lexical, text, evidence.note_of_chunk, set(first))
        coverage = max((lexical.coverage.get(note, 0.0) for note in first[:2]), default=0.0)
        unknown = float(any(is_unknown(name, text) for name in question.names))
    ordered = [scores[note] for note in hits[:10]]
    rest = ordered[1:] or [0.0]
    return Features(
        cosine=cosine,
        lift=lift,
        coverage=coverage,
        attributes=attributes,
        named=float(any(name.notes for name in question.names)),
        unknown=unknown,
        margin=(ordered[0] if ordered else 0.0) - sum(rest) / len(rest),
        apart=apart,
    )


def is_unknown(name: Name, text: TextEvidence) -> bool:
    """A capitalised name that no note has, and of which some word occurs nowhere or its words never occur together."""
    if name.source != "proper":
        return False
    words = [word for word in name.key.split() if word in text.df]
    if any(text.df[word] == 0 for word in words):
        return True
    passages = [set(text.scores.get(word, ())) for word in words]
    return len(words) > 1 and not set.intersection(*passages)


def _sentence_evidence(hits: Sequence[int], dense: Dense, evidence: Evidence) -> tuple[float, float]:
    cosine, lift = 0.0, 0.0
    if evidence.vector is None:
        return cosine, lift
    for note in hits[:3]:
        match = dense.match.get(note)
        if match is None:
            continue
        probe = dense.probe.get(note)
        cosine = max(cosine, match.sentence_cos, probe.sentence_cos if probe else 0.0)
        all_of_note = sorted((c for *_, c in evidence.vector.sentences(note)), reverse=True)
        if len(all_of_note) > 1:
            rest = all_of_note[1:]
            lift = max(lift, all_of_note[0] - sum(rest) / len(rest))
    return cosine, lift


def _attribute_share(
    question: Question, lexical: Lexical, text: TextEvidence, note_of: Mapping[int, int], notes: set[int]
) -> float:
    """Largest share of the asked-about words (by IDF) in one passage of ``notes``; 1.0 when nothing but names is asked."""
    terms = [term.text for term in question.attributes if term.text in lexical.idf]
    mass = sum(lexical.idf[term] for term in terms)
    if not mass:
        return 1.0
    shares: dict[int, float] = {}
    for term in terms:
        for chunk in text.scores.get(term, {}):
            if note_of.get(chunk) in notes:
                shares[chunk] = shares.get(chunk, 0.0) + lexical.idf[term] / mass
    return max(shares.values(), default=0.0)


def _together(
    question: Question, lexical: Lexical, text: TextEvidence, note_of: Mapping[int, int], notes: set[int]
) -> float:
    mass = sum(lexical.idf.values()) or 1.0
    shares: dict[int, float] = {}
    for term, weight in lexical.idf.items():
        for chunk in text.scores.get(term, {}):
            if note_of.get(chunk) in notes:
                shares[chunk] = shares.get(chunk, 0.0) + weight / mass
    return max(shares.values(), default=0.0)
