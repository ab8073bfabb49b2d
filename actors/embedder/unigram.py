"""
SentencePiece's unigram tokenisation, for vocabularies of hundreds of thousands of pieces.

The tokenizers library keeps a hash map per node of its trie: 295 MB for XLM-RoBERTa's 250,000 pieces, more than model and
process together. One dict of the pieces takes 67 MB, and a cache of words makes up for the speed. The ids are the same, but for
``<s>`` and its like in a text: here they are text.
"""

from __future__ import annotations

import math
import unicodedata
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...models.unigram import CONTROL, SPACES

UNKNOWN_PENALTY = 10.0
"""Below the least score of any piece: what SentencePiece takes for a character that it doesn't know."""
CACHED_WORDS = 20_000
CACHED_CHARS = 24
"""Longer runs (Chinese and Japanese have no spaces) seldom come again."""


class Encoded(NamedTuple):
    ids: list[int]


class _Special(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: list[tuple[str, float]]
    unk_id: int


class _File(msgspec.Struct):
    """The parts of a tokenizer.json that are needed; the rest is as ``models.unigram`` writes it."""

    model: _Model
    added_tokens: list[_Special]


class Unigram:
    """Reads a tokenizer.json that ``models.unigram.tokenizer_json`` has written. Raises OSError, msgspec.MsgspecError."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
        special = {one.content: one.id for one in file.added_tokens}
        self._begin, self._end = special["<s>"], special["</s>"]
        self._unknown = file.model.unk_id
        self._room = max_tokens - 2
        self._scores = array("d", (score for _, score in file.model.vocab))
        self._pieces = {text: number for number, (text, _) in enumerate(file.model.vocab) if text not in special}
        self._penalty = min(self._scores) - UNKNOWN_PENALTY
        self._longest: dict[str, int] = {}
        for text in self._pieces:
            if len(text) > self._longest.get(text[:1], 0):
                self._longest[text[:1]] = len(text)
        self._clean = str.maketrans({**dict.fromkeys(CONTROL, ""), **dict.fromkeys(SPACES, " ")})
        self._words: dict[str, list[int]] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[Encoded]:
        """Ids of each text, between those of begin and end, cut to the model's maximum."""
        return [Encoded([self._begin, *self._ids(text), self._end]) for text in texts]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in unicodedata.normalize("NFKC", text.translate(self._clean)).split():
            found = self._words.get(word)
            if found is None:
                found = self._best("▁" + word)
                if len(word) <= CACHED_CHARS:
                    if len(self._words) >= CACHED_WORDS:
                        self._words.clear()
                    self._words[word] = found
            ids += found
            if len(ids) >= self._room:
                return ids[: self._room]
        return ids

    def _best(self, word: str) -> list[int]:
        """The pieces with the largest sum of scores (Viterbi); neighbouring unknown characters are one unknown piece."""
        size = len(word)
        best = [0.0] + [-math.inf] * size
        came: list[tuple[int, int]] = [(0, 0)] * (size + 1)
        for start in range(size):
            here = best[start]
            alone = False
            for end in range(start + 1, min(size, start + self._longest.get(word[start], 0)) + 1):
                number = self._pieces.get(word[start:end])
                if number is None:
                    continue
                alone = alone or end == start + 1
                score = here + self._scores[number]
                if score > best[end]:
                    best[end], came[end] = score, (start, number)
            if not alone and here + self._penalty > best[start + 1]:
                best[start + 1], came[start + 1] = here + self._penalty, (start, self._unknown)
        ids: list[int] = []
        at = size
        while at:
            at, number = came[at]
            if not (ids and number == ids[-1] == self._unknown):
                ids.append(number)
        return ids[::-1]
