"""memory/recall/rerank: orders after a cross-encoder, and the verdict on one."""

from __future__ import annotations

import itertools
import math
import random

import msgspec
import pytest
from recalld.memory.recall.params import Params
from recalld.memory.recall.rerank import ANY, Standing, Verdict, blend, judge, wanted


def standings(*scores: float, **more: dict[int, object]) -> list[Standing]:
    """Notes 1, 2, …; ``more``: field -> {note: value}."""
    return [
        Standing(note_id=note, score=score, **{name: at[note] for name, at in more.items() if note in at})  # type: ignore[arg-type]
        for note, score in enumerate(scores, 1)
    ]


def order(hits: list[Standing], said: list[float], weight: float = 0.5, margin: float = 0.0) -> list[int]:
    return [hits[one.at].note_id for one in blend(hits, said, weight=weight, margin=margin)]


@pytest.mark.parametrize(
    ("weight", "expected"), [(0.0, [1, 2, 3]), (1.0, [3, 2, 1]), (0.4, [1, 2, 3]), (0.6, [3, 2, 1])]
)
def test_the_weight_says_whose_order_it_is(weight: float, expected: list[int]) -> None:
    """0 keeps the order, 1 takes the cross-encoder's, halves mix them."""
    assert order(standings(0.9, 0.5, 0.1), [-4.0, 0.0, 4.0], weight) == expected


def test_each_hit_says_what_it_got() -> None:
    """Its score from the cross-encoder, its rank by that, and where it stood."""
    first, second = blend(standings(0.9, 0.1), [1.5, 7.25], weight=1.0)
    assert (first.at, first.said, first.rank) == (1, 7.25, 1)
    assert (second.at, second.said, second.rank) == (0, 1.5, 2)
    assert first.score == pytest.approx(0.9)
    assert second.score == pytest.approx(0.1)


@pytest.mark.parametrize("said", [[], [2.0, 2.0, 2.0], [math.nan, 1.0, 2.0], [math.inf, 1.0, 2.0]])
def test_scores_that_say_nothing_change_nothing(said: list[float]) -> None:
    """None at all, all the same, or not finite."""
    found = blend(standings(0.9, 0.5, 0.1), said, weight=1.0)
    assert [(one.at, one.score) for one in found] == [(0, 0.9), (1, 0.5), (2, 0.1)]


def test_equal_hits_keep_their_order() -> None:
    """A tie is no reason to move, whatever the scale of the scores."""
    assert order(standings(0.5, 0.5, 0.5), [1e6, 1e6, 2e6], 1.0) == [3, 1, 2]


def test_what_was_not_read_stays_below() -> None:
    """Hits beyond the scores keep their places, and no figure above them is lower."""
    hits = standings(0.9, 0.8, 0.7, 0.6, factor={2: 0.5})
    found = blend(hits, [0.0, 1.0], weight=1.0)
    assert [one.at for one in found][2:] == [2, 3]
    assert [one.said for one in found][2:] == [None, None]
    assert all(before.score >= after.score for before, after in itertools.pairwise(found))


def test_standing_counts_on_top() -> None:
    """Of two notes that the cross-encoder finds equally relevant, the multipliers decide as before."""
    hits = standings(0.60, 0.57, 0.2, factor={1: 1.2, 2: 0.95})
    assert order(hits, [5.0, 5.0, -5.0], 0.9) == [1, 2, 3]


def test_a_replaced_note_stays_behind_its_replacement() -> None:
    """However much the cross-encoder likes the old text; the replacement comes along."""
    hits = standings(0.9, 0.8, 0.7, superseded_by={3: 2})
    assert order(hits, [0.0, -9.0, 9.0], 1.0, 0.02) == [2, 3, 1]


def test_a_replaced_note_that_stood_first_may_stay() -> None:
    """A question about history put it there."""
    assert order(standings(0.9, 0.8, superseded_by={1: 2}), [9.0, 0.0], 1.0) == [1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost(seed: int) -> None:
    """Whatever the figures: each hit once, scores falling, replacements where they were."""
    rng = random.Random(seed)
    count = rng.randint(1, 30)
    scores = sorted((rng.random() for _ in range(count)), reverse=True)
    replaced = {note: rng.randint(1, note - 1) for note in range(2, count + 1) if rng.random() < 0.3}
    factors = {note: rng.uniform(0.5, 1.5) for note in range(1, count + 1)}
    hits = standings(*scores, superseded_by=replaced, factor=factors)
    said = [rng.gauss(0, 5) for _ in range(rng.randint(0, count + 3))]
    found = blend(hits, said, weight=rng.random(), margin=0.02)
    assert sorted(one.at for one in found) == list(range(count))
    assert all(before.score >= after.score for before, after in itertools.pairwise(found))
    place = {hits[one.at].note_id: rank for rank, one in enumerate(found)}
    assert all(place[newer] < place[note] for note, newer in replaced.items())


@pytest.mark.parametrize(
    ("without", "reranked", "late", "won", "why"),
    [
        ([0.5] * 30, [0.7, 0.9] * 15, 0, True, "not by chance"),
        ([0.7] * 30, [0.5, 0.6] * 15, 0, False, "lower"),
        ([0.5, 0.6] * 15, [0.6, 0.5] * 15, 0, False, "chance"),
        ([1.0] * 30, [1.0] * 30, 0, False, "chance"),
        ([0.0] * 19, [1.0] * 19, 0, False, "19 questions"),
        ([0.0] * 30, [1.0] * 30, 2, False, "too slow"),
        ([], [], 0, False, "0 questions"),
    ],
)
def test_it_wins_by_more_than_chance(
    without: list[float], reranked: list[float], late: int, won: bool, why: str
) -> None:
    """Better, on enough questions, in time, with the whole interval above zero; else it has lost, and the verdict says why."""
    verdict = judge(without, reranked, late)
    assert verdict.won is won
    assert why in verdict.why
    assert verdict.interval[0] <= verdict.difference <= verdict.interval[1]


def test_it_is_off_unless_it_won() -> None:
    """By default only a verdict for it switches it on; parameters force either."""
    won = Verdict(won=True, sha256="ab", why="")
    lost = msgspec.structs.replace(won, won=False)
    default = Params()
    assert [wanted(default, verdict) for verdict in (None, lost, won)] == [None, None, "ab"]
    forced = msgspec.structs.replace(default, rerank=2.0)
    assert [wanted(forced, verdict) for verdict in (None, lost)] == [ANY, ANY]
    for changed in (
        msgspec.structs.replace(default, rerank=0.0),
        msgspec.structs.replace(forced, rerank_weight=0.0),
    ):
        assert wanted(changed, won) is None
