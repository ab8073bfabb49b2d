"""What the writer tells of itself with every beat: figures, and short texts for a person."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from ...protocol.messages.control import QueueStat, Vitals
from .claims import Claims
from .database import Database
from .records.maintenance import Counts


class Work(Protocol):
    state: str
    last: str


class Told(Protocol):
    """What capture adds."""

    def figures(self) -> dict[str, float]: ...

    def facts(self) -> dict[str, str]: ...

    def recent(self) -> tuple[str, ...]: ...


def vitals(
    db: Database,
    counts: Counts,
    work: Work,
    claims: Claims,
    capture: Told,
    queues: dict[str, QueueStat],
    now_ms: int,
    *,
    history: Mapping[str, str] = MappingProxyType({}),
) -> Vitals:
    """Pure but for the clock that ``busy_ms`` needs."""
    figures = {
        "notes": counts.notes,
        "chunks": counts.chunks,
        "past_chunks": counts.past_chunks,
        "vectors": counts.vectors,
        "vaults": counts.vaults,
        "pending_vectors": counts.pending_vectors,
        "failed_vectors": counts.failed_vectors,
        "problems": counts.problems,
        "unreadable": counts.unreadable,
        "revision": counts.revision,
        "oldest_pending_ms": max(0, now_ms - counts.oldest_pending_ms) if counts.oldest_pending_ms else 0,
        "swept_ms": counts.swept_ms,
        "last_write_ms": db.last_write_ms,
        "transactions_total": db.transactions_total,
        "writes_total": db.functions_total,
        "write_failures_total": db.failures_total,
        "database_bytes": db.file_bytes,
        "wal_bytes": db.wal_bytes,
        "databases_opened": db.generation,
        "claims_waiting": claims.waiting,
        "read_only": float(not db.writable),
    }
    facts = {
        "database": db.problem or db.read_only or "ok",
        "set_aside": db.set_aside,
        "model": counts.model,
        "suspended": counts.suspended,
        "upkeep": work.state,
        "last_upkeep": work.last,
        **history,
        **capture.facts(),
    }
    if error := db.problem or db.read_only or facts.get("last_error", ""):
        facts["last_error"] = error
    busy_op, since = db.busy_op, db.busy_since
    return Vitals(
        busy_op=busy_op,
        busy_ms=int((time.monotonic() - since) * 1000) if busy_op else 0,
        queues=queues,
        figures={**{name: float(value) for name, value in figures.items()}, **capture.figures()},
        facts={name: text for name, text in facts.items() if text},
        recent=capture.recent(),
    )
