"""memory/recall/fit.py: fitting the confidence model."""

from __future__ import annotations

import random

import msgspec
import pytest
from recalld.memory.recall.confidence import Features, default_model, estimate
from recalld.memory.recall.fit import Row, fit, logistic


def rows(count: int) -> list[Row]:
    """Answerable questions have residue above 0.3 and cosine above 0.5, with some noise."""
    chance = random.Random(7)
    found: list[Row] = []
    for number in range(count):
        yes = number % 2 == 0
        level = chance.gauss(0.6 if yes else 0.2, 0.1)
        features = Features(named=float(number % 4 < 2), residue=level, cosine=level, attributes=float(yes))
        found.append((msgspec.structs.asdict(features), yes))
    return found


def test_a_fitted_model_tells_them_apart() -> None:
    """Both groups; few answerable ones are turned away, most others are."""
    model = fit(rows(400), {"named": 0.05, "unnamed": 0.05}, "test")
    judged = [(estimate(msgspec.convert(dict(row), Features), model) >= 0.5, yes) for row, yes in rows(400)]
    assert sum(known for known, yes in judged if yes) >= 180
    assert sum(known for known, yes in judged if not yes) <= 20
    assert model.provenance == "test"


def test_too_few_rows_keep_what_was() -> None:
    """A group without enough questions keeps the packaged weights, and is an error without any."""
    few = [(row, yes) for row, yes in rows(400) if row["named"]]
    assert fit(few, {"named": 0.05, "unnamed": 0.05}, "", default_model()).unnamed == default_model().unnamed
    with pytest.raises(ValueError, match="unnamed"):
        fit(few, {"named": 0.05, "unnamed": 0.05}, "")


def test_the_bias_keeps_the_promised_share() -> None:
    """The share of positive rows below zero is the one that was asked for."""
    x = [[i / 100] for i in range(200)]
    bias, slope = logistic(x, [i >= 100 for i in range(200)], 0.1)
    assert sum(bias + slope * row[0] < 0 for row in x[100:]) == 10
