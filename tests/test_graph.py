"""memory/recall/graph.py: votes along links."""

from __future__ import annotations

import msgspec
from ranking import TODAY, card, order, ranked, world
from recalld.memory.recall import graph
from recalld.memory.recall.params import Params
from recalld.memory.recall.query import analyse


def test_a_linked_note_comes_up_although_nothing_in_it_matches() -> None:
    """The second half of a two-hop question: its note has no word and little meaning in common with the question."""
    notes = world(*(card(n, f"n{n}") for n in range(1, 9)), links=[(1, 7)])
    cosines = {1: 0.7, 2: 0.4, 3: 0.39, 4: 0.38, 5: 0.37, 6: 0.36, 7: 0.12}
    found = ranked("x", notes, None, cosines)
    assert order(found)[1] == 7
    assert found.candidates[1].link_path == (1, 7)
    assert "linked from “n1”" in found.candidates[1].why
    assert order(ranked("x", notes, None, cosines, params=msgspec.structs.replace(Params(), graph_weight=0.0)))[1] == 2


def test_among_neighbours_the_one_that_fits_gets_more() -> None:
    """A hub's links are ordered by how well each fits the question itself."""
    notes = world(*(card(n, f"n{n}") for n in range(1, 6)), links=[(1, 2), (1, 3), (1, 4)])
    votes = graph.votes(analyse("x", notes, TODAY), {1: 1.0}, {2: 0.1, 3: 0.3, 4: 0.2}, notes, Params())
    assert votes[3].score > votes[4].score > votes[2].score


def test_a_neighbour_of_the_kind_that_is_asked_for_gets_more() -> None:
    """ "Which tool": of two links the one to a tool."""
    notes = world(card(1, "a"), card(2, "b", kind="tool"), card(3, "c", kind="person"), links=[(1, 2), (1, 3)])
    votes = graph.votes(analyse("which tool is it", notes, TODAY), {1: 1.0}, {2: 0.2, 3: 0.2}, notes, Params())
    assert votes[2].score > votes[3].score


def test_backlinks_vote_less_than_links() -> None:
    """Who links to the seed is a weaker hint than what the seed links to."""
    notes = world(card(1, "a"), card(2, "b"), card(3, "c"), links=[(1, 2), (3, 1)])
    votes = graph.votes(analyse("x", notes, TODAY), {1: 1.0}, {2: 0.2, 3: 0.2}, notes, Params())
    assert votes[2].forward
    assert not votes[3].forward
    assert votes[2].score > votes[3].score > 0


def test_link_kinds_can_be_told_apart() -> None:
    """Each kind has its weight."""
    notes = world(card(1, "a"), card(2, "b"), card(3, "c"), links=[(1, 2, "markdown"), (1, 3, "fixes")])
    params = msgspec.structs.replace(Params(), graph_markdown=0.5)
    votes = graph.votes(analyse("x", notes, TODAY), {1: 1.0}, {2: 0.2, 3: 0.2}, notes, params)
    assert votes[2].score < votes[3].score
    assert votes[3].kind == "fixes"


def test_a_vote_never_exceeds_its_seed() -> None:
    """A neighbour gets a share."""
    notes = world(card(1, "a"), card(2, "b"), links=[(1, 2)])
    votes = graph.votes(analyse("x", notes, TODAY), {1: 0.8}, {2: 0.9}, notes, Params())
    assert votes[2].score < 0.8


def test_votes_fade_with_each_link() -> None:
    """With ``graph_second`` a neighbour passes part of its vote on: less with each link, never back, and the path says so."""
    notes = world(*(card(n, f"n{n}") for n in range(1, 10)), links=[(1, 7), (7, 8), (8, 9)])
    cosines = {1: 0.7, 2: 0.4, 3: 0.39, 4: 0.38, 7: 0.12, 8: 0.11, 9: 0.1}
    assert ranked("x", notes, None, cosines, k=9).candidates[-2].link_path == ()
    further = ranked("x", notes, None, cosines, k=9, params=msgspec.structs.replace(Params(), graph_second=0.8))
    found = {candidate.note_id: candidate for candidate in further.candidates}
    assert found[7].link_path == (1, 7)
    assert found[8].link_path == (1, 7, 8)
    assert found[9].link_path == ()
    assert found[1].score > found[7].score > found[8].score > found[9].score
    assert "linked from “n7”" in found[8].why


def test_votes_fade_with_degree() -> None:
    """With ``graph_degree`` a seed with many links gives each of them less; a few links cost nothing."""
    notes = world(*(card(n, f"n{n}") for n in range(1, 40)), links=[(1, n) for n in range(2, 34)] + [(34, 35)])
    params = msgspec.structs.replace(Params(), graph_degree=0.5)
    own = dict.fromkeys(range(1, 40), 0.2)
    votes = graph.votes(analyse("x", notes, TODAY), {1: 1.0, 34: 1.0}, own, notes, params)
    assert votes[2].score * 2 == votes[35].score
