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
_SAMPLED = re.compile("(s[^ s]*+) ++(?=([^ ]+))")
"""
Of a quarter of the words in most languages with Latin letters, the end from the last "s" on, with the word that follows: such
a pair is as good as never the same in two texts. A pattern that begins with one letter is the fastest to look for.
"""


class Body:
    """The text of a note, for comparison: what that needs is made when a text of about the same length comes along."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._ready = False
        self._lines: frozenset[str] = frozenset()
        self._sample: frozenset[tuple[str, str]] = frozenset()
        self._sampled = self._words_at_most = 0
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
        for body in (self, other):
            if not body._ready:
                body._prepare()
        # A copy with changes still has most of its lines; comparing those costs a tenth.
        many = len(self._lines) >= MANY_LINES <= len(other._lines)
        if many and len(self._lines & other._lines) * 2 < len(self._lines | other._lines):
            return 0.0
        # Often a sample is enough to see what all words would say: sets of those cost most of a comparison.
        if min(self._sampled, other._sampled) >= MIN_SHINGLES + SHINGLE:
            words_at_most = self._words_at_most + other._words_at_most
            if _too_many_alone(self._sample, other._sample, words_at_most, least):
                return 0.0
        if not self._may_be_like(other, least):
            return 0.0
        one, two = self.shingles(), other.shingles()
        if min(len(one), len(two)) < MIN_SHINGLES:
            return float(one == two)
        return len(one & two) / len(one | two)

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

    def _prepare(self) -> None:
        """Lines, and a sample of the words, the same ones of every text; none of a short text, or of one that is not ASCII."""
        self._ready = True
        self._lines = frozenset(self.text.splitlines())
        if len(self.text) >= SAMPLED_CHARS and self.text.isascii():
            plain = bare(self.text)
            found = _SAMPLED.findall(plain)
            self._sample, self._sampled, self._words_at_most = frozenset(found), len(found), plain.count(" ")

    def _may_be_like(self, other: Body, least: float) -> bool:
        """
        Whether the words allow a likeness of ``least``. A word that the other text has not begins a shingle that it has not,
        unless it is one of the last four; a likeness leaves only so many shingles to one of the two.
        """
        lengths = len(self.words()), len(other.words())
        if min(lengths) < MIN_SHINGLES + SHINGLE:
            return True
        return not _too_many_alone(self._vocabulary, other._vocabulary, sum(lengths), least)


def _too_many_alone(one: frozenset[object], two: frozenset[object], words: int, least: float) -> bool:
    """
    Whether more is in one set only than two texts of so many words, alike by ``least``, can have: of words, or of anything
    else that the shingle which begins there decides.
    """
    # The shared words are few where texts differ: a third of the time of the difference itself.
    alone = len(one) + len(two) - 2 * len(one & two) - 2 * (SHINGLE - 1)
    return alone * (1.0 + least) > (1.0 - least) * words
