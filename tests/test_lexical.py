"""memory/recall/lexical.py: notes scored from passages."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from ranking import TODAY, card, words, world
from recalld.memory.recall import lexical
from recalld.memory.recall.params import Params
from recalld.memory.recall.query import analyse
from recalld.memory.recall.types import Ints, TextEvidence

NOTES = world(card(1, "one"), card(2, "two"), card(3, "three", words=2000))


def of(chunks: Ints) -> Ints:
    """Each note is a chunk of its own id; the first has chunk 11 too."""
    return np.where(chunks == 11, 1, chunks)


def test_coverage_is_the_share_of_what_the_question_says() -> None:
    """A note with all the words covers the question; one with the common word alone covers little of it."""
    question = analyse("gearbox lubricant", NOTES, TODAY)
    found = lexical.read(question, words(question, {"gearbox": [1], "lubricant": [1, 2]}), of, NOTES, Params())
    assert found.coverage(1) == pytest.approx(1.0)
    assert 0 < found.coverage(2) < 0.5
    assert found.score[1] > found.score[2]
    assert found.matched(1) == ["gearbox", "lubricant"]


def test_words_that_occur_nowhere_lower_the_gate() -> None:
    """A question in other words than the notes' does not let its one stray match decide."""
    question = analyse("condense hazard walkthroughs every seven days", NOTES, TODAY)
    stray = lexical.read(question, words(question, {"days": [1]}), of, NOTES, Params())
    assert stray.gate == 0.0
    told = analyse("hazard days", NOTES, TODAY)
    assert lexical.read(told, words(told, {"hazard": [1], "days": [1]}), of, NOTES, Params()).gate == 1.0


def test_a_word_that_was_too_common_to_search_is_not_held_against_a_note() -> None:
    """``df`` without scores: the word occurs, but nobody looked where."""
    question = analyse("gearbox project", NOTES, TODAY)
    text = words(question, {"gearbox": [1]}, df={"gearbox": 1, "project": 60})
    found = lexical.read(
        question, TextEvidence(matches=text.matches, df=text.df, chunks_total=100), of, NOTES, Params()
    )
    assert found.coverage(1) == pytest.approx(1.0)


def test_a_note_is_one_document() -> None:
    """The same word in two passages of a note counts more than once, and less than twice."""
    question = analyse("gearbox", NOTES, TODAY)
    params = msgspec.structs.replace(Params(), text_chunk_share=0.0)
    once = lexical.read(question, words(question, {"gearbox": [1]}, df={"gearbox": 2}), of, NOTES, params).score[1]
    twice = lexical.read(question, words(question, {"gearbox": [1, 11]}, df={"gearbox": 2}), of, NOTES, params).score[1]
    assert once < twice < 2 * once


def test_a_long_note_needs_more() -> None:
    """One occurrence says less about a note of twenty pages."""
    question = analyse("gearbox", NOTES, TODAY)
    found = lexical.read(question, words(question, {"gearbox": [1, 3]}), of, NOTES, Params())
    assert found.score[1] > found.score[3]


def test_framing_words_weigh_less() -> None:
    """ "What kind of engine": a note about engines before a note about kinds."""
    question = analyse("what kind of engine", NOTES, TODAY)
    found = lexical.read(question, words(question, {"kind": [1], "engine": [2]}), of, NOTES, Params())
    assert found.score[2] > found.score[1]


def test_a_note_that_is_gone_is_left_out() -> None:
    """What is found in passages of no note, or of one that the catalog does not know, moves nobody's score."""
    question = analyse("gearbox lubricant", NOTES, TODAY)
    where = words(question, {"gearbox": [1, 2], "lubricant": [1, 2]})
    both = lexical.read(question, where, of, NOTES, Params())
    for other in (0, 4, 10**6):
        found = lexical.read(
            question, where, lambda chunks, other=other: np.where(chunks == 2, other, 1), NOTES, Params()
        )
        assert found.score == {1: both.score[1]}
        assert (found.chunk(1), found.matched(1)) == (1, ["gearbox", "lubricant"])


def test_the_first_of_equal_passages_is_the_best_one() -> None:
    question = analyse("gearbox lubricant", NOTES, TODAY)
    where = words(question, {"gearbox": [11, 1], "lubricant": [2]})
    found = lexical.read(question, where, of, NOTES, Params())
    assert (found.chunk(1), found.chunk(2)) == (1, 2)


def test_a_question_of_which_nothing_is_found_has_no_scores() -> None:
    for text in ("gearbox", "", "?"):
        question = analyse(text, NOTES, TODAY)
        found = lexical.read(question, words(question, {}), of, NOTES, Params())
        assert (found.score, found.order, found.gate, found.coverage(1)) == ({}, [], 0.0, 0.0)


def test_lengths_of_notes_follow_the_catalog() -> None:
    """Of empty notes 1, of what is not there 0, whatever its id."""
    notes = world(card(1, "one"), card(5000, "five", words=0))
    assert notes.lengths(np.array([1, 2, 5000, 5001, 10**9])).tolist() == [100, 0, 1, 0, 0]
    notes.put(card(1, "one", words=7))
    notes.drop(5000)
    assert notes.lengths(np.array([1, 5000])).tolist() == [7, 0]
