"""
Which project a folder belongs to. Looks at the disk (marker files, git), remembers for a few seconds, never runs anything.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...memory.capture import events, ledger
from ...memory.capture.events import Dropped, Event
from ...protocol.config import Config
from ...protocol.messages.capture import Place, ProjectRef
from .database import Database
from .records import capture as records

FRESH_S = 5.0
CACHED = 4096
SESSIONS = 8192


class Found(NamedTuple):
    """What a folder says about its project."""

    project: ProjectRef
    until: float


class Places:
    """Resolves folders to projects, and gives events their project."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.home = os.path.expanduser("~")
        self._folders: dict[str, Found] = {}
        self._sessions: dict[str, ProjectRef] = {}

    def configure(self, config: Config) -> None:
        """Forget what was found under another configuration."""
        self._folders.clear()

    def settle(self, event: Event) -> ledger.Happened | Dropped:
        """The event with its project: its session's, once that has one that was not guessed."""
        project = self._of_session(event)
        settled = events.settle(
            event, project="" if project.guessed else project.name, root=project.root, home=self.home
        )
        return ledger.Happened(event=settled, root=project.root)

    async def of(self, place: Place) -> ProjectRef:
        """The project of a caller: as named, else of its session, else of its folder."""
        if place.project:
            roots = await self._db.read(records.project_roots)
            return ProjectRef(name=place.project, found_by="named", root=roots.get(place.project, ""))
        if place.session and (known := self._sessions.get(place.session)) is not None:
            return msgspec.structs.replace(known, found_by="session")
        return self._of_folder(place.cwd)

    def _of_session(self, event: Event) -> ProjectRef:
        known = self._sessions.get(event.session)
        if known is not None and (not event.cwd or _within(event.cwd, known.root)):
            return known
        found = self._of_folder(event.cwd)
        if known is not None and found.found_by in ("folder", "none"):
            return known  # the shell wandered off
        if len(self._sessions) >= SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[event.session] = found
        return found

    def _of_folder(self, cwd: str) -> ProjectRef:
        now = time.monotonic()
        cached = self._folders.get(cwd)
        if cached is not None and cached.until > now:
            return cached.project
        project = find(cwd, self.home)
        if len(self._folders) >= CACHED:
            self._folders.clear()
        self._folders[cwd] = Found(project, now + FRESH_S)
        return project


def find(cwd: str, home: str) -> ProjectRef:
    """The project of a folder, by its git root, else the folder itself; home and / are nobody's project."""
    if not cwd.startswith("/"):
        return ProjectRef(name="", found_by="none", guessed=True)
    folder = Path(cwd)
    for each in (folder, *folder.parents):
        if str(each) in (home, "/"):
            break
        if (each / ".git").exists():
            return ProjectRef(name=each.name, found_by="git", root=str(each))
    if cwd.rstrip("/") in (home, ""):
        return ProjectRef(name="", found_by="none", guessed=True)
    return ProjectRef(name=folder.name, found_by="folder", root=cwd)


def _within(path: str, root: str) -> bool:
    return bool(root) and (path == root or path.startswith(root.rstrip("/") + "/"))
