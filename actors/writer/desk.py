"""Requests about handoffs and sessions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from ...memory import redact
from ...memory.capture import handoffs, ledger, pages, sessions
from ...memory.capture.events import Event
from ...memory.capture.sessions import Session
from ...memory.recall import tokens
from ...protocol.envelope import Invalid
from ...protocol.messages.capture import (
    EndSession,
    EventPage,
    EventRow,
    Handoff,
    HandoffAccept,
    HandoffBegin,
    HandoffCancel,
    HandoffDone,
    HandoffList,
    Handoffs,
    Place,
    ProjectRef,
    Purged,
    PurgeProject,
    PurgeSession,
    SessionEvents,
    SessionInfo,
    SessionList,
    Sessions,
)  # fmt: skip
from ...protocol.messages.common import Ok
from .recorder import now_ms
from .records import capture as records
from .records import captured
from .records import pages as page_records
from .wiki.files import folder_of
from .wikipages import refuse_guess

if TYPE_CHECKING:
    from .ingest import Ingest

log = logging.getLogger("recalld.writer.capture")

MAX_LIST = 500
MAX_EVENT_CHARS = 16_384


class Desk:
    """Handlers; all state is the ingest's."""

    def __init__(self, ingest: Ingest) -> None:
        self._in = ingest

    # -- handoffs

    async def begin(self, message: HandoffBegin) -> HandoffDone:
        """Open a manual handoff. Raises Invalid when the project is only guessed or nothing is said."""
        project = await self._in.places.of(message.place)
        refuse_guess(project)
        summary = self._clean(message.summary.strip())
        if not summary:
            raise Invalid("a handoff needs a summary: what was done, what is open")
        at_ms = now_ms()
        key = message.replay_key or str(at_ms)
        place = self._placed(message.place, project)
        session = await self._in.db.read(captured.get_session, place.session) if place.session else None
        handoff = Handoff(
            id=handoffs.manual_id(project.name, place.session, summary, key),
            project=project.name,
            cwd=place.cwd,
            from_agent=place.host,
            from_session=place.session,
            to_agent=message.to_agent,
            at_ms=at_ms,
            summary=summary[: handoffs.SUMMARY_CHARS],
            automatic=False,
            branch=session.branch if session else "",
            open_questions=self._items(message.open_questions),
            next_steps=self._items(message.next_steps),
            files_touched=self._items(message.files_touched, handoffs.MAX_FILES),
        )
        entry = ledger.HandedOff(op="open", at_ms=at_ms, place=place, handoff=handoff, replay_key=message.replay_key)
        return await self._done(entry, project)

    async def accept(self, message: HandoffAccept) -> HandoffDone:
        """Claim a handoff by id, or the best for this place; None when somebody else has it or there is none."""
        project = await self._in.places.of(message.place)
        place = self._placed(message.place, project)
        key = message.id
        if key:
            found = await self._in.db.read(captured.get_handoff, key)
            key = found.id if found else key
        days = self._in.env.config.capture.handoff_expire_days
        entry = ledger.HandedOff(
            op="accept", at_ms=now_ms(), id=key, place=place, expire_days=days, replay_key=message.replay_key
        )
        return await self._done(entry, project)

    async def cancel(self, message: HandoffCancel) -> HandoffDone:
        """Withdraw an open handoff; None when there is none of that id that is open."""
        found = await self._in.db.read(captured.get_handoff, message.id)
        project = ProjectRef(name=found.project if found else "", found_by="named" if found else "none")
        entry = ledger.HandedOff(
            op="cancel", at_ms=now_ms(), id=found.id if found else message.id, replay_key=message.replay_key
        )
        return await self._done(entry, project)

    async def list_handoffs(self, message: HandoffList) -> Handoffs:
        """Handoffs of this place's project, or of all; open ones first."""
        await self._in.recorder.catch_up()
        project = await self._in.places.of(message.place)
        name = None if message.all_projects else project.name
        items = await self._in.db.read(captured.list_handoffs, name, max(1, min(message.limit, MAX_LIST)))
        return Handoffs(items=tuple(items), project=project)

    async def _done(self, entry: ledger.HandedOff, project: ProjectRef) -> HandoffDone:
        granted = await self._in.recorder.put(entry)
        return HandoffDone(handoff=granted if isinstance(granted, Handoff) else None, project=project)

    def _placed(self, place: Place, project: ProjectRef) -> Place:
        return msgspec.structs.replace(place, project=project.name)

    def _clean(self, text: str) -> str:
        return redact.redact(text, self._in.intake.extra, self._in.intake.allow)[0]

    def _items(self, given: tuple[str, ...], limit: int = handoffs.MAX_ITEMS) -> tuple[str, ...]:
        return tuple(self._clean(item)[: handoffs.ITEM_CHARS] for item in given[:limit] if item.strip())

    # -- sessions

    async def list_sessions(self, message: SessionList) -> Sessions:
        """The newest sessions, of one project or of all."""
        await self._in.recorder.catch_up()
        name = None if message.all_projects else (await self._in.places.of(message.place)).name
        found = await self._in.db.read(captured.list_sessions, name, max(1, min(message.limit, MAX_LIST)))
        return Sessions(items=tuple(info_of(each) for each in found))

    async def list_events(self, message: SessionEvents) -> EventPage:
        """Raw events of a session, or of all after a seq; with ``query`` those that match."""
        await self._in.recorder.catch_up()
        key = message.session
        if not key and message.after_seq < 0:
            project = await self._in.places.of(message.place)
            recent = await self._in.db.read(captured.recent_sessions, project.name or None, 10)
            key = next((each.id for each in recent if not each.live and each.id != message.place.session), "")
            if not key:
                return EventPage(items=())
        elif key:
            session = await self._in.db.read(captured.get_session, key)
            if session is None:
                return EventPage(items=(), session=key)
            key = session.id
        rows, total = await self._in.db.read(lambda conn: captured.find_events(
            conn, session=key, after_seq=message.after_seq, kinds=message.kinds, match=match_of(message.query),
            limit=max(1, min(message.limit, MAX_LIST)), offset=max(0, message.offset),
        ))  # fmt: skip
        limit = max(100, min(message.max_chars, MAX_EVENT_CHARS))
        return EventPage(items=tuple(row_of(seq, event, limit) for seq, event in rows), total=total, session=key)

    async def end(self, message: EndSession) -> Ok:
        """End a session by hand. Raises Invalid when there is none; ending one that has ended changes nothing."""
        await self._in.recorder.catch_up()
        session = await self._in.db.read(captured.get_session, message.session)
        if session is None:
            raise Invalid(f"there is no session '{message.session}': see `recalld session list`")
        if session.live:
            await self._in.recorder.put(ledger.Happened(event=sessions.end_event(session, "asked")))
            await self._in.finisher.settle()
        return Ok()

    async def purge(self, message: PurgeSession) -> Purged:
        """Remove a session for good, from everything that recalld writes. Says what was removed from where."""
        session = await self._in.db.read(captured.get_session, message.session)
        if session is None:
            raise Invalid(f"there is no session '{message.session}': see `recalld session list`")
        await self._in.recorder.settle()
        await self._in.finisher.settle()
        session = await self._in.db.read(captured.get_session, session.id) or session
        report: dict[str, str] = {"session": session.id}
        report["spool"] = await self._in.spool.purge(session.id)
        count = await self._in.journal.purge(lambda seq, record: is_of(record, session.id))
        report["journal"] = f"{count} entries"
        await self._in.recorder.put(ledger.Purged(session=session.id, at_ms=now_ms()))
        paths = {session.page} if session.page else set()

        versions = await self._in.db.run(page_records.forget, self._in.index.root, tuple(paths), session.id)
        await self._in.db.alone(records.scrub)
        report["database"] = f"{session.events} events, {versions} versions of its page"
        report["wiki"] = ", ".join(sorted(paths)) or "it had no page"
        report["git"] = await self._in.wiki.purge(paths, session.id)
        report["elsewhere"] = "copies that you made yourself (backups, git remotes, sync folders) are not touched"
        log.info("purged session %s", session.id)
        return Purged(report=report)

    async def purge_project(self, message: PurgeProject) -> Purged:
        """Remove what a project has beside sessions and pages. One that is not known has nothing."""
        await self._in.recorder.settle()
        name = message.project
        pages_in = f"{self._in.index.root}/{folder_of(name)}"
        count = await self._in.journal.purge(lambda seq, record: is_of_project(record, name, pages_in))
        await self._in.recorder.put(ledger.Purged(project=name, pages=pages_in, at_ms=now_ms()))
        await self._in.db.alone(records.scrub)
        return Purged(report={"project": name, "journal": f"{count} entries"})


