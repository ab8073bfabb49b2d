"""memory/recall/duplicates.py: how alike the texts of two notes are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.recall.duplicates import SAMPLED_CHARS, SHINGLE, Body
from recalld.memory.recall.tokens import fold, words_of

WORDS = [f"{begin}{number}" for begin in ("a", "b", "s", "as", "sas", "ss", "x", "é") for number in range(60)]


def shingles(text: str) -> set[tuple[str, ...]]:
    words = words_of(fold(text))
    return {tuple(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1)}


@given(
    st.lists(st.sampled_from(WORDS[:-60]), min_size=280, max_size=400),
    st.lists(st.tuples(st.integers(0, 399), st.sampled_from(WORDS[:-60])), max_size=60),
    st.sampled_from((0.3, 0.5, 0.7, 0.9, 1.0)),
    st.booleans(),
)
def test_what_is_ruled_out_is_not_that_alike(
    words: list[str], changes: list[tuple[int, str]], least: float, accent: bool
) -> None:
    """Whatever looks at less than all shingles says the same as they do."""
    other = list(words)
    for at, word in changes:
        other[at % len(other)] = word
    one, two = " ".join(words), " ".join(other) + " \u00e9" * accent
    assert min(len(one), len(two)) >= SAMPLED_CHARS * 0.8
    mine, theirs = shingles(one), shingles(two)
    alike = len(mine & theirs) / len(mine | theirs)
    assert (Body(one).like(Body(two), least) >= least) == (alike >= least)


@pytest.mark.parametrize("other", ["Granite.", "granite", "GRANITE!"])
def test_short_texts_are_alike_when_their_words_are(other: str) -> None:
    """Case and punctuation do not count."""
    assert Body("Granite").like(Body(other), 0.9) == 1.0


def test_lengths_rule_likeness_out() -> None:
    """A text and its first half are not copies."""
    text = " ".join(WORDS)
    assert Body(text).like(Body(text[: len(text) // 2]), 0.1) == 0.0
