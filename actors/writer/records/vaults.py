"""Vaults: which folders are indexed, what is known of their files, how their last sweep went."""

from __future__ import annotations

import msgspec

from ....protocol.messages.common import Ok
from ....protocol.messages.index import KnownFile, OpenVault, SweepDone, VaultState
from ...sqlite import sqlite3
from . import notes
from .common import check_vault, next_revision, random_id

UNREADABLE_SHOWN = 200
GIT_KEY = "git:"
"""Before a vault's root: the key in meta under which its git history is remembered as read."""


def open_vault(conn: sqlite3.Connection, message: OpenVault) -> VaultState:
    """Register a vault, or find it again under its root; name and kind follow the caller."""
    vault = message.vault
    row = conn.execute("SELECT id, name, kind FROM vaults WHERE root = ?", (vault.root,)).fetchone()
    if row is None:
        vault_id = random_id()
        conn.execute(
            "INSERT INTO vaults (id, root, name, kind) VALUES (?, ?, ?, ?)",
            (vault_id, vault.root, vault.name, vault.kind),
        )
        next_revision(conn)
        return VaultState(vault_id=vault_id, files=())
    vault_id = row[0]
    if row[1:] != (vault.name, vault.kind):
        conn.execute("UPDATE vaults SET name = ?, kind = ? WHERE id = ?", (vault.name, vault.kind, vault_id))
        next_revision(conn)
    return VaultState(vault_id=vault_id, files=tuple(known_files(conn, vault_id)))


def known_files(conn: sqlite3.Connection, vault_id: int) -> list[KnownFile]:
    """Every current note of a vault as a file."""
    found = conn.execute(
        "SELECT path, dev, inode, size, mtime_ns, hash FROM notes WHERE vault_id = ? AND valid_to IS NULL", (vault_id,)
    )
    return [KnownFile(path, notes.stat_of(*stat), digest) for path, *stat, digest in found]


def open_roots(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Roots of the watched folders that the index holds; the wiki is ours and not among them."""
    return tuple(root for (root,) in conn.execute("SELECT root FROM vaults WHERE kind = 'vault' ORDER BY root"))


def close_vault(conn: sqlite3.Connection, root: str, limit: int) -> int:
    """
    Forget up to ``limit`` notes of the vault at ``root``, past versions included, and return how many are left.

    Emptied rows stay, with an interval that no instant is in: readers learn from their revision that they are gone.
    """
    row = conn.execute("SELECT id, kind FROM vaults WHERE root = ?", (root,)).fetchone()
    if row is None:
        return 0
    vault_id, kind = row
    if kind != "closed":
        conn.execute("UPDATE vaults SET kind = 'closed', suspended = '', unreadable = '[]' WHERE id = ?", (vault_id,))
        conn.execute("DELETE FROM meta WHERE key = ?", (f"{GIT_KEY}{root}",))
        next_revision(conn)
    found = conn.execute("SELECT id FROM notes WHERE vault_id = ? AND size >= 0 LIMIT ?", (vault_id, limit))
    notes.empty(conn, [note_id for (note_id,) in found])
    left = conn.execute("SELECT count(*) FROM notes WHERE vault_id = ? AND size >= 0", (vault_id,))
    return int(left.fetchone()[0])


def sweep_done(conn: sqlite3.Connection, message: SweepDone) -> Ok:
    """Note when a vault was last compared with its folder, and what could not be read."""
    check_vault(conn, message.vault_id)
    unreadable = msgspec.json.encode(message.unreadable[:UNREADABLE_SHOWN]).decode()
    conn.execute(
        "UPDATE vaults SET swept_ms = ?, unreadable = ?, suspended = ? WHERE id = ?",
        (message.at_ms, unreadable, message.suspended, message.vault_id),
    )
    return Ok()


def roots(conn: sqlite3.Connection) -> list[tuple[int, str, str, str]]:
    """(id, root, name, kind) of every open vault."""
    return conn.execute("SELECT id, root, name, kind FROM vaults WHERE kind <> 'closed' ORDER BY root").fetchall()
