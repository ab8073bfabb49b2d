"""
Indexing: claim chunks from the writer, embed them, hand the vectors back.

One claim is always on its way while another is being embedded and a third is being stored, so that the model never waits
for the writer. The writer may go away at any time: what it had leased it leases again.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from ...protocol.config import Embedder as Settings
from ...protocol.envelope import ProtocolError
from ...protocol.messages import AnyReply
from ...protocol.messages.common import Message
from ...protocol.messages.control import QueueStat
from ...protocol.messages.index import (
    ClaimChunks,
    Claimed,
    EmbeddedChunk,
    FailChunks,
    ModelInUse,
    PendingChunk,
    StoreVectors,
    UseModel,
)
from .. import heap
from .desk import Desk
from .lanes import BulkLane, Gate, Rate
from .numbers import Numbers
from .passages import packed, pieces
from .session import Embedding

log = logging.getLogger("recalld.embedder")

CLAIM_S = 1.5
"""Seconds of work in one claim: long enough to hide the writer's round trip, short enough that vectors appear steadily."""
CLAIM_MIN, CLAIM_MAX, CLAIM_FIRST = 4, 64, 8
IDLE_S = 2.0
"""Without work for longer than between two claims: nothing is being indexed."""
LEASE_MS = 60_000
WAIT_MS = 10_000
CLAIM_BUDGET_MS = WAIT_MS + 5_000
CALL_BUDGET_MS = 10_000
BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits between attempts while the writer is away. It restarts in a fraction of a second."""


class Work(msgspec.Struct, frozen=True):
    """One claim, and the writer's number for the model that it is for."""

    model_id: int
    chunks: tuple[PendingChunk, ...]


Batch = tuple[list[EmbeddedChunk], dict[bytes, str]]


class Asks(Protocol):
    """What is needed of a peer."""

    async def ask(self, body: Message, *, budget_ms: int) -> AnyReply: ...


