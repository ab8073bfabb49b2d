"""Coefficients of the confidence models: data, written by bench/fit_ranking.py."""

from __future__ import annotations

from typing import Any

MODEL: dict[str, Any] = {
    "named": {
        "bias": -4.163,
        "cosine": 7.981,
        "coverage": -0.864,
        "attributes": 2.225,
        "absent_words": -3.115,
        "residue": 5.262,
        "lift": 7.203,
        "elsewhere": 0.185,
        "residue_gap": -5.84,
        "unknown": -3.0,
    },
    "unnamed": {"bias": -6.025, "cosine": 23.363, "spread": 1.802, "unknown": -12.0},
    "threshold": 0.5,
    "provenance": "bench/fit_ranking.py confidence, seed 1, seed 2, seed 3, seed 4, seed 5, seed 6, seed 7, seed 8: "
    "1456 generated questions, 2026-11-30",
}
