"""What all records share: revisions, and the rules that configuration sets."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from ....protocol.envelope import Conflict
from ...sqlite import sqlite3

DAY_MS = 86_400_000


class Rules(NamedTuple):
    """Configuration that records obey."""

    keep_versions: int = 32
    keep_days: int = 3650
    embed: bool = True
    """False: there is no embedding model, so nothing waits for vectors."""


def revision_of(conn: sqlite3.Connection) -> int:
    """The revision of the index; 0 when nothing was ever written."""
    row = conn.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()
    return int(row[0]) if row else 0


def next_revision(conn: sqlite3.Connection) -> int:
    """Count one more change of notes or vectors. Readers load what carries a larger revision than they have seen."""
    row = conn.execute(
        "INSERT INTO meta (key, value) VALUES ('revision', 1)"
        " ON CONFLICT (key) DO UPDATE SET value = value + 1 RETURNING value"
    ).fetchone()
    return int(row[0])


def random_id() -> int:
    """
    An id that no other database gave out: an id from before a rebuild is found to be stale, not taken for another's.

    63 bits would not survive JSON readers; 48 do.
    """
    return secrets.randbits(47) + 1


def check_vault(conn: sqlite3.Connection, vault_id: int) -> None:
    """Raise Conflict when ``vault_id`` is of another database, or of a vault that was closed."""
    found = conn.execute("SELECT 1 FROM vaults WHERE id = ? AND kind <> 'closed'", (vault_id,)).fetchone()
    if found is None:
        raise Conflict(f"vault {vault_id} is not open: open it again (the index may have been rebuilt)")
