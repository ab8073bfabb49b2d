"""
Takes past versions of notes from the git history of the folders that hold them, one folder at a time.

After the first sweep of a folder, and whenever a sweep meets another HEAD: then the index knows everything that lies
there now. A process of its own reads (``wiki.gitreader``); here are the transactions, each small, one after the other.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from ...protocol.config import Config
from ...protocol.envelope import ProtocolError
from ...protocol.framing import HEADER_BYTES, body_length, pack_bytes
from ...protocol.messages.common import Ok
from ...protocol.messages.index import SweepDone
from .database import Database
from .records import gitpast
from .records.common import DAY_MS, Rules
from .upkeep import now_ms
from .wiki import gitreader, vaultlog
from .wiki.gitreader import Failed, Look, More, Opened, Reply, Request, Rows, Step, Steps

log = logging.getLogger("recalld.writer")

COMMAND = (sys.executable, "-P", "-m", gitreader.__name__)
ANSWER_S = 600.0
"""For the longest single answer, the walk through a whole history."""
BREATH_S = 0.002
"""Between transactions, so that whoever waits for the database's thread or the processor comes first."""
KILL_S = 5.0
TRIES = 3
"""A repository that cannot be read now may be in the middle of a repack; one that never can is left alone."""
SETTLE_S = 8.0
"""How long whoever wants everything to be in the index waits for histories."""
ENDED = "the process that reads its git history ended"


class Stopped(Exception):
    """Raised when the reading process ended, or did not answer: the history is left for the next start."""


