"""Coefficients of the confidence models: data, written by bench/fit_ranking.py."""

from __future__ import annotations

from typing import Any

MODEL: dict[str, Any] = {
    "named": {"bias": -5.0, "cosine": 4.0, "attributes": 3.0, "residue": 5.0, "absent_words": -1.0, "unknown": -3.0},
    "unnamed": {"bias": 0.3, "spread": 10.0, "unknown": -4.0},
    "threshold": 0.5,
    "provenance": "prior, not fitted",
}
