"""
Capture in the index: events, sessions, handoffs. Functions of a connection; each call is part of one transaction.

``apply`` is the only way in, for live entries and for a replay of the journal alike. Rows are written with one statement a
table and batch (json_each): a statement per row would hand the interpreter's lock back and forth thousands of times a
second between this thread and the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ....memory.capture import events, handoffs, ledger, sessions
from ....memory.capture.events import Event
from ....memory.capture.handoffs import Transition
from ....memory.capture.ledger import Entry, Finished, HandedOff, Happened, Judged, Mailed, Purged
from ....memory.capture.sessions import Claim, Finish, Refresh, Release, Session, Withdraw
from ....memory.recall.tokens import index_text
from ....protocol.messages.capture import Handoff, HandoffDone, Letter, Place, ProjectRef
from ...sqlite import sqlite3
from . import feedback, letters
from .captured import applied_seq, decode_handoff, decode_session, handoff_of, open_handoffs

CACHE_SESSIONS = 4096
REPLAYS_KEPT_MS = 86_400_000
"""A bridge that reconnects does so within minutes."""

pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode

Granted = Handoff | Letter | int | None
"""
Answer to one entry: an event was stored (True) or known already (False); a handoff or message as it is now, or None; how many
messages were withdrawn.
"""


class Applied(msgspec.Struct):
    """What a batch came to: an answer per entry, in order, and the pages that have to be written now."""

    answers: list[Granted]
    work: list[Finish | Refresh]
    live: int = 0


class Cache(dict[str, Session]):
    """Sessions as the index has them, so that an event need not read them. Emptied whenever a transaction failed."""


class Behind(Exception):
    """Raised when this database is not the one that earlier entries were applied to; nothing was done."""


def apply(
    conn: sqlite3.Connection, entries: Sequence[tuple[int, Entry]], cache: Cache, after: int | None = None
) -> Applied:
    """
    Apply journal entries in order. Entries at or below ``applied_seq`` were applied before and change nothing.

    Raises Behind when the database has not seen the journal up to ``after``.
    """
    if after is not None and applied_seq(conn) < after:
        raise Behind
    try:
        return _Batch(conn, cache).run(entries)
    except BaseException:
        cache.clear()
        raise


def pass_over(conn: sqlite3.Connection, seq: int) -> None:
    """Count an entry as applied that cannot be."""
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('applied_seq', ?)", (seq,))


class _Batch:
    def __init__(self, conn: sqlite3.Connection, cache: Cache) -> None:
        self.conn = conn
        self.cache = cache
        self.rows: list[tuple[Any, ...]] = []
        self.bodies: list[tuple[int, str]] = []
        self.dirty: dict[str, Session] = {}
        self.projects: dict[str, tuple[str, int]] = {}
        self.applied = Applied([], [])

    def run(self, entries: Sequence[tuple[int, Entry]]) -> Applied:
        done = applied_seq(self.conn)
        known = self._known([entry.event for _, entry in entries if isinstance(entry, Happened)])
        self._load({entry.event.session for _, entry in entries if isinstance(entry, Happened)})
        for seq, entry in entries:
            answer: Granted = False
            if seq > done:
                match entry:
                    case Happened():
                        answer = self._happened(seq, entry, known)
                    case HandedOff():
                        answer = self._handed_off(entry)
                    case Finished():
                        answer = self._finished(entry)
                    case Purged():
                        self._purged(entry)
                    case Judged():
                        feedback.judge(self.conn, entry)
                    case Mailed():
                        answer = letters.apply(self.conn, entry)
            self.applied.answers.append(answer)
        self._flush()
        if entries:
            last = max(done, entries[-1][0])
            self.conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('applied_seq', ?)", (last,))
        return self.applied

    # -- events

    def _known(self, batch: list[Event]) -> set[str]:
        ids = [each for event in batch for each in (event.id, *events.near_ids(event))]
        if not ids:
            return set()
        query = "SELECT event_id FROM events WHERE event_id IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self.conn.execute(query, (_json(ids).decode(),))}

    def _load(self, ids: set[str]) -> None:
        missing = [each for each in ids if each not in self.cache]
        if not missing:
            return
        if len(self.cache) > CACHE_SESSIONS:
            self.cache.clear()
            missing = list(ids)
        query = "SELECT id, state FROM sessions WHERE id IN (SELECT value FROM json_each(?))"
        for key, state in self.conn.execute(query, (_json(missing).decode(),)):
            self.cache[key] = decode_session(state)

    def _happened(self, seq: int, entry: Happened, known: set[str]) -> bool:
        event = entry.event
        if event.id in known or any(near in known for near in events.near_ids(event)):
            return False
        known.add(event.id)
        self.rows.append(
            (seq, event.id, event.session, event.host, event.kind, event.at_ms, event.project, pack(event).hex())
        )
        body = events.search_text(event)
        if body:
            self.bodies.append((seq, index_text(body)))
        if event.project and event.project not in self.projects:
            self.projects[event.project] = (entry.root, event.at_ms)
        session, actions = sessions.apply(self.cache.get(event.session), event, seq, entry.taken_ms)
        self._set(session)
        for action in actions:
            match action:
                case Finish() | Refresh():
                    self.applied.work.append(action)
                case Claim():
                    self._claim(session, event.at_ms)
                case Release():
                    self._release(session, event.at_ms)
                case Withdraw():
                    self._withdraw(session, event.at_ms)
        return True

    def _set(self, session: Session) -> None:
        self.cache[session.id] = session
        self.dirty[session.id] = session

    def _get(self, key: str) -> Session | None:
        if key not in self.cache:
            self._load({key})
        return self.cache.get(key)

    # -- handoffs

    def _claim(self, session: Session, at_ms: int) -> None:
        row = self.conn.execute("SELECT handoff FROM offers WHERE session = ?", (session.id,)).fetchone()
        if row is not None:
            place = Place(cwd=session.cwd, host=session.host, session=session.id, project=session.project)
            self._step(row[0], "accept", at_ms, place)

    def _release(self, session: Session, at_ms: int) -> None:
        offered = self.conn.execute("DELETE FROM offers WHERE session = ? RETURNING handoff", (session.id,)).fetchone()
        query = "SELECT handoff FROM handoffs WHERE project = ? AND state = 'accepted'"
        taken = [decode_handoff(row[0]).id for row in self.conn.execute(query, (session.project,))]
        for key in {*taken, *(offered or ())}:
            handoff = handoff_of(self.conn, key)
            others = self.conn.execute("SELECT 1 FROM offers WHERE handoff = ?", (key,)).fetchone()
            if handoff and (handoff.accepted_by == session.id or (handoff.state == "offered" and not others)):
                self._step(key, "release", at_ms, Place(session=session.id))

    def _withdraw(self, session: Session, at_ms: int) -> None:
        self._step(handoffs.automatic_id(session), "expire", at_ms, Place(session=session.id))

    def _handed_off(self, entry: HandedOff) -> Handoff | None:
        if entry.replay_key:
            row = self.conn.execute("SELECT reply FROM replays WHERE key = ?", (entry.replay_key,)).fetchone()
            if row is not None:
                return msgspec.msgpack.decode(row[0], type=HandoffDone).handoff
        answer = self._grant(entry)
        if entry.replay_key:
            reply = pack(HandoffDone(handoff=answer, project=ProjectRef(name=entry.place.project)))
            self.conn.execute(
                "INSERT INTO replays (key, at_ms, reply) VALUES (?,?,?)", (entry.replay_key, entry.at_ms, reply)
            )
        return answer

    def _grant(self, entry: HandedOff) -> Handoff | None:
        if entry.op == "open":
            return None if entry.handoff is None else self._open(entry.handoff, entry.at_ms)
        key = entry.id or self._best(entry)
        if not key:
            return None
        taken = self._step(key, entry.op, entry.at_ms, entry.place)
        if taken is not None and entry.op == "offer" and entry.place.session:
            self.conn.execute(
                "INSERT OR REPLACE INTO offers (session, handoff, at_ms) VALUES (?,?,?)",
                (entry.place.session, key, entry.at_ms),
            )
        return taken

    def _best(self, entry: HandedOff) -> str:
        best = handoffs.select(
            open_handoffs(self.conn, entry.place.project), entry.place, entry.at_ms, entry.expire_days
        )
        return best.id if best else ""

    def _step(self, key: str, op: Any, at_ms: int, place: Place) -> Handoff | None:
        """Apply one transition; None when there is no such handoff or its state does not allow it."""
        handoff = handoff_of(self.conn, key)
        transition = Transition(op=op, id=key, at_ms=at_ms, session=place.session, host=place.host)
        if handoff is None or not handoffs.may(handoff, transition):
            return None
        after = handoffs.step(handoff, transition)
        _put_handoff(self.conn, after)
        if op == "accept":
            for other in handoffs.passed_over(after, open_handoffs(self.conn, after.project)):
                self._step(other, "expire", at_ms, place)
        return after

    def _open(self, handoff: Handoff, at_ms: int) -> Handoff:
        if (known := handoff_of(self.conn, handoff.id)) is not None:
            return known
        others = open_handoffs(self.conn, handoff.project)
        if handoffs.outdated(handoff, others, at_ms):
            handoff = msgspec.structs.replace(handoff, state="expired")
        for other in handoffs.superseded_by(handoff, others, at_ms):
            self._step(other, "expire", at_ms, Place())
        _put_handoff(self.conn, handoff)
        return handoff

    # -- ends

    def _finished(self, entry: Finished) -> Handoff | None:
        session = self._get(entry.session)
        if session is None:
            return None
        session = msgspec.structs.replace(
            session,
            finished=max(session.finished, entry.ends),
            written=max(session.written, entry.covered),
            page=entry.page or session.page,
            page_hash=entry.hash or session.page_hash,
        )
        self._set(session)
        # It was resumed while the page was being written: what it would hand over is not the end of it.
        still = not session.live and session.ends == entry.ends
        return self._open(entry.handoff, entry.at_ms) if entry.handoff is not None and still else None

    def _purged(self, entry: Purged) -> None:
        self._flush()
        self.conn.execute("DELETE FROM replays")  # answers quote what they are about
        if entry.project:
            self.conn.execute("DELETE FROM handoffs WHERE project = ?", (entry.project,))
            letters.forget_project(self.conn, entry.project)
            feedback.forget_folder(self.conn, entry.pages)
        if not entry.session:
            return
        self.cache.pop(entry.session, None)
        for table in ("event_fts WHERE rowid IN (SELECT seq FROM events WHERE session = ?)", "events WHERE session = ?",
                      "sessions WHERE id = ?", "offers WHERE session = ?"):  # fmt: skip
            self.conn.execute(f"DELETE FROM {table}", (entry.session,))
        feedback.forget_session(self.conn, entry.session)
        letters.forget_session(self.conn, entry.session)
        for row in self.conn.execute("SELECT handoff FROM handoffs").fetchall():
            handoff = decode_handoff(row[0])
            if handoff.from_session == entry.session:
                self.conn.execute("DELETE FROM handoffs WHERE id = ?", (handoff.id,))

    # -- writing

    def _flush(self) -> None:
        if self.rows:
            self.conn.execute(
                "INSERT OR IGNORE INTO events (seq, event_id, session, host, kind, at_ms, project, event)"
                " SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, unhex(value->>7)"
                " FROM json_each(?)",
                (_json(self.rows).decode(),),
            )
        if self.bodies:
            self.conn.execute(
                "INSERT INTO event_fts (rowid, body) SELECT value->>0, value->>1 FROM json_each(?)",
                (_json(self.bodies).decode(),),
            )
        if self.dirty:
            rows = [
                (s.id, s.host, s.project, s.cwd, s.branch, s.started_ms, s.last_ms, s.ended_ms, s.events, s.title, s.page,
                 pack(s).hex())
                for s in self.dirty.values()
            ]  # fmt: skip
            self.conn.execute(
                "INSERT OR REPLACE INTO sessions (id, host, project, cwd, branch, started_ms, last_ms, ended_ms, events,"
                " title, page, state) SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6,"
                " value->>7, value->>8, value->>9, value->>10, unhex(value->>11) FROM json_each(?)",
                (_json(rows).decode(),),
            )
        for name, (root, at_ms) in self.projects.items():
            self.conn.execute(
                "INSERT INTO projects (name, root, created_ms) VALUES (?,?,?)"
                " ON CONFLICT (name) DO UPDATE SET root = excluded.root WHERE root = '' AND excluded.root <> ''",
                (name, root, at_ms),
            )
        self.rows, self.bodies, self.dirty, self.projects = [], [], {}, {}


def _put_handoff(conn: sqlite3.Connection, handoff: Handoff) -> None:
    conn.execute(
        "INSERT OR REPLACE INTO handoffs (id, project, state, at_ms, handoff) VALUES (?,?,?,?,?)",
        (handoff.id, handoff.project, handoff.state, handoff.at_ms, pack(handoff)),
    )


def scrub(conn: sqlite3.Connection) -> None:
    """Overwrite what was deleted: free pages and the write-ahead log would keep its bytes. Outside of a transaction."""
    conn.execute("INSERT INTO event_fts (event_fts) VALUES ('optimize')")
    conn.execute("INSERT INTO chunk_fts (chunk_fts) VALUES ('optimize')")
    conn.execute("INSERT INTO past_fts (past_fts) VALUES ('optimize')")
    conn.execute("VACUUM")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def remember_reply(conn: sqlite3.Connection, key: str, at_ms: int, reply: bytes) -> None:
    """Keep a reply under ``key``, and forget what is older than a day."""
    conn.execute("INSERT OR REPLACE INTO replays (key, at_ms, reply) VALUES (?,?,?)", (key, at_ms, reply))
    conn.execute("DELETE FROM replays WHERE at_ms < ?", (at_ms - REPLAYS_KEPT_MS,))


def rebuild(conn: sqlite3.Connection, journal: Iterable[tuple[int, bytes]], chunk: int = 1000) -> int:
    """
    Apply a whole journal to a database that has none of it, in the caller's transaction. Entries of kinds that this
    version does not know are passed over. Returns how many were applied.
    """
    cache = Cache()
    batch: list[tuple[int, Entry]] = []
    count = 0
    for seq, record in journal:
        try:
            batch.append((seq, ledger.decode(record)))
        except msgspec.MsgspecError:
            continue
        if len(batch) >= chunk:
            count += len(apply(conn, batch, cache).answers)
            batch = []
    return count + len(apply(conn, batch, cache).answers)