def info_of(session: Session) -> SessionInfo:
    """What is listed of a session."""
    return SessionInfo(
        id=session.id, host=session.host, project=session.project, cwd=session.cwd, started_ms=session.started_ms,
        last_ms=session.last_ms, ended_ms=session.ended_ms, title=session.title, page=session.page,
        events=session.events, branch=session.branch,
    )  # fmt: skip


def row_of(seq: int, event: Event, max_chars: int) -> EventRow:
    """An event as it is shown."""
    output = event.output_head + (f"\n[…]\n{event.output_tail}" if event.output_tail else "")
    text = "\n".join(part for part in (event.text, event.assistant, output) if part)
    return EventRow(
        seq=seq, session=event.session, host=event.host, kind=event.kind, at=pages.instant_of(event.at_ms),
        text=text[:max_chars], tool=event.tool, command=event.command, paths=event.paths, outcome=event.outcome,
        project=event.project,
    )  # fmt: skip


def match_of(query: str) -> str:
    """A question as an FTS5 expression over raw events: any of its words; '' for none."""
    return " OR ".join(term.fts for term in tokens.query_terms(query)) if query.strip() else ""


def is_of_project(record: bytes, project: str, folder: str) -> bool:
    """Whether a journal record is a handoff or message of ``project``, or feedback on what lies in its ``folder``."""
    try:
        entry = ledger.decode(record)
    except msgspec.MsgspecError:
        return False
    match entry:
        case ledger.HandedOff():
            return entry.handoff is not None and entry.handoff.project == project
        case ledger.Mailed():
            return entry.letter is not None and project in (entry.letter.from_project, entry.letter.to_project)
        case ledger.Judged():
            return f"{entry.root}/{entry.path}".startswith(f"{folder}/")
        case _:
            return False


def is_of(record: bytes, session: str) -> bool:
    """Whether a journal record is about ``session``: its events, its end, its handoff, what it said and sent."""
    if session.encode() not in record:
        return False
    try:
        entry = ledger.decode(record)
    except msgspec.MsgspecError:
        return False
    match entry:
        case ledger.Happened():
            return entry.event.session == session
        case ledger.Finished():
            return entry.session == session
        case ledger.HandedOff():
            return entry.handoff is not None and entry.handoff.from_session == session
        case ledger.Judged():
            return entry.session == session
        case ledger.Mailed():
            return entry.letter is not None and entry.letter.from_session == session
        case ledger.Purged():
            return False
