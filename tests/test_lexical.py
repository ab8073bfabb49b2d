"""memory/recall/lexical.py: notes scored from passages."""

from __future__ import annotations

import msgspec
import pytest
from ranking import TODAY, card, words, world
from recalld.memory.recall import lexical
from recalld.memory.recall.params import Params
from recalld.memory.recall.query import analyse
from recalld.memory.recall.types import TextEvidence

NOTES = world(card(1, "one"), card(2, "two"), card(3, "three", words=2000))
OF = {1: 1, 2: 2, 3: 3, 11: 1}


def test_coverage_is_the_share_of_what_the_question_says() -> None:
    """A note with all the words covers the question; one with the common word alone covers little of it."""
    question = analyse("gearbox lubricant", NOTES, TODAY)
    found = lexical.read(question, words(question, {"gearbox": [1], "lubricant": [1, 2]}), OF, NOTES, Params())
    assert found.coverage(1) == pytest.approx(1.0)
    assert 0 < found.coverage(2) < 0.5
    assert found.score[1] > found.score[2]
    assert found.matched(1) == ["gearbox", "lubricant"]


def test_words_that_occur_nowhere_lower_the_gate() -> None:
    """A question in other words than the notes' does not let its one stray match decide."""
    question = analyse("condense hazard walkthroughs every seven days", NOTES, TODAY)
    stray = lexical.read(question, words(question, {"days": [1]}), OF, NOTES, Params())
    assert stray.gate == 0.0
    told = analyse("hazard days", NOTES, TODAY)
    assert lexical.read(told, words(told, {"hazard": [1], "days": [1]}), OF, NOTES, Params()).gate == 1.0


def test_a_word_that_was_too_common_to_search_is_not_held_against_a_note() -> None:
    """``df`` without scores: the word occurs, but nobody looked where."""
    question = analyse("gearbox project", NOTES, TODAY)
    text = words(question, {"gearbox": [1]}, df={"gearbox": 1, "project": 60})
    found = lexical.read(question, TextEvidence(scores=text.scores, df=text.df, chunks_total=100), OF, NOTES, Params())
    assert found.coverage(1) == pytest.approx(1.0)


def test_a_note_is_one_document() -> None:
    """The same word in two passages of a note counts more than once, and less than twice."""
    question = analyse("gearbox", NOTES, TODAY)
    params = msgspec.structs.replace(Params(), text_chunk_share=0.0)
    once = lexical.read(question, words(question, {"gearbox": [1]}, df={"gearbox": 2}), OF, NOTES, params).score[1]
    twice = lexical.read(question, words(question, {"gearbox": [1, 11]}, df={"gearbox": 2}), OF, NOTES, params).score[1]
    assert once < twice < 2 * once


def test_a_long_note_needs_more() -> None:
    """One occurrence says less about a note of twenty pages."""
    question = analyse("gearbox", NOTES, TODAY)
    found = lexical.read(question, words(question, {"gearbox": [1, 3]}), OF, NOTES, Params())
    assert found.score[1] > found.score[3]


def test_framing_words_weigh_less() -> None:
    """ "What kind of engine": a note about engines before a note about kinds."""
    question = analyse("what kind of engine", NOTES, TODAY)
    found = lexical.read(question, words(question, {"kind": [1], "engine": [2]}), OF, NOTES, Params())
    assert found.score[2] > found.score[1]
