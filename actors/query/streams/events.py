"""Captured events, for questions that no page answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....memory.recall.tokens import Term
from ...sqlite import sqlite3


class EventRow(NamedTuple):
    seq: int
    session: str
    host: str
    kind: str
    at_ms: int
    project: str
    event: bytes
    """msgpack of the event."""


def find(
    conn: sqlite3.Connection, terms: Sequence[Term], limit: int, *, project: str = "", until_ms: int | None = None
) -> list[EventRow]:
    """The events that match best, any of the terms counting."""
    if not terms or conn.execute("SELECT 1 FROM events LIMIT 1").fetchone() is None:
        return []  # where nothing is captured, a search of nothing would take a third of a millisecond
    sql = (
        "SELECT e.seq, e.session, e.host, e.kind, e.at_ms, e.project, e.event"
        " FROM (SELECT rowid, -rank AS fit FROM event_fts WHERE event_fts MATCH :match ORDER BY fit DESC LIMIT :pool) AS f"
        " JOIN events AS e ON e.seq = f.rowid"
        " WHERE (:project = '' OR e.project = :project) AND (:until IS NULL OR e.at_ms <= :until)"
        " ORDER BY f.fit DESC LIMIT :limit"
    )
    match = " OR ".join(term.fts for term in terms)
    found = conn.execute(
        sql, {"match": match, "pool": max(200, limit), "project": project, "until": until_ms, "limit": limit}
    )
    return [EventRow(*row) for row in found]


def projects(conn: sqlite3.Connection) -> dict[str, str]:
    """Name -> root of the known projects."""
    return dict(conn.execute("SELECT name, root FROM projects").fetchall())
