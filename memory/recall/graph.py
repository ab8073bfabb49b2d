"""
Votes along links.

A note that answers half of a question and links to the note with the other half gives it a share of its own score. The
share is of the score, not of a rank: a neighbour of a wrong seed gets little, and the order among neighbours follows how
well each fits the question itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

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
    via: int = 0
    """The note between, for a vote of two links; ``kind`` and ``forward`` are those of the last one."""


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
    found: dict[int, Vote] = {}
    for seed in order(scores)[: int(params.graph_seeds)]:
        edges = neighbours(seed, catalog, params) if near is None else near[seed]
        for note, vote in _shares(question, seed, scores[seed] * params.graph_decay, edges, own, catalog, params):
            if note not in found or vote.score > found[note].score:
                found[note] = vote
    return found


def carriers(first: Mapping[int, Vote], seeds: Collection[int], params: Params) -> list[int]:
    """The notes that pass their votes on: of those with the largest votes as many as there are seeds, no seed."""
    if not params.graph_second:
        return []
    return order({note: vote.score for note, vote in first.items() if note not in seeds})[: int(params.graph_seeds)]


def second(
    question: Question,
    first: Mapping[int, Vote],
    own: Mapping[int, float],
    catalog: Catalog,
    params: Params,
    near: Mapping[int, Neighbours],
) -> dict[int, Vote]:
    """
    ``first`` with the votes of a second link: each note of ``near`` passes ``graph_second`` of its vote on, as a seed does of
    its score. A vote never comes back to its seed.
    """
    found = dict(first)
    for via, edges in near.items():
        passed = first[via]
        share = passed.score * params.graph_decay * params.graph_second
        for note, vote in _shares(question, passed.seed, share, edges, own, catalog, params):
            if note != passed.seed and (note not in found or vote.score > found[note].score):
                found[note] = msgspec.structs.replace(vote, via=via)
    return found


def _shares(
    question: Question,
    seed: int,
    share: float,
    edges: Neighbours,
    own: Mapping[int, float],
    catalog: Catalog,
    params: Params,
) -> Iterator[tuple[int, Vote]]:
    """What each neighbour gets of ``share``."""
    fits = [own.get(note, 0.0) for note in edges]
    low, high = min(fits, default=0.0), max(fits, default=0.0)
    spread = (high - low) or 1.0
    crowd = max(1.0, len(edges) / max(1.0, params.graph_degree_free)) ** params.graph_degree
    for (note, (weight, edge, forward)), fit in zip(edges.items(), fits, strict=True):
        kind = catalog.cards[note].kind if question.kinds else ""
        lift = 1.0 + (params.graph_kind if kind and kind in question.kinds else 0.0)
        vote = share * weight / crowd
        vote *= (1.0 - params.graph_own) + params.graph_own * (fit - low) / spread
        # Where no kind is asked for, there is nothing that a neighbour lacks.
        vote *= lift / (1.0 + params.graph_kind) if question.kinds else 1.0
        yield note, Vote(score=vote, seed=seed, kind=edge.kind, forward=forward)


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