class Bulk:
    """The indexing side of the embedder. ``run`` until cancelled; the rest is called from the same loop."""

    def __init__(
        self, writer: Asks, desk: Desk, gate: Gate, settings: Settings, threads: int, numbers: Numbers | None = None
    ) -> None:
        self._writer = writer
        self._desk = desk
        self._gate = gate
        self._threads = threads
        self._lane = BulkLane(threads)
        self._storing = anyio.Semaphore(2 * threads)
        self._resumed = anyio.Event()
        self._resumed.set()
        self._claiming: anyio.CancelScope | None = None
        self._claim = CLAIM_FIRST
        self._waiting = 0
        self._waiting_peak = 0
        self._rate = Rate()
        self.settings = settings
        self.numbers = numbers or Numbers(None)
        self.vectors_total = 0
        self.failed_total = 0
        self.busy_since: float | None = None
        self._worked = -IDLE_S

    async def run(self) -> None:
        """Index with the model that answers; begin again whenever another one does."""
        try:
            while True:
                changed = self._desk.changed
                embedding = self._desk.embedding
                if embedding is None:
                    await changed.wait()
                    continue
                await self._index(embedding, changed)
        finally:
            self._lane.close()

    def pause(self, paused: bool) -> None:
        """
        Claim nothing more until resumed; what was claimed is finished, also what a claim that is under way may bring.

        To abandon a claim would leave its chunks leased, and count as a try on them.
        """
        if paused and self._resumed.is_set():
            self._resumed = anyio.Event()
        elif not paused:
            self._resumed.set()

    def is_idle(self) -> bool:
        """Nothing is being indexed, and was not in the last IDLE_S."""
        return self.busy_since is None and time.monotonic() - self._worked > IDLE_S

    def chunks_per_s(self) -> float:
        return self._rate.per_s(time.monotonic())

    def stat(self) -> QueueStat:
        return QueueStat(depth=self._waiting, peak=self._waiting_peak, limit=self._threads, policy="wait")

    def _interrupt(self) -> None:
        if self._claiming is not None:
            self._claiming.cancel()

    async def _index(self, embedding: Embedding, changed: anyio.Event) -> None:
        send, receive = anyio.create_memory_object_stream[Work](self._threads - 1)
        async with anyio.create_task_group() as group, receive:
            group.start_soon(self._interrupt_on, changed)
            async with anyio.create_task_group() as workers, send:
                for _ in range(self._threads):
                    workers.start_soon(self._work, embedding, receive.clone())
                await self._feed(embedding, changed, send)
                await send.aclose()
            group.cancel_scope.cancel()

    async def _interrupt_on(self, changed: anyio.Event) -> None:
        await changed.wait()
        self._interrupt()

    async def _feed(self, embedding: Embedding, changed: anyio.Event, send: MemoryObjectSendStream[Work]) -> None:
        """Claim, ahead of the workers, until another model answers."""
        failures = model_id = 0
        while not changed.is_set():
            try:
                with anyio.CancelScope() as self._claiming:
                    await self._resumed.wait()
                    model_id = model_id or await self._introduce(embedding)
                    claimed = await self._next(model_id)
                if self._claiming.cancelled_caught:
                    await anyio.lowlevel.checkpoint()
                    continue
            except ProtocolError as error:
                if error.code == "conflict":
                    # The writer has another database than it had: it must hear of the model again.
                    model_id = 0
                await self._back_off(failures, changed, error)
                failures += 1
                continue
            finally:
                self._claiming = None
            failures = 0
            if claimed.chunks:
                self._waiting += 1
                self._waiting_peak = max(self._waiting_peak, self._waiting)
                await send.send(Work(model_id, claimed.chunks))

    async def _back_off(self, failures: int, changed: anyio.Event, error: ProtocolError) -> None:
        if failures == len(BACKOFF_S):
            log.warning("no chunks to embed: %s", error.text)
        with anyio.move_on_after(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]):
            await changed.wait()

    async def _introduce(self, embedding: Embedding) -> int:
        spec = embedding.model.spec
        message = UseModel(name=spec.name, sha256=spec.sha256, dim=embedding.dim, instance=str(os.getpid()))
        reply = await self._writer.ask(message, budget_ms=CALL_BUDGET_MS)
        assert isinstance(reply, ModelInUse)
        await self.numbers.learn(spec.sha256, reply.model_id)
        return reply.model_id

    async def _next(self, model_id: int) -> Claimed:
        message = ClaimChunks(model_id=model_id, limit=self._claim, lease_ms=LEASE_MS, wait_ms=WAIT_MS)
        reply = await self._writer.ask(message, budget_ms=CLAIM_BUDGET_MS)
        assert isinstance(reply, Claimed)
        return reply

    async def _work(self, embedding: Embedding, receive: MemoryObjectReceiveStream[Work]) -> None:
        async with receive, anyio.create_task_group() as storing:
            async for work in receive:
                self._waiting -= 1
                self.busy_since = started = time.monotonic()
                stored, failed = await self._lane.run(self._embed, embedding, work.chunks)
                self.busy_since, self._worked = None, time.monotonic()
                self._pace(len(work.chunks), started)
                await self._storing.acquire()
                storing.start_soon(self._store, work.model_id, stored, failed)
                if not self._waiting:
                    await self._lane.run(heap.trim)

    def _embed(self, embedding: Embedding, chunks: tuple[PendingChunk, ...]) -> Batch:
        """On a bulk thread. Never raises: what fails, fails as chunks."""
        try:
            found = pieces(chunks, with_sentences=self.settings.sentences)
            done = embedding.embed([piece.text for piece in found], between=self._gate.step_aside)
            return packed(chunks, found, done.vectors, done.errors)
        except Exception as error:  # a bug must cost these chunks a try, not the process
            log.exception("embedding failed")
            return [], {chunk.hash: f"{type(error).__name__}: {error}" for chunk in chunks}

    def _pace(self, chunks: int, started: float) -> None:
        now = time.monotonic()
        took_s = now - started
        self._rate.add(chunks, started, now)
        fitting = int(chunks / max(took_s, 1e-3) * CLAIM_S)
        # A claim that was not full says little about how long a full one takes.
        if chunks >= self._claim or fitting < self._claim:
            self._claim = max(CLAIM_MIN, min(CLAIM_MAX, fitting))

    async def _store(self, model_id: int, stored: list[EmbeddedChunk], failed: dict[bytes, str]) -> None:
        try:
            if stored:
                await self._deliver(StoreVectors(model_id=model_id, chunks=tuple(stored)))
                self.vectors_total += sum(len(chunk.vectors) for chunk in stored)
            for error in dict.fromkeys(failed.values()):
                hashes = tuple(key for key, text in failed.items() if text == error)
                self.failed_total += len(hashes)
                log.warning("%d chunks could not be embedded: %s", len(hashes), error)
                await self._deliver(FailChunks(hashes=hashes, error=error))
        finally:
            self._storing.release()

    async def _deliver(self, message: Message) -> None:
        """Ask until answered or the lease has ended: then somebody else has the chunks, and these vectors are dropped."""
        deadline = time.monotonic() + LEASE_MS / 1000
        failures = 0
        while time.monotonic() < deadline:
            try:
                await self._writer.ask(message, budget_ms=CALL_BUDGET_MS)
                return
            except ProtocolError as error:
                if error.code == "conflict":
                    log.info("vectors of another model than the one in use are dropped")
                    return
                if error.code not in ("unavailable", "overloaded", "timeout"):
                    log.error("the writer refused %s: %s", type(message).__name__, error.text)
                    return
            await anyio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
