"""
Which project a folder belongs to, and what may be captured there. Looks at the disk, remembers for a few seconds.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

import msgspec

from ...memory.capture import events, ledger, policy, projects, tools
from ...memory.capture.events import Dropped, Event
from ...memory.capture.policy import Policy
from ...memory.capture.sessions import Session
from ...memory.recall.tokens import fold
from ...protocol import place as disk
from ...protocol.config import Config
from ...protocol.messages.capture import Place, ProjectRef
from .database import Database
from .records import captured

FRESH_S = 5.0
"""How long a look at a folder is believed: a new marker counts from then on at the latest."""
FOLDERS = 4096
SESSIONS = 8192
GLOBAL = "_global"
"""Project of pages that hold everywhere. Capture never writes there: no folder's name can begin with '_'."""


class Look(NamedTuple):
    """One look at a folder: facts, the marker that governs capture, the marker that names the project."""

    facts: disk.Facts
    governing: Policy
    naming: Policy | None
    until: float


class Places:
    """Gives events and callers their project. All but ``of`` is synchronous: it stands in the path of every event."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.home = os.path.expanduser("~")
        self._mode = "all"
        self._folders: dict[str, Look] = {}
        self._sessions: dict[str, ProjectRef] = {}

    def configure(self, config: Config) -> None:
        """Take up a configuration, and forget what was found under another one."""
        self._mode = config.capture.mode
        self._folders.clear()

    def remember(self, session: Session, root: str) -> None:
        """A session that was there before this process was."""
        if session.project:
            self._sessions[session.id] = ProjectRef(name=session.project, found_by="session", root=root)

    def settle(self, event: Event) -> ledger.Happened | Dropped:
        """The event in its project, or why the folder's policy keeps it out."""
        look = self.look(event.cwd)
        governing = look.governing
        if self._mode != "all" or governing.root:
            words = tools.words_of(event.command) if governing.ignore and event.family == "shell" else []
            verdict, why = policy.decide(
                governing, self._mode, event.family, list(event.paths), words, event.cwd, self.home
            )
            if verdict == policy.DROP:
                return Dropped(why)
            if verdict == policy.METADATA:
                event = events.bare(event)
        project = projects.resolve(look.facts, look.naming, self._sessions.get(event.session))
        if not project.guessed:
            if len(self._sessions) >= SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[event.session] = project
        settled = events.settle(
            event, project=project.name, root=project.root, home=self.home, branch=look.facts.branch,
            head=look.facts.head,
        )  # fmt: skip
        return ledger.Happened(event=settled, root=project.root)

    async def of(self, place: Place) -> ProjectRef:
        """The project of a caller: as named, else of its folder or its session."""
        if place.project:
            return await self._named(place.project)
        known = self._sessions.get(place.session) if place.session else None
        if known is None and place.session:
            session = await self._db.read(captured.get_session, place.session)
            if session is not None and session.project:
                known = ProjectRef(name=session.project, found_by="session")
        look = self.look(place.cwd)
        project = projects.resolve(look.facts, look.naming, known)
        return msgspec.structs.replace(project, found_by="session") if project is known else project

    def policy_of(self, cwd: str) -> Policy:
        """The policy of the marker that governs a folder."""
        return self.look(cwd).governing

    def look(self, cwd: str) -> Look:
        """What is there at ``cwd``, at most FRESH_S old."""
        now = time.monotonic()
        known = self._folders.get(cwd)
        if known is not None and known.until > now:
            return known
        facts = disk.look(cwd, self.home)
        disk.read_head(facts)
        policies = [policy.read(disk.read_marker(path), os.path.dirname(path), self.home) for path in facts.markers]
        naming = next((each for each in policies if each.project), None)
        if len(self._folders) >= FOLDERS:
            self._folders.clear()
        look = self._folders[cwd] = Look(facts, policies[0] if policies else Policy(), naming, now + FRESH_S)
        return look

    async def _named(self, name: str) -> ProjectRef:
        """A project by the name that a caller gave: one that is known under another spelling is that one."""
        roots = await self._db.read(captured.project_roots)
        if name == GLOBAL:
            return ProjectRef(name=GLOBAL, found_by="named")
        clean = name if policy.valid_name(name) else projects.name_of(name)
        match = clean if clean in roots else next((each for each in roots if fold(each) == fold(clean)), clean)
        return ProjectRef(name=match, found_by="named", root=roots.get(match, ""))
