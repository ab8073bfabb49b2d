"""Answers about single notes and about the index as a whole: read, related, recent, describe."""

from __future__ import annotations

import datetime
import heapq
import os
import time
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ...memory.notes.decode import decode
from ...memory.recall.entities import name_key
from ...memory.recall.supersession import current_of, stale_links
from ...memory.recall.tokens import fold
from ...memory.recall.types import NoteCard
from ...protocol.messages.common import Link
from ...protocol.messages.recall import (
    Ambiguous,
    Backlink,
    DescribeIndex,
    GraphNote,
    IndexReport,
    Neighbour,
    Neighbours,
    NoteText,
    NotFound,
    ReadNote,
    Recent,
    RecentNote,
    RecentNotes,
    Related,
)
from .. import inside
from ..sqlite import sqlite3
from .catalog import View
from .filters import allowed
from .quantised import Floats
from .recall import superseded
from .streams import notes

READ_BYTES_MAX = 32_000_000
NEAREST = 5
LISTED_MAX = 500
NEIGHBOURS_MAX = 100
LINKS_SHOWN = 200
SIMILAR_FLOOR = 0.35
"""Cosine of two notes below which they have nothing in common: unrelated notes score 0.1-0.3 with MiniLM."""

Found = NoteCard | NotFound | Ambiguous


def find_note(view: View, ref: str, vault: str = "") -> Found:
    """The note that ``ref`` names: a path (with or without .md), else a title or alias."""
    vault_ids = {row.id for row in view.vaults.values() if not vault or fold(vault) in (fold(row.name), fold(row.root))}
    with view.lock:
        ids = view.find(ref, vault_ids)
    if len(ids) == 1:
        return view.cards[ids[0]]
    if ids:
        return Ambiguous(ref=ref, candidates=tuple(sorted(_address(view, view.cards[note]) for note in ids)[:20]))
    return NotFound(ref=ref, nearest=_nearest(view, ref, vault_ids))


def read_note(conn: sqlite3.Connection, view: View, ask: ReadNote) -> NoteText | NotFound | Ambiguous:
    """A note's own text from its file, else from the index, with what links here and what it links to."""
    card = find_note(view, ask.ref, ask.vault)
    if not isinstance(card, NoteCard):
        return card
    vault = view.vaults[card.vault_id]
    file = os.path.join(vault.root, card.path)
    text = read_inside(vault.root, card.path)
    if text is None:
        text = _indexed_text(conn, card.id)
    all_lines = text.split("\n")
    if all_lines and not all_lines[-1]:
        all_lines.pop()
    first = max(1, ask.line_from)
    last = min(len(all_lines), ask.line_to) if ask.line_to > 0 else len(all_lines)
    chosen, whole = _fit(all_lines[first - 1 : last], max(1, ask.max_chars))
    links = _links_both(conn, view, card)
    with view.lock:
        current = current_of(card.id, view.notes)
        unresolved = tuple(dict.fromkeys(view.unresolved(card.id)))
    return NoteText(
        path=card.path,
        vault=vault.name,
        file=file,
        title=card.title,
        lines=(first, max(first, first + chosen.count("\n"))),
        total_lines=len(all_lines),
        text=chosen,
        truncated=not whole,
        backlinks=links[0],
        links=links[1],
        unresolved=unresolved[:LINKS_SHOWN],
        superseded_by=superseded(view.cards.get(current)) if current != card.id else None,
        modified=_iso(card.modified_ms),
    )


