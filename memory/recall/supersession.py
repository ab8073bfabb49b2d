"""Which note replaces which: from ``superseded_by``, ``supersedes`` and ``status``, and from dated siblings on one subject."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

from .dates import parse_day
from .entities import name_key
from .types import Catalog, Edge, NoteCard

_DATED = re.compile(r"\(?\b\d{4}-\d{2}(-\d{2})?\b\)?|\bv\d+(\.\d+)*\b", re.IGNORECASE)
_OLD_STATUS = frozenset(("superseded", "replaced", "obsolete", "deprecated", "outdated"))
MAX_CHAIN = 16
"""A chain of replacements longer than this, or a circle, ends here."""


def replacements(note: int, catalog: Catalog) -> list[int]:
    """Notes that say they replace ``note``, or that it says it is replaced by; newest first."""
    found = catalog.newer(note)
    if not found:
        return []
    return sorted(
        (n for n in found if n in catalog.cards and n != note), key=lambda n: (catalog.cards[n].date, n), reverse=True
    )


def current_of(note: int, catalog: Catalog) -> int:
    """The last note of the chain of replacements that starts at ``note``; ``note`` itself when nothing replaces it."""
    if not catalog.newer(note):
        return note  # nearly all notes
    seen = {note}
    for _ in range(MAX_CHAIN):
        newer = next((n for n in replacements(note, catalog) if n not in seen), None)
        if newer is None:
            break
        seen.add(newer)
        note = newer
    return note


def is_superseded(card: NoteCard, catalog: Catalog) -> bool:
    """Something replaces it, or its status says so."""
    if card.status and _is_old(card.status):
        return True
    return bool(catalog.newer(card.id)) and bool(replacements(card.id, catalog))


@functools.lru_cache(maxsize=256)
def _is_old(status: str) -> bool:
    return name_key(status) in _OLD_STATUS


@functools.lru_cache(maxsize=4096)
def _subject(title: str) -> str:
    """A title without dates and versions."""
    return name_key(_DATED.sub(" ", title))


def stale_links(catalog: Catalog, sources: Iterable[int]) -> Iterator[Edge]:
    """Links out of ``sources`` that give a replaced note as if it held; replaced notes themselves may link as they like."""
    for source in sources:
        if is_superseded(catalog.cards[source], catalog):
            continue
        for edge in catalog.out_edges(source):
            target = catalog.cards.get(edge.target)
            if target is None or edge.kind in ("supersedes", "superseded_by"):
                continue
            if is_superseded(target, catalog):
                yield edge


def replaced_by_sibling(cards: Iterable[NoteCard]) -> dict[int, int]:
    """
    Note -> newest note on the same subject, among ``cards``: same kind and the same title but for a date or version.

    Only decisions and undated-title siblings that carry a date; meetings and sessions recur without replacing each other.
    """
    groups: dict[tuple[str, str], list[NoteCard]] = {}
    for card in cards:
        if card.kind in _REPLACING and parse_day(card.date) and (subject := _subject(card.title)):
            groups.setdefault((card.kind, subject), []).append(card)
    newest: dict[int, int] = {}
    for group in groups.values():
        last = max(group, key=lambda card: (card.date, card.id))
        newest.update({card.id: last.id for card in group if card.date < last.date})
    return newest


_REPLACING = frozenset(("decision", "adr", "rule", "procedure", "runbook", "plan", "spec", "policy"))
