"""Similarity of notes to the question, from vectors at three grains."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from .params import Params
from .types import Evidence, VectorEvidence, VectorMatch


class Dense(msgspec.Struct, kw_only=True):
    """Similarities, scaled so that 0 means unrelated and 1 the same text. ``cosine`` is the unscaled weighted mean
    with the question as it was asked."""

    score: dict[int, float]
    cosine: dict[int, float]
    vector: VectorEvidence | None

    def look_up(self, notes: Iterable[int]) -> None:
        """Prepare the matches of these ``notes`` at once."""
        if self.vector is not None:
            self.vector.look_up(note for note in notes if note in self.score)

    def match(self, note: int) -> VectorMatch | None:
        """Where a note that was read matches best; None for another."""
        return self.vector.get(note) if self.vector is not None and note in self.score else None


def read(evidence: Evidence, wanted: Iterable[int], params: Params) -> Dense:
    """Scores of all ``wanted`` notes that have vectors."""
    vector = evidence.vector
    if vector is None:
        return Dense(score={}, cosine={}, vector=None)
    grains = vector.grains(list(wanted))
    note_share, chunk_share, sentence_share = params.dense_note, params.dense_chunk, params.dense_sentence
    total = note_share + chunk_share + sentence_share or 1.0
    floor, room = params.dense_floor, 1.0 - params.dense_floor
    note_cos, chunk_cos, sentence_cos, bare_cos = np.array(grains[1:], np.float64)
    whole = note_share * note_cos + chunk_share * chunk_cos
    cosine = (whole + sentence_share * sentence_cos) / total
    bare = np.where(np.isnan(bare_cos), cosine, (whole + sentence_share * bare_cos) / total)
    score = np.maximum(0.0, bare - floor) / room
    return Dense(
        score=dict(zip(grains.notes, score.tolist(), strict=True)),
        cosine=dict(zip(grains.notes, cosine.tolist(), strict=True)),
        vector=vector,
    )
