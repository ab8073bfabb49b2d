"""The query actor: recall over sockets. It reads the index and asks the embedder; it owns nothing that is on disk."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import anyio

from ...memory.recall.params import Params
from ...protocol.config import Config, ConfigError
from ...protocol.envelope import TimedOut
from ...protocol.messages import decode_query
from ...protocol.messages.common import Message
from ...protocol.messages.control import QueueStat, Vitals
from ...protocol.messages.recall import (
    Answer,
    Caught,
    DescribeIndex,
    IndexReport,
    Lint,
    LintReport,
    NotFound,
    ReadNote,
    Recall,
    Recent,
    RecentNotes,
    Related,
    WaitFor,
)
from ...protocol.server import Server
from .. import heap
from ..base import BootFailure, Env
from ..sqlite import version_problem
from . import documents, linting
from .answers import Answers
from .live import Live
from .mcp.session import Sessions
from .ranking import ranking_params
from .reader import WAITING_MAX, NoIndex, Reader
from .reranking import settings
from .streams.notes import revision as _revision

SWITCH_S = 0.001
"""Threads hand over the interpreter after 1 ms: an event loop that waits 5 ms for it answers too late."""
WAIT_MAX_MS = 60_000

log = logging.getLogger("recalld.query")


class QueryActor:
    """Serves ``query.sock`` and ``mcp.sock``."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.reader = Reader(env.paths.database)
        self.live = Live(self.reader)
        self.answers = Answers(self.live, env.peer("embedder"), env.up, _params(env))
        self.answers.reranking.settings = settings(env.config, env.paths)
        self.sessions = Sessions(self.ask, env)
        self.handlers: Mapping[type[Message], Callable[..., Awaitable[Message]]] = {
            Recall: self.recall,
            ReadNote: self.read_note,
            Related: self.related,
            Recent: self.recent,
            DescribeIndex: self.describe,
            Lint: self.lint,
            WaitFor: self.wait_for,
        }
        self.server = Server(env.listeners["query"], decode_query, self.handlers, name="query")

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until cancelled. The index is loaded beside: first answers wait for it, the socket does not."""
        if problem := version_problem():
            raise BootFailure(problem)
        sys.setswitchinterval(SWITCH_S)
        heap.tune()
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self.live.run)
                group.start_soon(self.server.run)
                # Bridges learn at once that somebody is here, and hold their calls instead of degrading them.
                serve = partial(self.sessions.serve, self.env.listeners["mcp"], after=self.live.loaded)
                group.start_soon(serve)
                ready()
        finally:
            with anyio.move_on_after(3, shield=True):
                await self.reader.aclose()

    async def recall(self, ask: Recall) -> Answer:
        return await self.answers.answer(ask, self.budget_ms)

    async def read_note(self, ask: ReadNote) -> Message:
        return await self._read(lambda conn: documents.read_note(conn, self.live.view, ask), NotFound(ref=ask.ref))

    async def related(self, ask: Related) -> Message:
        return await self._read(lambda conn: documents.related(self.live.view, ask), NotFound(ref=ask.ref))

    async def recent(self, ask: Recent) -> Message:
        return await self._read(lambda conn: documents.recent(self.live.view, ask), RecentNotes(items=()))

    async def describe(self, ask: DescribeIndex) -> Message:
        nothing = IndexReport(notes=0, chunks=0, vectors=0, links=0)
        return await self._read(lambda conn: documents.describe(conn, self.live.view, ask), nothing)

    async def lint(self, ask: Lint) -> Message:
        nothing = LintReport(findings=(), counts={}, warnings=0, notes=0)
        return await self._read(lambda conn: linting.lint(conn, self.live.view, ask), nothing)

    async def wait_for(self, ask: WaitFor) -> Caught:
        with anyio.move_on_after(WAIT_MAX_MS / 1000):
            await self.live.catch_up(ask.revision)
        if self.live.view.revision < ask.revision:
            raise TimedOut(f"revision {ask.revision} was not reached; the index is at {self.live.view.revision}")
        return Caught(revision=self.live.view.revision)

    async def ask(self, body: Message, /, *, budget_ms: int, trace: str = "") -> Message:
        """For MCP sessions: what ``query.sock`` answers is answered here, everything about capture by the writer."""
        if isinstance(body, Recall):
            return await self.answers.answer(body, budget_ms)
        handler = self.handlers.get(type(body))
        if handler is None:
            return await self.env.peer("writer").ask(body, budget_ms=budget_ms, trace=trace)
        with anyio.move_on_after(budget_ms / 1000):
            return await handler(body)
        raise TimedOut(f"{type(body).__name__} was not done within {budget_ms} ms")

    def vitals(self) -> Vitals:
        view = self.live.view
        waiting = QueueStat(
            depth=self.reader.waiting, peak=self.reader.peak, limit=WAITING_MAX, policy="refuse",
            refused=self.reader.refused,
        )  # fmt: skip
        matrix = view.matrix
        return Vitals(
            queues={"query readers": waiting, **self.server.stats()},
            figures={
                "notes": len(view.cards),
                "chunks": len(view.chunks),
                "revision": view.revision,
                "vector_notes": matrix.notes if matrix is not None else 0,
                "vector_bytes": matrix.nbytes() if matrix is not None else 0,
                **self.answers.figures(),
                **self.sessions.figures(),
            },
            facts={"index": self.live.absent},
            recent=tuple(self.answers.recent),
        )

    async def configure(self, config: Config) -> None:
        self.answers.reranking.settings = settings(config, self.env.paths)
        try:
            self.answers.params = ranking_params(config, self.env.paths)
        except ConfigError as error:
            log.error("the changed ranking is not taken up: %s", error)

    async def pause(self, paused: bool) -> None:
        """Recall goes on while indexing is paused."""

    @property
    def budget_ms(self) -> int:
        return self.env.config.recall.budget_ms

    async def _read(self, function: Callable[..., Message], nothing: Message) -> Message:
        """``function`` on a reader's connection, after the view caught up; ``nothing`` when there is no index."""
        await self.live.loaded.wait()
        try:
            await self.live.catch_up(await self.reader.run(_revision, self.budget_ms))
            return await self.reader.run(function, self.budget_ms)
        except NoIndex:
            return nothing


def _params(env: Env) -> Params:
    try:
        return ranking_params(env.config, env.paths)
    except ConfigError as error:
        raise BootFailure(str(error)) from None