class PastTime:
    """``run`` until cancelled; ``swept`` takes the ends of sweeps. ``state`` says what is being read, '' when nothing."""

    def __init__(
        self, db: Database, config: Callable[[], Config], rules: Callable[[], Rules], woken: Callable[[], None]
    ):
        """``woken`` is called when there are texts to embed."""
        self.state = ""
        self.problems: dict[str, str] = {}
        """By the name of the folder: why its history was not read."""
        self.total = gitpast.Progress()
        self._db = db
        self._config = config
        self._rules = rules
        self._woken = woken
        self._due: dict[int, tuple[int, int] | None] = {}
        """Vaults to look at, and since when nobody had looked at them until when."""
        self._seen: set[int] = set()
        self._repositories: dict[int, tuple[str, ...]] = {}
        """By vault: its folders with a history, as they were found after the first sweep."""
        self._failed: dict[tuple[int, str], tuple[str, int]] = {}
        """By vault and folder: the commit at which reading did not get to the end, and how often."""
        self._wake = anyio.Event()
        self._idle = anyio.Event()

    def facts(self) -> dict[str, str]:
        """For status."""
        told = [self.state] if self.state else []
        if self.total.versions:
            told.append(f"{self.total.versions} versions of {self.total.notes} notes from git")
        problem = "; ".join(f"{name}: {why}" for name, why in sorted(self.problems.items()))
        return {"history": "; ".join((*told, problem) if problem else told), "history_problem": problem}

    async def swept(self, message: SweepDone) -> Ok:
        """Store that a vault was swept, and look at its history when that is worth it."""
        before = await self._db.run(gitpast.swept, message)
        first = message.vault_id not in self._seen
        self._seen.add(message.vault_id)
        if self._config().history.git and not message.suspended:
            blind = (before, message.at_ms) if first and before else None
            self._due[message.vault_id] = self._due.get(message.vault_id) or blind
            self._wake.set()
            if self._idle.is_set():
                self._idle = anyio.Event()
        return Ok()

    async def settle(self) -> None:
        """Return when nothing is due, or after SETTLE_S: long histories go on meanwhile."""
        with anyio.move_on_after(SETTLE_S):
            await self._idle.wait()

    async def run(self) -> None:
        while True:
            self._idle.set()
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._due:
                vault_id = next(iter(self._due))
                await self._look(vault_id, self._due.pop(vault_id))

    async def _look(self, vault_id: int, blind: tuple[int, int] | None) -> None:
        place = None
        try:
            place = await self._db.read(gitpast.place, vault_id)
            if place is None:
                return
            for folder in await self._folders(vault_id, place.root):
                await self._look_at(vault_id, folder, blind)
            self.problems.pop(place.name, None)
            self.total = await self._db.read(gitpast.total)
        except (vaultlog.Unusable, Stopped, ProtocolError, OSError) as error:
            name = place.name if place is not None else str(vault_id)
            if self.problems.get(name) != str(error):
                log.warning("%s: past versions from git are incomplete: %s", name, error)
            self.problems[name] = str(error)
        finally:
            self.state = ""

    async def _folders(self, vault_id: int, root: str) -> tuple[str, ...]:
        if vault_id not in self._repositories:
            ignore = self._config().watcher.ignore
            self._repositories[vault_id] = await anyio.to_thread.run_sync(
                vaultlog.repositories, root, ignore, abandon_on_cancel=True
            )
        return self._repositories[vault_id]

    async def _look_at(self, vault_id: int, folder: str, blind: tuple[int, int] | None) -> None:
        """One folder of a vault: read its history when that has another last commit than before."""
        place = await self._db.read(gitpast.place, vault_id)
        if place is None:
            return
        tip = await anyio.to_thread.run_sync(
            vaultlog.tip, os.path.join(place.root, folder) if folder else place.root, abandon_on_cancel=True
        )
        failed, times = self._failed.get((vault_id, folder), ("", 0))
        if not tip or tip == place.progress.tips.get(folder):
            return
        if failed == tip and times >= TRIES:
            raise Stopped(self.problems.get(place.name, ENDED))
        self.state = f"reading the git history of {place.name}"
        self._failed[vault_id, folder] = (tip, times + 1 if failed == tip else 1)
        await self._read(vault_id, place, folder, blind)
        del self._failed[vault_id, folder]

    async def _read(self, vault_id: int, place: gitpast.Place, folder: str, blind: tuple[int, int] | None) -> None:
        rules, config = self._rules(), self._config()
        limits = vaultlog.Limits(since_ms=now_ms() - rules.keep_days * DAY_MS)
        start = gitreader.start_of(
            place.root, folder, place.progress.tips.get(folder, ""), limits, rules.keep_versions,
            config.watcher.ignore, config.watcher.max_bytes, blind,
        )  # fmt: skip
        versions = fresh = done = 0
        async with reading() as reader:
            opened = await reader.ask(start)
            assert isinstance(opened, Opened)
            while isinstance(look := await reader.ask(More()), Look) and look.paths:
                steps = await reader.ask(Rows(await self._db.read(gitpast.known, vault_id, look.paths)))
                while isinstance(steps, Steps):
                    added, new = await self._carry_out(vault_id, steps.steps, rules)
                    versions, fresh = versions + added, fresh + new
                    if steps.last:
                        break
                    steps = await reader.next()
                self._woken()
                done = min(opened.notes, done + gitreader.PATHS)
                self.state = f"reading the git history of {place.name}: {done} of {opened.notes} notes"
        before = place.progress
        tips = {**before.tips, folder: opened.tip}
        progress = gitpast.Progress(tips, before.versions + versions, before.notes + fresh)
        await self._db.run(gitpast.remember, place.root, progress)
        if versions:
            log.info("%s: %d versions of %d notes from %d commits", place.name, versions, fresh, opened.commits)

    async def _carry_out(self, vault_id: int, steps: Sequence[Step], rules: Rules) -> tuple[int, int]:
        """Versions added, and notes that got their first."""
        versions = fresh = 0
        while steps:
            done = await self._db.run(gitpast.carry_out, vault_id, steps, rules)
            steps = steps[done.steps :]
            versions, fresh = versions + done.versions, fresh + done.notes
            await anyio.sleep(BREATH_S)
        return versions, fresh


class Reader:
    """The reading process, from its side of the pipes."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._send = process.stdin
        self._receive = BufferedByteReceiveStream(process.stdout)

    async def ask(self, request: Request) -> Reply:
        """Send a request and take its (first) reply. Raises Unusable, Stopped."""
        try:
            await self._send.send(pack_bytes(msgspec.msgpack.encode(request)))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise Stopped(ENDED) from error
        return await self.next()

    async def next(self) -> Reply:
        """Take one more reply. Raises Unusable, Stopped."""
        try:
            with anyio.fail_after(ANSWER_S):
                header = await self._receive.receive_exactly(HEADER_BYTES)
                reply = gitreader.decode_reply(await self._receive.receive_exactly(body_length(header)))
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise Stopped(ENDED) from error
        except TimeoutError as error:
            raise Stopped(f"reading its git history took more than {ANSWER_S:.0f} s") from error
        if isinstance(reply, Failed):
            raise vaultlog.Unusable(reply.reason)
        return reply


@asynccontextmanager
async def reading() -> AsyncIterator[Reader]:
    """A reading process for the time of the block."""
    process = await anyio.open_process(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield Reader(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.move_on_after(KILL_S, shield=True):
            await process.aclose()
