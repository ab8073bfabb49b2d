"""Similarity of notes to the question, from vectors at three grains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .params import Params
from .types import Evidence, VectorMatch


class Dense(msgspec.Struct, kw_only=True):
    """Similarities, scaled so that 0 means unrelated and 1 the same text. ``cosine`` is the unscaled weighted mean
    with the question as it was asked."""

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
    note_share, chunk_share, sentence_share = params.dense_note, params.dense_chunk, params.dense_sentence
    total = note_share + chunk_share + sentence_share or 1.0
    floor, room = params.dense_floor, 1.0 - params.dense_floor
    # Comparing the sentences of many notes at once costs a tenth of doing it note by note.
    getattr(vector, "prepare", lambda notes: None)(wanted)
    for note in wanted:
        match = vector.get(note)
        if match is None:
            continue
        whole = note_share * match.note_cos + chunk_share * match.chunk_cos
        cosine = (whole + sentence_share * match.sentence_cos) / total
        dense.match[note] = match
        dense.cosine[note] = cosine
        bare = cosine if match.bare_cos is None else (whole + sentence_share * match.bare_cos) / total
        dense.score[note] = max(0.0, bare - floor) / room
    return dense