def related(view: View, ask: Related) -> Neighbours | NotFound | Ambiguous:
    """Neighbours of a note by links, by likeness, by shared names, strongest first."""
    card = find_note(view, ask.ref, ask.vault)
    if not isinstance(card, NoteCard):
        return card
    scores: dict[int, float] = {}
    reasons: dict[int, list[str]] = {}

    over = view.expired(_now_ms())

    def add(note: int, score: float, reason: str) -> None:
        if note != card.id and note in view.cards and note not in over:
            scores[note] = scores.get(note, 0.0) + score
            reasons.setdefault(note, []).append(reason)

    with view.lock:
        for edge in view.notes.out_edges(card.id):
            add(edge.target, 1.0, "linked from it" if edge.kind in ("wikilink", "markdown", "embed") else edge.kind)
        for edge in view.notes.in_edges(card.id):
            add(
                edge.source,
                0.8,
                "links to it" if edge.kind in ("wikilink", "markdown", "embed") else f"it: {edge.kind}",
            )
        total = max(2, len(view.cards))
        for name in sorted({name_key(name) for name in (*card.entities, *card.tags)}):
            sharing = view.notes.mentions.get(name, ())
            if 1 < len(sharing) <= max(10, total // 10):
                for note in sharing:
                    add(note, 0.5 / np.log2(1 + len(sharing)), f"shares “{name}”")
        for note in view.notes.titles.get(name_key(card.title), ()):
            add(note, 0.3, "has the same title")
    degraded: tuple[str, ...] = ()
    vector = note_vector(view, card.id)
    if vector is None or view.matrix is None:
        degraded = ("vector",)
    else:
        similar = view.matrix.search(vector[None, :], lambda hashes: [])[0]
        for note in similar.top(NEIGHBOURS_MAX):
            match = similar.get(note)
            if match is not None and match.note_cos >= SIMILAR_FLOOR:
                add(note, match.note_cos, f"similar ({match.note_cos:.2f})")
    best = heapq.nsmallest(max(1, min(ask.k, NEIGHBOURS_MAX)), scores, key=lambda note: (-scores[note], note))
    return Neighbours(
        path=card.path,
        title=card.title,
        items=tuple(_neighbour(view, note, scores[note], reasons[note]) for note in best),
        degraded=degraded,
    )


def recent(view: View, ask: Recent) -> RecentNotes:
    """Notes by the time their file was modified, newest first. Raises Invalid for a filter that makes no sense."""
    with view.lock:
        only = allowed(view.cards, view.vaults, ask.filters)
        if not ask.filters.expired:
            only = view.holding(only, _now_ms())
        cards: Iterable[NoteCard] = (card for card in view.cards.values() if only is None or card.id in only)
        newest = heapq.nlargest(max(1, min(ask.k, LISTED_MAX)), cards, key=lambda card: (card.modified_ms, card.id))
    return RecentNotes(items=tuple(_recent(view, card) for card in newest))


def describe(conn: sqlite3.Connection, view: View, ask: DescribeIndex) -> IndexReport:
    """Figures, broken links and parse problems, of one vault or of all; the graph when it is wanted."""
    vault_ids = {row.id for row in view.vaults.values() if not ask.vault or fold(ask.vault) == fold(row.name)}
    with view.lock:
        cards = [card for card in view.cards.values() if card.vault_id in vault_ids]
        links = sum(len(view.notes.out_edges(card.id)) for card in cards)
        unresolved = [(card.path, target) for card in cards for target in view.unresolved(card.id)]
        ambiguous = [
            (card.path, target, tuple(view.cards[note].path for note in found if note in view.cards))
            for card in cards
            for target, found in view.ambiguous(card.id)
        ]
        stale = _stale_links(view, cards)
        graph = _graph(view, cards) if ask.graph else ()
    chunks, vectors = notes.counts(conn)
    if len(cards) != len(view.cards):
        chunks = sum(len(view.chunks.chunks_of(card.id)) for card in cards)
    return IndexReport(
        notes=len(cards),
        chunks=chunks,
        vectors=vectors,
        links=links,
        unresolved=tuple(unresolved[:LISTED_MAX]),
        ambiguous=tuple(ambiguous[:LISTED_MAX]),
        problems=tuple((path, problem) for vault, path, problem in notes.problems(conn) if vault in vault_ids),
        stale_links=tuple(stale[:LISTED_MAX]),
        graph=graph,
    )


def read_inside(root: str, path: str) -> str | None:
    """The text of a regular file whose real path is inside the real ``root``; None when it is not, or cannot be read."""
    try:
        raw = inside.read_file(root, path, READ_BYTES_MAX, links=True)
    except (OSError, ValueError):
        return None
    if raw is None:
        return None
    found = decode(raw)
    return None if found.binary else found.text


def note_vector(view: View, note_id: int) -> Floats | None:
    """The mean of a note's chunk vectors, normalised; None while it has none."""
    matrix = view.matrix
    if matrix is None:
        return None
    layout = matrix.layout
    at = int(np.searchsorted(layout.note_ids, note_id))
    if at >= len(layout.note_ids) or layout.note_ids[at] != note_id:
        return None
    slots = layout.slots[int(layout.starts[at]) : int(layout.starts[at + 1])]
    total = matrix.rows.wide(slots).sum(axis=0)
    vector: Floats = (total / max(float(np.linalg.norm(total)), 1e-6)).astype(np.float32)
    return vector


def _indexed_text(conn: sqlite3.Connection, note_id: int) -> str:
    """The note from its passages, each on its own lines; what lies between them is empty lines."""
    lines: list[str] = []
    for chunk in notes.chunks_of(conn, note_id):
        lines += [""] * (chunk.line_from - 1 - len(lines))
        own = chunk.text.split("\n")
        # Passages of one long line share it.
        lines += own[max(0, len(lines) - (chunk.line_from - 1)) :]
    return "\n".join(lines)


def _fit(lines: Sequence[str], max_chars: int) -> tuple[str, bool]:
    """Whole lines as long as they fit; a first line that is too long is cut."""
    size = 0
    for number, line in enumerate(lines):
        size += len(line) + 1
        if size > max_chars + 1:
            return ("\n".join(lines[:number]) if number else line[:max_chars]), False
    return "\n".join(lines), True


def _links_both(
    conn: sqlite3.Connection, view: View, card: NoteCard
) -> tuple[tuple[Backlink, ...], tuple[Backlink, ...]]:
    """(what links here, where it links to), each with the line of the link."""
    with view.lock:
        sources = list(dict.fromkeys(edge.source for edge in view.notes.in_edges(card.id)))[:LINKS_SHOWN]
        out = list(view.notes.out_edges(card.id))[:LINKS_SHOWN]
        kinds = {edge.source: edge.kind for edge in view.notes.in_edges(card.id)}
    written = notes.links_of(conn, [*sources, card.id])
    here = [
        _backlink(view, source, kinds[source], _line_to(view, source, written.get(source, ()), card.id))
        for source in sources
        if source in view.cards
    ]
    there = [
        _backlink(view, edge.target, edge.kind, _line_to(view, card.id, written.get(card.id, ()), edge.target))
        for edge in out
        if edge.target in view.cards
    ]
    return tuple(here), tuple(there)


def _line_to(view: View, source: int, links: Collection[Link], target: int) -> int:
    """The line of the first link in ``source`` that leads to ``target``; 0 when it stands in frontmatter."""
    with view.lock:
        return next((link.line for link in links if view.leads_to(source, link, target)), 0)


def _backlink(view: View, note: int, kind: str, line: int) -> Backlink:
    card = view.cards[note]
    vault = view.vaults.get(card.vault_id)
    return Backlink(path=card.path, title=card.title, kind=kind, line=line, vault=vault.name if vault else "")


def _neighbour(view: View, note: int, score: float, reasons: Sequence[str]) -> Neighbour:
    card = view.cards[note]
    vault = view.vaults.get(card.vault_id)
    return Neighbour(
        path=card.path,
        title=card.title,
        why="; ".join(dict.fromkeys(reasons)),
        score=round(float(score), 4),
        vault=vault.name if vault else "",
        file=os.path.join(vault.root, card.path) if vault else "",
    )


def _recent(view: View, card: NoteCard) -> RecentNote:
    vault = view.vaults.get(card.vault_id)
    return RecentNote(
        path=card.path,
        title=card.title,
        modified=_iso(card.modified_ms),
        vault=vault.name if vault else "",
        file=os.path.join(vault.root, card.path) if vault else "",
        kind=card.kind,
        summary=card.summary,
    )


def _stale_links(view: View, cards: Iterable[NoteCard]) -> list[tuple[str, str]]:
    """(path, superseded note that it links to as if it were current)."""
    edges = stale_links(view.notes, [card.id for card in cards])
    return [(view.cards[edge.source].path, view.cards[edge.target].path) for edge in edges]


def _graph(view: View, cards: Sequence[NoteCard]) -> tuple[GraphNote, ...]:
    place = {card.id: number for number, card in enumerate(cards)}
    return tuple(
        GraphNote(
            card.path,
            card.title,
            card.kind,
            card.date,
            tuple(dict.fromkeys(place[e.target] for e in view.notes.out_edges(card.id) if e.target in place)),
        )
        for card in cards
    )


def _nearest(view: View, ref: str, vault_ids: Collection[int]) -> tuple[str, ...]:
    """Paths of the notes whose path or title is most like ``ref``, by shared triples of letters."""
    wanted = _triples(ref.rpartition("/")[2].removesuffix(".md"))
    if not wanted:
        return ()
    scored = []
    with view.lock:
        for card in view.cards.values():
            if card.vault_id in vault_ids:
                own = _triples(card.title)
                shared = len(wanted & own)
                if shared:
                    scored.append((shared / len(wanted | own), card.path))
    return tuple(path for score, path in heapq.nlargest(NEAREST, scored) if score > 0.2)


def _triples(text: str) -> set[str]:
    padded = f"  {fold(text)} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)} if text else set()


def _address(view: View, card: NoteCard) -> str:
    """The path, with the vault in front where the same path may stand in several."""
    return card.path if len(view.vaults) < 2 else f"{view.vaults[card.vault_id].name}: {card.path}"


def _now_ms() -> int:
    return int(time.time() * 1000)


def _iso(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="seconds") if ms else ""
