"""Coefficients of the confidence model: data, written by bench/fit_ranking.py."""

from __future__ import annotations

from typing import Any

MODEL: dict[str, Any] = {
    "bias": 0.5,
    "weights": {"cosine": 1.0, "attributes": 1.0, "unknown": -3.0, "coverage": 0.5},
    "means": {"cosine": 0.5, "attributes": 0.4, "unknown": 0.0, "coverage": 0.4},
    "scales": {"cosine": 0.15, "attributes": 0.3, "unknown": 1.0, "coverage": 0.2},
    "threshold": 0.5,
    "provenance": "prior, not fitted",
}
