"""Messages of capture: pages, handoffs, briefings, sessions. Raw hook events arrive on ``events.sock`` as JSON lines."""

from __future__ import annotations

from typing import Literal

import msgspec

from .common import Message, Ok


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a caller stands: who it is and in which folder. The project is derived from it."""

    cwd: str = ""
    host: str = ""
    session: str = ""
    project: str = ""
    """Named by the caller; wins over what the folder says."""


class ProjectRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A project and how it was found. ``guessed`` projects are never written to."""

    name: str
    found_by: Literal["named", "marker", "git", "session", "folder", "none"] = "none"
    root: str = ""
    guessed: bool = False


class WritePage(Message, frozen=True, tag="write_page"):
    """
    Write a wiki page -> PageWritten, or ``conflict`` when ``expect_hash`` or ``create_only`` does not hold.

    ``replay_key`` makes a repeated write (a bridge that reconnected) answer as the first one did.
    """

    path: str
    """Relative to the project's wiki folder; '.md' is added when missing."""
    body: str
    place: Place = Place()
    title: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    relations: dict[str, tuple[str, ...]] = {}
    pinned: bool = False
    expires: str = ""
    supersedes: str = ""
    expect_hash: str = ""
    create_only: bool = False
    scope: Literal["project", "global"] = "project"
    replay_key: str = ""


class PageWritten(Message, frozen=True, tag="page_written"):
    path: str
    file: str
    project: ProjectRef
    hash: str
    created: bool = False
    redacted: int = 0
    twin: str = ""
    """An existing page that looks like the same thing under another name; nothing was written when this is set."""


class DeletePage(Message, frozen=True, tag="delete_page"):
    path: str
    place: Place = Place()
    expect_hash: str = ""
    replay_key: str = ""


class PageDeleted(Message, frozen=True, tag="page_deleted"):
    path: str
    project: ProjectRef
    existed: bool


class ReadPage(Message, frozen=True, tag="read_page"):
    """-> PageText; ``not_found`` true when there is none."""

    path: str
    place: Place = Place()


class PageText(Message, frozen=True, tag="page_text"):
    path: str
    file: str
    project: ProjectRef
    text: str = ""
    hash: str = ""
    not_found: bool = False


class PageLog(Message, frozen=True, tag="page_log"):
    """History of a page from git -> PageHistory."""

    path: str
    place: Place = Place()
    limit: int = 20


class PageVersion(msgspec.Struct, frozen=True, kw_only=True):
    commit: str
    at: str
    author: str
    subject: str


class PageHistory(Message, frozen=True, tag="page_history"):
    path: str
    project: ProjectRef
    versions: tuple[PageVersion, ...] = ()


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    project: str
    cwd: str
    from_agent: str
    at_ms: int
    summary: str
    automatic: bool = True
    to_agent: str = ""
    from_session: str = ""
    branch: str = ""
    open_questions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    files_touched: tuple[str, ...] = ()
    last_failure: str = ""
    state: Literal["open", "offered", "accepted", "expired", "cancelled"] = "open"
    accepted_by: str = ""
    accepted_at_ms: int = 0


class HandoffBegin(Message, frozen=True, tag="handoff_begin"):
    """Leave work for the next agent -> HandoffDone."""

    summary: str
    place: Place = Place()
    to_agent: str = ""
    open_questions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    files_touched: tuple[str, ...] = ()
    replay_key: str = ""


class HandoffAccept(Message, frozen=True, tag="handoff_accept"):
    """Claim by id, or the best open one for this place: exactly one caller gets it -> HandoffDone (handoff None = none)."""

    place: Place = Place()
    id: str = ""
    replay_key: str = ""


class HandoffList(Message, frozen=True, tag="handoff_list"):
    place: Place = Place()
    all_projects: bool = False
    limit: int = 50


class HandoffCancel(Message, frozen=True, tag="handoff_cancel"):
    id: str
    replay_key: str = ""


class HandoffDone(Message, frozen=True, tag="handoff_done"):
    handoff: Handoff | None
    project: ProjectRef


class Handoffs(Message, frozen=True, tag="handoffs"):
    items: tuple[Handoff, ...]
    project: ProjectRef


class Brief(Message, frozen=True, tag="brief"):
    """What an agent should know when it starts here -> Briefing. Claims nothing: the handoff in it is only offered."""

    place: Place = Place()
    max_chars: int = 4000


class Briefing(Message, frozen=True, tag="briefing"):
    text: str
    project: ProjectRef
    handoff: str = ""
    """Id of the handoff that the text offers."""


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    host: str
    project: str
    cwd: str
    started_ms: int
    last_ms: int
    ended_ms: int = 0
    title: str = ""
    page: str = ""
    events: int = 0
    branch: str = ""


class SessionList(Message, frozen=True, tag="session_list"):
    place: Place = Place()
    all_projects: bool = True
    limit: int = 20


