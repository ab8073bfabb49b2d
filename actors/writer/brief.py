"""Gathering what a briefing says, and noting that a session was shown a handoff."""

from __future__ import annotations

from ...memory.capture import briefing, handoffs, ledger
from ...memory.capture.briefing import PinnedPage, RecentSession, UnreadNote
from ...memory.capture.policy import Policy
from ...memory.capture.sessions import Session
from ...memory.notes import expiry, frontmatter
from ...memory.notes.decode import decode
from ...protocol.config import Config
from ...protocol.messages.capture import Brief, Briefing, Handoff, Place, ProjectRef
from ..sqlite import sqlite3
from .database import Database
from .places import GLOBAL
from .recorder import Recorder, now_ms
from .records import captured, letters
from .records import pages as page_records
from .records.pages import PageRow
from .wiki.files import folder_of
from .wiki.store import Wiki

SESSIONS_LOOKED_AT = 12


class Facts:
    """What the index knows for one briefing, read in one go."""

    def __init__(self, conn: sqlite3.Connection, project: str, wiki_root: str) -> None:
        self.handoffs: list[Handoff] = captured.open_handoffs(conn, project)
        self.sessions: list[Session] = captured.recent_sessions(conn, project, SESSIONS_LOOKED_AT)
        self.pages: list[PageRow] = page_records.pages_of(conn, wiki_root, folder_of(project)) if project else []
        self.waiting = letters.waiting(conn, project) if project else 0
        self.everywhere: list[PageRow] = page_records.pages_of(conn, wiki_root, GLOBAL)


class Briefer:
    """Answers Brief. Reads; the only thing it records is which handoff a session was offered."""

    def __init__(self, db: Database, wiki: Wiki, recorder: Recorder, wiki_root: str) -> None:
        self._db = db
        self._wiki = wiki
        self._recorder = recorder
        self._wiki_root = wiki_root

    async def brief(self, message: Brief, project: ProjectRef, config: Config, policy: Policy) -> Briefing:
        """The briefing for ``message.place`` in ``project``, within the message's, the user's and the folder's budget."""
        budget = min(
            message.max_chars, config.capture.briefing_chars if policy.briefing_chars < 0 else policy.briefing_chars
        )
        if not policy.briefing or budget <= 0:
            return Briefing(text="", project=project)
        place = Place(
            cwd=message.place.cwd, host=message.place.host, session=message.place.session, project=project.name
        )
        facts = await self._db.read(Facts, project.name, self._wiki_root)
        now = now_ms()
        offered = handoffs.select(facts.handoffs, place, now, config.capture.handoff_expire_days)
        pages = [page for page in facts.pages if not expiry.is_past(page.expires, now)]
        everywhere = [page for page in facts.everywhere if not expiry.is_past(page.expires, now)]
        pinned = [page for page in (*everywhere, *pages) if page.kind == "rule" or page.pinned][: briefing.MAX_PAGES]
        text = briefing.compose(
            project.name,
            handoff=offered,
            pages=[await self._body(page) for page in pinned],
            sessions=recent(facts.sessions, place.session),
            notes=unread(pages, facts.sessions, place),
            waiting=0 if project.guessed else facts.waiting,
            budget_chars=budget,
        )
        if offered is None or f"id: {offered.id};" not in text:
            return Briefing(text=text, project=project)
        if place.session:
            await self._recorder.put(ledger.HandedOff(op="offer", at_ms=now, id=offered.id, place=place))
        return Briefing(text=text, project=project, handoff=offered.id)

    async def _body(self, page: PageRow) -> PinnedPage:
        raw = await self._wiki.read(page.path) or b""
        _, body = frontmatter.split(decode(raw).text)
        lines = body.strip().splitlines()
        if lines and lines[0].lstrip("# ").strip() == page.title:
            lines = lines[1:]
        return PinnedPage(path=page.path, title=page.title, body="\n".join(lines), rule=page.kind == "rule")


def recent(sessions: list[Session], asking: str) -> list[RecentSession]:
    """Sessions that are over and have a page, without the one that asks."""
    return [
        RecentSession(title=each.title, host=each.host, at_ms=each.last_ms, page=each.page)
        for each in sessions
        if each.id != asking and not each.live and not each.empty
    ]


def unread(pages: list[PageRow], sessions: list[Session], place: Place) -> list[UnreadNote]:
    """
    Pages of the project that changed after this agent's last session here ended; nothing for an agent's first session,
    to which everything is new. Rules and pinned pages are shown anyway.
    """
    mine = [each.last_ms for each in sessions if each.host == place.host and not each.live and each.id != place.session]
    if not mine:
        return []
    since = max(mine)
    return [
        UnreadNote(path=page.path, title=page.title, summary=page.summary)
        for page in pages
        if page.changed_ms > since and page.kind != "rule" and not page.pinned
    ]
