"""
The writer: the only process that changes the index, the journal and the wiki.

Handlers hand each message to one function that runs in one transaction, and answer when it is committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import anyio
import anyio.abc
import anyio.to_thread

from ...memory.redact import BadPattern
from ...protocol.config import Config
from ...protocol.envelope import ProtocolError
from ...protocol.messages import decode_writer
from ...protocol.messages.common import Message, Ok
from ...protocol.messages.control import Vitals
from ...protocol.messages.index import (
    AwaitIndex,
    Backup,
    ClaimChunks,
    Claimed,
    CloseVault,
    DropNotes,
    FailChunks,
    IndexBirth,
    Indexed,
    Maintain,
    Maintained,
    ModelInUse,
    MoveNotes,
    OpenVault,
    Reindex,
    Settle,
    Settled,
    StoreVectors,
    SweepDone,
    TouchNotes,
    UpsertNotes,
    UseModel,
    VaultState,
)
from ...protocol.server import Handler, Server
from ..base import BootFailure, Env
from ..sqlite import version_problem
from . import figures
from .claims import MAX_WAIT_MS, Claims
from .database import Database
from .disk import OnlyOne
from .ingest import Ingest
from .opening import remove_unfinished
from .pasttime import PastTime
from .records import maintenance, notes, vaults, vectors
from .records.common import Rules
from .upkeep import Upkeep, now_ms
from .wallclock import WallClock, elapsed_ms

log = logging.getLogger("recalld.writer")

CLOSE_STEP = 200
"""Notes of a removed vault that are forgotten per transaction."""
COUNT_S = 1.0
COUNT_SHARE = 0.05
"""Counting for status takes at most this share of the database thread."""
STOP_S = 8.0
"""Within the grace that the supervisor gives to this actor."""


class Writer:
    """See the module's docstring; ``handlers`` has one coroutine for every member of WriterRequest."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.db = Database(env.paths.database)
        self.claims = Claims()
        self.clock = WallClock()
        self.ingest = Ingest(env, self.db, self.clock)
        self.ingest.index.indexed = self._pages_indexed
        self.counts = maintenance.Counts()
        self.upkeep = Upkeep(self.db, env.paths, self.ingest.wiki.pack)
        self.past = PastTime(self.db, lambda: self.env.config, lambda: self.rules, self.claims.wake)
        self.handlers: dict[type[Message], Handler] = {
            OpenVault: self.open_vault,
            CloseVault: self.close_vault,
            UpsertNotes: self.upsert_notes,
            MoveNotes: self.move_notes,
            TouchNotes: self.touch_notes,
            DropNotes: self.drop_notes,
            SweepDone: self.sweep_done,
            UseModel: self.use_model,
            ClaimChunks: self.claim_chunks,
            StoreVectors: self.store_vectors,
            FailChunks: self.fail_chunks,
            AwaitIndex: self.await_index,
            Settle: self.settle,
            Maintain: self.maintain,
            Reindex: self.reindex,
            Backup: self.backup,
            **self.ingest.handlers,
        }
        self._born = anyio.Event()
        self._server: Server | None = None
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def rules(self) -> Rules:
        return self.clock.rules(self.env.config)

    async def run(self, ready: Callable[[], None]) -> None:
        if problem := version_problem():
            raise BootFailure(problem)
        lock = OnlyOne(self.env.paths.data)
        await lock.acquire()
        try:
            await anyio.to_thread.run_sync(remove_unfinished, self.env.paths.database)
            self.db.reborn = self._reborn
            await self.db.open()
            await self._serve(ready)
        finally:
            with anyio.move_on_after(STOP_S, shield=True):
                await self.db.aclose()
            lock.release()

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._server = Server(self.env.listeners["writer"], decode_writer, self.handlers, name="writer")
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._server.run)
            group.start_soon(self.ingest.run, self.env.listeners["events"])
            group.start_soon(self._count)
            group.start_soon(self.upkeep.first_check)
            group.start_soon(self.past.run)
            ready()

    async def configure(self, config: Config) -> None:
        try:
            self.ingest.configure(config)
            await self.db.run(vectors.follow_config, self.rules.embed)
        except (BadPattern, ProtocolError) as error:
            log.error("the changed configuration is not taken up: %s", error)

    async def pause(self, paused: bool) -> None:
        """The embedder and the watcher pause by themselves; what they still send is taken."""

    # --- the index

    async def open_vault(self, m: OpenVault) -> VaultState:
        return await self.db.run(vaults.open_vault, m)

    async def close_vault(self, m: CloseVault) -> Ok:
        while await self.db.run(vaults.close_vault, m.root, CLOSE_STEP):
            pass
        return Ok()

    async def upsert_notes(self, m: UpsertNotes) -> Indexed:
        return self._indexed(await self.db.run(notes.upsert_notes, m, now_ms(), self.rules))

    async def move_notes(self, m: MoveNotes) -> Indexed:
        return self._indexed(await self.db.run(notes.move_notes, m, now_ms(), self.rules))

    async def touch_notes(self, m: TouchNotes) -> Ok:
        return await self.db.run(notes.touch_notes, m)

    async def drop_notes(self, m: DropNotes) -> Indexed:
        return self._indexed(await self.db.run(notes.drop_notes, m, now_ms(), self.rules))

    async def sweep_done(self, m: SweepDone) -> Ok:
        return await self.past.swept(m)

    async def use_model(self, m: UseModel) -> ModelInUse:
        answer = await self.db.run(vectors.use_model, m, now_ms())
        self.claims.wake()
        return answer

    async def claim_chunks(self, m: ClaimChunks) -> Claimed:
        return await self.claims.wait(lambda: self.db.run(vectors.claim_chunks, m, elapsed_ms()), m.wait_ms)

    async def store_vectors(self, m: StoreVectors) -> Indexed:
        return await self.db.run(vectors.store_vectors, m)

    async def fail_chunks(self, m: FailChunks) -> Ok:
        answer = await self.db.run(vectors.fail_chunks, m)
        self.claims.wake()
        return answer

    async def await_index(self, m: AwaitIndex) -> IndexBirth:
        with anyio.move_on_after(min(m.wait_ms, MAX_WAIT_MS) / 1000):
            while self.db.birth == m.birth:
                await self._born.wait()
        return IndexBirth(birth=self.db.birth, vaults=await self.db.read(vaults.open_roots))

    async def settle(self, m: Settle) -> Settled:
        await self.ingest.settle()
        await self.past.settle()
        self.counts = await self.db.read(maintenance.counts)
        return await self.db.read(maintenance.settled)

    # --- upkeep

    async def maintain(self, m: Maintain) -> Maintained:
        return Maintained(report=await self.upkeep.maintain(m.what, self.rules))

    async def reindex(self, m: Reindex) -> Ok:
        assert self._group is not None
        self._group.start_soon(self.upkeep.reindex, self.upkeep.begin("reindex"), self.rules)
        return Ok()

    async def backup(self, m: Backup) -> Maintained:
        return Maintained(report=await self.upkeep.backup(m))

    # --- status

    def vitals(self) -> Vitals:
        server = self._server.stats() if self._server else {}
        queues = {**server, **self.db.stats(), **self.ingest.stats()}
        return figures.vitals(
            self.db, self.counts, self.upkeep, self.claims, self.ingest, queues, now_ms(), history=self.past.facts()
        )

    async def _count(self) -> None:
        """Keep ``counts`` current while the index changes, without taking much of the thread's time for it."""
        seen = -1
        while True:
            took = 0.0
            if seen != (seen := self.db.functions_total):
                took = await self._recount()
            await anyio.sleep(max(COUNT_S, took / COUNT_SHARE))

    async def _recount(self) -> float:
        started = time.monotonic()
        try:
            self.counts = await self.db.read(maintenance.counts)
        except ProtocolError as error:
            log.info("the index cannot be counted: %s", error.text)
        return time.monotonic() - started

    def _indexed(self, indexed: Indexed) -> Indexed:
        if indexed.pending:
            self.claims.wake()
        return indexed

    def _pages_indexed(self, indexed: Indexed) -> None:
        self._indexed(indexed)

    def _reborn(self, why: str) -> None:
        """Another database is open: what the journal knows is applied to it; watcher and embedder meet a Conflict."""
        self.ingest.reborn()
        self.claims.wake()
        self._born.set()
        self._born = anyio.Event()
