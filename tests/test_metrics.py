"""memory/recall/metrics.py: figures of rankings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.recall.metrics import interval, mean, ndcg_at, recall_at, reciprocal_rank


def test_figures() -> None:
    """By hand."""
    ranked = ["a", "b", "c", "d"]
    assert recall_at(ranked, {"b", "x"}, 2) == 0.5
    assert recall_at(ranked, set(), 2) == 0.0
    assert reciprocal_rank(ranked, {"c"}, 10) == pytest.approx(1 / 3)
    assert reciprocal_rank(ranked, {"c"}, 2) == 0.0
    assert ndcg_at(ranked, {"a", "b"}, 10) == 1.0
    assert ndcg_at(["a", "a", "a"], {"a"}, 10) == 1.0
    assert 0 < ndcg_at(ranked, {"d"}, 10) < 0.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_interval(values: list[float]) -> None:
    """Holds the mean of resamples, lies within the values, and is the same every time."""
    low, high = interval(values)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert (low, high) == interval(values)
    assert low - 1e-9 <= mean(values) <= high + 1e-9 or len(set(values)) > 1
