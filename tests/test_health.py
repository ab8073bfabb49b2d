"""What still works when something is down."""

from __future__ import annotations

import pytest
from recalld.actors.health import DEGRADATION, Plan, degraded_now, plan

ALL = {"writer", "query", "embedder", "watcher"}
STREAMS = ("text", "entity", "graph", "vector")


@pytest.mark.parametrize(
    ("down", "expected"),
    [
        (set(), Plan(STREAMS, (), False, False)),
        ({"embedder"}, Plan(STREAMS[:3], ("vector",), False, False)),
        ({"writer"}, Plan(STREAMS, (), True, False)),
        ({"watcher"}, Plan(STREAMS, (), False, True)),
    ],
)
def test_plan(down: set[str], expected: Plan) -> None:
    """Each actor that is down costs what the table says, and nothing more."""
    assert expected == plan(ALL - down)


def test_a_stream_that_nobody_wants_is_not_missed() -> None:
    """Asked for text alone, an answer without vectors is complete."""
    assert plan(ALL - {"embedder"}, ("text",)).degraded == ()


def test_status_names_what_is_missing() -> None:
    """The daemon's own line."""
    assert degraded_now(ALL - {"embedder", "watcher"}) == ("vector", "watcher")
    assert degraded_now(ALL) == ()


def test_every_actor_has_a_row() -> None:
    """The table that the documentation prints is complete."""
    assert {row.down for row in DEGRADATION} >= ALL
