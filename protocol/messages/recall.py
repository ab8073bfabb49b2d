"""Messages of recall: what the command line, the MCP session, the status screen and benchmarks ask of the query actor."""

from __future__ import annotations

from typing import Literal

import msgspec

from .common import Message

Stream = Literal["text", "entity", "graph", "vector"]
STREAMS: tuple[Stream, ...] = ("text", "entity", "graph", "vector")
Scope = Literal["all", "project", "vault", "global"]


class StreamScore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one stream said of a hit."""

    rank: int
    score: float
    weight: float = 1.0
    detail: str = ""
    """For a person: matched words, matched entity, link path, nearest sentence."""


class Superseded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    title: str


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One note that answers, with the passage that does."""

    path: str
    """Relative to the vault, POSIX separators."""
    title: str
    score: float
    """Relative to the other hits of this answer; the calibrated figure is ``Answer.confidence``."""
    lines: tuple[int, int]
    passage: str
    """Verbatim from the file, lines ``lines[0]``…``lines[1]``."""
    streams: dict[str, StreamScore]
    vault: str = ""
    file: str = ""
    """Absolute path, to open it."""
    heading: str = ""
    sentence: str = ""
    """The sentence of the passage that answers best, verbatim."""
    quote: str = ""
    """That sentence with as many of its neighbours as fit into 240 characters, verbatim: enough to cite."""
    date: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    project: str = ""
    superseded_by: Superseded | None = None
    why: str = ""
    """One line for a person: why this hit is here."""
    also: tuple[str, ...] = ()
    """Paths of near-duplicates that were folded into this hit."""
    valid: tuple[str, str] = ("", "")
    """With ``as_of``: ISO instants since when and until when this version stood; an empty second one: it still does."""
    factors: dict[str, float] = {}
    """With explain: authority, supersession, recency … as multipliers, and 'fused' before them."""


class Filters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    folder: str = ""
    tags: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    """ISO dates, inclusive, on the note's own date (else its modification time)."""
    vaults: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    expired: bool = False
    """Also notes that are over (``expires``)."""


class Recall(Message, frozen=True, tag="recall"):
    """Answer a question -> Answer. ``streams`` limits what is used; ``as_of`` (ISO date or instant) asks the past."""

    query: str
    k: int = 5
    streams: tuple[Stream, ...] = STREAMS
    filters: Filters = Filters()
    scope: Scope = "all"
    cwd: str = ""
    as_of: str = ""
    explain: bool = False
    sentence_only: bool = False
    ranking: dict[str, float] = {}
    """Ranking parameters for this question alone, by name (docs/ranking.md): what `recalld eval ablate` varies."""


class RawEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A captured event that matches where no page does."""

    session: str
    kind: str
    at: str
    text: str
    host: str = ""


class Answer(Message, frozen=True, tag="answer"):
    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    """Streams or actors that were missing: 'vector', 'query', 'daemon' …"""
    took_ms: float = 0.0
    confidence: float = 0.0
    """0…1: calibrated probability that the hits contain the answer."""
    known: bool = True
    """False: below the threshold; the notes do not seem to contain it and ``hits`` are merely the nearest."""
    note: str = ""
    """For the reader: what was missing, why the answer may be incomplete, what to do."""
    revision: int = 0
    stale_for_ms: int = 0
    read_only: bool = False
    intent: str = ""
    project: str = ""
    project_from: str = ""
    raw_events: tuple[RawEvent, ...] = ()
    trace: str = ""
    features: dict[str, float] = {}
    """With explain: what the confidence rests on."""


class ReadNote(Message, frozen=True, tag="read_note"):
    """-> NoteText | NotFound | Ambiguous. ``ref``: path, title or alias. Lines are 1-based, inclusive; 0 = to the end."""

    ref: str
    vault: str = ""
    line_from: int = 1
    line_to: int = 0
    max_chars: int = 20_000


class Backlink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    title: str
    kind: str = "wikilink"
    line: int = 0
    vault: str = ""


class NoteText(Message, frozen=True, tag="note_text"):
    path: str
    vault: str
    file: str
    title: str
    lines: tuple[int, int]
    total_lines: int
    text: str
    truncated: bool = False
    backlinks: tuple[Backlink, ...] = ()
    links: tuple[Backlink, ...] = ()
    unresolved: tuple[str, ...] = ()
    superseded_by: Superseded | None = None
    modified: str = ""


class NotFound(Message, frozen=True, tag="not_found"):
    ref: str
    nearest: tuple[str, ...] = ()


class Ambiguous(Message, frozen=True, tag="ambiguous"):
    ref: str
    candidates: tuple[str, ...] = ()


class Related(Message, frozen=True, tag="related"):
    """Neighbours of a note and why -> Neighbours | NotFound | Ambiguous."""

    ref: str
    vault: str = ""
    k: int = 10


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    title: str
    why: str
    score: float
    vault: str = ""
    file: str = ""


class Neighbours(Message, frozen=True, tag="neighbours"):
    path: str
    title: str
    items: tuple[Neighbour, ...]
    degraded: tuple[str, ...] = ()


class Recent(Message, frozen=True, tag="recent"):
    """Notes changed last -> RecentNotes."""

    k: int = 10
    filters: Filters = Filters()


class RecentNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    title: str
    modified: str
    vault: str = ""
    file: str = ""
    kind: str = ""
    summary: str = ""


class RecentNotes(Message, frozen=True, tag="recent_notes"):
    items: tuple[RecentNote, ...]


class DescribeIndex(Message, frozen=True, tag="describe_index"):
    """-> IndexReport: the figures of `stats` and `doctor`, and the graph for its picture when ``graph``."""

    vault: str = ""
    graph: bool = False


class GraphNote(msgspec.Struct, frozen=True, array_like=True):
    path: str
    title: str
    kind: str
    date: str
    links: tuple[int, ...]
    """Indexes into ``IndexReport.graph`` of the resolved targets."""


class IndexReport(Message, frozen=True, tag="index_report"):
    notes: int
    chunks: int
    vectors: int
    links: int
    unresolved: tuple[tuple[str, str], ...] = ()
    """(path, target), at most 500."""
    ambiguous: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    """(path, problem) of notes that could not be parsed as they stand."""
    stale_links: tuple[tuple[str, str], ...] = ()
    """(path, superseded note still linked as current)."""
    graph: tuple[GraphNote, ...] = ()


FindingKind = Literal[
    "ambiguous_link", "cold_session", "contradiction", "duplicate_title", "expired", "flagged", "old_rule",
    "pinned_expiring", "stale_focus", "superseded_link", "unreadable", "unresolved_link",
]  # fmt: skip


class Lint(Message, frozen=True, tag="lint"):
    """What is wrong with notes and pages as a memory, by rule -> LintReport. ``cold``: cold session pages too."""

    vault: str = ""
    project: str = ""
    kinds: tuple[FindingKind, ...] = ()
    """Only these; () = all."""
    cold: bool = False
    limit: int = 5000
    """Findings that are listed; all are counted."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: FindingKind
    severity: Literal["warning", "info"]
    pages: tuple[str, ...]
    """The note that it is about, then those it has to do with: paths in their vaults."""
    text: str
    vault: str = ""
    vault_id: int = 0


class LintReport(Message, frozen=True, tag="lint_report"):
    findings: tuple[Finding, ...]
    """Warnings first; at most 5000."""
    counts: dict[FindingKind, int]
    warnings: int
    notes: int


class WaitFor(Message, frozen=True, tag="wait_for"):
    """Answered when the query actor has taken in this revision -> Caught (or timeout)."""

    revision: int


class Caught(Message, frozen=True, tag="caught"):
    revision: int


RecallRequest = Recall | ReadNote | Related | Recent | DescribeIndex | Lint | WaitFor
RecallReply = Answer | NoteText | NotFound | Ambiguous | Neighbours | RecentNotes | IndexReport | LintReport | Caught
