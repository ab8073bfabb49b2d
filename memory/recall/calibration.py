"""Coefficients of the confidence models: data, written by bench/fit_ranking.py."""

from __future__ import annotations

from typing import Any

MODEL: dict[str, Any] = {
    "named": {
        "bias": -3.911,
        "cosine": 8.075,
        "coverage": -1.616,
        "attributes": 2.401,
        "absent_words": -3.112,
        "residue": 5.202,
        "lift": 7.518,
        "elsewhere": -0.045,
        "residue_gap": -5.27,
        "unknown": -3.0,
    },
    "unnamed": {"bias": -5.49, "cosine": 23.151, "spread": 0.07, "unknown": -12.0},
    "threshold": 0.5,
    "provenance": "bench/fit_ranking.py confidence, seed 1, seed 2, seed 3, seed 4, seed 5, seed 6, seed 7: 1274 "
    "generated questions, 2026-11-30",
}
