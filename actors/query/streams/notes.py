"""What SQLite knows of notes, chunks and vaults. Functions take a connection inside a read transaction."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....memory.recall.passages import PassageText
from ....memory.recall.types import NoteCard
from ....protocol.messages.common import Link, ParsedNote
from ...sqlite import sqlite3

T = TypeVar("T")

decode_parsed = msgspec.msgpack.Decoder(ParsedNote).decode

BIND_MAX = 900
"""Host parameters of one statement, below SQLite's oldest limit of 999."""


class VaultRow(NamedTuple):
    id: int
    root: str
    name: str
    kind: str
    swept_ms: int
    suspended: str


class ChunkRow(NamedTuple):
    """One passage as it is stored. Lines are those of the file, 1-based, inclusive."""

    id: int
    note_id: int
    ordinal: int
    context: str
    text: str
    line_from: int
    line_to: int


class NoteRow(NamedTuple):
    """One version of a note: its card, its links as written, whether it is the current one, and when it stood (ms)."""

    card: NoteCard
    links: tuple[Link, ...]
    problem: str
    current: bool
    valid_from: int
    valid_to: int | None


NOTE_COLUMNS = "id, vault_id, path, title, kind, status, date, project, parsed, problem, mtime_ns, valid_from, valid_to"


def revision(conn: sqlite3.Connection) -> int:
    """How many changes the index has seen; 0 for a new one."""
    row = conn.execute("SELECT value FROM meta WHERE key='revision'").fetchone()
    return int(row[0]) if row else 0


def vaults(conn: sqlite3.Connection) -> list[VaultRow]:
    """The vaults that are open."""
    sql = "SELECT id, root, name, kind, swept_ms, suspended FROM vaults WHERE kind <> 'closed'"
    return [VaultRow(*row) for row in conn.execute(sql)]


def current_notes(conn: sqlite3.Connection) -> Iterator[NoteRow]:
    """Every current note."""
    return map(note_row, conn.execute(f"SELECT {NOTE_COLUMNS} FROM notes WHERE valid_to IS NULL"))


def notes_since(conn: sqlite3.Connection, seen: int) -> Iterator[NoteRow]:
    """Versions that were added, moved or superseded after revision ``seen``."""
    return map(
        note_row, conn.execute(f"SELECT {NOTE_COLUMNS} FROM notes WHERE revision > ? ORDER BY revision, id", (seen,))
    )


def count_current(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT count(*) FROM notes WHERE valid_to IS NULL").fetchone()[0])


def problems(conn: sqlite3.Connection, limit: int = 500) -> list[tuple[int, str, str]]:
    """(vault id, path, problem) of current notes that could not be parsed as they stand."""
    sql = "SELECT vault_id, path, problem FROM notes WHERE valid_to IS NULL AND problem != '' ORDER BY path LIMIT ?"
    return [(row[0], row[1], row[2]) for row in conn.execute(sql, (limit,))]


def counts(conn: sqlite3.Connection) -> tuple[int, int]:
    """(chunks of current notes, vectors of the active model)."""
    chunks = conn.execute(
        "SELECT count(*) FROM notes AS n JOIN chunks AS c ON c.note_id = n.id WHERE n.valid_to IS NULL"
    ).fetchone()[0]
    vectors = conn.execute(
        "SELECT count(*) FROM vectors WHERE model_id = (SELECT id FROM models WHERE active) AND ordinal = 0"
    ).fetchone()[0]
    return int(chunks), int(vectors)


def all_chunk_keys(conn: sqlite3.Connection) -> tuple[Iterator[tuple[int, int]], Iterator[tuple[int, bytes]]]:
    """
    (chunk, note) and (chunk, hash) of every chunk, superseded ones included.

    Two scans of covering indexes: reading the table itself would pull every passage through the page cache.
    """
    owners = conn.execute("SELECT id, note_id FROM chunks INDEXED BY chunks_note")
    hashes = conn.execute("SELECT id, hash FROM chunks INDEXED BY chunks_hash")
    return owners, hashes


def chunk_keys(conn: sqlite3.Connection, note_ids: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """(chunk, note, hash) of the chunks of these notes."""
    found: list[tuple[int, int, bytes]] = []
    for part in parts(note_ids):
        marks = ",".join("?" * len(part))
        found += conn.execute(f"SELECT id, note_id, hash FROM chunks WHERE note_id IN ({marks})", part).fetchall()
    return found


def passages(conn: sqlite3.Connection, chunk_ids: Iterable[int]) -> dict[int, PassageText]:
    """Passages by id; ids that no longer exist are left out."""
    found: dict[int, PassageText] = {}
    for part in parts(list(chunk_ids)):
        marks = ",".join("?" * len(part))
        sql = f"SELECT id, text, line_from, line_to, context FROM chunks WHERE id IN ({marks})"
        found |= {row[0]: PassageText(*row) for row in conn.execute(sql, part)}
    return found


def chunks_of(conn: sqlite3.Connection, note_id: int, limit: int = -1) -> list[ChunkRow]:
    """The passages of one note in order."""
    sql = (
        "SELECT id, note_id, ordinal, context, text, line_from, line_to FROM chunks"
        " WHERE note_id = ? ORDER BY ordinal LIMIT ?"
    )
    return [ChunkRow(*row) for row in conn.execute(sql, (note_id, limit))]


def links_of(conn: sqlite3.Connection, note_ids: Iterable[int]) -> dict[int, tuple[Link, ...]]:
    """Links as written, by note."""
    found: dict[int, tuple[Link, ...]] = {}
    for part in parts(list(note_ids)):
        marks = ",".join("?" * len(part))
        for note_id, parsed in conn.execute(f"SELECT id, parsed FROM notes WHERE id IN ({marks})", part):
            found[note_id] = decode_parsed(parsed).links
    return found


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """``values`` as many at a time as one statement may name."""
    for start in range(0, len(values), BIND_MAX):
        yield values[start : start + BIND_MAX]


def note_row(row: tuple[Any, ...]) -> NoteRow:
    note_id, vault_id, path, title, kind, status, date, project, parsed, problem, mtime_ns, valid_from, valid_to = row
    note = decode_parsed(parsed)
    card = NoteCard(
        id=note_id,
        vault_id=vault_id,
        path=path,
        title=title,
        kind=sys.intern(kind),
        status=sys.intern(status),
        date=date,
        updated=note.updated,
        modified_ms=mtime_ns // 1_000_000,
        pinned=note.pinned,
        expires=note.expires,
        summary=note.summary,
        project=sys.intern(project),
        session_id=note.session_id,
        aliases=note.aliases,
        tags=tuple(map(sys.intern, note.tags)),
        entities=note.entities,
        headings=note.headings,
        words=note.words,
    )
    return NoteRow(card, note.links, problem, valid_to is None, valid_from, valid_to)
