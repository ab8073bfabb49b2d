"""What was captured, read from the index: events, sessions, handoffs. Plain functions of a connection."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....memory.capture import handoffs
from ....memory.capture.events import Event
from ....memory.capture.sessions import Session
from ....protocol.messages.capture import Handoff
from ...sqlite import sqlite3

_json = msgspec.json.Encoder().encode
decode_session = msgspec.msgpack.Decoder(Session).decode
decode_handoff = msgspec.msgpack.Decoder(Handoff).decode
decode_event = msgspec.msgpack.Decoder(Event).decode


def applied_seq(conn: sqlite3.Connection) -> int:
    """The last journal entry that this database has seen."""
    row = conn.execute("SELECT value FROM meta WHERE key = 'applied_seq'").fetchone()
    return int(row[0]) if row else 0


def handoff_of(conn: sqlite3.Connection, key: str) -> Handoff | None:
    row = conn.execute("SELECT handoff FROM handoffs WHERE id = ?", (key,)).fetchone()
    return decode_handoff(row[0]) if row else None


def open_handoffs(conn: sqlite3.Connection, project: str) -> list[Handoff]:
    """Open and offered handoffs of a project."""
    query = "SELECT handoff FROM handoffs WHERE project = ? AND state IN ('open', 'offered')"
    return [decode_handoff(row[0]) for row in conn.execute(query, (project,))]


def list_handoffs(conn: sqlite3.Connection, project: str | None, limit: int) -> list[Handoff]:
    """Handoffs of one project (None = all): open ones first, then newest."""
    where, arguments = ("", ()) if project is None else ("WHERE project = ?", (project,))
    query = f"SELECT handoff FROM handoffs {where} ORDER BY state NOT IN ('open', 'offered'), at_ms DESC, id LIMIT ?"
    return [decode_handoff(row[0]) for row in conn.execute(query, (*arguments, limit))]


def get_handoff(conn: sqlite3.Connection, key: str) -> Handoff | None:
    """A handoff by its id, or by the beginning of it when that is unambiguous."""
    if (exact := handoff_of(conn, key)) is not None or len(key) < 4:
        return exact
    rows = conn.execute("SELECT handoff FROM handoffs WHERE substr(id, 1, ?) = ? LIMIT 2", (len(key), key)).fetchall()
    return decode_handoff(rows[0][0]) if len(rows) == 1 else None


def expire_handoffs(conn: sqlite3.Connection, now_ms: int, expire_days: int) -> list[str]:
    """Ids of open automatic handoffs that are too old."""
    query = "SELECT handoff FROM handoffs WHERE state IN ('open', 'offered') AND at_ms < ?"
    old = (decode_handoff(row[0]) for row in conn.execute(query, (now_ms - expire_days * handoffs.DAY_MS,)))
    return [each.id for each in old if handoffs.expired(each, now_ms, expire_days)]


def get_session(conn: sqlite3.Connection, key: str) -> Session | None:
    """A session by its id, or by an unambiguous beginning or end of it (8 characters or more)."""
    row = conn.execute("SELECT state FROM sessions WHERE id = ?", (key,)).fetchone()
    if row is None and len(key) >= 8:
        like = "SELECT state FROM sessions WHERE substr(id, 1, ?1) = ?2 OR substr(id, -?1) = ?2 LIMIT 2"
        rows = conn.execute(like, (len(key), key)).fetchall()
        row = rows[0] if len(rows) == 1 else None
    return decode_session(row[0]) if row else None


def live_sessions(conn: sqlite3.Connection) -> list[Session]:
    """Sessions that have not ended."""
    return [decode_session(row[0]) for row in conn.execute("SELECT state FROM sessions WHERE ended_ms = 0")]


def unfinished_sessions(conn: sqlite3.Connection) -> list[Session]:
    """Sessions whose page or handoff a crash left unwritten. Looks at every ended session that has no page or changed."""
    return [each for row in conn.execute("SELECT state FROM sessions") if (each := decode_session(row[0])).unfinished]


def recent_sessions(conn: sqlite3.Connection, project: str | None, limit: int) -> list[Session]:
    """The newest sessions of a project (None = all) that have something to tell."""
    where, arguments = ("1", ()) if project is None else ("project = ?", (project,))
    query = f"SELECT state FROM sessions WHERE {where} AND title <> '' ORDER BY last_ms DESC, id LIMIT ?"
    return [decode_session(row[0]) for row in conn.execute(query, (*arguments, limit))]


def list_sessions(conn: sqlite3.Connection, project: str | None, limit: int) -> list[Session]:
    """The newest sessions, empty ones included."""
    where, arguments = ("1", ()) if project is None else ("project = ?", (project,))
    query = f"SELECT state FROM sessions WHERE {where} ORDER BY last_ms DESC, id LIMIT ?"
    return [decode_session(row[0]) for row in conn.execute(query, (*arguments, limit))]


def session_blobs(conn: sqlite3.Connection, session: str) -> list[bytes]:
    """Every event of a session in the order of its happening, packed: ``decode_event`` opens one, in any thread."""
    query = "SELECT event FROM events WHERE session = ? ORDER BY at_ms, seq"
    return [row[0] for row in conn.execute(query, (session,))]


def find_events(
    conn: sqlite3.Connection,
    *,
    session: str = "",
    after_seq: int = -1,
    kinds: Sequence[str] = (),
    match: str = "",
    limit: int = 50,
    offset: int = 0,
) -> tuple[list[tuple[int, Event]], int]:
    """Events in order of arrival, and how many there are in all. ``match`` is an FTS5 expression."""
    where: list[str] = ["seq > ?"]
    arguments: list[str | int] = [after_seq]
    if session:
        where.append("session = ?")
        arguments.append(session)
    if kinds:
        where.append("kind IN (SELECT value FROM json_each(?))")
        arguments.append(_json(list(kinds)).decode())
    if match:
        where.append("seq IN (SELECT rowid FROM event_fts WHERE event_fts MATCH ?)")
        arguments.append(match)
    condition = " AND ".join(where)
    total = conn.execute(f"SELECT count(*) FROM events WHERE {condition}", arguments).fetchone()[0]
    query = f"SELECT seq, event FROM events WHERE {condition} ORDER BY seq LIMIT ? OFFSET ?"
    return [(row[0], decode_event(row[1])) for row in conn.execute(query, (*arguments, limit, offset))], total


def known_ids(conn: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Which of these event ids are stored."""
    query = "SELECT event_id FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
    return {row[0] for row in conn.execute(query, (_json(list(ids)).decode(),))}


def counts(conn: sqlite3.Connection) -> dict[str, int]:
    """Figures for status: live sessions, open handoffs."""
    one = conn.execute
    return {
        "sessions_live": one("SELECT count(*) FROM sessions WHERE ended_ms = 0").fetchone()[0],
        "handoffs_open": one("SELECT count(*) FROM handoffs WHERE state IN ('open', 'offered')").fetchone()[0],
    }


def replayed(conn: sqlite3.Connection, key: str) -> bytes | None:
    """The stored reply to a write that was made before under this key."""
    row = conn.execute("SELECT reply FROM replays WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def project_roots(conn: sqlite3.Connection) -> dict[str, str]:
    """Known projects and their roots."""
    return dict(conn.execute("SELECT name, root FROM projects").fetchall())
