"""
What a cross-encoder's scores do to an order, and whether it may: pure functions of figures.

A cross-encoder reads question and passage together and knows nothing of notes: not which one is replaced, whose word counts
more, what is recent. So it moves relevance alone, within the first hits, and standing and time are put on top as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from .metrics import interval, mean
from .params import Params

MIN_QUESTIONS = 20
"""Of fewer questions no interval tells a gain from chance."""
LATE_SHARE = 0.05
"""Share of questions that it may fail to score in time; beyond, it mostly costs the wait."""
ANY = ""
"""Instead of a digest: whatever model is there."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One hit before it is reranked, best first in its list."""

    note_id: int
    score: float
    factor: float = 1.0
    """Product of the multipliers for standing and time that ``score`` contains."""
    superseded_by: int = 0


class Reranked(msgspec.Struct, frozen=True, kw_only=True):
    """A hit in the new order. ``at``: its place in the old one, from 0."""

    at: int
    score: float
    said: float | None = None
    """The cross-encoder's own score; None beyond the passages that it read."""
    rank: int = 0
    """1-based, by that score alone."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What `recalld eval rerank` found, as it lies in reranker.json: for one model, on one person's questions."""

    won: bool
    sha256: str
    """Of the model that was measured; another one has to be measured itself."""
    why: str
    model: str = ""
    gold: str = ""
    questions: int = 0
    metric: str = "ndcg@10"
    without: float = 0.0
    reranked: float = 0.0
    difference: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    """95 % bootstrap interval of the difference."""
    late: int = 0
    """Questions that it did not score in time."""
    took_ms: tuple[float, float] = (0.0, 0.0)
    """Median time of an answer without and with it."""
    weight: float = 0.0
    depth: int = 0
    measured: str = ""
    """ISO date."""


def judge(without: Sequence[float], reranked: Sequence[float], late: int = 0, metric: str = "ndcg@10") -> Verdict:
    """
    Whether reranking won, from one figure a question each way, in the same order; the caller adds whose figures they are.

    It wins when the whole 95 % interval of the mean difference is above zero.
    """
    gains = [after - before for before, after in zip(without, reranked, strict=True)]
    low, high = interval(gains)
    if len(gains) < MIN_QUESTIONS:
        won, why = False, f"{len(gains)} questions tell nothing; at least {MIN_QUESTIONS} are needed"
    elif late > LATE_SHARE * len(gains):
        won, why = False, f"it was too slow for {late} of {len(gains)} questions"
    elif low > 0.0:
        won, why = True, f"{metric} is higher, and not by chance"
    elif high < 0.0:
        won, why = False, f"{metric} is lower"
    else:
        won, why = False, f"the difference in {metric} may be chance"
    return Verdict(
        won=won,
        sha256="",
        why=why,
        questions=len(gains),
        metric=metric,
        without=round(mean(without), 4),
        reranked=round(mean(reranked), 4),
        difference=round(mean(gains), 4),
        interval=(round(low, 4), round(high, 4)),
        late=late,
    )


def wanted(params: Params, verdict: Verdict | None) -> str | None:
    """The digest of the model that a question is reranked with, ANY for whatever is loaded; None = it is not reranked."""
    if params.rerank < 1.0 or params.rerank_weight == 0.0:
        return None
    if params.rerank >= 2.0:
        return ANY
    return verdict.sha256 if verdict is not None and verdict.won and verdict.sha256 else None


def blend(
    hits: Sequence[Standing], said: Sequence[float], *, weight: float, margin: float = 0.0
) -> tuple[Reranked, ...]:
    """
    The order of ``hits`` after ``said``, the cross-encoder's scores of the first ``len(said)`` of them.

    Both relevances, of the fused order and of the cross-encoder, are stretched to 0…1 over those first hits and mixed:
    ``weight`` 0 keeps the order, 1 follows the cross-encoder. Multipliers apply to the mixture as they did before. A note
    that stood behind its replacement stays behind it, by ``margin``. No hit is dropped, none crosses into or out of those
    that were read, ties keep their order. Scores that are not finite, or all the same, change nothing.
    """
    read = min(len(said), len(hits))
    values = [float(value) for value in said[:read]]
    ranks = _ranks(values)
    unread = [Reranked(at=at, score=hits[at].score) for at in range(read, len(hits))]
    if not values or not all(map(math.isfinite, values)):
        return tuple(Reranked(at=at, score=hit.score) for at, hit in enumerate(hits))
    relevance = [hit.score / hit.factor if hit.factor > 0.0 else 0.0 for hit in hits[:read]]
    low, high = min(relevance), max(relevance)
    theirs = _stretched(values)
    scores = [hit.score for hit in hits[:read]]
    if theirs is not None and weight > 0.0:
        # Fused scores that are all the same leave a range of nothing: then a small one of its own keeps the order visible.
        span = high - low or 0.01 * (abs(high) or 1.0)
        ours = [(value - low) / span for value in relevance]
        scores = [
            (low + span * ((1.0 - weight) * own + weight * their)) * hit.factor
            for own, their, hit in zip(ours, theirs, hits, strict=False)
        ]
        _replacements_first(hits[:read], scores, margin)
    order = sorted(range(read), key=lambda at: -scores[at])
    # What was read stands above what was not, in figures too.
    least = unread[0].score if unread else -math.inf
    return (
        *(Reranked(at=at, score=max(scores[at], least), said=values[at], rank=ranks[at]) for at in order),
        *unread,
    )


def _replacements_first(hits: Sequence[Standing], scores: list[float], margin: float) -> None:
    """Lift each replacement that stood above what it replaces to above it again; from below, so that chains hold."""
    place = {hit.note_id: at for at, hit in enumerate(hits)}
    for at in range(len(hits) - 1, -1, -1):
        newer = place.get(hits[at].superseded_by, len(hits))
        if newer < at:
            scores[newer] = max(scores[newer], scores[at] * (1.0 + margin))


def _stretched(values: Sequence[float]) -> list[float] | None:
    """0…1 over the values; None when they tell nothing apart."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values] if high - low > 1e-9 else None


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda at: -values[at])
    ranks = [0] * len(values)
    for rank, at in enumerate(order, 1):
        ranks[at] = rank
    return ranks
