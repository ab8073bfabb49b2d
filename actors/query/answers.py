"""
Runs the steps of a question on threads and connections, with whatever is up.

Nothing here ranks or reads; it decides what runs where, and what an answer has to admit.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Self

import anyio
import numpy as np

from ...memory.recall.params import Params
from ...memory.recall.rank import Ranking
from ...protocol.envelope import ProtocolError, TimedOut
from ...protocol.messages.embed import Embed, Embeddings
from ...protocol.messages.recall import Answer, Hit, RawEvent, Recall, Stream
from ..health import plan
from ..sqlite import sqlite3
from . import recall as steps
from .catalog import View
from .filters import NOWHERE, place_of
from .live import Live
from .quantised import Floats
from .reader import NoIndex
from .reranking import Embedder, Reranking
from .streams import events, fulltext, notes

log = logging.getLogger("recalld.query")

EMBED_BUDGET_MS = 400
"""A question is embedded in 3-7 ms; past this the answer goes without, and says so."""
EMBEDDED_KEPT = 512
"""Embeddings of questions that are kept: 0.8 MB at 384 dimensions."""
TIMES_KEPT = 256
RECENT_KEPT = 10


class Embedded:
    """Embeddings of questions, most recently used last. One model at a time."""

    def __init__(self, limit: int = EMBEDDED_KEPT) -> None:
        self._limit = limit
        self.model_id = 0
        self._known: OrderedDict[str, Floats] = OrderedDict()

    def get(self, model_id: int, text: str) -> Floats | None:
        if model_id != self.model_id or text not in self._known:
            return None
        self._known.move_to_end(text)
        return self._known[text]

    def put(self, model_id: int, text: str, vector: Floats) -> None:
        if model_id != self.model_id:
            self._known.clear()
            self.model_id = model_id
        self._known[text] = vector
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


_Concluded = tuple[Ranking, tuple[steps.Found, ...], tuple[RawEvent, ...]]


class _Begun(NamedTuple):
    """A question as far as it needs no model."""

    asked: steps.Asked
    words: steps.Words | None
    concluded: _Concluded | None
    """With what answers it, where no vectors are waited for."""


class _Early:
    """Hands a question's probes from the reader's thread to the loop, to be embedded while text is still looked for."""

    def __init__(self, take: Callable[[Sequence[str]], object]) -> None:
        self._take: Callable[[Sequence[str]], object] | None = take
        self._loop = asyncio.get_running_loop()

    def say(self, probes: Sequence[str]) -> None:
        """On the reader's thread."""
        self._loop.call_soon_threadsafe(self._taken, probes)

    def _taken(self, probes: Sequence[str]) -> None:
        if self._take is not None:
            self._take(probes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody waits any more: a question that was given up leaves its reader's thread behind for a moment."""
        self._take = None


class Answers:
    """Answers Recall from ``live``; ``up`` says which actors run."""

    def __init__(self, live: Live, embedder: Embedder, up: Collection[str], params: Params) -> None:
        self.live = live
        self.params = params
        self.text_params = fulltext.TextParams()
        self.total = 0
        self.recent: deque[str] = deque(maxlen=RECENT_KEPT)
        self.reranking = Reranking(embedder, up)
        self._embedder = embedder
        self._up = up
        self._embedded = Embedded()
        self._frequencies = fulltext.Frequencies()
        self._times: deque[float] = deque(maxlen=TIMES_KEPT)

    async def answer(self, recall: Recall, budget_ms: int) -> Answer:
        """The answer; degraded rather than an error wherever something is left to answer from. Raises Invalid, TimedOut."""
        started = time.perf_counter()
        deadline = time.monotonic() + budget_ms / 1000
        chosen = plan(self._up, recall.streams)
        degraded = list(chosen.degraded)
        if not self.live.loaded.is_set():
            with anyio.move_on_after(budget_ms / 1000):
                await self.live.loaded.wait()
        try:
            (asked, words, concluded), queries = await self._prepare(recall, chosen.streams, deadline)
            if "vector" in chosen.streams and queries is None:
                degraded.append("vector")
            if concluded is None:
                concluded = await self.live.reader.run(
                    lambda conn: self._conclude(conn, asked, words, queries), _left_ms(deadline)
                )
            ranking, found, raw = concluded
            left_ms = int((deadline - time.monotonic()) * 1000)
            ordered = await self.reranking.order(asked.question.text, found, asked.params, left_ms)
            if ordered is None:
                degraded.append("reranker")
            hits = tuple(one.hit for one in (found if ordered is None else ordered)[: asked.k])
        except NoIndex as error:
            return Answer(hits=(), degraded=(*degraded, "index"), known=False, note=_sentence(str(error)),
                          read_only=chosen.read_only, took_ms=_since(started))  # fmt: skip
        took = _since(started)
        self._count(recall, took, hits)
        return steps.finish(
            asked,
            ranking,
            hits,
            degraded,
            raw_events=raw,
            took_ms=took,
            read_only=chosen.read_only,
            stale_for_ms=_stale_ms(asked.view) if chosen.may_be_stale else 0,
            note=_note(asked, ranking, degraded, chosen.may_be_stale),
        )

    def figures(self) -> dict[str, float]:
        """For vitals."""
        ordered = sorted(self._times)
        at = {"p50": 0.5, "p99": 0.99}
        return {
            "recalls_total": self.total,
            "reranked_total": self.reranking.total,
            **{f"recall_{name}_ms": ordered[int(q * (len(ordered) - 1))] for name, q in at.items() if ordered},
        }

    async def _prepare(
        self, recall: Recall, streams: Sequence[Stream], deadline: float
    ) -> tuple[_Begun, Floats | None]:
        """What can be done without the model, and the question's vectors: the model works while SQLite does."""
        vectors: dict[str, Floats] = {}
        question = steps.question_of(recall)

        async def embed(texts: Sequence[str]) -> None:
            vectors.update(await self._embed(texts, deadline))

        try:
            async with anyio.create_task_group() as group:
                if "vector" in streams:
                    group.start_soon(embed, (question,))
                with _Early(lambda probes: group.start_soon(embed, probes)) as early:
                    begun = await self._begin(recall, streams, deadline, early)
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None
        matrix = begun.asked.view.matrix
        usable = matrix is not None and matrix.model_id == self._embedded.model_id
        if not usable or question not in vectors:
            return begun, None
        return begun, np.stack([vectors[part] for part in begun.asked.texts if part in vectors])

    async def _begin(self, recall: Recall, streams: Sequence[Stream], deadline: float, early: _Early) -> _Begun:
        """
        Take the question apart and find text, on a reader, after the view has caught up with what that reader sees; where no
        vectors are waited for, conclude. Raises NoIndex.
        """
        when = steps.as_of_ms(recall)
        past = await self.live.at(when) if when is not None else None

        def step(conn: sqlite3.Connection, last: bool) -> _Begun | None:
            if not (past or last or self.live.is_fresh(notes.revision(conn))):
                return None
            place = place_of(recall.cwd, events.projects(conn)) if recall.cwd else NOWHERE
            asked = steps.prepare(past or self.live.view, recall, streams, place, self.params, datetime.date.today())
            if "vector" in asked.streams and asked.question.probes:
                early.say(asked.question.probes)
            asked = asked._replace(depth=self.reranking.depth(asked.params))
            words = self._text(conn, asked) if "text" in asked.streams else None
            return _Begun(asked, words, None if "vector" in streams else self._conclude(conn, asked, words, None))

        for last in (False, True):
            found = await self.live.reader.run(lambda conn, last=last: step(conn, last), _left_ms(deadline))  # type: ignore[misc]
            if found is not None and not self.live.absent:
                return found
            # Trigger: so much comes in, or so much is loaded anew, that catching up takes longer than the question may.
            # Why: what the view knows is worth more than no answer. Outcome: half of the time is left to answer from it.
            left_s = _left_ms(deadline) / 1000
            with anyio.move_on_after(left_s / 2 if self.live.is_usable else left_s):
                await self.live.refreshed()
        raise NoIndex(self.live.absent or "the index is being loaded")

    def _text(self, conn: sqlite3.Connection, asked: steps.Asked) -> steps.Words:
        return steps.gather_text(conn, asked, self._frequencies, self.text_params)

    def _conclude(
        self, conn: sqlite3.Connection, asked: steps.Asked, words: steps.Words | None, queries: Floats | None
    ) -> _Concluded:
        similar = steps.gather_vectors(conn, asked, queries) if queries is not None else ()
        evidence, ranking = steps.weigh(asked, words, similar)
        found = steps.find(conn, asked, evidence, ranking)
        raw = steps.raw_events(conn, asked) if not ranking.known and "text" in asked.streams else ()
        return ranking, found, raw

    async def _embed(self, texts: Sequence[str], deadline: float) -> dict[str, Floats]:
        """Vectors of those texts that the embedder had an answer for in time."""
        matrix = self.live.view.matrix
        if matrix is None:
            return {}
        known = {text: vector for text in texts if (vector := self._embedded.get(matrix.model_id, text)) is not None}
        absent = tuple(text for text in texts if text not in known)
        if not absent:
            return known
        budget_ms = min(EMBED_BUDGET_MS, _left_ms(deadline))
        try:
            reply = await self._embedder.ask(Embed(texts=absent), budget_ms=budget_ms)
        except ProtocolError as error:
            log.warning("answering without vectors: %s", error.text)
            return known
        if not isinstance(reply, Embeddings) or reply.model_id != matrix.model_id or reply.dim != matrix.dim:
            return known
        rows = np.frombuffer(reply.vectors, "<f4").reshape(len(absent), matrix.dim)
        for text, row in zip(absent, rows, strict=True):
            known[text] = row
            self._embedded.put(matrix.model_id, text, row)
        return known

    def _count(self, recall: Recall, took: float, hits: tuple[Hit, ...]) -> None:
        self.total += 1
        self._times.append(took)
        self.recent.append(f"{took:.0f} ms  {recall.query[:80]}  -> {hits[0].path if hits else 'nothing'}")


def _note(asked: steps.Asked, ranking: Ranking, degraded: list[str], may_be_stale: bool) -> str:
    view, parts = asked.view, []
    if asked.recall.scope == "project" and not asked.place.project:
        parts.append("No project is known for this folder: ask with scope 'all'.")
    elif view.past_ms is not None and not view.cards:
        parts.append(steps.too_early(view))
    elif not view.cards:
        parts.append("The index is empty: add a folder with `recalld add FOLDER`.")
    elif not ranking.known:
        parts.append("The notes do not seem to contain this; the hits are merely the nearest.")
    if "vector" in degraded:
        parts.append("Answered without vectors: notes that say it in other words may be missing.")
    elif view.unembedded and "vector" in asked.streams:
        parts.append(f"{view.unembedded} texts of that time still wait for their vectors.")
    if "reranker" in degraded:
        parts.append("Answered without the reranker: the order is that of the streams.")
    if may_be_stale:
        parts.append("No process watches the folders now: recent changes may be missing.")
    return " ".join(parts)


def _stale_ms(view: View) -> int:
    """Time since the vault that was looked at longest ago was last known to be as indexed."""
    oldest = min((vault.swept_ms for vault in view.vaults.values()), default=0)
    return max(0, int(time.time() * 1000) - oldest) if oldest else 0


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}. Start the daemon with `recalld up`, or index with `recalld index FOLDER`."


def _left_ms(deadline: float) -> int:
    left = int((deadline - time.monotonic()) * 1000)
    if left <= 0:
        raise TimedOut("the budget of this question is spent")
    return left


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 2)
