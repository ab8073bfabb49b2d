"""
How likely it is that the hits contain the answer.

Three different things look alike to a ranking: an answer in other words (no word in common, low cosines), a thing that the
notes do not know (a name that occurs nowhere), and a known thing of which the asked fact is not written down (high scores,
but nothing about the fact). So there are two small logistic models, one for questions that name something the notes know
and one for the others, over features that tell these apart. The coefficients are in ``calibration``, with where they were
fitted; a person's own are fitted by ``recalld eval calibrate``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from . import calibration
from .dense import Dense
from .entities import Name
from .lexical import Lexical
from .params import Model
from .query import Question
from .types import Catalog, Evidence, TextEvidence, VectorEvidence

NEAR_HITS = 5
"""First hits that are looked into."""
NAMED_NOTES = 3
"""Notes per name that are looked into; a name on more notes is hardly a name."""

UNKNOWN_SHARE = 0.15
"""Below it the unknown name is an aside ("get accountants out of Excel"), not what the question is about."""

WORDS_ALONE = {"bias": -2.0, "coverage": 5.0, "attributes": 1.5, "unknown": -6.0}
"""Without vectors: known when the best note has about half of what the question says. Set by hand: of the features, most need
vectors, and a daemon whose embedder is down must not deny what it finds."""


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What the confidence rests on; each is 0…1 or about that."""

    named: float = 0.0
    """1 when the question names something that a note is about."""
    vectors: float = 1.0
    """0 when similarity was not to be had: then words alone decide."""
    unknown: float = 0.0
    """1 when what it is about is a name that occurs nowhere."""
    cosine: float = 0.0
    """Best sentence cosine among the first hits."""
    coverage: float = 0.0
    """Share of the question's IDF mass in one of the first two hits."""
    margin: float = 0.0
    """First score minus the mean of the next nine."""
    spread: float = 0.0
    """Best note cosine minus the mean of the next nine: whether one note stands out by meaning."""
    attributes: float = 0.0
    """Largest share of the asked-about words (IDF) in one passage of, about or linked with what is named."""
    absent_words: float = 0.0
    """Share of the asked-about words that occur nowhere."""
    elsewhere: float = 0.0
    """How much more of the asked-about words stands together in a passage about something else: known of others only."""
    residue: float = 0.0
    """Best sentence cosine of the question without the names, in the named notes and those hits that are linked with them."""
    residue_gap: float = 0.0
    """How much nearer the residue comes to some other note."""
    lift: float = 0.0
    """The same in the named notes alone, above the mean of their other sentences."""


def default_model() -> Model:
    return _DEFAULT


_DEFAULT = msgspec.convert(calibration.MODEL, Model)


def estimate(features: Features, model: Model) -> float:
    """Probability, 0…1, that the hits contain the answer."""
    weights = (model.named if features.named else model.unnamed) if features.vectors else WORDS_ALONE
    total = weights.get("bias", 0.0) + sum(
        weight * getattr(features, name) for name, weight in weights.items() if name != "bias"
    )
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
    first = list(hits[:NEAR_HITS])
    known = [name for name in question.names if name.source == "title"]
    own = {note for name in known for note in name.notes[:NAMED_NOTES] if note in catalog.cards}
    near = own | {edge.target for note in own for edge in catalog.out_edges(note)}
    # Of the hits, those that are about what is named: others say the asked thing of something else.
    about = own | {note for note in first if note in near or any(e.target in own for e in catalog.out_edges(note))}
    text = evidence.text
    attributes = absent = elsewhere = coverage = unknown = 0.0
    if text is not None and lexical is not None:
        coverage = max((lexical.coverage(note) for note in first[:2]), default=0.0)
        unknown = float(_unknown_share(question, text) >= UNKNOWN_SHARE)
        attributes, absent, elsewhere = _attributes(question, known, lexical, text, near)
    residue, anywhere = _residue(question, evidence, about)
    return Features(
        vectors=float(evidence.vector is not None),
        named=float(bool(own)),
        unknown=unknown,
        cosine=max((_sentence(dense, note) for note in first[:3]), default=0.0),
        coverage=coverage,
        margin=_ahead([scores[note] for note in hits[:10]]),
        spread=_ahead(sorted(dense.cosine.values(), reverse=True)[:10]),
        attributes=attributes,
        absent_words=absent,
        elsewhere=elsewhere,
        residue=residue,
        residue_gap=max(0.0, anywhere - residue),
        lift=_lift(question, evidence, own),
    )


def is_unknown(name: Name, text: TextEvidence) -> bool:
    """A capitalised name that no note has, and of which some word occurs nowhere or that never stands as it is said."""
    if name.source != "proper":
        return False
    words = [word for word in name.key.split() if word in text.df]
    if any(text.df[word] == 0 for word in words):
        return True
    phrase = text.matches.get(f"“{name.key}”")
    return len(words) > 1 and phrase is not None and not len(phrase.chunks)


def _unknown_share(question: Question, text: TextEvidence) -> float:
    """Share of the question's words that are names which occur nowhere."""
    words = sum(term.kind == "word" for term in question.terms) or 1
    return sum(len(name.key.split()) for name in question.names if is_unknown(name, text)) / words


def _ahead(ordered: Sequence[float]) -> float:
    rest = ordered[1:]
    return ordered[0] - sum(rest) / len(rest) if rest else 0.0


def _sentence(dense: Dense, note: int) -> float:
    match = dense.match(note)
    return match.sentence_cos if match else 0.0


def _attributes(
    question: Question,
    known: Sequence[Name],
    lexical: Lexical,
    text: TextEvidence,
    notes: set[int],
) -> tuple[float, float, float]:
    """``attributes``, ``absent_words`` and ``elsewhere`` of Features; (1, 0, 0) when only names are asked."""
    terms = [term.text for term in question.attributes if term.text in lexical.idf]
    mass = sum(lexical.idf[term] for term in terms)
    if not mass:
        return 1.0, 0.0, 0.0
    shares = np.zeros(len(lexical.passages))
    for term in terms:
        shares[lexical.places[term]] += lexical.idf[term] / mass
    most = here = float(shares.max(initial=0.0))
    if known:
        here = 0.0
        for name in known:
            words = [lexical.places[word] for word in name.key.split() if word in text.matches]
            if words:
                together = np.bincount(np.concatenate(words), minlength=len(shares)) == len(words)
                here = max(here, float(shares[together].max(initial=0.0)))
        for note in notes & lexical.score.keys():
            here = max(here, float(shares[lexical.rows_of(note)].max()))
    absent = sum(lexical.idf[term] for term in terms if text.df.get(term, 0) == 0) / mass
    return here, absent, most - here


def _residue(question: Question, evidence: Evidence, notes: Iterable[int]) -> tuple[float, float]:
    """Best sentence cosine of the residue in ``notes``, and in the notes nearest to it."""
    vector = _residue_vector(question, evidence)
    if vector is None:
        return 0.0, 0.0
    here, anywhere = (
        max((match.sentence_cos for note in group if (match := vector.get(note)) is not None), default=0.0)
        for group in (notes, vector.top(3))
    )
    return here, anywhere


def _lift(question: Question, evidence: Evidence, notes: Iterable[int]) -> float:
    vector = _residue_vector(question, evidence)
    if vector is None:
        return 0.0
    return max((_ahead(sorted((c for *_, c in vector.sentences(note)), reverse=True)) for note in notes), default=0.0)


def _residue_vector(question: Question, evidence: Evidence) -> VectorEvidence | None:
    return evidence.probes[0] if question.probes and evidence.probes else None
