"""memory/recall/rank.py: the order of notes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking import TODAY, Similar, card, itself, order, ranked, words, world
from recalld.memory.recall import lexical
from recalld.memory.recall.params import Params, changed, params_from
from recalld.memory.recall.query import analyse
from recalld.memory.recall.rank import rank
from recalld.memory.recall.types import Evidence

NOTES = world(*(card(n, f"note {n}") for n in range(1, 9)))


def test_words_decide_when_they_cover_the_question() -> None:
    """A note with the question's rare words stands above one that is merely similar."""
    found = ranked(
        "gearbox lubricant viscosity", NOTES, {"gearbox": [1], "lubricant": [1], "viscosity": [1]}, {1: 0.4, 2: 0.5}
    )
    assert order(found)[0] == 1


def test_meaning_decides_when_words_do_not() -> None:
    """One stray word does not carry a note above the one that means it."""
    found = ranked("condense hazard walkthroughs done every week", NOTES, {"week": [1]}, {1: 0.1, 2: 0.5})
    assert order(found)[0] == 2
    assert found.candidates[0].streams.keys() == {"vector"}


def test_words_alone_are_enough() -> None:
    """Without vectors the answer comes from text, however few words match."""
    assert order(ranked("condense hazard walkthroughs every week", NOTES, {"week": [3]}, None))[0] == 3


def test_vectors_alone_are_enough() -> None:
    """Without full text the answer comes from similarity."""
    assert order(ranked("anything", NOTES, None, {4: 0.6, 5: 0.3}))[:2] == [4, 5]


def test_a_note_that_went_after_its_words_were_read_is_no_candidate() -> None:
    """Words are read while the question is being embedded; what the notes are called by then need not hold any more."""
    question = analyse("gearbox lubricant", NOTES, TODAY)
    text = words(question, {"gearbox": [1, 2], "lubricant": [1, 2, 3]})
    evidence = Evidence(text=text, vector=Similar({2: 0.4, 3: 0.3}), note_of_chunk=itself)
    read = lexical.read(question, text, evidence.note_of_chunk, NOTES, Params())
    left = world(*(card(n, f"note {n}") for n in range(2, 9)))
    assert order(rank(question, evidence, NOTES, Params(), k=5, words=read)) == [2, 3, 1]
    assert order(rank(question, evidence, left, Params(), k=5, words=read)) == [2, 3]


def test_nothing_found_is_an_empty_ranking() -> None:
    """No match: no candidates, no confidence, not known."""
    found = ranked("zzz", NOTES, {}, {})
    assert (found.candidates, found.confidence, found.known) == ((), 0.0, False)


def test_only_allowed_notes_are_candidates() -> None:
    """A filter holds whatever the streams say."""
    assert order(ranked("x", NOTES, None, {1: 0.9, 2: 0.5}, allowed={2})) == [2]


def test_streams_can_be_left_out() -> None:
    """Without the graph stream nothing comes by a link."""
    linked = world(card(1, "a"), card(2, "b"), links=[(1, 2)])
    assert set(order(ranked("x", linked, None, {1: 0.9}))) == {1, 2}
    assert order(ranked("x", linked, None, {1: 0.9}, streams=("text", "vector"))) == [1]


def test_every_candidate_says_why() -> None:
    """Streams with rank, score and weight; the score before the factors; a line for a person."""
    found = ranked("Note 3 gearbox", NOTES, {"gearbox": [3], "note": [1, 2, 3], "3": [3]}, {3: 0.5}).candidates[0]
    assert set(found.streams) == {"text", "entity", "vector"}
    assert found.streams["entity"].detail == "Note 3"
    assert "gearbox" in found.why
    assert "Note 3" in found.why
    assert found.factors["fused"] > 0


def test_recency_counts_only_where_it_is_asked_for() -> None:
    """ "recently" brings the newer note up; without it, age says nothing."""
    notes = world(card(1, "a", date="2020-01-01"), card(2, "b", date="2026-02-20"))
    assert order(ranked("what changed recently", notes, None, {1: 0.52, 2: 0.5}))[0] == 2
    assert order(ranked("what changed", notes, None, {1: 0.52, 2: 0.5}))[0] == 1


def test_a_note_of_the_day_in_question_comes_first() -> None:
    """Dates tell sessions apart that say much the same."""
    notes = world(card(1, "a", date="2025-05-01"), card(2, "b", date="2025-06-14"))
    assert order(ranked("what did we say on 14 June 2025", notes, None, {1: 0.52, 2: 0.5}))[0] == 2


def test_parameters_have_a_place_in_the_documentation() -> None:
    """docs/ranking.md names each parameter that the configuration can change, with its default."""
    text = (Path(__file__).parent.parent / "docs" / "ranking.md").read_text(encoding="utf-8")
    defaults = msgspec.structs.asdict(Params())
    missing = [name for name, value in defaults.items() if name != "model" and f"| `{name}` | {value:g} |" not in text]
    assert missing == []


def test_overrides_are_checked() -> None:
    """An unknown parameter, or one out of its range, is an error that names it."""
    assert params_from({"graph_seeds": 5}).graph_seeds == 5
    kept = msgspec.structs.replace(Params(), know_threshold=0.3)
    assert changed(kept, {"graph_seeds": 5}).know_threshold == 0.3
    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        params_from({"nonsense": 1.0})
    with pytest.raises(msgspec.ValidationError, match="graph_decay"):
        params_from({"graph_decay": -1.0})


@given(
    cosines=st.dictionaries(st.integers(1, 8), st.floats(-1, 1, allow_nan=False), max_size=8),
    edges=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=20),
    text=st.text(max_size=60),
)
def test_ranking_is_total_and_deterministic(cosines: dict[int, float], edges: list[tuple[int, int]], text: str) -> None:
    """Whatever is asked of whatever notes: no error, no note twice, the same order again, scores that fall."""
    notes = world(*(card(n, f"note {n}") for n in range(1, 9)), links=edges)
    once, again = (ranked(text, notes, {}, cosines) for _ in range(2))
    assert order(once) == order(again)
    assert len(set(order(once))) == len(order(once))
    scores = [candidate.score for candidate in once.candidates]
    assert scores == sorted(scores, reverse=True)
    assert 0.0 <= once.confidence <= 1.0
