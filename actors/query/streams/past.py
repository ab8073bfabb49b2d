"""
What stood in the notes at an earlier time.

A version counts from the moment it was indexed, or from its commit where the notes lie in a git repository: the writer
adds those versions as rows like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...sqlite import sqlite3
from .notes import NOTE_COLUMNS, NoteRow, note_row

_AT = "valid_from <= :at AND (valid_to IS NULL OR valid_to > :at)"


def notes_at(conn: sqlite3.Connection, when_ms: int) -> Iterator[NoteRow]:
    """The versions that were current at ``when_ms``."""
    return map(note_row, conn.execute(f"SELECT {NOTE_COLUMNS} FROM notes WHERE {_AT}", {"at": when_ms}))


def earliest_ms(conn: sqlite3.Connection) -> int:
    """Since when there are versions; 0 for an empty index."""
    # Along the index on both columns to the first that was current at any time; the table itself is mostly text.
    row = conn.execute(
        "SELECT valid_from FROM notes INDEXED BY notes_validity WHERE valid_to IS NULL OR valid_to > valid_from"
        " ORDER BY valid_from LIMIT 1"
    ).fetchone()
    return int(row[0]) if row else 0
