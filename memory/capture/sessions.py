"""
The life of one agent session, as a pure state machine over its events.

States: live (``ended_ms`` 0) and ended. An ended session comes back to life when it is resumed or prompted again, and ends
again with a page that covers everything. What has to be done about a step is returned as actions; nothing is done here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from . import prompts
from .events import FUTURE_MS, Event

QUIET_MS = 600_000
"""A session without events for ten minutes counts as left when another starts in its place (the reference's figure)."""
DRAFT_IDS = frozenset({"empty-state-draft"})
"""Placeholders that a host sends before there is a session (Cursor)."""
TELLING = ("user-prompt", "post-tool-use", "stop", "post-compaction")
"""Kinds that a page shows."""
REVIVING = ("session-start", "user-prompt")
"""Kinds that may bring an ended session back to life."""
ENDS = ("idle", "replaced", "asked")
"""Reasons of ends that recalld itself wrote, because no host did."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a session beside its events. Small: it is written with every batch."""

    id: str
    host: str
    project: str
    cwd: str
    started_ms: int
    last_ms: int
    seq: int = 0
    """The last event applied."""
    ended_ms: int = 0
    end_reason: str = ""
    events: int = 0
    prompts: int = 0
    """Real requests of a person."""
    tools: int = 0
    """Completed tool calls."""
    stopped: bool = False
    """The last turn ended by a stop of the agent's."""
    title: str = ""
    branch: str = ""
    head: str = ""
    interactive: bool = True
    subagents: tuple[str, ...] = ()
    """Those that run now."""
    compactions: int = 0
    resumes: int = 0
    covered: int = 0
    """Number of events when the page was last asked for: more events since make another page."""
    ends: int = 0
    """How often it ended with something to tell; part of its handoff's id."""
    finished: int = 0
    """The last end whose page and handoff are written."""
    written: int = 0
    """Number of events that the page covers as it stands."""
    page: str = ""
    """Path of the page as written, relative to the wiki."""
    page_hash: str = ""
    """Hash of the page as last written: another one on the disk is a person's edit."""

    @property
    def unfinished(self) -> bool:
        """Its page was asked for and is not written: a crash came between."""
        return self.covered > self.written or self.ends > self.finished

    @property
    def live(self) -> bool:
        return not self.ended_ms

    @property
    def empty(self) -> bool:
        """Nobody asked anything and no tool ran: there is nothing to tell."""
        return not self.prompts and not self.tools


class Claim(msgspec.Struct, frozen=True):
    """The first prompt: the handoff that this session was offered is its own now, if it is still free."""

    session: str


class Finish(msgspec.Struct, frozen=True):
    """Write the page and open the handoff of end number ``ends``."""

    session: str
    ends: int


class Refresh(msgspec.Struct, frozen=True):
    """Write the page anew; the session goes on (compaction) or a late event came after its end."""

    session: str


class Release(msgspec.Struct, frozen=True):
    """It came to nothing: give back the handoff that it took or was offered."""

    session: str


class Withdraw(msgspec.Struct, frozen=True):
    """It was resumed: the automatic handoff that its last end left is no longer true."""

    session: str


Action = Claim | Finish | Refresh | Release | Withdraw


def apply(session: Session | None, event: Event, seq: int, taken_ms: int = 0) -> tuple[Session, tuple[Action, ...]]:
    """
    The session after ``event``, and what is to be done. An event that was applied already (by ``seq``) changes nothing.

    Time is the event's own, and ``taken_ms`` (0 = unknown) what the daemon's clock showed when it came, as journalled, so
    that a replay of the journal gives the same session.
    """
    if session is None:
        session = begin(event)
    elif seq <= session.seq:
        return session, ()
    actions: list[Action] = []
    if not session.live and _revives(session, event, taken_ms):
        if not session.empty:
            actions.append(Withdraw(session.id))
        session = _with(session, ended_ms=0, end_reason="", resumes=session.resumes + 1)
    session = _count(session, event, seq)
    match event.kind:
        case "user-prompt":
            session, claims = _prompted(session, event)
            actions += claims
        case "post-tool-use" if event.family or event.tool:
            session = _with(session, tools=session.tools + 1, stopped=False)
        case "stop" if not event.agent_id:
            session = _with(session, stopped=True)
        case "subagent-start" if event.agent_id and event.agent_id not in session.subagents:
            session = _with(session, subagents=(*session.subagents, event.agent_id)[-16:])
        case "subagent-stop":
            session = _with(session, subagents=tuple(each for each in session.subagents if each != event.agent_id))
        case "post-compaction" if not session.empty:
            session = _with(session, compactions=session.compactions + 1, covered=session.events)
            actions.append(Refresh(session.id))
        case "session-end":
            return _end(session, event, actions)
        case _:
            pass
    if not session.live and not session.empty and event.kind in TELLING:
        # A straggler from the spool: the end came first. The page is made to cover it, a handoff that is out stays.
        first = session.ends == 0
        session = _with(session, covered=session.events, ends=session.ends or 1)
        return session, (Finish(session.id, 1) if first else Refresh(session.id),)
    return session, tuple(actions)


def overdue(sessions: Iterable[Session], now_ms: int, idle_ms: int) -> list[Session]:
    """Live sessions without an event for ``idle_ms``: their end never came."""
    return [session for session in sessions if session.live and now_ms - session.last_ms >= idle_ms]


def replaced(sessions: Iterable[Session], event: Event, now_ms: int) -> list[Session]:
    """
    Live sessions that ``event`` (the start of another one) shows to be over: same host, same folder, quiet for QUIET_MS.

    Two windows in one folder are both live: only silence tells that one was left.
    """
    if event.kind != "session-start" or event.source == "compact":
        return []
    return [
        session
        for session in sessions
        if session.live
        and session.id != event.session
        and (session.host, session.cwd) == (event.host, event.cwd)
        and now_ms - session.last_ms >= QUIET_MS
    ]


def end_event(session: Session, reason: str) -> Event:
    """The end that no host sent, as an event of its own. At the time of the last event: that is when the work ended."""
    # Its time may be the same at the next end, where the last event's lies ahead.
    again = f"-{session.resumes}" if session.resumes else ""
    return Event(
        id=f"end-{reason}-{session.id}-{session.last_ms}{again}",
        kind="session-end",
        host=session.host,
        session=session.id,
        at_ms=session.last_ms,
        name="recalld",
        cwd=session.cwd,
        project=session.project,
        reason=reason,
        interactive=session.interactive,
    )


def begin(event: Event) -> Session:
    """The session that an event shows to have begun."""
    return Session(
        id=event.session, host=event.host, project=event.project, cwd=event.cwd, started_ms=event.at_ms,
        last_ms=event.at_ms, interactive=event.interactive,
    )  # fmt: skip


def _revives(session: Session, event: Event, taken_ms: int) -> bool:
    """
    A start or prompt that is younger than the end. An older one only comes late, from a spool; but where the end is of a
    time that has not come yet, their times are of different clocks, and what arrives later happened later.
    """
    ended_ms = 0 if taken_ms and session.ended_ms > taken_ms + FUTURE_MS else session.ended_ms
    if event.kind == "session-start":
        return event.source != "compact" and event.at_ms >= ended_ms
    return event.kind == "user-prompt" and not event.agent_id and event.at_ms > ended_ms


def _count(session: Session, event: Event, seq: int) -> Session:
    return _with(
        session,
        seq=seq,
        events=session.events + 1,
        started_ms=min(session.started_ms, event.at_ms),
        last_ms=max(session.last_ms, event.at_ms),
        cwd=session.cwd or event.cwd,
        project=session.project or event.project,
        branch=event.branch or session.branch,
        head=event.head or session.head,
        interactive=session.interactive and event.interactive,
    )


def _prompted(session: Session, event: Event) -> tuple[Session, list[Action]]:
    if event.agent_id:
        return session, []
    request = prompts.request_of(event.text)
    if not request:
        return session, []
    title = session.title
    if not title or (prompts.is_acknowledgement(title) and not prompts.is_acknowledgement(request)):
        title = prompts.title_of(request)
    first = session.prompts == 0
    session = _with(session, prompts=session.prompts + 1, title=title, stopped=False)
    return session, [Claim(session.id)] if first and session.interactive else []


def _end(session: Session, event: Event, actions: list[Action]) -> tuple[Session, tuple[Action, ...]]:
    again = not session.live
    session = _with(session, ended_ms=max(event.at_ms, session.last_ms), end_reason=event.reason, subagents=())
    if session.empty:
        return session, (*actions, Release(session.id))
    if again:
        return session, tuple(actions)
    session = _with(session, covered=session.events, ends=session.ends + 1)
    return session, (*actions, Finish(session.id, session.ends))


def _with(session: Session, **changes: object) -> Session:
    return msgspec.structs.replace(session, **changes)
