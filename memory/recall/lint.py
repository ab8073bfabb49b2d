"""
What is wrong with notes and pages as a memory, by rule: `recalld lint`. Says what and where; changes nothing.

A warning is something that misleads whoever asks; the rest is worth a look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...protocol.messages.recall import Finding, FindingKind
from ..notes import expiry
from . import authority, retention, supersession
from .entities import name_key
from .types import Catalog, NoteCard

DAY_MS = 86_400_000
FOCUS_DAYS = 7
"""What somebody works on just now is about this week."""
SLOT_DAYS = 30
RULE_DAYS = 365
"""A rule that nobody touched for a year may describe how things were."""
_RECURRING = frozenset(("meeting", "index", "moc"))
"""Kinds whose notes share a title without being the same thing, beside sessions and daily notes."""
_GENERIC = frozenset(("readme", "index", "changelog", "todo", "untitled", "template"))


class Facts(NamedTuple):
    """What only the index knows, by note."""

    unresolved: Mapping[int, Sequence[str]]
    ambiguous: Mapping[int, Sequence[tuple[str, tuple[int, ...]]]]
    problems: Sequence[tuple[int, str]]
    reasons: Sequence[tuple[int, str, str]]
    """(note, signal, reason): who found it stale or wrong said so."""
    wiki: Collection[int]
    """Vaults that recalld writes: there a link to nothing is a mistake, elsewhere often a plan."""


def findings(cards: Iterable[NoteCard], catalog: Catalog, facts: Facts, now_ms: int, *, cold: bool) -> list[Finding]:
    """Everything that the rules find in ``cards``, warnings first, then by kind and path. ``cold``: cold sessions too."""
    every = sorted(cards, key=lambda card: (card.path, card.id))
    over = [card for card in every if expiry.is_past(card.expires, now_ms)]
    ids = {card.id for card in over}
    held = [card for card in every if card.id not in ids]
    found = [
        *_broken(held, catalog, facts),
        *_duplicates(held, catalog),
        *_contradictions(held, catalog),
        *_superseded(held, catalog),
        *_flagged(held, facts),
        *_pinned(held),
        *_old(held, catalog, now_ms),
        *(
            _finding("expired", card, f"expired ({card.expires}): hidden from recall, the file is still there")
            for card in over
        ),
        *(_cold(held, catalog, facts, now_ms) if cold else ()),
    ]
    return sorted(found, key=lambda each: (each.severity != "warning", each.kind, each.vault_id, each.pages))


def _finding(kind: FindingKind, card: NoteCard, text: str, *more: NoteCard, warning: bool = False) -> Finding:
    return Finding(
        kind=kind,
        severity="warning" if warning else "info",
        vault_id=card.vault_id,
        pages=(card.path, *(other.path for other in more)),
        text=text,
    )


def _broken(cards: Sequence[NoteCard], catalog: Catalog, facts: Facts) -> Iterator[Finding]:
    own = {card.id: card for card in cards}
    for note, problem in facts.problems:
        if note in own:
            yield _finding("unreadable", own[note], problem, warning=True)
    for card in cards:
        for target in facts.unresolved.get(card.id, ()):
            yield _finding("unresolved_link", card, f"links to nothing: {target}", warning=card.vault_id in facts.wiki)
        for target, notes in facts.ambiguous.get(card.id, ()):
            meant = [catalog.cards[note] for note in notes if note in catalog.cards]
            yield _finding("ambiguous_link", card, f"'{target}' may mean several notes", *meant, warning=True)


def _duplicates(cards: Sequence[NoteCard], catalog: Catalog) -> Iterator[Finding]:
    groups: dict[tuple[int, str, str], list[NoteCard]] = {}
    for card in cards:
        name = name_key(card.title)
        recurring = authority.is_session(card) or card.kind in _RECURRING or name in _GENERIC
        if name and not recurring and not supersession.is_superseded(card, catalog):
            groups.setdefault((card.vault_id, card.project, name), []).append(card)
    for group in groups.values():
        if len(group) > 1:
            yield _finding("duplicate_title", group[0], f"{len(group)} notes are called “{group[0].title}”", *group[1:],
                           warning=True)  # fmt: skip


def _contradictions(cards: Sequence[NoteCard], catalog: Catalog) -> Iterator[Finding]:
    own = {card.id for card in cards}
    seen: set[frozenset[int]] = set()
    for card in cards:
        for edge in catalog.out_edges(card.id):
            pair = frozenset((edge.source, edge.target))
            other = catalog.cards.get(edge.target)
            if edge.kind != "contradicts" or other is None or pair in seen or edge.target not in own:
                continue
            seen.add(pair)
            if not supersession.is_superseded(card, catalog) and not supersession.is_superseded(other, catalog):
                text = "declared to contradict each other, and neither is superseded"
                yield _finding("contradiction", card, text, other, warning=True)


def _superseded(cards: Sequence[NoteCard], catalog: Catalog) -> Iterator[Finding]:
    for edge in supersession.stale_links(catalog, [card.id for card in cards]):
        old, newer = catalog.cards[edge.target], catalog.cards[supersession.current_of(edge.target, catalog)]
        card = catalog.cards[edge.source]
        if newer.id != card.id:
            now = f"; now {newer.path}" if newer.id != old.id else ""
            yield _finding("superseded_link", card, f"links to a superseded note as if it held{now}", old, warning=True)


def _flagged(cards: Sequence[NoteCard], facts: Facts) -> Iterator[Finding]:
    own = {card.id: card for card in cards}
    said: dict[int, list[str]] = {}
    for note, signal, reason in facts.reasons:
        if note in own:
            said.setdefault(note, []).append(f"{signal}: {reason}" if reason else signal)
    for note, texts in said.items():
        yield _finding("flagged", own[note], f"feedback says {'; '.join(dict.fromkeys(texts))}", warning=True)


def _pinned(cards: Sequence[NoteCard]) -> Iterator[Finding]:
    for card in cards:
        if card.pinned and expiry.ends_ms(card.expires):
            text = f"pinned, and expires ({card.expires}): the pin does not keep it"
            yield _finding("pinned_expiring", card, text, warning=True)


def _old(cards: Sequence[NoteCard], catalog: Catalog, now_ms: int) -> Iterator[Finding]:
    for card in cards:
        limit = _days_held(card)
        age = (now_ms - card.modified_ms) // DAY_MS
        if limit and age > limit and not supersession.is_superseded(card, catalog):
            kind: FindingKind = "old_rule" if card.kind == "rule" else "stale_focus"
            yield _finding(kind, card, f"not changed for {age} days: does it still hold?")


def _days_held(card: NoteCard) -> int:
    """Days after which such a note is doubtful; 0 = never."""
    if card.kind in ("slot", "focus"):
        return FOCUS_DAYS if card.kind == "focus" or "focus" in name_key(card.path.rpartition("/")[2]) else SLOT_DAYS
    return RULE_DAYS if card.kind == "rule" else 0


def _cold(cards: Sequence[NoteCard], catalog: Catalog, facts: Facts, now_ms: int) -> Iterator[Finding]:
    """Session pages of the wiki that nobody pinned and that retention calls cold."""
    for card in cards:
        if card.vault_id not in facts.wiki or card.kind != "session" or card.pinned:
            continue
        sources = {edge.source for edge in catalog.in_edges(card.id)}
        uses = [catalog.cards[note].modified_ms for note in sources if note in catalog.cards]
        score = retention.score(card, now_ms, uses)
        if score < retention.COLD:
            yield _finding("cold_session", card, f"retention {score:.2f}, cold below {retention.COLD:.2f}")
