"""
Keep the index small, sound and described. Plain functions of a connection.

Each step of ``compact`` works on at most so many rows and says whether more are left: no reader and no write waits for
all of it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ....protocol.messages.index import Settled
from ...sqlite import sqlite3
from ..schema import FULL_TEXT
from . import notes, vectors
from .common import DAY_MS, Rules, revision_of

MERGE_PAGES = 500
"""Index pages per merge step: about 30 ms."""


class Counts(msgspec.Struct, frozen=True):
    """What the index holds, for status."""

    revision: int = 0
    notes: int = 0
    chunks: int = 0
    past_chunks: int = 0
    vectors: int = 0
    pending_vectors: int = 0
    failed_vectors: int = 0
    problems: int = 0
    oldest_pending_ms: int = 0
    """When the current text that waits longest was queued; 0 when none waits."""
    swept_ms: int = 0
    """When the vault that was swept longest ago was swept; 0 when there is none or one never was."""
    unreadable: int = 0
    suspended: str = ""
    model: str = ""
    vaults: int = 0


def counts(conn: sqlite3.Connection) -> Counts:
    """Figures from small indexes and shadow tables: 20 ms at 100,000 chunks."""
    oldest = [
        conn.execute(
            "SELECT min(queued_ms) FROM pending WHERE tries = ? AND queued_ms > ?", (tries, vectors.LAST)
        ).fetchone()[0]
        for tries in range(vectors.MAX_TRIES)
    ]
    open_vaults = conn.execute(
        "SELECT swept_ms, unreadable, suspended, name FROM vaults WHERE kind <> 'closed'"
    ).fetchall()
    model = conn.execute("SELECT name FROM models WHERE active").fetchone()
    return Counts(
        revision=revision_of(conn),
        notes=_one(conn, "SELECT count(*) FROM notes WHERE valid_to IS NULL"),
        chunks=_one(conn, "SELECT count(*) FROM chunk_fts_docsize"),
        past_chunks=_one(conn, "SELECT count(*) FROM past_fts_docsize"),
        vectors=_one(conn, "SELECT count(*) FROM vectors"),
        pending_vectors=vectors.waiting(conn),
        failed_vectors=vectors.set_aside(conn),
        problems=_one(conn, "SELECT count(*) FROM notes WHERE problem <> '' AND valid_to IS NULL"),
        oldest_pending_ms=min((queued for queued in oldest if queued is not None), default=0),
        swept_ms=min((vault[0] for vault in open_vaults), default=0),
        unreadable=sum(len(msgspec.json.decode(vault[1])) for vault in open_vaults),
        suspended="; ".join(f"{vault[3]}: {vault[2]}" for vault in open_vaults if vault[2]),
        model=model[0] if model else "",
        vaults=len(open_vaults),
    )


def settled(conn: sqlite3.Connection) -> Settled:
    return Settled(
        revision=revision_of(conn), pending_vectors=vectors.waiting(conn), failed_vectors=vectors.set_aside(conn)
    )


# --- compact

Step = Callable[[sqlite3.Connection, int, Rules, int], int]


def forget_gone(conn: sqlite3.Connection, now_ms: int, rules: Rules, limit: int) -> int:
    """Versions of files that are no longer there, and rows emptied by a closed vault. Returns how many went."""
    found = conn.execute(
        "SELECT id FROM notes AS old WHERE valid_to IS NOT NULL AND NOT EXISTS (SELECT 1 FROM notes AS now"
        " WHERE now.vault_id = old.vault_id AND now.path = old.path AND now.valid_to IS NULL) LIMIT ?",
        (limit,),
    ).fetchall()
    return notes.forget(conn, [note_id for (note_id,) in found])


def forget_old(conn: sqlite3.Connection, now_ms: int, rules: Rules, limit: int) -> int:
    """Versions beyond the bounds of history."""
    found = conn.execute(
        "SELECT id FROM (SELECT id, valid_to, row_number() OVER (PARTITION BY vault_id, path"
        f" ORDER BY {notes.LONGEST}) AS age FROM notes WHERE valid_to IS NOT NULL) WHERE age > ? OR valid_to < ? LIMIT ?",
        (rules.keep_versions, now_ms - rules.keep_days * DAY_MS, limit),
    ).fetchall()
    return notes.forget(conn, [note_id for (note_id,) in found])


def forget_vectors(conn: sqlite3.Connection, now_ms: int, rules: Rules, limit: int) -> int:
    """Vectors of texts that no version contains, and of models that are not in use."""
    found = conn.execute(
        # By the narrow index: the table itself is mostly vectors, and the last step reads all of it.
        "SELECT DISTINCT hash FROM vectors AS v INDEXED BY vectors_revision WHERE ordinal = 0 AND"
        " (NOT EXISTS (SELECT 1 FROM chunks WHERE hash = v.hash) OR (model_id <> ?1 AND ?1 <> 0)) LIMIT ?2",
        (vectors.active_model(conn), limit),
    ).fetchall()
    model_id = vectors.active_model(conn)
    for (digest,) in found:
        conn.execute(
            "DELETE FROM vectors WHERE hash = ?1 AND (model_id <> ?2 AND ?2 <> 0 OR NOT EXISTS"
            " (SELECT 1 FROM chunks WHERE hash = ?1))",
            (digest, model_id),
        )
    return len(found)


def forget_rest(conn: sqlite3.Connection, now_ms: int, rules: Rules, limit: int) -> int:
    """Closed vaults that are empty, and models without vectors; texts that were set aside get another round."""
    conn.execute(
        "DELETE FROM vaults WHERE kind = 'closed' AND NOT EXISTS (SELECT 1 FROM notes WHERE vault_id = vaults.id)"
    )
    conn.execute(
        "DELETE FROM models WHERE NOT active AND NOT EXISTS (SELECT 1 FROM vectors WHERE model_id = models.id)"
    )
    vectors.retry_set_aside(conn)
    return 0


FORGETTING: dict[str, Step] = {
    "versions of deleted files": forget_gone,
    "old versions": forget_old,
    "vectors": forget_vectors,
    "leftovers": forget_rest,
}
"""What ``compact`` removes, in this order: each is repeated until it returns less than its limit."""


def merge_words(conn: sqlite3.Connection, table: str, first: bool) -> bool:
    """One step of merging a full-text index into one piece, without the words of what was removed. True: more to do."""
    before = conn.total_changes
    # A negative count starts a merge of everything (sqlite.org/fts5.html#the_merge_command).
    pages = -MERGE_PAGES if first else MERGE_PAGES
    conn.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (pages,))
    return conn.total_changes - before >= 2


def merge_some_words(conn: sqlite3.Connection) -> bool:
    """
    One step of merging full-text indexes, of pieces that are alike in size; outside of a transaction. True: more to do.

    Each word of a question is looked for in each piece: after a first load, 14 of them took 1.7 times as long as one.
    """
    conn.execute("BEGIN IMMEDIATE")
    try:
        more = max([merge_words(conn, table, False) for table in FULL_TEXT])  # of each a step, not of the first
        conn.execute("COMMIT")
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
    return more


def file_bytes(conn: sqlite3.Connection) -> int:
    """Size of the database with its log brought in."""
    return _one(conn, "PRAGMA page_count") * _one(conn, "PRAGMA page_size")


def vacuum(conn: sqlite3.Connection) -> None:
    """Write the file anew without free pages; outside of a transaction."""
    conn.execute("VACUUM")
    checkpoint(conn)


def checkpoint(conn: sqlite3.Connection) -> dict[str, str]:
    """Bring the log into the file and cut it; outside of a transaction."""
    busy, pages, moved = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return {"checkpoint": "a reader holds it up" if busy else "done", "pages": f"{moved} of {pages}"}


def check(conn: sqlite3.Connection) -> dict[str, str]:
    """References, and each full-text index against its own tables: 'ok' or what is wrong, per part."""
    report: dict[str, str] = {}
    broken = conn.execute("PRAGMA foreign_key_check").fetchall()
    report["references"] = "ok" if not broken else f"{len(broken)} rows refer to nothing"
    for table in FULL_TEXT:
        try:
            conn.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
            report[table] = "ok"
        except sqlite3.DatabaseError as error:
            report[table] = str(error)
    stray = _one(
        conn,
        "SELECT count(*) FROM chunks AS c JOIN notes AS n ON n.id = c.note_id WHERE (n.valid_to IS NULL) <>"
        " EXISTS (SELECT 1 FROM chunk_fts_docsize AS d WHERE d.id = c.id)",
    )
    report["full text"] = "ok" if not stray else f"{stray} passages are indexed in the wrong place"
    return report


def _one(conn: sqlite3.Connection, sql: str) -> int:
    return int(conn.execute(sql).fetchone()[0])
