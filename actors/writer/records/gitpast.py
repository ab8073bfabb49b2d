"""
Past versions that git tells of. Plain functions of a connection inside a transaction.

What has been read is remembered per vault root under ``git:<root>`` in meta: the last commit, and what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ....protocol.messages.index import SweepDone
from ...sqlite import sqlite3
from ..wiki.gitreader import RowOf, Step, Text
from . import notes, vaults, vectors
from .common import Rules, check_vault, next_revision


class Progress(msgspec.Struct, frozen=True):
    """What was taken from the history of one vault. ``tips``: the last commit, by folder (``vaultlog.repositories``)."""

    tips: dict[str, str] = {}
    versions: int = 0
    notes: int = 0


class Place(NamedTuple):
    root: str
    name: str
    progress: Progress


class Done(NamedTuple):
    """How many steps were done; versions added, and notes that got their first."""

    steps: int
    versions: int
    notes: int


TURN_S = 0.015
"""For one transaction: a live write that comes meanwhile waits so long. On a busy machine it is few steps."""


def place(conn: sqlite3.Connection, vault_id: int) -> Place | None:
    """A watched folder, and how far its history was read; None when it is closed, or our own wiki."""
    row = conn.execute("SELECT root, name FROM vaults WHERE id = ? AND kind = 'vault'", (vault_id,)).fetchone()
    return Place(row[0], row[1], _progress(conn, row[0])) if row is not None else None


def total(conn: sqlite3.Connection) -> Progress:
    """What was taken from all histories."""
    found = [_progress(conn, root) for root in vaults.open_roots(conn)]
    return Progress({}, sum(one.versions for one in found), sum(one.notes for one in found))


def remember(conn: sqlite3.Connection, root: str, progress: Progress) -> None:
    value = msgspec.json.encode(progress).decode()
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (f"{vaults.GIT_KEY}{root}", value))


def swept(conn: sqlite3.Connection, message: SweepDone) -> int:
    """Note the end of a sweep; when the one before it ended (0 = never)."""
    row = conn.execute("SELECT swept_ms FROM vaults WHERE id = ?", (message.vault_id,)).fetchone()
    vaults.sweep_done(conn, message)
    return int(row[0])


def known(conn: sqlite3.Connection, vault_id: int, paths: Sequence[str]) -> dict[str, tuple[RowOf, ...]]:
    """The versions of these notes, oldest first."""
    return {path: tuple(_rows(conn, vault_id, path)) for path in paths}


def carry_out(conn: sqlite3.Connection, vault_id: int, steps: Sequence[Step], rules: Rules) -> Done:
    """
    Do the steps whose notes still stand as they were when they were planned, as many as fit into TURN_S.

    Raises Conflict when the vault is not open any more.
    """
    started = time.monotonic()
    check_vault(conn, vault_id)
    revision = next_revision(conn) if steps else 0
    count = versions = fresh = 0
    for count, step in enumerate(steps, 1):
        if count > 1 and time.monotonic() - started > TURN_S:
            return Done(count - 1, versions, fresh)
        there = [(row[1], row[2]) for row in _rows(conn, vault_id, step.path)]
        if there != list(step.expect):
            continue
        if step.begin is not None:
            _update(conn, "valid_from", vault_id, step.path, step.begin, revision)
        if step.end is not None:
            _update(conn, "valid_to", vault_id, step.path, step.end, revision)
        if step.insert is not None:
            _insert(conn, vault_id, step.path, step.insert, revision, rules)
            versions += 1
            fresh += all(until is None for _, until in there)
    return Done(count, versions, fresh)


def _rows(conn: sqlite3.Connection, vault_id: int, path: str) -> list[RowOf]:
    found = conn.execute(
        "SELECT hash, valid_from, valid_to, mtime_ns / 1000000 = valid_from FROM notes"
        " WHERE vault_id = ? AND path = ? AND (valid_to IS NULL OR valid_to > valid_from) ORDER BY valid_from",
        (vault_id, path),
    )
    return [(digest, since, until, bool(guessed)) for digest, since, until, guessed in found]


def _update(
    conn: sqlite3.Connection, column: str, vault_id: int, path: str, change: tuple[int, int], revision: int
) -> None:
    conn.execute(
        f"UPDATE notes SET {column} = ?, revision = ? WHERE vault_id = ? AND path = ? AND valid_from = ?"
        " AND (valid_to IS NULL OR valid_to > valid_from)",
        (change[1], revision, vault_id, path, change[0]),
    )


def _insert(conn: sqlite3.Connection, vault_id: int, path: str, text: Text, revision: int, rules: Rules) -> None:
    note = text.note
    columns = (
        path, note.title, note.kind, note.status, note.date, note.project, msgspec.msgpack.encode(note), note.problem,
        text.hash, 0, 0, text.size, text.from_ms * 1_000_000, text.from_ms, text.to_ms,
    )  # fmt: skip
    chunks = [(c.ordinal, c.hash, c.context, c.text, c.line_from, c.line_to) for c in text.chunks]
    notes.insert_past(conn, vault_id, columns, chunks, revision)
    if rules.embed:
        vectors.enqueue(conn, [chunk.hash for chunk in text.chunks], vectors.LAST)


def _progress(conn: sqlite3.Connection, root: str) -> Progress:
    row = conn.execute("SELECT value FROM meta WHERE key = ?", (f"{vaults.GIT_KEY}{root}",)).fetchone()
    return msgspec.json.decode(row[0], type=Progress) if row is not None else Progress()
