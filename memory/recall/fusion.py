"""From what each stream says to one score a note: weights that depend on the question, then factors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from .params import Params
from .query import Question


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """What each stream's score (0…1) is multiplied with for one question."""

    text: float
    entity: float
    vector: float


def weights(question: Question, gate: float, *, has_vectors: bool, params: Params) -> Weights:
    """
    The rule set. Words vote as far as the best note covers them (``gate``); a name or an exact string is about words; when
    there are no vectors, words are all there is.
    """
    text, entity, vector = params.text_weight * gate, params.entity_weight, params.dense_weight
    if not has_vectors:
        return Weights(text=params.text_weight, entity=entity, vector=0.0)
    match question.intent:
        case "exact":
            text, vector = text * params.exact_text, vector * params.exact_vector
        case "name":
            entity, vector = entity * params.name_entity, vector * params.name_vector
        case _:
            pass
    return Weights(text=text, entity=entity, vector=vector)


def fuse(
    weight: Weights, text: Mapping[int, float], entity: Mapping[int, float], vector: Mapping[int, float]
) -> dict[int, float]:
    """Weighted sum per note, divided by the sum of weights: 0…1."""
    total = weight.text + weight.entity + weight.vector or 1.0
    return {
        note: (
            weight.text * text.get(note, 0.0)
            + weight.entity * entity.get(note, 0.0)
            + weight.vector * vector.get(note, 0.0)
        )
        / total
        for note in {*text, *entity, *vector}
    }


def order(scores: Mapping[int, float]) -> list[int]:
    """Best first, ties by id. Two sorts without a function of ours in them take a third of one with a pair as its key."""
    return sorted(sorted(scores), key=scores.__getitem__, reverse=True)


def ranks(ordered: Iterable[int], wanted: Collection[int]) -> dict[int, int]:
    """1-based ranks of the ``wanted`` notes in an order that holds them all; most often they stand at its beginning."""
    found: dict[int, int] = {}
    for rank, note in enumerate(ordered, 1):
        if len(found) == len(wanted):
            break
        if note in wanted:
            found[note] = rank
    return found
