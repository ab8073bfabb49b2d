"""
Which versions of a note stood when: what git knows, laid beside what the index has seen itself.

What the index saw counts. Git fills the time before it knew the note, and the time in which nobody looked at the folder.
Intervals are half open, [from_ms, to_ms); None = still current.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Stood(NamedTuple):
    """
    One version of a note by git: ``blob`` is the id of its bytes. ``moved``: the path it went to when it ended; ``came``:
    it began by coming from another path.
    """

    blob: str
    from_ms: int
    to_ms: int | None
    moved: str = ""
    came: bool = False


class Row(NamedTuple):
    """One version in the index. ``guessed``: its beginning is the file's modification time, not something that was seen."""

    hash: bytes
    from_ms: int
    to_ms: int | None
    guessed: bool = False


class Insert(NamedTuple):
    blob: str
    from_ms: int
    to_ms: int


class Begin(NamedTuple):
    """The row that began at ``old_ms`` begins at ``new_ms``."""

    old_ms: int
    new_ms: int


class End(NamedTuple):
    """The row that begins at ``from_ms`` ended at ``to_ms``."""

    from_ms: int
    to_ms: int


Change = Insert | Begin | End
Same = Callable[[str, bytes], bool]
"""Whether the blob is the text that has this hash."""


class Bounds(NamedTuple):
    """``oldest_ms``: versions that ended before are not wanted. ``room``: so many may be added: those that stood longest."""

    now_ms: int
    oldest_ms: int = 0
    room: int = 1_000_000
    blind: tuple[int, int] | None = None
    """The time in which nobody looked at the folder: from the last sweep before to the first one after."""
    cut_ms: int | None = None
    """Since when the index has the note under the path that it was renamed to."""


def plan(stood: Sequence[Stood], rows: Sequence[Row], same: Same, bounds: Bounds) -> list[Change]:
    """
    What to change so that a path's versions are those of git where the index has seen nothing itself.

    ``stood`` and ``rows`` are in order of time and do not overlap. Applied one by one, the versions of the path never
    overlap, whichever change was the last.
    """
    changes: list[Change] = []
    for n, row in enumerate(rows):
        after = rows[n + 1] if n + 1 < len(rows) else None
        changes += _unseen(stood, row, after, same, bounds)
    changes += _before(stood, rows, same, bounds)
    return _limited(changes, bounds)


def apply(rows: Sequence[tuple[int, int | None]], change: Change) -> list[tuple[int, int | None]]:
    """The intervals of a path after ``change``, in order."""
    match change:
        case Insert(_, from_ms, to_ms):
            return sorted([*rows, (from_ms, to_ms)], key=_start)
        case Begin(old_ms, new_ms):
            return [(new_ms, end) if start == old_ms else (start, end) for start, end in rows]
        case End(from_ms, to_ms):
            return [(start, to_ms) if start == from_ms else (start, end) for start, end in rows]


def _start(interval: tuple[int, int | None]) -> int:
    return interval[0]


def _before(stood: Sequence[Stood], rows: Sequence[Row], same: Same, bounds: Bounds) -> list[Change]:
    """Newest first: what is left undone after any of them is older than everything that is there."""
    begin: list[Change] = []
    edge = rows[0].from_ms if rows else bounds.now_ms
    if rows and _disproved(stood, rows, same):
        edge = stood[-1].from_ms
        begin = [Begin(rows[0].from_ms, edge)]
    limit = edge if bounds.cut_ms is None else min(edge, bounds.cut_ms)
    older = [one for one in stood if one.from_ms < limit]
    if (
        older
        and rows
        and limit == edge
        and not begin
        and _reaches(older[-1], edge)
        and same(older[-1].blob, rows[0].hash)
    ):
        begin = [Begin(edge, older.pop().from_ms)]
    inserts = [Insert(one.blob, one.from_ms, limit if one.to_ms is None else min(limit, one.to_ms)) for one in older]
    return [*begin, *reversed(inserts)]


def _disproved(stood: Sequence[Stood], rows: Sequence[Row], same: Same) -> bool:
    """
    Whether the modification time of a note's only version cannot be when it began: after that time other text was
    committed before this one was (a copy with preserved times, for example), or the same under another path.
    """
    row = rows[0]
    if len(rows) > 1 or not row.guessed or row.to_ms is not None or not stood or stood[-1].to_ms is not None:
        return False
    before = stood[-2].from_ms > row.from_ms if len(stood) > 1 else False
    moved = stood[-1].came and stood[-1].from_ms > row.from_ms
    return (before or moved) and same(stood[-1].blob, row.hash)


def _unseen(stood: Sequence[Stood], row: Row, after: Row | None, same: Same, bounds: Bounds) -> list[Change]:
    """What git knows of the time between the last look before ``row`` ended and the first one after."""
    if bounds.blind is None or row.to_ms is None or not bounds.blind[0] < row.to_ms <= bounds.blind[1]:
        return []
    end = row.to_ms
    begin = max(bounds.blind[0], row.from_ms)
    first = next((n for n, one in enumerate(stood) if one.from_ms > begin and not same(one.blob, row.hash)), len(stood))
    inside = [one for one in stood[first:] if one.from_ms < end]
    left = stood[first - 1].to_ms if first else None
    turns = [one.from_ms for one in inside[:1]] + ([left] if left is not None and begin < left < end else [])
    if not turns:
        return []
    changes: list[Change] = [End(row.from_ms, min(turns))]
    joined = after if after is not None and after.from_ms == end else None
    for one in inside:
        if joined is not None and _reaches(one, end) and same(one.blob, joined.hash):
            changes.append(Begin(end, one.from_ms))
        else:
            changes.append(Insert(one.blob, one.from_ms, end if one.to_ms is None else min(end, one.to_ms)))
    return changes


def _reaches(one: Stood, edge: int) -> bool:
    return one.to_ms is None or one.to_ms > edge


def _limited(changes: list[Change], bounds: Bounds) -> list[Change]:
    """Without the versions that nobody keeps; the newest first where there is not room for all."""
    wanted = [
        one for one in changes if isinstance(one, Insert) and one.to_ms >= bounds.oldest_ms and one.from_ms < one.to_ms
    ]
    wanted.sort(key=lambda one: (one.from_ms - one.to_ms, -one.from_ms))
    kept = set(wanted[: max(0, bounds.room)])
    return [one for one in changes if not isinstance(one, Insert) or one in kept]
