"""
What keeps the index small, sound and safe, one work at a time, in steps between which everybody else's writes go on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Literal

import anyio
import anyio.to_thread

from ...protocol.envelope import Conflict, Unavailable
from ...protocol.messages.index import Backup
from ...protocol.runtime import Paths
from ..sqlite import sqlite3
from .database import Database
from .opening import integrity, is_damage, remove_set_aside, verify
from .records import maintenance
from .records.common import Rules
from .schema import FULL_TEXT

log = logging.getLogger("recalld.writer")

FIRST_CHECK_AFTER_S = 10.0
FIRST_CHECK_S = 60.0
STEP = 200
"""Rows per step: a step takes under 50 ms."""


def now_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000


class Upkeep:
    """Runs long work on the index. ``state`` says what runs now and how far it is; '' when nothing does."""

    def __init__(self, db: Database, paths: Paths, pack: Callable[[], Awaitable[int]]) -> None:
        """``pack`` packs the wiki's history and tells how many objects there were."""
        self.state = ""
        self.last = ""
        """How the last work ended, for a person."""
        self._db = db
        self._paths = paths
        self._pack = pack

    async def maintain(self, what: Literal["compact", "check", "checkpoint"], rules: Rules) -> dict[str, str]:
        """Raises Conflict when other work runs, and what the database raises."""
        with self._running(self.begin(what)):
            match what:
                case "compact":
                    return await self._compact(rules)
                case "check":
                    return await self._check()
                case "checkpoint":
                    return await self._db.alone(maintenance.checkpoint)

    async def backup(self, message: Backup) -> dict[str, str]:
        """Raises Conflict when other work runs, Invalid when the target cannot be written."""
        from . import backup  # tarfile and gzip: not at every start

        with self._running(self.begin("backup")):
            return await backup.write(self._paths, message)

    async def reindex(self, work: str, rules: Rules) -> None:
        """Build a new index beside this one and put it in its place. What goes wrong is logged and shown as ``last``."""
        from .reindex import build

        try:
            with self._running(work):
                told = await build(self._db, self._paths, rules, self._say)
            self.last = told
        except Exception as error:
            log.exception("reindex failed: the index stays as it was")
            self.last = f"reindex failed: {error}"

    def begin(self, work: str) -> str:
        """Claim the place of the one work that runs. Raises Conflict when it is taken."""
        if self.state:
            raise Conflict(f"'{self.state}' is running: wait for it to end")
        self.state = work
        return work

    async def first_check(self) -> None:
        """The part of the check at start that would have kept everybody waiting: the whole file, by a thread of its own."""
        await anyio.sleep(FIRST_CHECK_AFTER_S)
        try:
            await anyio.to_thread.run_sync(verify, self._db.path, FIRST_CHECK_S, abandon_on_cancel=True)
        except (OSError, sqlite3.Error) as error:
            if is_damage(error):
                await self._db.distrust(str(error))

    async def _check(self) -> dict[str, str]:
        """'ok' or what is wrong, per part. A damaged file is set aside at once and rebuilt."""
        report = {"database": await self._db.alone(lambda conn: integrity(self._db.path))}
        if report["database"] != "ok":
            await self._db.distrust(report["database"][:200])
            return {**report, "what now": "set aside; the index is rebuilt from your files"}
        return {**report, **await self._db.alone(maintenance.check)}

    async def _compact(self, rules: Rules) -> dict[str, str]:
        """
        Remove what nothing refers to and the bytes of all that was removed: deleted files leave no text behind.

        Reports how many of each went, and the size of the file before and after.
        """
        before = await self._db.alone(maintenance.file_bytes)
        report: dict[str, str] = {}
        for what, step in maintenance.FORGETTING.items():
            self._say(f"compact: {what}")
            total = 0
            while gone := await self._db.run(step, now_ms(), rules, STEP):
                total += gone
            report[what] = str(total)
        for table in FULL_TEXT:
            self._say(f"compact: merging {table}")
            first = True
            while await self._db.run(maintenance.merge_words, table, first):
                first = False
        self._say("compact: writing the file anew")
        await self._db.alone(maintenance.vacuum)
        report["damaged copies"] = str(await self._db.alone(lambda conn: remove_set_aside(self._db.path)))
        self._say("compact: packing the wiki's history")
        try:
            report["packed objects"] = str(await self._pack())
        except Unavailable as error:
            report["packed objects"] = f"none: {error.text}"
        report["bytes"] = f"{before} -> {await self._db.alone(maintenance.file_bytes)}"
        return report

    def _say(self, state: str) -> None:
        self.state = state

    @contextlib.contextmanager
    def _running(self, work: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
            self.last = f"{work} took {time.monotonic() - started:.1f} s"
        finally:
            self.state = ""
