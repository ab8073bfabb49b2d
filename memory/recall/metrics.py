"""How good a ranking is, and how sure one can be of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

RESAMPLES = 1000


def recall_at(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Share of ``relevant`` among the first ``k``; 0.0 when nothing is relevant."""
    return len(set(ranked[:k]) & set(relevant)) / len(set(relevant)) if relevant else 0.0


def reciprocal_rank(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """1 / rank of the first relevant one among the first ``k``; 0.0 when there is none."""
    return next((1.0 / rank for rank, item in enumerate(ranked[:k], 1) if item in relevant), 0.0)


def ndcg_at(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain, gain 1 for each relevant one, once: 0…1."""
    wanted = set(relevant)
    gain, seen = 0.0, set[str]()
    for rank, item in enumerate(ranked[:k], 1):
        if item in wanted and item not in seen:
            seen.add(item)
            gain += 1.0 / math.log2(rank + 1)
    best = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
    return gain / best if best else 0.0


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """
    Bootstrap interval of the mean, by RESAMPLES resamples. The same values give the same interval: the generator is fixed
    (Knuth's MMIX constants), so that two runs differ only where their results do.
    """
    n = len(values)
    if n < 2:
        return (mean(values), mean(values))
    state, means = 0x9E3779B97F4A7C15, []
    for _ in range(RESAMPLES):
        total = 0.0
        for _ in range(n):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += values[(state >> 33) % n]
        means.append(total / n)
    means.sort()
    cut = (1.0 - confidence) / 2.0
    return means[int(cut * RESAMPLES)], means[min(RESAMPLES - 1, int((1.0 - cut) * RESAMPLES))]
