"""Similarity of notes to the question, from vectors at three grains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .params import Params
from .types import Evidence, VectorEvidence, VectorMatch


class Dense(msgspec.Struct, kw_only=True):
    """Similarities, scaled so that 0 means unrelated and 1 the same text. ``cosine`` is the unscaled weighted mean."""

    score: dict[int, float]
    cosine: dict[int, float]
    match: dict[int, VectorMatch]
    probe: dict[int, VectorMatch]
    """The match of a clause, for notes that a clause fits better than the whole question does."""


def read(evidence: Evidence, wanted: Iterable[int], params: Params) -> Dense:
    """Scores of all ``wanted`` notes that have vectors."""
    vector = evidence.vector
    dense = Dense(score={}, cosine={}, match={}, probe={})
    if vector is None:
        return dense
    for note in wanted:
        match = vector.get(note)
        if match is None:
            continue
        cosine = weigh(match, params)
        for probe in evidence.probes:
            clause = probe.get(note)
            if clause is not None and weigh(clause, params) * params.probe_weight > cosine:
                cosine = weigh(clause, params) * params.probe_weight
                dense.probe[note] = clause
        dense.match[note] = match
        dense.cosine[note] = cosine
        dense.score[note] = max(0.0, cosine - params.dense_floor) / (1.0 - params.dense_floor)
    return dense


def weigh(match: VectorMatch, params: Params) -> float:
    total = params.dense_note + params.dense_chunk + params.dense_sentence or 1.0
    return (
        params.dense_note * match.note_cos
        + params.dense_chunk * match.chunk_cos
        + params.dense_sentence * match.sentence_cos
    ) / total


def nearest(vector: VectorEvidence | None, probes: Iterable[VectorEvidence], pool: int) -> list[int]:
    """Candidates of the vector stream, best first, without repeats."""
    if vector is None:
        return []
    found = dict.fromkeys(vector.top(pool))
    for probe in probes:
        found.update(dict.fromkeys(probe.top(pool // 2)))
    return list(found)
