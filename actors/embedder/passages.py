"""What is embedded of a chunk, and how its vectors are packed. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...memory.recall.readable import readable
from ...memory.recall.tokens import sentences
from ...protocol.messages.index import EmbeddedChunk, PendingChunk, Vector

MAX_SENTENCES = 12
"""Vectors of sentences per chunk. A chunk of 200 tokens has about eight; a list of short items could have fifty."""


class Piece(msgspec.Struct, frozen=True):
    """One text to embed: which chunk it is from, and where it stands there."""

    chunk: int
    ordinal: int
    char_from: int
    char_to: int
    text: str


def pieces(chunks: Sequence[PendingChunk], *, with_sentences: bool) -> list[Piece]:
    """
    Each chunk as a whole (ordinal 0) and, where it has several, its sentences: each below the chunk's context.

    Of more than MAX_SENTENCES, neighbours are joined, so that no word is left out.
    """
    found: list[Piece] = []
    for index, chunk in enumerate(chunks):
        found.append(Piece(index, 0, 0, len(chunk.text), f"{chunk.context}\n{readable(chunk.text)}"))
        spans = _joined(sentences(chunk.text)) if with_sentences else []
        if len(spans) > 1:
            found += [
                Piece(index, ordinal, start, end, f"{chunk.context}\n{readable(chunk.text[start:end])}")
                for ordinal, (start, end) in enumerate(spans, 1)
            ]
    return found


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    groups = min(len(spans), MAX_SENTENCES)
    bounds = [number * len(spans) // groups for number in range(groups + 1)] if groups else []
    return [(spans[first][0], spans[last - 1][1]) for first, last in itertools.pairwise(bounds)]


def packed(
    chunks: Sequence[PendingChunk],
    found: Sequence[Piece],
    vectors: NDArray[np.float32],
    errors: Mapping[int, str],
) -> tuple[list[EmbeddedChunk], dict[bytes, str]]:
    """
    What to store, and what failed (hash to error): a chunk is stored with all its vectors or not at all.

    ``vectors`` has one row per piece; ``errors`` is keyed by row.
    """
    failed = {chunks[found[row].chunk].hash: error for row, error in errors.items()}
    halves = vectors.astype("<f2")
    rows: dict[int, list[Vector]] = {}
    for row, piece in enumerate(found):
        vector = Vector(piece.ordinal, piece.char_from, piece.char_to, halves[row].tobytes())
        rows.setdefault(piece.chunk, []).append(vector)
    stored = [
        EmbeddedChunk(chunk.hash, tuple(rows[index])) for index, chunk in enumerate(chunks) if chunk.hash not in failed
    ]
    return stored, failed
