"""Lint: what only the index knows, gathered for the rules in ``memory.recall.lint``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from ...memory.recall import lint as rules
from ...memory.recall.catalog import Notes
from ...memory.recall.tokens import fold
from ...memory.recall.types import NoteCard
from ...protocol.envelope import Invalid
from ...protocol.messages.recall import Finding, Lint, LintReport
from ..sqlite import sqlite3
from .catalog import View
from .streams import feedback, notes

LISTED_MAX = 5000
"""Findings in one report: about a megabyte. Counts are of all."""


def lint(conn: sqlite3.Connection, view: View, ask: Lint) -> LintReport:
    """What the rules find in one vault, in one project, or everywhere. Raises Invalid for a vault that is not there."""
    vaults = {row.id: row for row in view.vaults.values() if not ask.vault or fold(ask.vault) == fold(row.name)}
    if ask.vault and not vaults:
        known = ", ".join(sorted(row.name for row in view.vaults.values())) or "none"
        raise Invalid(f"there is no vault '{ask.vault}'; known vaults: {known}")
    now_ms = int(time.time() * 1000)
    with view.lock:
        # A snapshot: the rules take a second over a hundred thousand notes, and questions do not wait for them.
        every = list(view.cards.values())
        edges = [edge for card in every for edge in view.notes.out_edges(card.id)]
        unresolved = {card.id: missing for card in every if (missing := view.unresolved(card.id))}
        ambiguous = {card.id: several for card in every if (several := view.ambiguous(card.id))}
    cards = [card for card in every if card.vault_id in vaults and ask.project in ("", card.project)]
    facts = rules.Facts(
        unresolved=unresolved,
        ambiguous=ambiguous,
        problems=_problems(conn, cards),
        reasons=feedback.reasons(conn, [card.id for card in cards]),
        wiki={row.id for row in vaults.values() if row.kind == "wiki"},
    )
    found = rules.findings(cards, Notes(every, edges), facts, now_ms, cold=ask.cold)
    named = [_named(each, vaults[each.vault_id].name) for each in found]
    if ask.kinds:
        named = [each for each in named if each.kind in ask.kinds]
    return LintReport(
        findings=tuple(named[: max(0, min(ask.limit, LISTED_MAX))]),
        counts=dict(Counter(each.kind for each in named)),
        warnings=sum(each.severity == "warning" for each in named),
        notes=len(cards),
    )


def _named(finding: Finding, vault: str) -> Finding:
    return msgspec.structs.replace(finding, vault=vault)


def _problems(conn: sqlite3.Connection, cards: Iterable[NoteCard]) -> list[tuple[int, str]]:
    at = {(card.vault_id, card.path): card.id for card in cards}
    return [(at[vault, path], text) for vault, path, text in notes.problems(conn, LISTED_MAX) if (vault, path) in at]
