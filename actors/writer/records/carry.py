"""
What a new index takes over from the one before, because no file tells it. Reads return (rows, key to go on from).

Nothing here trusts ids of the old index: vaults are found by their root, models by their digest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...sqlite import sqlite3
from . import notes, vectors
from .common import next_revision, random_id
from .vaults import GIT_KEY

Key = tuple[Any, ...]
FIRST: Key = ()
Rows = list[tuple[Any, ...]]
Read = Callable[[sqlite3.Connection, Key, int], tuple[Rows, Key]]
Write = Callable[[sqlite3.Connection, Rows], None]

_NOTE = "n.path, n.title, n.kind, n.status, n.date, n.project, n.parsed, n.problem, n.hash, n.dev, n.inode, n.size,"


def read_models(conn: sqlite3.Connection, after: Key, limit: int) -> tuple[Rows, Key]:
    rows = conn.execute(
        "SELECT sha256, name, dim, active FROM models WHERE sha256 > ? ORDER BY sha256 LIMIT ?",
        (after[0] if after else "", limit),
    ).fetchall()
    return rows, (rows[-1][0],) if rows else after


def write_models(conn: sqlite3.Connection, rows: Rows) -> None:
    conn.executemany(
        "INSERT OR IGNORE INTO models (id, sha256, name, dim, active) VALUES (?, ?, ?, ?, ?)",
        [(random_id(), *row) for row in rows],
    )


def read_vectors(conn: sqlite3.Connection, after: Key, limit: int) -> tuple[Rows, Key]:
    digest, model_id, ordinal = after or (b"", -1, -1)
    rows = conn.execute(
        "SELECT v.hash, v.model_id, v.ordinal, v.char_from, v.char_to, v.vec, m.sha256 FROM vectors AS v"
        " JOIN models AS m ON m.id = v.model_id WHERE (v.hash, v.model_id, v.ordinal) > (?, ?, ?)"
        " ORDER BY v.hash, v.model_id, v.ordinal LIMIT ?",
        (digest, model_id, ordinal, limit),
    ).fetchall()
    return rows, rows[-1][:3] if rows else after


def write_vectors(conn: sqlite3.Connection, rows: Rows) -> None:
    """Vectors of texts that the new index has."""
    revision = next_revision(conn)
    conn.executemany(
        "INSERT OR IGNORE INTO vectors (hash, model_id, ordinal, char_from, char_to, vec, revision)"
        " SELECT ?1, m.id, ?2, ?3, ?4, ?5, ?7 FROM models AS m WHERE m.sha256 = ?6"
        " AND EXISTS (SELECT 1 FROM chunks WHERE hash = ?1)",
        [(digest, ordinal, start, end, vec, sha, revision) for digest, _, ordinal, start, end, vec, sha in rows],
    )


def read_versions(conn: sqlite3.Connection, after: Key, limit: int) -> tuple[Rows, Key]:
    """Past versions with their chunks (as the last column)."""
    rows = conn.execute(
        f"SELECT n.id, v.root, {_NOTE} n.mtime_ns, n.valid_from, n.valid_to FROM notes AS n JOIN vaults AS v"
        " ON v.id = n.vault_id WHERE n.id > ? AND n.valid_to > n.valid_from AND v.kind <> 'closed'"
        " ORDER BY n.id LIMIT ?",
        (after[0] if after else 0, limit),
    ).fetchall()
    found = [
        (*row[1:], conn.execute(
            "SELECT ordinal, hash, context, text, line_from, line_to FROM chunks WHERE note_id = ? ORDER BY ordinal",
            (row[0],),
        ).fetchall())
        for row in rows
    ]  # fmt: skip
    return found, (rows[-1][0],) if rows else after


def write_versions(conn: sqlite3.Connection, rows: Rows) -> None:
    revision = next_revision(conn)
    for root, *columns, chunks in rows:
        vault = conn.execute("SELECT id FROM vaults WHERE root = ?", (root,)).fetchone()
        if vault is not None:
            notes.insert_past(conn, vault[0], columns, chunks, revision)


def read_since(conn: sqlite3.Connection, after: Key, limit: int) -> tuple[Rows, Key]:
    """Since when the current version of each file is current."""
    rows = conn.execute(
        "SELECT n.id, v.root, n.path, n.hash, n.valid_from FROM notes AS n JOIN vaults AS v ON v.id = n.vault_id"
        " WHERE n.id > ? AND n.valid_to IS NULL ORDER BY n.id LIMIT ?",
        (after[0] if after else 0, limit),
    ).fetchall()
    return [row[1:] for row in rows], (rows[-1][0],) if rows else after


def write_since(conn: sqlite3.Connection, rows: Rows) -> None:
    conn.executemany(
        "UPDATE notes SET valid_from = ?4 WHERE vault_id = (SELECT id FROM vaults WHERE root = ?1) AND path = ?2"
        " AND hash = ?3 AND valid_to IS NULL",
        rows,
    )


def read_histories(conn: sqlite3.Connection, after: Key, limit: int) -> tuple[Rows, Key]:
    """How far the git history of each vault was read: what was forgotten since must not come back from there."""
    rows = conn.execute(
        "SELECT key, value FROM meta WHERE key GLOB ? AND key > ? ORDER BY key LIMIT ?",
        (f"{GIT_KEY}*", after[0] if after else "", limit),
    ).fetchall()
    return rows, (rows[-1][0],) if rows else after


def write_histories(conn: sqlite3.Connection, rows: Rows) -> None:
    conn.executemany("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", rows)


def finish(conn: sqlite3.Connection, now_ms: int) -> None:
    """What has no vector of the active model waits for one; everything else does not."""
    model_id = vectors.active_model(conn)
    conn.execute(
        "DELETE FROM pending WHERE EXISTS (SELECT 1 FROM vectors AS v WHERE v.hash = pending.hash"
        " AND v.model_id = ? AND v.ordinal = 0)",
        (model_id,),
    )
    if model_id:
        vectors.enqueue_past(conn)


PARTS: dict[str, tuple[Read, Write]] = {
    "models": (read_models, write_models),
    "past versions": (read_versions, write_versions),
    "times": (read_since, write_since),
    "vectors": (read_vectors, write_vectors),
    "histories": (read_histories, write_histories),
}
