"""
What still works when something is down, as pure functions of who is up.

``DEGRADATION`` is the table that the documentation prints and the tests read.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..protocol.messages.recall import STREAMS, Stream


class Row(msgspec.Struct, frozen=True):
    """One line of the degradation table."""

    down: str
    works: str
    told: str


DEGRADATION: tuple[Row, ...] = (
    Row("embedder", "full text, entity and graph; passages wait for their vectors",
        'degraded: ["vector"], and "reranker" where one is in use'),
    Row("watcher", "everything, on the last index; pages written by agents are still indexed", "stale_for_ms"),
    Row("writer", "all recall; hook events wait in the spool", "read_only: true; writes get a retryable error"),
    Row("query", "the bridge holds the call and reconnects, for about 2 s", 'then no hits, degraded: ["query"], what to do'),
    Row("supervisor", "its service starts everything again; bridges reconnect", "as for query"),
    Row("everything", "an installed service is started by the first agent; `recalld ask` reads the database itself: full text, "
        "entity and graph", 'degraded: ["daemon", "vector"]'),
)  # fmt: skip


class Plan(msgspec.Struct, frozen=True):
    """Which streams a question may use now, and what its asker has to be told."""

    streams: tuple[Stream, ...]
    degraded: tuple[str, ...]
    read_only: bool
    may_be_stale: bool


def plan(up: Collection[str], wanted: Collection[Stream] = STREAMS) -> Plan:
    """The plan for a question that wants these streams while these actors run."""
    missing: set[Stream] = set() if "embedder" in up else {"vector"}
    return Plan(
        streams=tuple(stream for stream in STREAMS if stream in wanted and stream not in missing),
        degraded=tuple(stream for stream in STREAMS if stream in wanted and stream in missing),
        read_only="writer" not in up,
        may_be_stale="watcher" not in up,
    )


def degraded_now(up: Collection[str], *, read_only: bool = False) -> tuple[str, ...]:
    """
    The same for a whole daemon, as `recalld status` shows it: streams and actors that are missing.

    ``read_only``: the writer runs and cannot write (full disk, newer schema).
    """
    names = [name for name in ("writer", "query", "embedder", "watcher") if name not in up]
    missing = [*(["vector"] if "embedder" in names else []), *(name for name in names if name != "embedder")]
    return (*missing, *(["read_only"] if read_only and "writer" in up else []))
