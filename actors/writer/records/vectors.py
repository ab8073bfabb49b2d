"""
Vectors and the queue of texts that want one. Plain functions of a connection inside a transaction.

The embedder claims texts under a lease, newest first, and stores vectors or says why not. A text on which it died counts
as tried: such texts come in ever smaller batches until the one that kills is alone, and after MAX_TRIES it is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ....protocol.envelope import Conflict, Invalid
from ....protocol.messages.common import Ok
from ....protocol.messages.index import (
    ClaimChunks,
    Claimed,
    EmbeddedChunk,
    FailChunks,
    Indexed,
    ModelInUse,
    PendingChunk,
    StoreVectors,
    UseModel,
)
from ...sqlite import sqlite3
from .common import next_revision, random_id, revision_of

BIND_MAX = 500
"""Values in one statement."""
MAX_TRIES = 3
MAX_LIMIT = 1024
MAX_DIM = 16_384
"""Four times the widest embedding models there are; readers make tables of this width."""
MAX_LEASE_MS = 600_000
SOME = 1000
"""Texts that wait, as far as the answer to a change counts them: 20 us."""
SHRINK = 8
"""Texts that were tried once come in batches of limit / 8, twice: alone (64, 8, 1)."""
LAST = 0
"""``queued_ms`` of texts that only past versions contain: they come after everything that is current."""
DIED = "the embedder ended while it worked on this"


def enqueue(conn: sqlite3.Connection, hashes: Iterable[bytes], now_ms: int) -> None:
    """Queue texts that the active model has not embedded; with no model yet, all of them. Those of the past move up."""
    digests = list(hashes)
    embedded = _embedded(conn, digests)
    # One row a statement, by VALUES: of one that might write several, SQLite keeps every page as it was before, each time.
    conn.executemany(
        "INSERT INTO pending (hash, queued_ms) VALUES (?1, ?2)"
        f" ON CONFLICT (hash) DO UPDATE SET queued_ms = excluded.queued_ms WHERE queued_ms = {LAST}",
        [(digest, now_ms) for digest in digests if digest not in embedded],
    )


def _embedded(conn: sqlite3.Connection, hashes: Sequence[bytes]) -> set[bytes]:
    """Those of ``hashes`` that the active model has embedded."""
    model_id = active_model(conn)
    found: set[bytes] = set()
    for start in range(0, len(hashes), BIND_MAX):
        part = hashes[start : start + BIND_MAX]
        marks = ",".join("?" * len(part))
        sql = f"SELECT hash FROM vectors WHERE model_id = ? AND ordinal = 0 AND hash IN ({marks})"
        found.update(row[0] for row in conn.execute(sql, (model_id, *part)))
    return found


def dequeue(conn: sqlite3.Connection, hashes: Iterable[bytes]) -> None:
    """
    Texts that no current note contains any more go to the end of the queue. Those that no version contains leave it, and
    so do those that were set aside.
    """
    digests = [(digest,) for digest in hashes]
    nowhere_now = (
        " NOT EXISTS (SELECT 1 FROM chunks AS c JOIN notes AS n ON n.id = c.note_id"
        " WHERE c.hash = ?1 AND n.valid_to IS NULL)"
    )
    conn.executemany(
        f"DELETE FROM pending WHERE hash = ?1 AND {nowhere_now}"
        f" AND (tries >= {MAX_TRIES} OR NOT EXISTS (SELECT 1 FROM chunks WHERE hash = ?1))",
        digests,
    )
    conn.executemany(f"UPDATE pending SET queued_ms = {LAST} WHERE hash = ?1 AND {nowhere_now}", digests)


def enqueue_past(conn: sqlite3.Connection) -> None:
    """Queue every text of a past version that the active model has not embedded."""
    conn.execute(
        "INSERT OR IGNORE INTO pending (hash, queued_ms) SELECT DISTINCT c.hash, ? FROM chunks AS c WHERE NOT EXISTS"
        " (SELECT 1 FROM vectors AS v WHERE v.hash = c.hash AND v.model_id = ? AND v.ordinal = 0)",
        (LAST, active_model(conn)),
    )


def follow_config(conn: sqlite3.Connection, embed: bool) -> None:
    """Where there is to be no model, nothing waits for one; vectors stay for when there is one again."""
    if not embed and conn.execute("SELECT 1 FROM pending UNION ALL SELECT 1 FROM models WHERE active").fetchone():
        conn.execute("DELETE FROM pending")
        conn.execute("UPDATE models SET active = 0")
        next_revision(conn)


def active_model(conn: sqlite3.Connection) -> int:
    """Id of the model whose vectors are served; 0 before the embedder ever named one."""
    row = conn.execute("SELECT id FROM models WHERE active").fetchone()
    return int(row[0]) if row else 0


def use_model(conn: sqlite3.Connection, message: UseModel, now_ms: int) -> ModelInUse:
    """
    Serve this model from now on, and queue every text that it has not embedded, current ones first.

    Leases of another embedder process end: there is one at a time. Vectors of the model before stay until theirs arrive.
    """
    if not 0 < message.dim <= MAX_DIM:
        raise Invalid(f"a model of {message.dim} dimensions cannot be served (1 to {MAX_DIM} can)")
    row = conn.execute("SELECT id, dim, active FROM models WHERE sha256 = ?", (message.sha256,)).fetchone()
    if row is not None and row[1] != message.dim:
        raise Invalid(f"model {message.name} had {row[1]} dimensions under this SHA-256, not {message.dim}")
    model_id = row[0] if row else random_id()
    if row is None or not row[2]:
        conn.execute("UPDATE models SET active = 0")
        conn.execute(
            "INSERT INTO models (id, name, sha256, dim, active) VALUES (?, ?, ?, ?, 1)"
            " ON CONFLICT (sha256) DO UPDATE SET name = excluded.name, active = 1",
            (model_id, message.name, message.sha256, message.dim),
        )
        conn.execute("DELETE FROM pending")
        next_revision(conn)
    before = conn.execute("SELECT value FROM meta WHERE key = 'embedder'").fetchone()
    if not message.instance or before != (message.instance,):
        conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('embedder', ?)", (message.instance,))
        conn.execute(
            "UPDATE pending SET tries = tries + 1, lease_until_ms = 0, error = ? WHERE lease_until_ms > 0", (DIED,)
        )
    conn.execute(
        "INSERT OR IGNORE INTO pending (hash, queued_ms) SELECT DISTINCT c.hash, ? FROM notes AS n"
        " JOIN chunks AS c ON c.note_id = n.id WHERE n.valid_to IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM vectors AS v WHERE v.hash = c.hash AND v.model_id = ? AND v.ordinal = 0)",
        (now_ms, model_id),
    )
    enqueue_past(conn)
    return ModelInUse(model_id=model_id, pending=waiting(conn))


def claim_chunks(conn: sqlite3.Connection, message: ClaimChunks, elapsed_ms: int) -> Claimed:
    """
    Lease the newest texts that wait. Raises Conflict when another model is in use: the caller sends UseModel again.

    Leases count by a clock that nobody sets: a jump must not count as the embedder's death on what it is working on.
    """
    _check_model(conn, message.model_id)
    limit = min(max(message.limit, 1), MAX_LIMIT)
    # A lease further away than any that is given out is from before the machine was started.
    conn.execute(
        "UPDATE pending SET tries = tries + 1, lease_until_ms = 0, error = ?"
        " WHERE lease_until_ms > 0 AND (lease_until_ms <= ? OR lease_until_ms > ?)",
        (DIED, elapsed_ms, elapsed_ms + MAX_LEASE_MS),
    )
    batch: list[tuple[bytes]] = []
    for tries in range(MAX_TRIES):
        batch = conn.execute(
            "SELECT hash FROM pending WHERE tries = ? AND lease_until_ms = 0 ORDER BY queued_ms DESC LIMIT ?",
            (tries, max(1, limit // SHRINK**tries)),
        ).fetchall()
        if batch:
            break
    chunks: list[PendingChunk] = []
    for (digest,) in batch:
        row = conn.execute("SELECT context, text FROM chunks WHERE hash = ? LIMIT 1", (digest,)).fetchone()
        if row is None:
            conn.execute("DELETE FROM pending WHERE hash = ?", (digest,))
        else:
            chunks.append(PendingChunk(digest, *row))
    until = elapsed_ms + min(max(message.lease_ms, 1), MAX_LEASE_MS)
    conn.executemany("UPDATE pending SET lease_until_ms = ? WHERE hash = ?", [(until, chunk.hash) for chunk in chunks])
    return Claimed(chunks=tuple(chunks))


def store_vectors(conn: sqlite3.Connection, message: StoreVectors) -> Indexed:
    """Store vectors of texts that are still in the index; those of the model before are replaced."""
    dim = _check_model(conn, message.model_id)
    kept = [chunk for chunk in message.chunks if _wanted(conn, chunk, dim)]
    if not kept:
        return Indexed(revision=revision_of(conn), pending=some_waiting(conn))
    revision = next_revision(conn)
    conn.executemany("DELETE FROM vectors WHERE hash = ?", [(chunk.hash,) for chunk in kept])
    conn.executemany(
        "INSERT INTO vectors (hash, model_id, ordinal, char_from, char_to, vec, revision) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (chunk.hash, message.model_id, one.ordinal, one.char_from, one.char_to, one.values, revision)
            for chunk in kept
            for one in chunk.vectors
        ],
    )
    conn.executemany("DELETE FROM pending WHERE hash = ?", [(chunk.hash,) for chunk in kept])
    return Indexed(revision=revision, changed=len(kept), pending=some_waiting(conn))


def fail_chunks(conn: sqlite3.Connection, message: FailChunks) -> Ok:
    """Count a failed try; after MAX_TRIES a text is set aside until its note changes or somebody compacts."""
    conn.executemany(
        "UPDATE pending SET tries = tries + 1, lease_until_ms = 0, error = ? WHERE hash = ?",
        [(message.error[:1000], digest) for digest in message.hashes],
    )
    return Ok()


def waiting(conn: sqlite3.Connection) -> int:
    """Texts that wait for a vector, those set aside left out."""
    return int(conn.execute("SELECT count(*) FROM pending WHERE tries < ?", (MAX_TRIES,)).fetchone()[0])


def some_waiting(conn: sqlite3.Connection) -> int:
    """``waiting``, counted no further than SOME: an answer to every change need not walk a queue of a hundred thousand."""
    found = conn.execute(
        "SELECT count(*) FROM (SELECT 1 FROM pending WHERE tries < ? LIMIT ?)", (MAX_TRIES, SOME)
    ).fetchone()
    return int(found[0])


def set_aside(conn: sqlite3.Connection) -> int:
    """Texts that the model failed on."""
    return int(conn.execute("SELECT count(*) FROM pending WHERE tries >= ?", (MAX_TRIES,)).fetchone()[0])


def retry_set_aside(conn: sqlite3.Connection) -> int:
    """Give texts that were set aside another round."""
    return conn.execute("UPDATE pending SET tries = 0, error = '' WHERE tries >= ?", (MAX_TRIES,)).rowcount


def _check_model(conn: sqlite3.Connection, model_id: int) -> int:
    row = conn.execute("SELECT dim FROM models WHERE id = ? AND active", (model_id,)).fetchone()
    if row is None:
        raise Conflict(f"model {model_id} is not in use: name it again (the index may have been rebuilt)")
    return int(row[0])


def _wanted(conn: sqlite3.Connection, chunk: EmbeddedChunk, dim: int) -> bool:
    """Raises Invalid for a vector of the wrong size, or a chunk without its own vector."""
    if not any(one.ordinal == 0 for one in chunk.vectors):
        raise Invalid("a chunk comes with its own vector (ordinal 0)")
    if any(len(one.values) != 2 * dim for one in chunk.vectors):
        raise Invalid(f"a vector of this model has {dim} float16 values")
    return conn.execute("SELECT 1 FROM chunks WHERE hash = ? LIMIT 1", (chunk.hash,)).fetchone() is not None
