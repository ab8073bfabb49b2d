"""
Votes along links.

A note that answers half of a question and links to the note with the other half gives it a share of its own score. The
share is of the score, not of a rank: a neighbour of a wrong seed gets little, and the order among neighbours follows how
well each fits the question itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .fusion import order
from .params import Params
from .query import Question
from .types import Catalog, Edge


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """The best vote that a note got: ``score`` is what the note's own score becomes if it is smaller."""

    score: float
    seed: int
    kind: str
    forward: bool


Neighbours = dict[int, tuple[float, Edge, bool]]
"""Neighbour -> (weight of the strongest link, that link, out of the seed)."""


def votes(
    question: Question,
    scores: Mapping[int, float],
    own: Mapping[int, float],
    catalog: Catalog,
    params: Params,
    near: Mapping[int, Neighbours] | None = None,
) -> dict[int, Vote]:
    """
    Votes of the best ``graph_seeds`` notes of ``scores`` for their neighbours.

    ``own`` is how well each neighbour fits by itself, on any scale; it is compared among the neighbours of one seed.
    ``near`` has the ``neighbours`` of the seeds, where the caller has looked at them already.
    """
    seeds = order(scores)[: int(params.graph_seeds)]
    found: dict[int, Vote] = {}
    for seed in seeds:
        edges = neighbours(seed, catalog, params) if near is None else near[seed]
        if not edges:
            continue
        fits = [own.get(note, 0.0) for note in edges]
        low, high = min(fits), max(fits)
        spread = (high - low) or 1.0
        crowd = max(1.0, len(edges) / max(1.0, params.graph_degree_free)) ** params.graph_degree
        for (note, (weight, edge, forward)), fit in zip(edges.items(), fits, strict=True):
            kind = catalog.cards[note].kind if question.kinds else ""
            lift = 1.0 + (params.graph_kind if kind and kind in question.kinds else 0.0)
            vote = scores[seed] * params.graph_decay * weight / crowd
            vote *= (1.0 - params.graph_own) + params.graph_own * (fit - low) / spread
            # Where no kind is asked for, there is nothing that a neighbour lacks.
            vote *= lift / (1.0 + params.graph_kind) if question.kinds else 1.0
            if note not in found or vote > found[note].score:
                found[note] = Vote(score=vote, seed=seed, kind=edge.kind, forward=forward)
    return found


def neighbours(seed: int, catalog: Catalog, params: Params) -> Neighbours:
    """The notes that ``seed`` links to or is linked from."""
    found: Neighbours = {}
    weights = {kind: _kind_weight(kind, params) for kind in ("markdown", "embed", "causes", "fixes", "contradicts")}
    for forward, edges in ((True, catalog.out_edges(seed)), (False, catalog.in_edges(seed) if params.graph_in else ())):
        for edge in edges:
            note = edge.target if forward else edge.source
            weight = weights.get(edge.kind, 1.0) * (1.0 if forward else params.graph_in)
            if note in catalog.cards and note != seed and (note not in found or weight > found[note][0]):
                found[note] = (weight, edge, forward)
    return found


def _kind_weight(kind: str, params: Params) -> float:
    match kind:
        case "markdown":
            return params.graph_markdown
        case "embed":
            return params.graph_embed
        case "causes" | "fixes" | "contradicts":
            return params.graph_typed
        case _:
            return 1.0
