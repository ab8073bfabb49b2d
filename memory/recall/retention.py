"""How much a page that nobody chose to keep is still worth: the reference's retention score, for session pages."""

from __future__ import annotations

import math

from .types import NoteCard, Tally

DECAY, USE, USE_DECAY = 0.02, 0.6, 0.04
"""λ, σ and μ per day, of ai-memory: an unused page falls below COLD after 80 days."""
COLD = 0.20
SALIENCE_MIN, SALIENCE_MAX, SALIENCE_STEP = 0.25, 2.0, 0.25
DAY_MS = 86_400_000


def score(card: NoteCard, now_ms: int, linked_ms: list[int]) -> float:
    """
    salience·e^(−λ·age) + σ·ln(1 + uses)·e^(−μ·days since the last), in days. A use is a page that links here, at the time
    it was last changed: nothing counts who reads what.
    """
    value = salience(card.feedback) * math.exp(-DECAY * _days(card.modified_ms, now_ms))
    if linked_ms:
        value += USE * math.log1p(len(linked_ms)) * math.exp(-USE_DECAY * _days(max(linked_ms), now_ms))
    return value


def salience(tally: Tally) -> float:
    """1.0 and a step for each voice for or against; the least for a page that is stale or wrong."""
    if tally.stale or tally.wrong:
        return SALIENCE_MIN
    value = 1.0 + SALIENCE_STEP * (tally.helpful - tally.not_helpful)
    return max(SALIENCE_MIN, min(SALIENCE_MAX, value))


def _days(then_ms: int, now_ms: int) -> float:
    return max(0.0, (now_ms - then_ms) / DAY_MS)