class Sessions(Message, frozen=True, tag="sessions"):
    items: tuple[SessionInfo, ...]


class SessionEvents(Message, frozen=True, tag="session_events"):
    """Raw events of a session ('' = the last one that ended here) or after ``after_seq`` -> EventPage."""

    session: str = ""
    place: Place = Place()
    query: str = ""
    kinds: tuple[str, ...] = ()
    after_seq: int = -1
    limit: int = 50
    offset: int = 0
    max_chars: int = 4000


class EventRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    seq: int
    session: str
    host: str
    kind: str
    at: str
    text: str = ""
    tool: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    outcome: str = ""
    project: str = ""


class EventPage(Message, frozen=True, tag="event_page"):
    items: tuple[EventRow, ...]
    total: int = 0
    session: str = ""


class EndSession(Message, frozen=True, tag="end_session"):
    """End a session whose agent never said so -> Ok."""

    session: str


class PurgeSession(Message, frozen=True, tag="purge_session"):
    """Remove a session from journal, database, wiki and git history -> Purged."""

    session: str


class PurgeProject(Message, frozen=True, tag="purge_project"):
    """
    Remove what a project has beside sessions and pages: handoffs that agents wrote, messages from and to it, feedback on its
    pages; from journal and database -> Purged.
    """

    project: str


class Purged(Message, frozen=True, tag="purged"):
    report: dict[str, str]


class ImportEvents(Message, frozen=True, tag="import_events"):
    """Events from past transcripts: JSON lines in the hook clients' form, redacted on arrival -> Imported."""

    lines: tuple[str, ...]


class Imported(Message, frozen=True, tag="imported"):
    stored: int
    duplicates: int = 0
    refused: int = 0


Signal = Literal["helpful", "not_helpful", "stale", "wrong"]


class Feedback(Message, frozen=True, tag="feedback"):
    """Say of a note or page whether it helped -> FeedbackNoted. Counts until the note's text changes."""

    path: str
    """As in a hit, with or without its vault's folder; a page's path in the project will do."""
    signal: Signal
    vault: str = ""
    reason: str = ""
    place: Place = Place()


class FeedbackNoted(Message, frozen=True, tag="feedback_noted"):
    path: str
    vault: str
    signal: Signal
    tally: dict[Signal, int]
    """What counts for the note now, by signal."""
    redacted: int = 0


class Letter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message from one project's agent to whoever works in another one."""

    id: str
    to_project: str
    from_project: str
    at_ms: int
    body: str
    subject: str = ""
    from_agent: str = ""
    from_session: str = ""
    state: Literal["waiting", "read", "cancelled"] = "waiting"
    read_by: str = ""
    read_at_ms: int = 0
    cut: bool = False
    """True in a list where ``body`` is only the beginning."""


class MessageSend(Message, frozen=True, tag="message_send"):
    """Leave a message to another project -> MessageDone. Refused for a recipient that nobody knows."""

    to_project: str
    body: str
    subject: str = ""
    place: Place = Place()
    replay_key: str = ""


class MessageList(Message, frozen=True, tag="message_list"):
    """Messages that wait for this project, or that it sent -> Messages. Reads none of them."""

    place: Place = Place()
    box: Literal["inbox", "outbox"] = "inbox"
    limit: int = 50


class MessagePop(Message, frozen=True, tag="message_pop"):
    """Take a message out of this project's inbox, the given or the oldest: exactly one caller gets it -> MessageDone."""

    place: Place = Place()
    id: str = ""
    replay_key: str = ""


class MessageCancel(Message, frozen=True, tag="message_cancel"):
    """Withdraw what this project sent and nobody read: the given message, or all -> MessagesCancelled."""

    place: Place = Place()
    id: str = ""
    replay_key: str = ""


class MessageDone(Message, frozen=True, tag="message_done"):
    """``letter`` None: there is none, or somebody else has it."""

    letter: Letter | None
    project: ProjectRef
    redacted: int = 0


class Messages(Message, frozen=True, tag="messages"):
    items: tuple[Letter, ...]
    project: ProjectRef
    waiting: int = 0
    """How many wait in this project's inbox."""


class MessagesCancelled(Message, frozen=True, tag="messages_cancelled"):
    count: int
    project: ProjectRef


CaptureRequest = (
    WritePage | DeletePage | ReadPage | PageLog | HandoffBegin | HandoffAccept | HandoffList | HandoffCancel | Brief
    | SessionList | SessionEvents | EndSession | PurgeSession | ImportEvents | Feedback
    | MessageSend | MessageList | MessagePop | MessageCancel | PurgeProject
)  # fmt: skip
CaptureReply = (
    PageWritten | PageDeleted | PageText | PageHistory | HandoffDone | Handoffs | Briefing | Sessions | EventPage
    | Purged | Imported | Ok | FeedbackNoted | MessageDone | Messages | MessagesCancelled
)  # fmt: skip
