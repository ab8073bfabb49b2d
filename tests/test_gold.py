"""memory/recall/gold.py: questions from the notes themselves."""

from __future__ import annotations

from ranking import card, world
from recalld.memory.recall.gold import Gold, absent, asked_of_subjects, build, first_paragraph, small_classes
from recalld.protocol.messages.common import Chunk

PROSE = (
    "A paragraph of prose that goes on for quite a while, with [[other|another note]] in it, so that it is long enough."
)
NOTES = world(
    card(1, "First subject", path="a/first.md"),
    card(2, "Second subject", path="a/second.md"),
    card(3, "Third", path="b/third.md"),
    card(4, "Old plan of ours", path="b/old.md", status="superseded"),
    card(5, "Twin note here", path="a/twin.md"),
    card(6, "Twin note there", path="b/twin.md"),
    links=[(1, 2), (1, 3), (2, 3), (4, 3, "superseded_by")],
)


def chunk(text: str) -> tuple[Chunk, ...]:
    return (Chunk(ordinal=0, hash=b"", context="", text=text, line_from=1, line_to=1),)


CHUNKS = {1: chunk(f"# First\n\n{PROSE}"), 2: chunk(PROSE)}


def in_order(found: list[Gold]) -> list[Gold]:
    return found


def test_the_four_classes() -> None:
    """Titles and paragraphs answer with their note, links with their targets, replaced notes with what replaced them."""
    found = {(q.cls, q.question): q.support for q in build(NOTES, CHUNKS, 60, in_order)}
    asked = PROSE.replace("[[other|another note]]", "another note")
    assert found["title", "First subject"] == ("a/first",)
    assert found["body", asked] == ("a/second",)
    assert found["bridge", asked] == ("a/second", "b/third")
    assert found["temporal", "Old plan of ours"] == ("b/third",)
    assert ("title", "Third") not in found
    assert not any("Twin" in question for _, question in found)


def test_at_most_per_class() -> None:
    """And ids that say the class."""
    found = build(NOTES, CHUNKS, 1, in_order)
    assert [q.id for q in found] == ["title-001", "body-001", "bridge-001", "temporal-001"]
    assert small_classes(found) == {"title": 1, "body": 1, "bridge": 1, "temporal": 1}


def test_paragraphs_are_prose() -> None:
    """No list, quote, table or code; neither too short nor too long."""
    for text in ("- " + PROSE, "> " + PROSE, "| " + PROSE, "short", "x" * 500):
        assert first_paragraph(chunk(text)) == ""


def test_absent_questions_ask_for_what_no_note_says() -> None:
    """A frame whose telling word occurs in the notes is not used."""
    found = absent(NOTES, frozenset({"zodiac"}), 60, in_order)
    assert any(q.question == "What is the shoe size of First subject?" for q in found)
    assert not any("zodiac" in q.question for q in found)
    assert all(q.support == () for q in found)


def test_questions_about_subjects_have_words_of_their_notes() -> None:
    """The title and three words of a sentence."""
    (question,) = asked_of_subjects(NOTES, {1: CHUNKS[1]}, 1, in_order)
    assert question.question.startswith("First subject ")
    assert question.support == ("a/first",)
