"""What SQLite knows of vectors. Rows are keyed by the hash of the chunk's text: equal passages share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...sqlite import sqlite3
from .notes import parts


class Model(NamedTuple):
    id: int
    name: str
    sha256: str
    dim: int


class SentenceRow(NamedTuple):
    hash: bytes
    char_from: int
    char_to: int
    vec: bytes


def active_model(conn: sqlite3.Connection) -> Model | None:
    """The model whose vectors are compared with a question's; None when none was ever used."""
    row = conn.execute("SELECT id, name, sha256, dim FROM models WHERE active ORDER BY id DESC LIMIT 1").fetchone()
    return Model(*row) if row else None


def of_chunks(conn: sqlite3.Connection, model_id: int, hashes: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """
    (hash, vector) of those chunks that have one.

    One seek each, in the order of the key: a scan would read every sentence as well, nine rows in ten.
    """
    sql = "SELECT vec FROM vectors WHERE hash = ? AND model_id = ? AND ordinal = 0"
    for key in sorted(hashes):
        for (vec,) in conn.execute(sql, (key, model_id)):
            yield key, vec


def since(conn: sqlite3.Connection, model_id: int, seen: int) -> list[tuple[bytes, bytes]]:
    """(hash, vector) of chunks that were embedded after revision ``seen``."""
    sql = "SELECT hash, vec FROM vectors WHERE revision > ? AND model_id = ? AND ordinal = 0"
    return conn.execute(sql, (seen, model_id)).fetchall()


def sentences(conn: sqlite3.Connection, model_id: int, hashes: Sequence[bytes]) -> list[SentenceRow]:
    """Sentences of these chunks, in order of hash and place."""
    found: list[SentenceRow] = []
    for part in parts(hashes):
        sql = (
            "SELECT hash, char_from, char_to, vec FROM vectors"
            f" WHERE hash IN ({','.join('?' * len(part))}) AND model_id = ? AND ordinal > 0 ORDER BY hash, ordinal"
        )
        found += map(SentenceRow._make, conn.execute(sql, (*part, model_id)))
    return found
