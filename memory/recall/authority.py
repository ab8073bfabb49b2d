"""How much a note's standing counts: what it is (rule, decision, session …) and what its owner says of it."""

from __future__ import annotations

import functools

from .entities import name_key
from .types import NOBODY, NoteCard, Tally

FLOOR, CEILING = 0.55, 1.50
"""Bounds of the factor; nothing is ever excluded by it."""

STEP, STEPS = 1.05, 3
"""What one voice for a note is worth, or against it; more than three in one direction count as three."""
FLAGGED = 0.75
"""For a note that somebody found stale or wrong: below its equals until it is put right, and still there to be found."""

_KIND = {
    "rule": 0.15, "decision": 0.15, "adr": 0.15, "procedure": 0.12, "runbook": 0.12, "gotcha": 0.12,
    "concept": 0.07, "slot": 0.07, "session": -0.15,
}  # fmt: skip
_TAGS = {"canonical": 0.20, "source-of-truth": 0.20, "active": 0.05}
_NOT_TO_ANSWER_FROM = frozenset(("do-not-answer-from", "test-fixture"))
_HISTORICAL = frozenset(("historical", "archived", "archive", "deprecated", "obsolete", "rejected", "abandoned"))


def factor(card: NoteCard) -> float:
    """FLOOR…CEILING; 1.0 for an ordinary note. Table of ai-memory, measured there on agents' wikis."""
    value = 1.0 + _KIND.get(card.kind, 0.0)
    tags = card.tags
    if tags:
        value += sum([_TAGS.get(tag, 0.0) for tag in tags])
    if card.pinned:
        value += 0.08
    # Most paths hold neither: a search is less than taking each apart.
    if "_lint" in card.path or "investigations" in card.path:
        folders = card.path.split("/")[:-1]
        if "_lint" in folders:
            value -= 0.20
        if "investigations" in folders:
            value -= 0.05
    if (card.status and _is_historical(card.status)) or not _HISTORICAL.isdisjoint(tags):
        value = min(value, 0.80)
    if not _NOT_TO_ANSWER_FROM.isdisjoint(tags):
        return FLOOR
    return min(CEILING, max(FLOOR, value))


@functools.lru_cache(maxsize=256)
def _is_historical(status: str) -> bool:
    return name_key(status) in _HISTORICAL


def feedback(tally: Tally) -> float:
    """FLAGGED, or STEP**-STEPS … STEP**STEPS; 1.0 where nobody said anything. A flag is not outvoted."""
    if tally is NOBODY:
        return 1.0
    if tally.stale or tally.wrong:
        return FLAGGED
    net: int = max(-STEPS, min(STEPS, tally.helpful - tally.not_helpful))
    return float(STEP**net)


def is_session(card: NoteCard) -> bool:
    return card.kind in ("session", "journal", "daily", "log") or bool(card.session_id)
