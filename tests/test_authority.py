"""memory/recall/authority.py: standing of notes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking import card, order, ranked, world
from recalld.memory.recall.authority import CEILING, FLOOR, factor
from recalld.memory.recall.params import Params


@pytest.mark.parametrize(
    ("more", "value"),
    [
        ({}, 1.0),
        ({"kind": "rule"}, 1.15),
        ({"kind": "decision"}, 1.15),
        ({"kind": "gotcha"}, 1.12),
        ({"kind": "session"}, 0.85),
        ({"pinned": True}, 1.08),
        ({"tags": ("canonical",)}, 1.2),
        ({"tags": ("canonical", "source-of-truth"), "kind": "rule", "pinned": True}, CEILING),
        ({"status": "archived", "kind": "rule"}, 0.8),
        ({"tags": ("do-not-answer-from", "canonical")}, FLOOR),
    ],
)
def test_factor(more: dict[str, Any], value: float) -> None:
    """The table, its bounds and its caps."""
    assert factor(card(1, "x", **more)) == pytest.approx(value)


@given(kind=st.text(max_size=10), status=st.text(max_size=10), tags=st.lists(st.text(max_size=12), max_size=5))
def test_bounds(kind: str, status: str, tags: list[str]) -> None:
    """Nothing is ever excluded, nothing ever runs away."""
    assert FLOOR <= factor(card(1, "x", kind=kind, status=status, tags=tuple(tags))) <= CEILING


def test_a_rule_before_a_session_unless_sessions_are_asked_for() -> None:
    """Equal otherwise, the rule comes first; "last time" asks for the session."""
    notes = world(card(1, "a", kind="rule"), card(2, "b", kind="session", date="2026-02-27"))
    params = msgspec.structs.replace(Params(), recency_weight=0.0)
    assert order(ranked("retries", notes, None, {1: 0.5, 2: 0.5}, params=params))[0] == 1
    assert order(ranked("what did we do about retries last time", notes, None, {1: 0.5, 2: 0.5}, params=params))[0] == 2
