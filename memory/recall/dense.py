"""Similarity of notes to the question, from vectors at three grains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .params import Params
from .types import Evidence, VectorMatch


class Dense(msgspec.Struct, kw_only=True):
    """Similarities, scaled so that 0 means unrelated and 1 the same text. ``cosine`` is the unscaled weighted mean."""

    score: dict[int, float]
    cosine: dict[int, float]
    match: dict[int, VectorMatch]


def read(evidence: Evidence, wanted: Iterable[int], params: Params) -> Dense:
    """Scores of all ``wanted`` notes that have vectors."""
    vector = evidence.vector
    dense = Dense(score={}, cosine={}, match={})
    if vector is None:
        return dense
    wanted = list(wanted)
    # Comparing the sentences of many notes at once costs a tenth of doing it note by note.
    getattr(vector, "prepare", lambda notes: None)(wanted)
    for note in wanted:
        match = vector.get(note)
        if match is None:
            continue
        cosine = weigh(match, params)
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
