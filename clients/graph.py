"""
A picture of the link graph: one self-contained page or SVG, made without a network and readable at thousands of notes.

Pure: from the index's report to text. Note titles and paths are data; they reach the page as escaped text or JSON that
cannot end its script element.
"""

from __future__ import annotations

import html
import json
import math
from collections import deque
from collections.abc import Iterable, Sequence
from importlib import resources

import msgspec

from ..protocol.messages.recall import GraphNote

GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
ROUNDS = 60
LABELS_MAX = 60
PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d", "#ff9da6", "#bab0ac")


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """One note on the picture. ``cluster`` numbers groups by size, 0 the largest; -1 is an orphan."""

    note: GraphNote
    x: float
    y: float
    cluster: int
    degree: int
    on_path: bool = False


def around(notes: Sequence[GraphNote], centre: int, hops: int = 2) -> list[GraphNote]:
    """The notes within ``hops`` links of ``centre``, in either direction, with links renumbered."""
    neighbours = _neighbours(notes)
    reached = {centre: 0}
    queue = deque([centre])
    while queue:
        current = queue.popleft()
        if reached[current] < hops:
            for other in neighbours[current]:
                if other not in reached:
                    reached[other] = reached[current] + 1
                    queue.append(other)
    order = sorted(reached)
    position = {old: new for new, old in enumerate(order)}
    return [
        GraphNote(n.path, n.title, n.kind, n.date, tuple(position[t] for t in n.links if t in position))
        for n in (notes[index] for index in order)
    ]


def path_between(notes: Sequence[GraphNote], start: int, goal: int) -> list[int]:
    """A shortest chain of links from one note to another, either direction; empty when there is none."""
    neighbours = _neighbours(notes)
    came: dict[int, int] = {start: start}
    queue = deque([start])
    while queue and goal not in came:
        current = queue.popleft()
        for other in neighbours[current]:
            if other not in came:
                came[other] = current
                queue.append(other)
    if goal not in came:
        return []
    chain = [goal]
    while chain[-1] != start:
        chain.append(came[chain[-1]])
    return chain[::-1]


def layout(notes: Sequence[GraphNote], highlighted: Iterable[int] = ()) -> list[Spot]:
    """
    Places for all notes in the unit square.

    Clusters (found by label propagation) lie on a sunflower spiral, largest in the middle; inside a cluster notes start on a
    spiral by degree and are then pulled together by their links. Deterministic, O(rounds · links).
    """
    neighbours = _neighbours(notes)
    clusters = _clusters(neighbours)
    groups: dict[int, list[int]] = {}
    for index, cluster in enumerate(clusters):
        groups.setdefault(cluster, []).append(index)
    order = sorted(groups, key=lambda c: (c == -1, -len(groups[c]), c))
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(notes)
    names = {cluster: -1 if cluster == -1 else number for number, cluster in enumerate(order)}
    filled = 0.0
    for number, cluster in enumerate(order):
        members = sorted(groups[cluster], key=lambda i: (-len(neighbours[i]), notes[i].path))
        radius = math.sqrt(len(members))
        distance = 0.0 if number == 0 else math.sqrt(filled) * 1.25 + radius
        angle = number * GOLDEN_ANGLE
        centre = (distance * math.cos(angle), distance * math.sin(angle))
        for rank, member in enumerate(members):
            r, a = math.sqrt(rank + 0.3), rank * GOLDEN_ANGLE
            places[member] = (centre[0] + r * math.cos(a), centre[1] + r * math.sin(a))
        filled += len(members)
    places = _unit(_relaxed(places, neighbours))
    path = set(highlighted)
    return [
        Spot(
            note=note, x=x, y=y, cluster=names[clusters[i]], degree=len(neighbours[i]), on_path=i in path
        )
        for i, (note, (x, y)) in enumerate(zip(notes, places, strict=True))
    ]  # fmt: skip


def _neighbours(notes: Sequence[GraphNote]) -> list[list[int]]:
    found: list[set[int]] = [set() for _ in notes]
    for index, note in enumerate(notes):
        for target in note.links:
            if target != index and 0 <= target < len(notes):
                found[index].add(target)
                found[target].add(index)
    return [sorted(each) for each in found]


