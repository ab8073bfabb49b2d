"""What was said of notes, as the catalog wants it. An index from before feedback has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....memory.recall.types import NOBODY, Tally
from ...sqlite import sqlite3
from .notes import parts

_COUNTS = (
    "sum(f.signal = 'helpful'), sum(f.signal = 'not_helpful'), sum(f.signal = 'stale'), sum(f.signal = 'wrong')"
    " FROM {} WHERE n.valid_to IS NULL AND length(n.hash) > 0 {} GROUP BY n.id"
)


def of_all(conn: sqlite3.Connection) -> dict[int, Tally]:
    """By current note; only those of which something was said."""
    if not _exists(conn):
        return {}
    return _tallies(
        conn.execute(f"SELECT n.id, {_COUNTS.format('feedback AS f CROSS JOIN notes AS n ON n.hash = f.hash', '')}")
    )


def of_notes(conn: sqlite3.Connection, note_ids: Sequence[int]) -> dict[int, Tally]:
    """The same for these notes."""
    found: dict[int, Tally] = {}
    for part in parts(note_ids if _exists(conn) else ()):
        chosen = f"AND n.id IN ({','.join('?' * len(part))})"
        counts = _COUNTS.format("notes AS n JOIN feedback AS f ON f.hash = n.hash", chosen)
        found |= _tallies(conn.execute(f"SELECT n.id, {counts}", part))
    return found


def reasons(conn: sqlite3.Connection, note_ids: Iterable[int]) -> list[tuple[int, str, str]]:
    """(note, signal, reason) of these notes where somebody found them stale or wrong, newest first."""
    if not _exists(conn):
        return []
    query = (
        "SELECT n.id, f.signal, f.reason FROM feedback AS f CROSS JOIN notes AS n ON n.hash = f.hash AND n.valid_to IS NULL"
        " WHERE f.signal IN ('stale', 'wrong') AND length(n.hash) > 0 ORDER BY f.at_ms DESC"
    )
    wanted = set(note_ids)
    return [row for row in conn.execute(query).fetchall() if row[0] in wanted]


def _exists(conn: sqlite3.Connection) -> bool:
    return conn.execute("SELECT 1 FROM sqlite_schema WHERE name = 'feedback'").fetchone() is not None


def _tallies(rows: Iterable[tuple[int, int, int, int, int]]) -> dict[int, Tally]:
    found = {row[0]: Tally(*row[1:]) for row in rows}
    return {note: tally for note, tally in found.items() if tally != NOBODY}
