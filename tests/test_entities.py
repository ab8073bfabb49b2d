"""memory/recall/entities.py: names in notes and in questions."""

from __future__ import annotations

import pytest
from ranking import card, world
from recalld.memory.recall.entities import entity_scores, find_names, name_key

NOTES = world(
    card(1, "Project Heron", aliases=("Grey bird",)),
    card(2, "Heron", path="animals/heron.md"),
    card(3, "Straße", entities=("Ada Lovelace",), tags=("work/billing",)),
    card(4, "Other", entities=("Ada Lovelace",)),
    card(5, "設計メモ"),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("who leads Project Heron", [("project heron", (1,))]),
        ("what does the heron eat", [("heron", (2,))]),
        ("the GREY BIRD again", [("grey bird", (1,))]),
        ("Grey bird's wings", [("grey bird", (1,))]),
        ("STRASSE", [("strasse", (3,))]),
        ("did Ada Lovelace write it", [("ada lovelace", (3, 4))]),
        ("billing at work/billing", [("work billing", (3,))]),
        ("設計メモはどこ", [("設計メモ", (5,))]),
        ("In what year did Kasimir Ibarrondo join?", [("kasimir ibarrondo", ())]),
        ("Who is Fabian Okafor-Lind?", [("fabian okafor lind", ())]),
        ("Is it on Monday?", []),
        ("What is this?", []),
        ("Retries are slow", []),
    ],
)
def test_find_names(text: str, found: list[tuple[str, tuple[int, ...]]]) -> None:
    """Longest match first: titles, file names, aliases, entities, tags; capitalised words that are none of them."""
    assert [(name.key, name.notes) for name in find_names(text, NOTES)] == found


def test_name_key_folds() -> None:
    """Case, accents, punctuation and possessives do not matter."""
    assert name_key("  Café-Zürich's ") == name_key("cafe zurich") == "cafe zurich"


def test_a_name_counts_by_how_few_notes_have_it() -> None:
    """A name on two notes is worth half to each; one on more notes than the limit is worth nothing."""
    names = find_names("Ada Lovelace and Project Heron", NOTES)
    assert entity_scores(names, NOTES.cards, limit=10) == {3: 0.5, 4: 0.5, 1: 1.0}
    assert entity_scores(names, NOTES.cards, limit=1) == {1: 1.0}
