"""Asks a real index through the query actor's own classes, with a toy embedder in this process."""

from __future__ import annotations

import asyncio
import contextlib

import anyio
import numpy as np
from recalld.actors.query.answers import Answers
from recalld.actors.query.live import Live
from recalld.actors.query.reader import Reader
from recalld.memory.recall.params import Params
from recalld.protocol.envelope import TimedOut, Unavailable
from recalld.protocol.messages.embed import Embeddings, Rerank, Scores
from recalld.protocol.messages.recall import Recall

from .indexing import DIM, embed

ALL = ("writer", "query", "embedder", "watcher")


class ToyEmbedder:
    """
    Answers like the embedder does, or as ``fault`` says: 'down', 'silent', 'other model'.

    ``likes`` maps a word to what the cross-encoder gives a passage for having it; None = no cross-encoder is loaded.
    """

    def __init__(self, index) -> None:
        self.index = index
        self.fault = ""
        self.calls = 0
        self.likes = None
        self.reranker = "ab"
        self.reranks = []

    async def ask(self, body, *, budget_ms, trace=""):
        self.calls += 1
        if isinstance(body, Rerank):
            return await self.rerank(body)
        if self.fault == "down":
            raise Unavailable("the embedder is not there")
        if self.fault == "silent":
            await anyio.sleep_forever()
        model = self.index.model_id + (1 if self.fault == "other model" else 0)
        rows = np.stack([embed(text) for text in body.texts]).astype("<f4")
        return Embeddings(model_id=model, sha256="", dim=DIM, vectors=rows.tobytes())

    async def rerank(self, body):
        self.reranks.append(body)
        if self.fault == "late":
            raise TimedOut("no answer within the budget")
        if self.likes is None:
            return Scores(values=())
        if body.sha256 not in ("", self.reranker):
            return Scores(values=(), sha256=self.reranker)
        values = (sum(score for word, score in self.likes.items() if word in text) for text in body.passages)
        return Scores(values=tuple(float(value) for value in values), sha256=self.reranker)


class Desk:
    def __init__(self, index) -> None:
        self.index = index
        self.up = set(ALL)
        self.embedder = ToyEmbedder(index)
        self.live = Live(Reader(index.paths.database))
        self.answers = Answers(self.live, self.embedder, self.up, Params())

    async def ask(self, query, budget_ms=20_000, **more):
        return await self.answers.answer(Recall(query=query, **more), budget_ms)

    async def paths(self, query, **more):
        return [hit.path for hit in (await self.ask(query, **more)).hits]


@contextlib.asynccontextmanager
async def desk(index):
    made = Desk(index)
    # Not a task group: a fixture is entered and left in different tasks.
    running = asyncio.create_task(made.live.run())
    await made.live.loaded.wait()
    await made.live.refresh()  # the first answers do not wait for vectors; tests do
    try:
        yield made
    finally:
        await ended(running)
        await made.live.reader.aclose()


async def ended(task):
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
