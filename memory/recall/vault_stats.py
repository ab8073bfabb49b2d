"""Figures of a folder of notes that tell whether its links can be used: what `recalld stats` prints."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Literal

import msgspec

from .dates import parse_day
from .supersession import current_of, stale_links
from .types import Catalog

Verdict = Literal["ok", "warn", "fail", "n/a"]
EXIT: dict[str, int] = {"ok": 0, "n/a": 0, "warn": 1, "fail": 2}
EXAMPLES = 5


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of sgm-stats, so that figures can be compared."""

    orphan_warn: float = 5.0
    orphan_fail: float = 15.0
    """Percent of notes that nothing links to."""
    degree_ok_min: float = 3.0
    degree_ok_max: float = 8.0
    degree_warn_min: float = 2.0
    degree_warn_max: float = 10.0
    """Links per note."""
    component_ok: float = 80.0
    """Percent of notes in the largest part that hangs together."""
    stale_days: float = 90.0
    stale_warn: float = 50.0
    """Percent of concept notes older than ``stale_days``."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: float | None
    unit: str
    verdict: Verdict
    detail: str = ""
    examples: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    notes_dir: str
    pages: int
    metrics: tuple[Metric, ...]
    verdict: Verdict
    exit_code: int


def report(
    folder: str,
    notes: Catalog,
    unresolved: Sequence[tuple[str, str]],
    ambiguous: Sequence[tuple[str, str]],
    today: datetime.date,
    limits: Thresholds,
) -> Report:
    """The report on one folder; the verdict is the worst of its metrics, taken on rounded values."""
    metrics = (
        _orphans(notes, limits),
        _degree(notes, limits),
        _component(notes, limits),
        _stale(notes, today, limits),
        _count("unresolved_links", [f"{path}: {target}" for path, target in unresolved], "links to no note"),
        _count("ambiguous_links", [f"{path}: {target}" for path, target in ambiguous], "links that fit several notes"),
        _count("links_to_superseded", _superseded_links(notes), "links that give a replaced note as current"),
    )
    worst = max((metric.verdict for metric in metrics), key=lambda verdict: EXIT[verdict])
    return Report(notes_dir=folder, pages=len(notes.cards), metrics=metrics, verdict=worst, exit_code=EXIT[worst])


def _pairs(notes: Catalog) -> set[tuple[int, int]]:
    return {(e.source, e.target) for note in notes.cards for e in notes.out_edges(note) if e.target in notes.cards}


def _orphans(notes: Catalog, limits: Thresholds) -> Metric:
    linked = {target for _, target in _pairs(notes)}
    orphans = sorted(card.path for card in notes.cards.values() if card.id not in linked)
    value = round(100.0 * len(orphans) / len(notes.cards), 1)
    verdict: Verdict = "ok" if value < limits.orphan_warn else "warn" if value <= limits.orphan_fail else "fail"
    detail = f"{len(orphans)} of {len(notes.cards)} notes have no link to them"
    return Metric(
        name="orphan_rate", value=value, unit="%", verdict=verdict, detail=detail, examples=tuple(orphans[:EXAMPLES])
    )


def _degree(notes: Catalog, limits: Thresholds) -> Metric:
    pairs = _pairs(notes)
    value = round(len(pairs) / len(notes.cards), 2)
    verdict: Verdict = "fail"
    if limits.degree_ok_min <= value <= limits.degree_ok_max:
        verdict = "ok"
    elif limits.degree_warn_min <= value <= limits.degree_warn_max:
        verdict = "warn"
    return Metric(
        name="avg_degree", value=value, unit="links/note", verdict=verdict, detail=f"{len(pairs)} links between notes"
    )


def _component(notes: Catalog, limits: Thresholds) -> Metric:
    parent = {note: note for note in notes.cards}

    def root(note: int) -> int:
        while parent[note] != note:
            parent[note] = parent[parent[note]]
            note = parent[note]
        return note

    for source, target in _pairs(notes):
        parent[root(source)] = root(target)
    sizes: dict[int, int] = {}
    for note in parent:
        sizes[root(note)] = sizes.get(root(note), 0) + 1
    largest = max(sizes, key=lambda part: sizes[part])
    apart = sorted(notes.cards[note].path for note in parent if root(note) != largest)
    value = round(100.0 * sizes[largest] / len(parent), 1)
    return Metric(
        name="main_component", value=value, unit="%", verdict="ok" if value >= limits.component_ok else "warn",
        detail=f"{len(sizes)} parts", examples=tuple(apart[:EXAMPLES]),
    )  # fmt: skip


def _stale(notes: Catalog, today: datetime.date, limits: Thresholds) -> Metric:
    concepts = [c for c in notes.cards.values() if c.kind == "concept" or "concepts" in c.path.split("/")[:-1]]
    if not concepts:
        return Metric(name="stale_concepts", value=None, unit="%", verdict="n/a", detail="there are no concept notes")
    old = sorted(
        card.path
        for card in concepts
        if (day := parse_day(card.updated) or parse_day(card.date)) and (today - day).days > limits.stale_days
    )
    value = round(100.0 * len(old) / len(concepts), 1)
    return Metric(
        name="stale_concepts", value=value, unit="%", verdict="ok" if value <= limits.stale_warn else "warn",
        detail=f"{len(old)} of {len(concepts)} concept notes are older than {limits.stale_days:.0f} days",
        examples=tuple(old[:EXAMPLES]),
    )  # fmt: skip


def _count(name: str, found: Sequence[str], what: str) -> Metric:
    return Metric(
        name=name, value=float(len(found)), unit="links", verdict="warn" if found else "ok", detail=what,
        examples=tuple(found[:EXAMPLES]),
    )  # fmt: skip


def _superseded_links(notes: Catalog) -> list[str]:
    """Links to a replaced note from notes that are neither its replacement nor replaced themselves."""
    found = []
    for edge in stale_links(notes, notes.cards):
        newer = current_of(edge.target, notes)
        if newer not in (edge.source, edge.target):
            old = notes.cards[edge.target].path
            found.append(f"{notes.cards[edge.source].path}: {old} (now {notes.cards[newer].path})")
    return sorted(found)
