"""Messages between projects: who may read one is decided here, in the journal's order, so that exactly one caller does."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....memory.capture.ledger import Mailed
from ....protocol.messages.capture import Letter
from ...sqlite import sqlite3

INBOX_MAX = 256
"""Messages that may wait for one project; the next one is refused."""
KEPT = 256
"""Of a project's messages, how many that were read or withdrawn are kept to be looked up."""

_pack = msgspec.msgpack.Encoder().encode
_letter = msgspec.msgpack.Decoder(Letter).decode
_reply = msgspec.msgpack.Decoder(Letter | int).decode

Mail = Letter | int | None
"""Granted: the message as it is now, how many were withdrawn, or nothing."""


def apply(conn: sqlite3.Connection, entry: Mailed) -> Mail:
    """
    Grant a wish or not. None: the inbox is full, or there is no such message that waits. A wish that comes again under its
    replay key is answered as it was.
    """
    if entry.replay_key:
        known = conn.execute("SELECT reply FROM replays WHERE key = ?", (entry.replay_key,)).fetchone()
        if known is not None:
            return _reply(known[0])
    granted = _grant(conn, entry)
    if entry.replay_key and granted is not None:
        row = (entry.replay_key, entry.at_ms, _pack(granted))
        conn.execute("INSERT INTO replays (key, at_ms, reply) VALUES (?,?,?)", row)
    return granted


def waiting(conn: sqlite3.Connection, project: str) -> int:
    """How many messages wait for a project."""
    query = "SELECT count(*) FROM letters WHERE to_project = ? AND state = 'waiting'"
    return int(conn.execute(query, (project,)).fetchone()[0])


def inbox(conn: sqlite3.Connection, project: str, limit: int) -> list[Letter]:
    """What waits for a project, oldest first."""
    query = "SELECT letter FROM letters WHERE to_project = ? AND state = 'waiting' ORDER BY at_ms, id LIMIT ?"
    return _letters(conn.execute(query, (project, limit)).fetchall())


def outbox(conn: sqlite3.Connection, project: str, limit: int) -> list[Letter]:
    """What a project sent: what waits first, then the newest."""
    query = "SELECT letter FROM letters WHERE from_project = ? ORDER BY state <> 'waiting', at_ms DESC, id LIMIT ?"
    return _letters(conn.execute(query, (project, limit)).fetchall())


def forget_session(conn: sqlite3.Connection, session: str) -> None:
    """Remove what a session sent."""
    conn.execute("DELETE FROM letters WHERE session = ?", (session,))


def forget_project(conn: sqlite3.Connection, project: str) -> None:
    """Remove what a project sent and what was sent to it."""
    conn.execute("DELETE FROM letters WHERE ?1 IN (from_project, to_project)", (project,))


def _grant(conn: sqlite3.Connection, entry: Mailed) -> Mail:
    match entry.op:
        case "send":
            return None if entry.letter is None else _send(conn, entry.letter)
        case "pop":
            return _pop(conn, entry)
        case "cancel":
            return _cancel(conn, entry)


def _send(conn: sqlite3.Connection, letter: Letter) -> Letter | None:
    known = conn.execute("SELECT letter FROM letters WHERE id = ?", (letter.id,)).fetchone()
    if known is not None:
        return _letter(known[0])
    if waiting(conn, letter.to_project) >= INBOX_MAX:
        return None
    _put(conn, letter)
    return letter


def _pop(conn: sqlite3.Connection, entry: Mailed) -> Letter | None:
    project = entry.place.project
    if entry.id:
        query = "SELECT letter FROM letters WHERE id = ? AND to_project = ? AND state = 'waiting'"
        found = _letters(conn.execute(query, (entry.id, project)).fetchall())
    else:
        found = inbox(conn, project, 1)
    if not found:
        return None
    reader = entry.place.session or entry.place.host
    letter = msgspec.structs.replace(found[0], state="read", read_by=reader, read_at_ms=entry.at_ms)
    _put(conn, letter)
    _prune(conn, project)
    return letter


def _cancel(conn: sqlite3.Connection, entry: Mailed) -> int:
    query = "SELECT letter FROM letters WHERE from_project = ?1 AND state = 'waiting' AND (?2 = '' OR id = ?2)"
    found = _letters(conn.execute(query, (entry.place.project, entry.id)).fetchall())
    for letter in found:
        _put(conn, msgspec.structs.replace(letter, state="cancelled"))
    for project in {letter.to_project for letter in found}:
        _prune(conn, project)
    return len(found)


def _put(conn: sqlite3.Connection, letter: Letter) -> None:
    conn.execute(
        "INSERT OR REPLACE INTO letters (id, to_project, from_project, session, state, at_ms, letter) VALUES (?,?,?,?,?,?,?)",
        (
            letter.id,
            letter.to_project,
            letter.from_project,
            letter.from_session,
            letter.state,
            letter.at_ms,
            _pack(letter),
        ),
    )


def _prune(conn: sqlite3.Connection, project: str) -> None:
    conn.execute(
        "DELETE FROM letters WHERE id IN (SELECT id FROM letters WHERE to_project = ? AND state <> 'waiting'"
        " ORDER BY at_ms DESC, id LIMIT -1 OFFSET ?)",
        (project, KEPT),
    )


def _letters(rows: Sequence[tuple[bytes]]) -> list[Letter]:
    return [_letter(row[0]) for row in rows]