def _clusters(neighbours: list[list[int]]) -> list[int]:
    """Label propagation: each note takes the commonest label around it, ties to the smaller; -1 for orphans."""
    labels = [index if near else -1 for index, near in enumerate(neighbours)]
    for _ in range(12):
        changed = False
        for index, near in enumerate(neighbours):
            if not near:
                continue
            counts: dict[int, int] = {}
            for other in near:
                counts[labels[other]] = counts.get(labels[other], 0) + 1
            best = max(counts, key=lambda label: (counts[label], -label))
            if best != labels[index]:
                labels[index], changed = best, True
        if not changed:
            break
    return labels


def _relaxed(places: list[tuple[float, float]], neighbours: list[list[int]]) -> list[tuple[float, float]]:
    """Pull each note a little towards the middle of its neighbours; it keeps half a step to its own place."""
    home = places
    for _ in range(ROUNDS):
        places = [
            (
                (
                    0.85 * home[i][0] + 0.15 * sum(places[j][0] for j in near[:24]) / min(len(near), 24),
                    0.85 * home[i][1] + 0.15 * sum(places[j][1] for j in near[:24]) / min(len(near), 24),
                )
                if near
                else home[i]
            )
            for i, near in enumerate(neighbours)
        ]
    return places


def _unit(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The places, scaled to the unit square."""
    if not places:
        return []
    xs, ys = [x for x, _ in places], [y for _, y in places]
    size = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    return [((x - min(xs)) / size, (y - min(ys)) / size) for x, y in places]


def svg(spots: Sequence[Spot], title: str, size: int = 1200) -> str:
    """A still picture. The best connected notes and those on the path have labels; every note has its title as tooltip."""
    at = [(40 + spot.x * (size - 80), 40 + spot.y * (size - 80)) for spot in spots]
    lines = []
    for index, spot in enumerate(spots):
        for target in spot.note.links:
            if 0 <= target < len(spots) and target != index:
                path = spot.on_path and spots[target].on_path
                style = 'stroke="#d62728" stroke-width="2.5"' if path else 'stroke="#888" stroke-opacity=".25"'
                (x1, y1), (x2, y2) = at[index], at[target]
                lines.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>')
    labelled = set(sorted(range(len(spots)), key=lambda i: -spots[i].degree)[:LABELS_MAX])
    labelled |= {index for index, spot in enumerate(spots) if spot.on_path}
    for index, spot in enumerate(spots):
        x, y = at[index]
        ring = ' stroke="#d62728" stroke-width="2"' if spot.on_path else ""
        name = html.escape(_printable(spot.note.title))
        tip = html.escape(_printable(f"{spot.note.title} — {spot.note.path}"))
        shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{_radius(spot):.1f}" fill="{_colour(spot)}"{ring}'
        lines.append(f"<circle {shape}><title>{tip}</title></circle>")
        if index in labelled:
            lines.append(f'<text x="{x + 6:.1f}" y="{y + 3:.1f}">{name}</text>')
    orphans = sum(spot.cluster == -1 for spot in spots)
    caption = html.escape(_printable(f"{title}: {len(spots)} notes, {orphans} without any link"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="10">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(lines)}'
        f'<text x="12" y="20" font-size="14">{caption}</text></svg>\n'
    )


def page(spots: Sequence[Spot], title: str) -> str:
    """A page of its own: zoom, drag, search, neighbours on hover; no network, no scripts but its own."""
    links = [[i, t] for i, s in enumerate(spots) for t in s.note.links if 0 <= t < len(spots) and t != i]
    data = {
        "notes": [
            [
                _printable(spot.note.title),
                spot.note.path,
                round(spot.x, 4),
                round(spot.y, 4),
                _colour(spot),
                round(_radius(spot), 1),
                int(spot.on_path),
            ]
            for spot in spots
        ],
        "links": links,
    }
    # "</script>" or "<!--" inside a title must not end or hide the script.
    safe = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    orphans = sum(spot.cluster == -1 for spot in spots)
    caption = html.escape(_printable(f"{title}: {len(spots)} notes, {len(links)} links, {orphans} orphans"))
    template = (resources.files("recalld.clients") / "graph.html").read_text(encoding="utf-8")
    return (
        template.replace("%TITLE%", html.escape(_printable(title)))
        .replace("%CAPTION%", caption)
        .replace("%DATA%", safe)
    )


def _radius(spot: Spot) -> float:
    return 3 + min(9.0, 1.2 * math.sqrt(spot.degree))


def _colour(spot: Spot) -> str:
    return "#c9c9c9" if spot.cluster == -1 else PALETTE[spot.cluster % len(PALETTE)]


def _printable(text: str) -> str:
    """Without control characters and bidirectional overrides, which would make a title read as something else."""
    return "".join(c for c in text if c.isprintable() and not ("\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"))
