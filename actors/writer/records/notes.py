"""
Notes, their versions, chunks and full text. Plain functions of a connection inside a transaction.

A version is a row of ``notes`` with its chunks. The current one has its words in ``chunk_fts``; when it is superseded or
its file goes, it gets ``valid_to`` and its words move to ``past_fts``, where `as_of` finds them. Vectors belong to chunk
texts, not to notes: text that stays keeps its vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ....memory.notes.moves import moved
from ....memory.recall.tokens import index_text
from ....protocol.messages.common import FileStat, Ok, ParsedNote
from ....protocol.messages.index import DropNotes, Indexed, MoveNotes, NoteImage, TouchNotes, UpsertNotes
from ...sqlite import sqlite3
from . import vectors
from .common import DAY_MS, Rules, check_vault, next_revision, revision_of

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ParsedNote).decode
_NOTHING = _encode(ParsedNote(title=""))

FtsRow = tuple[int, str, str, str]

INSERT_NOTE = """
INSERT INTO notes (id, vault_id, path, title, kind, status, date, project, parsed, problem, hash,
                   dev, inode, size, mtime_ns, valid_from, revision)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_CHUNK = """
INSERT INTO chunks (id, note_id, ordinal, hash, context, text, line_from, line_to) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
INSERT_WORDS = "INSERT INTO chunk_fts (rowid, title, heading, body) VALUES (?, ?, ?, ?)"
INSERT_PAST_WORDS = "INSERT INTO past_fts (rowid, title, heading, body) VALUES (?, ?, ?, ?)"
LONGEST = "valid_to - valid_from DESC, valid_to DESC"
"""
The order in which versions are worth keeping: an afternoon of saves must not push out what stood for months before it.
"""
CURRENT = "SELECT id, hash, valid_from FROM notes WHERE vault_id = ? AND path = ? AND valid_to IS NULL"


def upsert_notes(conn: sqlite3.Connection, message: UpsertNotes, now_ms: int, rules: Rules) -> Indexed:
    """
    Replace what is known of these files. The same hash is a no-op but for its stat.

    A path that was never seen is current from its modification time on; a changed one from ``now_ms``.
    """
    check_vault(conn, message.vault_id)
    changed: list[tuple[NoteImage, int]] = []
    replaced: list[int] = []
    for image in {image.path: image for image in message.notes}.values():
        row = conn.execute(CURRENT, (message.vault_id, image.path)).fetchone()
        if row is None:
            since = _first_instant(conn, message.vault_id, image, now_ms)
        elif row[1] == image.hash:
            _touch(conn, message.vault_id, image.path, image.stat)
            continue
        else:
            replaced.append(row[0])
            since = max(
                now_ms, row[2] + 1
            )  # a clock that went back must not make an interval that ends before it began
        changed.append((image, since))
    if not changed:
        return Indexed(revision=revision_of(conn), pending=vectors.some_waiting(conn))
    revision = next_revision(conn)
    _supersede(conn, replaced, now_ms, revision, rules)
    _insert(conn, message.vault_id, changed, revision, now_ms, rules)
    return Indexed(revision=revision, changed=len(changed), pending=vectors.some_waiting(conn))


def move_notes(conn: sqlite3.Connection, message: MoveNotes, now_ms: int, rules: Rules) -> Indexed:
    """Give notes another path; chunks, vectors and versions stay. A note that stood at the new path is superseded."""
    check_vault(conn, message.vault_id)
    found: list[tuple[int, str, str, FileStat, ParsedNote]] = []
    for old, new, stat in message.moves:
        row = conn.execute(
            "SELECT id, parsed FROM notes WHERE vault_id = ? AND path = ? AND valid_to IS NULL", (message.vault_id, old)
        ).fetchone()
        if row is not None and old != new:
            found.append((row[0], old, new, stat, _decode(row[1])))
    if not found:
        return Indexed(revision=revision_of(conn), pending=vectors.some_waiting(conn))
    revision = next_revision(conn)
    moving = {note_id for note_id, *_ in found}
    # All leave before any arrives: two notes may swap their names.
    conn.executemany("UPDATE notes SET path = ? WHERE id = ?", [(f"/{note_id}", note_id) for note_id in moving])
    for note_id, old, new, stat, note in found:
        standing = conn.execute(CURRENT, (message.vault_id, new)).fetchone()
        if standing is not None:
            _supersede(conn, [standing[0]], now_ms, revision, rules)
        note = moved(note, old, new)
        conn.execute(
            "UPDATE notes SET path = ?, title = ?, kind = ?, date = ?, parsed = ?,"
            " dev = ?, inode = ?, size = ?, mtime_ns = ?, revision = ? WHERE id = ?",
            (new, note.title, note.kind, note.date, _encode(note), *_stat(stat), revision, note_id),
        )
        first = [row for row in _chunks(conn, note_id) if row[1] == 0]
        conn.executemany("DELETE FROM chunk_fts WHERE rowid = ?", [row[:1] for row in first])
        conn.executemany(INSERT_WORDS, _words_of(new, note, first))
    return Indexed(revision=revision, changed=len(found), pending=vectors.some_waiting(conn))


def touch_notes(conn: sqlite3.Connection, message: TouchNotes) -> Ok:
    """Store new stats of files whose content is the same."""
    check_vault(conn, message.vault_id)
    for path, stat in message.files:
        _touch(conn, message.vault_id, path, stat)
    return Ok()


def drop_notes(conn: sqlite3.Connection, message: DropNotes, now_ms: int, rules: Rules) -> Indexed:
    """Take notes out of recall. They stay as past versions until they are too old, or until `compact`."""
    check_vault(conn, message.vault_id)
    found = [conn.execute(CURRENT, (message.vault_id, path)).fetchone() for path in dict.fromkeys(message.paths)]
    ids = [row[0] for row in found if row is not None]
    if not ids:
        return Indexed(revision=revision_of(conn), pending=vectors.some_waiting(conn))
    revision = next_revision(conn)
    _supersede(conn, ids, now_ms, revision, rules)
    return Indexed(revision=revision, changed=len(ids), pending=vectors.some_waiting(conn))


def empty(conn: sqlite3.Connection, note_ids: Sequence[int]) -> None:
    """Take everything out of these versions but the row itself, which then was current at no time."""
    if not note_ids:
        return
    revision = next_revision(conn)
    for note_id in note_ids:
        _remove_chunks(conn, note_id)
    conn.executemany(
        "UPDATE notes SET valid_to = valid_from, title = '', parsed = ?, problem = '', hash = x'', size = -1,"
        " revision = ? WHERE id = ?",
        [(_NOTHING, revision, note_id) for note_id in note_ids],
    )


def insert_past(
    conn: sqlite3.Connection, vault_id: int, columns: Sequence[Any], chunks: Iterable[Sequence[Any]], revision: int
) -> None:
    """
    A version that ended: ``columns`` are path … valid_to as they stand in the table, ``chunks`` its ordinal … line_to.
    """
    note_id = _last_id(conn, "notes") + 1
    conn.execute(
        "INSERT INTO notes (id, vault_id, path, title, kind, status, date, project, parsed, problem, hash, dev, inode,"
        " size, mtime_ns, valid_from, valid_to, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (note_id, vault_id, *columns, revision),
    )
    chunk_id = _last_id(conn, "chunks")
    rows = [(chunk_id + n, note_id, *chunk) for n, chunk in enumerate(chunks, 1)]
    conn.executemany(INSERT_CHUNK, rows)
    words = _words_of(columns[0], _decode(columns[6]), [(row[0], row[2], row[4], row[5], row[3]) for row in rows])
    conn.executemany(INSERT_PAST_WORDS, words)


def forget(conn: sqlite3.Connection, note_ids: Iterable[int]) -> int:
    """Remove past versions without a trace; their vectors go with the next `compact`."""
    ids = list(note_ids)
    for note_id in ids:
        _remove_chunks(conn, note_id)
    conn.executemany("DELETE FROM notes WHERE id = ?", [(note_id,) for note_id in ids])
    return len(ids)


def _first_instant(conn: sqlite3.Connection, vault_id: int, image: NoteImage, now_ms: int) -> int:
    gone = conn.execute(
        "SELECT max(valid_to) FROM notes WHERE vault_id = ? AND path = ?", (vault_id, image.path)
    ).fetchone()[0]
    return now_ms if gone is not None else min(now_ms, max(0, image.stat.mtime_ns // 1_000_000))


def _touch(conn: sqlite3.Connection, vault_id: int, path: str, stat: FileStat) -> None:
    conn.execute(
        "UPDATE notes SET dev = ?, inode = ?, size = ?, mtime_ns = ? WHERE vault_id = ? AND path = ?"
        " AND valid_to IS NULL",
        (*_stat(stat), vault_id, path),
    )


def _insert(
    conn: sqlite3.Connection,
    vault_id: int,
    images: Sequence[tuple[NoteImage, int]],
    revision: int,
    now_ms: int,
    rules: Rules,
) -> None:
    note_id = _last_id(conn, "notes")
    chunk_id = _last_id(conn, "chunks")
    note_rows, chunk_rows, word_rows = [], [], []
    for image, since in images:
        note = image.note
        note_id += 1
        note_rows.append(
            (
                note_id, vault_id, image.path, note.title, note.kind, note.status, note.date, note.project,
                _encode(note), note.problem, image.hash, *_stat(image.stat), since, revision,
            )
        )  # fmt: skip
        title = _title_words(image.path, note)
        for chunk in image.chunks:
            chunk_id += 1
            chunk_rows.append(
                (
                    chunk_id, note_id, chunk.ordinal, chunk.hash, chunk.context, chunk.text,
                    chunk.line_from, chunk.line_to,
                )
            )  # fmt: skip
            word_rows.append((chunk_id, title, index_text(chunk.context), index_text(chunk.text)))
            title = ""
    conn.executemany(INSERT_NOTE, note_rows)
    conn.executemany(INSERT_CHUNK, chunk_rows)
    if rules.embed:
        vectors.enqueue(conn, [row[3] for row in chunk_rows], now_ms)
    conn.executemany(INSERT_WORDS, word_rows)


def _supersede(conn: sqlite3.Connection, ids: Sequence[int], now_ms: int, revision: int, rules: Rules) -> None:
    """End the time of current versions; prune what is beyond the bounds of history."""
    for note_id in ids:
        row = conn.execute("SELECT vault_id, path, parsed, size FROM notes WHERE id = ?", (note_id,)).fetchone()
        vault_id, path, parsed, size = row
        chunks = _chunks(conn, note_id)
        conn.executemany("DELETE FROM chunk_fts WHERE rowid = ?", [chunk[:1] for chunk in chunks])
        conn.executemany(INSERT_PAST_WORDS, _words_of(path, _decode(parsed), chunks))
        # A version whose row asks to be read again (size -1) keeps its size readable as a version.
        conn.execute(
            "UPDATE notes SET valid_to = max(?, valid_from + 1), revision = ?, size = ? WHERE id = ?",
            (now_ms, revision, max(size, 0), note_id),
        )
        vectors.dequeue(conn, [chunk[4] for chunk in chunks])
        forget(conn, _beyond(conn, vault_id, path, now_ms, rules))


def _beyond(conn: sqlite3.Connection, vault_id: int, path: str, now_ms: int, rules: Rules) -> list[int]:
    found = conn.execute(
        f"SELECT id, valid_to FROM notes WHERE vault_id = ? AND path = ? AND valid_to IS NOT NULL ORDER BY {LONGEST}",
        (vault_id, path),
    ).fetchall()
    oldest = now_ms - rules.keep_days * DAY_MS
    return [note_id for n, (note_id, until) in enumerate(found) if n >= rules.keep_versions or until < oldest]


def _chunks(conn: sqlite3.Connection, note_id: int) -> list[tuple[int, int, str, str, bytes]]:
    """(id, ordinal, context, text, hash) in order."""
    return conn.execute(
        "SELECT id, ordinal, context, text, hash FROM chunks WHERE note_id = ? ORDER BY ordinal", (note_id,)
    ).fetchall()


def _remove_chunks(conn: sqlite3.Connection, note_id: int) -> None:
    chunks = _chunks(conn, note_id)
    ids = [chunk[:1] for chunk in chunks]
    conn.executemany("DELETE FROM chunk_fts WHERE rowid = ?", ids)
    conn.executemany("DELETE FROM past_fts WHERE rowid = ?", ids)
    conn.execute("DELETE FROM chunks WHERE note_id = ?", (note_id,))
    vectors.dequeue(conn, [chunk[4] for chunk in chunks])


def _words_of(path: str, note: ParsedNote, chunks: Iterable[tuple[int, int, str, str, bytes]]) -> list[FtsRow]:
    """Rows for full text, as ``_insert`` makes them."""
    title = _title_words(path, note)
    return [
        (chunk_id, "" if ordinal else title, index_text(context), index_text(text))
        for chunk_id, ordinal, context, text, _ in chunks
    ]


def _title_words(path: str, note: ParsedNote) -> str:
    """Everything that names a note; stands in the full text of its first chunk alone, so that length is not punished."""
    stem = path.rpartition(".")[0] or path
    return index_text(" ".join((note.title, *note.aliases, *note.tags, stem)))


def _stat(stat: FileStat) -> tuple[int, int, int, int]:
    # Some filesystems use all 64 bits of an inode number; SQLite's integers are signed.
    return _signed(stat.dev), _signed(stat.inode), stat.size, stat.mtime_ns


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def stat_of(dev: int, inode: int, size: int, mtime_ns: int) -> FileStat:
    """The inverse of what is stored."""
    return FileStat(dev % (1 << 64), inode % (1 << 64), size, mtime_ns)


def _last_id(conn: sqlite3.Connection, table: str) -> int:
    return int(conn.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0])
