"""Fitting the confidence model: ridge logistic regression of a few features, by Newton's method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .params import Model

NAMED = ("cosine", "coverage", "attributes", "absent_words", "residue", "lift", "elsewhere", "residue_gap")
UNNAMED = ("cosine", "spread")
RIDGE = 0.02
UNKNOWN = {"named": -3.0, "unnamed": -12.0}
"""A name that occurs nowhere decides by itself; in made questions it does so in every case: there is nothing to fit."""
STEPS = 25

Row = tuple[Mapping[str, float], bool]
"""Features of one answer, and whether the notes hold the answer."""


def fit(
    rows: Sequence[Row], false_abstain: Mapping[str, float], provenance: str, fallback: Model | None = None
) -> Model:
    """
    A model whose confidence is 0.5 where it turns away ``false_abstain[group]`` of the answerable questions.

    A group ('named', 'unnamed') with fewer than 20 rows of either kind keeps the weights of ``fallback``. Raises ValueError
    without one.
    """
    weights: dict[str, dict[str, float]] = {}
    for group, names in (("named", NAMED), ("unnamed", UNNAMED)):
        chosen = pick(rows, group)
        if min(sum(y for _, y in chosen), sum(not y for _, y in chosen)) < 20:
            if fallback is None:
                raise ValueError(f"too few questions to fit '{group}': {len(chosen)}")
            weights[group] = getattr(fallback, group)
            continue
        bias, *slopes = logistic(
            [[row[name] for name in names] for row, _ in chosen], [y for _, y in chosen], false_abstain[group]
        )
        weights[group] = {"bias": round(bias, 3), **{n: round(w, 3) for n, w in zip(names, slopes, strict=True)}}
        weights[group]["unknown"] = UNKNOWN[group]
    return Model(named=weights["named"], unnamed=weights["unnamed"], threshold=0.5, provenance=provenance)


def pick(rows: Sequence[Row], group: str) -> list[Row]:
    """Rows of a group that name nothing unknown."""
    return [row for row in rows if bool(row[0]["named"]) == (group == "named") and not row[0]["unknown"]]


def logistic(x: Sequence[Sequence[float]], y: Sequence[bool], false_abstain: float) -> list[float]:
    """Bias and slopes; both outcomes weigh the same. The bias puts ``false_abstain`` of the positive rows below zero."""
    columns = list(zip(*x, strict=True))
    means = [sum(column) / len(column) for column in columns]
    scales = [
        math.sqrt(sum((v - m) ** 2 for v in column) / len(column)) + 1e-6
        for column, m in zip(columns, means, strict=True)
    ]
    z = [[1.0, *((v - m) / s for v, m, s in zip(row, means, scales, strict=True))] for row in x]
    share = sum(y) / len(y)
    balance = [0.5 / share if positive else 0.5 / (1.0 - share) for positive in y]
    size = len(z[0])
    beta = [0.0] * size
    for _ in range(STEPS):
        gradient = [0.0] + [RIDGE * b for b in beta[1:]]
        hessian = [[RIDGE if i == j and i else 0.0 for j in range(size)] for i in range(size)]
        for row, positive, weight in zip(z, y, balance, strict=True):
            p = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, sum(b * v for b, v in zip(beta, row, strict=True))))))
            error, curve = weight * (p - positive) / len(z), weight * p * (1.0 - p) / len(z)
            for i in range(size):
                gradient[i] += error * row[i]
                for j in range(size):
                    hessian[i][j] += curve * row[i] * row[j]
        step = _solve(hessian, gradient)
        beta = [b - d for b, d in zip(beta, step, strict=True)]
    slopes = [b / s for b, s in zip(beta[1:], scales, strict=True)]
    raw = sorted(
        sum(w * v for w, v in zip(slopes, row, strict=True)) for row, positive in zip(x, y, strict=True) if positive
    )
    return [-raw[min(len(raw) - 1, int(false_abstain * len(raw)))], *slopes]


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gaussian elimination with pivoting; the ridge keeps the matrix regular."""
    size = len(vector)
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, size):
            factor = rows[r][i] / rows[i][i]
            for c in range(i, size + 1):
                rows[r][c] -= factor * rows[i][c]
    found = [0.0] * size
    for i in range(size - 1, -1, -1):
        found[i] = (rows[i][size] - sum(rows[i][c] * found[c] for c in range(i + 1, size))) / rows[i][i]
    return found
