"""The embedder's process: answers questions at once, fetches bulk work from the writer."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import anyio

from ...models.registry import ModelProblem
from ...protocol.config import Config
from ...protocol.envelope import Invalid
from ...protocol.messages import decode_embedder
from ...protocol.messages.common import Message, Ok
from ...protocol.messages.control import Vitals
from ...protocol.messages.embed import DescribeModel, Embed, Embeddings, LoadModel, ModelInfo, Rerank, Scores
from ...protocol.server import Handler, Server
from ..base import Env
from .bulk import Bulk
from .desk import Desk
from .lanes import Gate, QueryLane
from .numbers import NUMBERS, Numbers

MAX_TEXTS = 32
MAX_PASSAGES = 200
MAX_THREADS = 4
"""Each thread holds the activations of a batch; beyond four the writer is the limit."""


def bulk_threads(wanted: int, cores: int) -> int:
    """``wanted`` threads; 0 = all cores but one, at least one, at most MAX_THREADS."""
    return wanted or max(1, min(MAX_THREADS, cores - 1))


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Embedder:
    """See ``protocol.messages.embed`` for what it answers."""

    def __init__(self, env: Env) -> None:
        settings = env.config.embedder
        self._env = env
        self._gate = Gate()
        self._queries = QueryLane(self._gate)
        # Its own thread: twenty passages take as long as a hundred questions.
        self._reranks = QueryLane(self._gate)
        self._desk = Desk(env.paths.models, settings.batch)
        threads = bulk_threads(settings.threads, usable_cores())
        numbers = Numbers(env.paths.models / NUMBERS)
        self._bulk = Bulk(env.peer("writer"), self._desk, self._gate, settings, threads, numbers)
        self._server = Server(env.listeners["embedder"], decode_embedder, self.handlers(), name="embedder")

    def handlers(self) -> dict[type[Message], Handler]:
        return {Embed: self._embed, Rerank: self._rerank, LoadModel: self._load_model, DescribeModel: self._describe}

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve; the model loads meanwhile, and a question that needs it waits within its own budget."""
        settings = self._env.config.embedder
        self._desk.insist(settings.model)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._server.run)
                group.start_soon(self._desk.run)
                group.start_soon(self._bulk.run)
                group.start_soon(self._desk.quicken, self._may_quicken)
                group.start_soon(self._desk.rerank_with, settings.reranker)
                ready()
        finally:
            self._queries.close()
            self._reranks.close()

    async def _embed(self, message: Embed) -> Embeddings:
        if len(message.texts) > MAX_TEXTS:
            raise Invalid(f"at most {MAX_TEXTS} texts, not {len(message.texts)}")
        embedding = await self._desk.answering()
        found = await self._queries.run(embedding.embed, message.texts, query=True)
        self._desk.questioned()
        for row, error in found.errors.items():
            raise Invalid(f"text {row} cannot be embedded: {error}")
        return Embeddings(
            model_id=self._bulk.numbers.of(embedding.model.spec.sha256),
            sha256=embedding.model.spec.sha256,
            dim=embedding.dim,
            vectors=found.vectors.astype("<f4", copy=False).tobytes(),
        )

    async def _rerank(self, message: Rerank) -> Scores:
        reranker = self._desk.reranker
        if reranker is None or not message.passages or message.sha256 not in ("", reranker.sha256):
            return Scores(values=(), sha256=reranker.sha256 if reranker is not None else "")
        left = threading.Event()
        try:
            passages = message.passages[:MAX_PASSAGES]
            scores = await self._reranks.run(reranker.score, message.query, passages, left.is_set)
        finally:
            left.set()  # whoever asked may be gone: the thread is for the next one
        return Scores(values=tuple(scores), sha256=reranker.sha256)

    async def _load_model(self, message: LoadModel) -> Ok:
        try:
            self._desk.want(message.name)
        except ModelProblem as problem:
            raise Invalid(str(problem)) from None
        return Ok()

    async def _describe(self, message: DescribeModel) -> ModelInfo:
        return self._desk.describe()

    def _may_quicken(self) -> bool:
        """There is a second core, and nothing is being indexed."""
        return usable_cores() > 1 and self._bulk.is_idle()

    def vitals(self) -> Vitals:
        desk, bulk = self._desk, self._bulk
        problems = "; ".join(filter(None, (desk.problem, desk.reranker_problem)))
        # While a model answers, one that could not be loaded is no reason to expect no vectors.
        blocking = desk.problem if desk.embedding is None else ""
        busy_ms = int((time.monotonic() - bulk.busy_since) * 1000) if bulk.busy_since is not None else 0
        return Vitals(
            busy_op="embed" if bulk.busy_since is not None else "",
            busy_ms=busy_ms,
            queues={
                **self._server.stats(),
                "questions": self._queries.stat(),
                "reranks": self._reranks.stat(),
                "claimed": bulk.stat(),
            },
            figures={
                "vectors_total": bulk.vectors_total,
                "failed_chunks_total": bulk.failed_total,
                "chunks_per_s": bulk.chunks_per_s(),
                "queries_total": self._queries.total,
                "query_p50_ms": self._queries.p50_ms(),
                "model_loaded": float(desk.embedding is not None),
            },
            facts={
                "model": desk.name,
                "model_sha256": desk.identity,
                "problem": blocking,
                **({"last_error": problems} if problems else {}),
            },
        )

    async def configure(self, config: Config) -> None:
        """
        Take up another model, sentences on or off, another reranker, or the same once more if it could not be loaded.
        Threads and batch size wait for a restart.
        """
        before, after = self._bulk.settings, config.embedder
        self._bulk.settings = after
        if after.model != before.model:
            self._desk.insist(after.model)
        if after.reranker != before.reranker or self._desk.reranker_problem:
            await self._desk.rerank_with(after.reranker)

    async def pause(self, paused: bool) -> None:
        self._bulk.pause(paused)
