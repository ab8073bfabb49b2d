"""memory/recall/supersession.py and its part in the order."""

from __future__ import annotations

import pytest
from ranking import card, order, ranked, world
from recalld.memory.recall.supersession import current_of, is_superseded, replaced_by_sibling

OLD = card(1, "Heron deadline (2025-02-07)", kind="decision", date="2025-02-07", status="superseded")
NEW = card(2, "Heron deadline (2025-08-16)", kind="decision", date="2025-08-16", status="current")
OTHER = card(3, "Heron", kind="project")
LINKS = [(1, 2, "superseded_by")]


@pytest.mark.parametrize("links", [[(1, 2, "superseded_by")], [(2, 1, "supersedes")]])
@pytest.mark.parametrize("question", ["What is the current deadline?", "What is the deadline?", "deadline of heron"])
def test_the_current_note_comes_first(question: str, links: list[tuple[int, int, str]]) -> None:
    """However similar the old one is, and whichever of the two notes says so."""
    found = ranked(question, world(OLD, NEW, OTHER, links=links), None, {1: 0.8, 2: 0.5, 3: 0.3})
    assert order(found).index(2) < order(found).index(1)


def test_the_replacement_comes_with_what_it_replaces() -> None:
    """Also when no stream found it."""
    assert 2 in order(ranked("x", world(OLD, NEW, links=LINKS), None, {1: 0.8}))


def test_history_finds_the_old_note_and_says_what_replaced_it() -> None:
    """ "The original deadline" is in the old note, which is marked."""
    found = ranked("What was the original deadline?", world(OLD, NEW, links=LINKS), None, {1: 0.6, 2: 0.6})
    assert order(found)[0] == 1
    assert found.candidates[0].superseded_by == 2
    assert "superseded by “Heron deadline (2025-08-16)”" in found.candidates[0].why


def test_chains_end_at_the_last_and_circles_end() -> None:
    """A replaced by B replaced by C is answered with C; a circle does not hang."""
    notes = world(*(card(n, f"n{n}") for n in (1, 2, 3)), links=[(1, 2, "superseded_by"), (2, 3, "superseded_by")])
    assert current_of(1, notes) == 3
    circle = world(card(1, "a"), card(2, "b"), links=[(1, 2, "superseded_by"), (2, 1, "superseded_by")])
    assert current_of(1, circle) == 2
    assert set(order(ranked("x", circle, None, {1: 0.5, 2: 0.4}))) == {1, 2}


def test_a_status_alone_marks_a_note() -> None:
    """status: obsolete, without saying what came after."""
    notes = world(card(1, "a", status="Obsolete"), card(2, "b"))
    assert is_superseded(notes.cards[1], notes)
    assert not is_superseded(notes.cards[2], notes)
    assert order(ranked("x", notes, None, {1: 0.55, 2: 0.5}))[0] == 2


def test_dated_siblings_on_one_subject() -> None:
    """Of decisions with one title but for the date, the newest is current when "current" is asked; meetings just recur."""
    first = card(1, "Budget 2024-01-01", kind="decision", date="2024-01-01")
    second = card(2, "Budget 2025-01-01", kind="decision", date="2025-01-01")
    weekly = [card(n, f"Sync 2025-01-0{n}", kind="meeting", date=f"2025-01-0{n}") for n in (3, 4)]
    assert replaced_by_sibling([first, second, *weekly]) == {1: 2}
    notes = world(first, second)
    assert order(ranked("current budget", notes, None, {1: 0.55, 2: 0.5}))[0] == 2
    assert order(ranked("budget of 2024", notes, None, {1: 0.55, 2: 0.5}))[0] == 1
