"""What was said of notes: stored by the bytes that it was said of, so that any change of the note ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ....memory.capture.ledger import Judged
from ....protocol.messages.capture import Signal
from ...sqlite import sqlite3
from .common import next_revision

PERSON = "you"
"""Host of what a person says on the command line."""


class Standing(NamedTuple):
    """A current note as somebody named it."""

    root: str
    vault: str
    path: str
    hash: bytes


def find(conn: sqlite3.Connection, paths: Sequence[str], vault: str = "") -> list[Standing]:
    """The current notes at the first of these paths that any open vault has; ``vault`` is a name, '' = any."""
    vaults = conn.execute(
        "SELECT id, root, name FROM vaults WHERE kind <> 'closed' AND (?1 = '' OR name = ?1 OR root = ?1)", (vault,)
    ).fetchall()
    query = "SELECT path, hash FROM notes WHERE vault_id = ? AND path = ? AND valid_to IS NULL AND length(hash) > 0"
    for given in paths:
        found: list[Standing] = []
        for vault_id, root, name in vaults:
            path = given.removeprefix(f"{root}/") if given.startswith("/") else given
            found += (Standing(root, name, *row) for row in conn.execute(query, (vault_id, path)))
        if found:
            return found
    return []


def judge(conn: sqlite3.Connection, entry: Judged) -> None:
    """
    Take in one judgement. A voice's last word counts; a person's settles what others said before. Notes with these bytes
    get a new revision: readers look at them again.
    """
    digest = bytes.fromhex(entry.hash)
    if entry.host == PERSON:
        conn.execute("DELETE FROM feedback WHERE hash = ?", (digest,))
    conn.execute(
        "INSERT OR REPLACE INTO feedback (hash, voice, signal, at_ms, session, path, root, reason) VALUES (?,?,?,?,?,?,?,?)",
        (digest, f"{entry.host}:{entry.session}", entry.signal, entry.at_ms, entry.session, entry.path, entry.root,
         entry.reason),
    )  # fmt: skip
    _touch(conn, [digest])


def forget_session(conn: sqlite3.Connection, session: str) -> None:
    """Take back what a session said."""
    gone = conn.execute("DELETE FROM feedback WHERE session = ? RETURNING hash", (session,)).fetchall()
    _touch(conn, [row[0] for row in gone])


def forget_folder(conn: sqlite3.Connection, folder: str) -> None:
    """Take back what was said of notes in a folder (absolute)."""
    query = "DELETE FROM feedback WHERE substr(root || '/' || path, 1, ?1) = ?2 RETURNING hash"
    inside = f"{folder}/"
    _touch(conn, [row[0] for row in conn.execute(query, (len(inside), inside)).fetchall()])


def tally(conn: sqlite3.Connection, digest: bytes) -> dict[Signal, int]:
    """What counts for these bytes, by signal."""
    return dict(Counter(row[0] for row in conn.execute("SELECT signal FROM feedback WHERE hash = ?", (digest,))))


def _touch(conn: sqlite3.Connection, digests: Sequence[bytes]) -> None:
    query = "SELECT id FROM notes WHERE hash = ? AND valid_to IS NULL"
    ids = [row for digest in digests for row in conn.execute(query, (digest,))]
    if ids:
        revision = next_revision(conn)
        conn.executemany("UPDATE notes SET revision = ? WHERE id = ?", [(revision, *row) for row in ids])
