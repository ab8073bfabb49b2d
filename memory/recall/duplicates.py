"""Near-duplicates: how alike the texts of two notes are."""

from __future__ import annotations

import re

from .tokens import bare, fold, words_of

SHINGLE = 5
"""Words per shingle."""
LENGTHS_ALIKE = 0.8
MANY_LINES = 8
MIN_SHINGLES = 8
"""Shorter texts are near-duplicates only when they are equal."""

SAMPLED_CHARS = 1000
"""Shorter texts have too few words for a sample to tell anything."""
_SAMPLED = re.compile(" [cprs][^ ]*")
"""A fifth of the words of most languages in Latin letters, with few of the words that every text has."""


class Body:
    """The text of a note, for comparison: what that needs is made when a text of about the same length comes along."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines: frozenset[str] | None = None
        self._sample: frozenset[str] | None = None
        self._sample_words = self._words_at_most = 0
        self._words: list[str] | None = None
        self._vocabulary: frozenset[str] = frozenset()
        self._shingles: set[tuple[str, ...]] | None = None

    def like(self, other: Body, least: float) -> float:
        """
        Jaccard similarity of shingles, 0…1; 0 without looking for lengths that rule a likeness of 0.8 out, and for words that
        rule ``least`` out.
        """
        mine, theirs = len(self.text), len(other.text)
        if mine < LENGTHS_ALIKE * theirs or theirs < LENGTHS_ALIKE * mine:
            return 0.0
        # A copy with changes still has most of its lines; comparing those costs a tenth.
        my_lines, their_lines = self.lines(), other.lines()
        many = len(my_lines) >= MANY_LINES <= len(their_lines)
        if many and len(my_lines & their_lines) * 2 < len(my_lines | their_lines):
            return 0.0
        if self._sampled_unlike(other, least) or not self._may_be_like(other, least):
            return 0.0
        one, two = self.shingles(), other.shingles()
        if min(len(one), len(two)) < MIN_SHINGLES:
            return float(one == two)
        return len(one & two) / len(one | two)

    def lines(self) -> frozenset[str]:
        if self._lines is None:
            self._lines = frozenset(self.text.splitlines())
        return self._lines

    def shingles(self) -> set[tuple[str, ...]]:
        if self._shingles is None:
            words = self.words()
            self._shingles = set(zip(*(words[i:] for i in range(SHINGLE)), strict=False)) or {tuple(words)}
        return self._shingles

    def words(self) -> list[str]:
        if self._words is None:
            self._words = words_of(fold(self.text))
            self._vocabulary = frozenset(self._words)
        return self._words

    def sample(self) -> frozenset[str]:
        """Some of the words, the same ones of every text; none of a short text, or of one that is not ASCII."""
        if self._sample is None:
            plain = bare(self.text) if len(self.text) >= SAMPLED_CHARS and self.text.isascii() else ""
            found = _SAMPLED.findall(plain)
            self._sample, self._sample_words, self._words_at_most = frozenset(found), len(found), plain.count(" ")
        return self._sample

    def _sampled_unlike(self, other: Body, least: float) -> bool:
        """Whether a sample is enough to see what ``_may_be_like`` would: sets of all words cost most of a comparison."""
        mine, theirs = self.sample(), other.sample()
        if min(self._sample_words, other._sample_words) < MIN_SHINGLES + SHINGLE:
            return False
        return _too_many_alone(mine, theirs, self._words_at_most + other._words_at_most, least)

    def _may_be_like(self, other: Body, least: float) -> bool:
        """
        Whether the words allow a likeness of ``least``. A word that the other text has not begins a shingle that it has not,
        unless it is one of the last four; a likeness leaves only so many shingles to one of the two.
        """
        lengths = len(self.words()), len(other.words())
        if min(lengths) < MIN_SHINGLES + SHINGLE:
            return True
        return not _too_many_alone(self._vocabulary, other._vocabulary, sum(lengths), least)


def _too_many_alone(one: frozenset[str], two: frozenset[str], words: int, least: float) -> bool:
    """Whether more words are in one set only than two texts of so many words, alike by ``least``, can have."""
    # The shared words are few where texts differ: a third of the time of the difference itself.
    alone = len(one) + len(two) - 2 * len(one & two) - 2 * (SHINGLE - 1)
    return alone * (1.0 + least) > (1.0 - least) * words
