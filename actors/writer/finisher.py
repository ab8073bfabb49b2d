"""
What is due at a session's end, one session at a time: its page, the page's place in the index, the handoff.

Every step can be repeated: a crash between any two leaves the session unfinished, and it is finished at the next start.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable

import anyio

from ...memory import redact
from ...memory.capture import digest as digests
from ...memory.capture import handoffs, ledger, pages
from ...memory.capture.events import Intake
from ...memory.capture.sessions import Finish, Refresh, Session
from ...protocol.envelope import ProtocolError
from .database import Database
from .pageindex import PageIndex
from .recorder import Recorder, now_ms
from .records import captured
from .records import pages as page_records
from .wiki import files
from .wiki.outcomes import Expect, Refused
from .wiki.store import Wiki

log = logging.getLogger("recalld.writer.capture")

UNSORTED = "unsorted"
"""Folder for sessions whose project is not known: nothing that was guessed gets pages of its own."""
FOLDER_LIMIT = 300
"""Entries a folder: each commit writes its folder's tree anew, which at 10,000 entries costs ten times as much."""
RETRY_S = 2.0


class Finisher:
    """``due`` takes work at any time; ``run`` does it."""

    def __init__(self, db: Database, wiki: Wiki, index: PageIndex, recorder: Recorder) -> None:
        self._db = db
        self._wiki = wiki
        self._index = index
        self._recorder = recorder
        self._due: dict[str, bool] = {}
        self._now: asyncio.Event = asyncio.Event()
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._folders: dict[str, int] = {}
        self.intake = Intake()
        self.pages_total = 0

    def due(self, work: Iterable[Finish | Refresh]) -> None:
        """Note sessions whose page is due; several reasons for one session are one page."""
        for action in work:
            self._due[action.session] = True
            self._idle.clear()
        self._now.set()

    async def find_unfinished(self) -> int:
        """Note what a crash left undone."""
        found = await self._db.read(captured.unfinished_sessions)
        self.due(Refresh(session.id) for session in found)
        return len(found)

    @property
    def waiting(self) -> int:
        return len(self._due) + self._busy

    async def run(self) -> None:
        """Finish sessions until cancelled."""
        while True:
            await self._now.wait()
            self._now.clear()
            while self._due:
                session = next(iter(self._due))
                del self._due[session]
                self._busy = True
                try:
                    await self._finish(session)
                except (ProtocolError, OSError) as error:
                    # The disk or the index refuses for the moment; what is due stays due.
                    log.warning("the page of session %s waits: %s", session, error)
                    self._due.setdefault(session, True)
                    await anyio.sleep(RETRY_S)
                except Exception:
                    log.exception("the page of session %s could not be made", session)
                finally:
                    self._busy = False
            self._idle.set()

    async def settle(self) -> None:
        """Return when nothing is due."""
        await self._idle.wait()

    async def _finish(self, key: str) -> None:
        session = await self._db.read(captured.get_session, key)
        if session is None or session.empty:
            return
        raw = await self._db.read(captured.session_blobs, key)
        digest = await asyncio.to_thread(digests.digest, map(captured.decode_event, raw))
        links = await self._db.read(page_records.mentioned, digest.mentions) if digest.mentions else []
        written = await self._write(session, digest, links)
        ended = not session.live and session.ends > session.finished
        handoff = handoffs.compose(session, digest, session.ended_ms) if ended and session.interactive else None
        entry = ledger.Finished(
            session=session.id, ends=session.ends if not session.live else session.finished, covered=session.covered,
            at_ms=now_ms(), page=written[0], hash=written[1], handoff=handoff,
        )  # fmt: skip
        await self._recorder.put(entry)
        self.pages_total += 1

    async def _write(self, session: Session, digest: digests.Digest, links: list[str]) -> tuple[str, str]:
        """(path, hash) of the page as we wrote it; the hash is the old one where a person's edit stands."""
        path = session.page or await self._place(session)
        text, _ = redact.redact(pages.render(session, digest, links), self.intake.extra, self.intake.allow)
        data = text.encode("utf-8", "replace")
        result = await self._wiki.write(path, data, f"session {path}", Expect())
        if isinstance(result, Refused):
            # Not by its path, which is made of the first prompt: a log is not purged.
            log.info("the page of session %s was edited by a person: their version stays", session.id)
            return path, session.page_hash
        await self._index.put(path, data, result.stat)
        return path, result.hash

    async def _place(self, session: Session) -> str:
        """``<project>/sessions/<name>``; in a folder per month below it once there are many."""
        base = f"{files.folder_of(session.project or UNSORTED)}/sessions"
        name = pages.path_of(session).rsplit("/", 1)[-1]
        month = name[:7]
        more = (f"{base}/{month}-{number}" for number in range(2, 10_000))
        # After a crash the page may stand there already: the same name is found again before a new place is chosen.
        for folder in itertools.chain((base, f"{base}/{month}"), more):
            count = self._folders.get(folder)
            if count is None:
                count = self._folders[folder] = await self._wiki.count(folder)
            if count and await self._wiki.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
            if count < FOLDER_LIMIT:
                self._folders[folder] = count + 1
                return f"{folder}/{name}"
        raise AssertionError("three million sessions in a month")
