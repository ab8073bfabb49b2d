"""memory/recall/query.py: what a question asks for."""

from __future__ import annotations

import pytest
from ranking import TODAY, card, world
from recalld.memory.recall.query import analyse

NOTES = world(
    card(1, "Project Heron", kind="project"),
    card(2, "Greta Lindqvist", kind="person", aliases=("Greta",)),
    card(3, "retry budget", tags=("payments",), kind="decision"),
    card(4, "備忘録", kind="note"),
    card(5, "Quillmark", kind="tool"),
)


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("Project Heron", "name"),
        ("who leads Project Heron?", "question"),
        ("heron deadline", "keywords"),
        ("where is parse_config defined", "exact"),
        ('the note that says "never retry twice"', "exact"),
        ("TypeError in worker", "exact"),
        ("docs/setup.md", "exact"),
        ("what did we do last time?", "sessions"),
        ("where did we leave off yesterday", "sessions"),
    ],
)
def test_intent(text: str, intent: str) -> None:
    """The kind of a question is read from its words."""
    assert analyse(text, NOTES, TODAY).intent == intent


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("What is the current deadline?", "current"),
        ("what was the current plan again", "current"),
        ("qual é o prazo atual?", "current"),
        ("aktuelle Frist", "current"),
        ("текущий срок проекта", "current"),
        ("現在の締切は？", "current"),
        ("What was the original deadline?", "history"),
        ("what did we use before", "history"),
        ("recently changed notes about CI", "recent"),
        ("When did Greta join?", "when"),
        ("Who leads Heron?", ""),
    ],
)
def test_time(text: str, time: str) -> None:
    """Whether a question is about now, about the past, or asks for a time, in several languages."""
    assert analyse(text, NOTES, TODAY).time == time


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("Who leads Heron?", "person"),
        ("Where does Greta work?", "place"),
        ("How many desks are there?", "number"),
        ("Which port does it use?", "number"),
        ("Why did we drop it?", "reason"),
        ("What is the deadline?", "date"),
        ("Which tool do they like?", ""),
    ],
)
def test_wants(text: str, wants: str) -> None:
    """The kind of answer that is wanted."""
    assert analyse(text, NOTES, TODAY).wants == wants


def test_kinds_are_those_asked_for_not_those_in_names() -> None:
    """ "Which tool" asks for tools; "Project Heron" names a project and asks for none."""
    assert analyse("Which tool does Greta like?", NOTES, TODAY).kinds == ("tool",)
    assert analyse("What is the deadline of Project Heron?", NOTES, TODAY).kinds == ()


def test_the_residue_is_the_question_without_known_names() -> None:
    """What is asked of a known thing is embedded by itself; nothing is, when nothing known is named."""
    question = analyse("What is Greta Lindqvist's phone extension?", NOTES, TODAY)
    assert question.probes == ("What is phone extension?",)
    assert analyse("What is Barnaby's phone extension?", NOTES, TODAY).probes == ()
    assert analyse("Greta Lindqvist", NOTES, TODAY).probes == ()


def test_attributes_are_the_words_outside_names() -> None:
    """The words of names pick the note; the others say what is asked of it."""
    question = analyse("Greta Lindqvist retirement plans", NOTES, TODAY)
    assert [term.text for term in question.attributes] == ["retirement", "plans"]


@pytest.mark.parametrize("text", ["", "?", "   ", "\x00", "…", "the of and", "a" * 5000, "[[", "🙂🙂", "((((" * 200])
def test_any_text_can_be_analysed(text: str) -> None:
    """Nothing that can be typed is an error."""
    analyse(text, NOTES, TODAY)
