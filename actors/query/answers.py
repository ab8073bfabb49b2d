"""
Runs the steps of a question on threads and connections, with whatever is up.

Nothing here ranks or reads; it decides what runs where, and what an answer has to admit.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import Protocol

import anyio
import anyio.to_thread
import numpy as np

from ...memory.recall.params import Params
from ...memory.recall.rank import Ranking
from ...memory.recall.types import TextEvidence
from ...protocol.envelope import ProtocolError, TimedOut
from ...protocol.messages.common import Message
from ...protocol.messages.embed import Embed, Embeddings
from ...protocol.messages.recall import Answer, Hit, RawEvent, Recall, Stream
from ..health import plan
from ..sqlite import sqlite3
from . import recall as steps
from .catalog import View
from .filters import Place, place_of
from .live import Live
from .quantised import Floats
from .reader import NoIndex
from .similar import Similarities
from .streams import events, fulltext, notes

log = logging.getLogger("recalld.query")

EMBED_BUDGET_MS = 400
"""A question is embedded in 3-7 ms; past this the answer goes without, and says so."""
EMBEDDED_KEPT = 512
"""Embeddings of questions that are kept: 0.8 MB at 384 dimensions."""
TIMES_KEPT = 256
RECENT_KEPT = 10


class Embedder(Protocol):
    """The embedder's side of ``protocol.client.Peer``."""

    async def ask(self, body: Message, *, budget_ms: int, trace: str = "") -> object: ...


class Embedded:
    """Embeddings of questions, most recently used last. One model at a time."""

    def __init__(self, limit: int = EMBEDDED_KEPT) -> None:
        self._limit = limit
        self._model = 0
        self._known: OrderedDict[str, Floats] = OrderedDict()

    def get(self, model_id: int, text: str) -> Floats | None:
        if model_id != self._model or text not in self._known:
            return None
        self._known.move_to_end(text)
        return self._known[text]

    def put(self, model_id: int, text: str, vector: Floats) -> None:
        if model_id != self._model:
            self._known.clear()
            self._model = model_id
        self._known[text] = vector
        while len(self._known) > self._limit:
            self._known.popitem(last=False)


class Answers:
    """Answers Recall from ``live``; ``up`` says which actors run."""

    def __init__(self, live: Live, embedder: Embedder, up: Collection[str], params: Params) -> None:
        self.live = live
        self.params = params
        self.text_params = fulltext.TextParams()
        self.total = 0
        self.recent: deque[str] = deque(maxlen=RECENT_KEPT)
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
        with anyio.move_on_after(budget_ms / 1000):
            await self.live.loaded.wait()
        try:
            view, place = await self._view(recall, deadline)
            if self.live.absent:
                raise NoIndex(self.live.absent)
            asked = await anyio.to_thread.run_sync(
                steps.prepare, view, recall, chosen.streams, place, self.params, datetime.date.today()
            )
            if "vector" in chosen.streams and "vector" not in asked.streams:
                degraded.append("vector")
            text, similar = await self._gather(asked, degraded, deadline)
            ranking, hits, raw = await self.live.reader.run(
                lambda conn: _conclude(conn, asked, text, similar), _left_ms(deadline)
            )
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
            stale_for_ms=_stale_ms(view) if chosen.may_be_stale else 0,
            note=_note(asked, ranking, degraded, chosen.may_be_stale),
        )

    def figures(self) -> dict[str, float]:
        """For vitals."""
        ordered = sorted(self._times)
        at = {"p50": 0.5, "p99": 0.99}
        return {
            "recalls_total": self.total,
            **{f"recall_{name}_ms": ordered[int(q * (len(ordered) - 1))] for name, q in at.items() if ordered},
        }

    async def _view(self, recall: Recall, deadline: float) -> tuple[View, Place]:
        when = steps.as_of_ms(recall)
        revision, projects = await self.live.reader.run(
            lambda conn: (notes.revision(conn), events.projects(conn) if recall.cwd else {}), _left_ms(deadline)
        )
        if revision != self.live.view.revision:
            with anyio.fail_after(_left_ms(deadline) / 1000):
                await self.live.catch_up(revision)
        view = await self.live.at(when) if when is not None else self.live.view
        return view, place_of(recall.cwd, projects)

    async def _gather(
        self, asked: steps.Asked, degraded: list[str], deadline: float
    ) -> tuple[TextEvidence | None, tuple[Similarities, ...]]:
        """Full text and vectors side by side; either may be missing afterwards."""
        text: TextEvidence | None = None
        similar: tuple[Similarities, ...] = ()

        async def find_text() -> None:
            nonlocal text
            text = await self.live.reader.run(
                lambda conn: steps.gather_text(conn, asked, self._frequencies, self.text_params), _left_ms(deadline)
            )

        async def find_vectors() -> None:
            nonlocal similar
            queries = await self._embed(asked, _left_ms(deadline))
            if queries is None:
                degraded.append("vector")
                return
            similar = await self.live.reader.run(
                lambda conn: steps.gather_vectors(conn, asked, queries), _left_ms(deadline)
            )

        wanted: dict[Stream, Callable[[], object]] = {"text": find_text, "vector": find_vectors}
        await _side_by_side([run for stream, run in wanted.items() if stream in asked.streams])
        return text, similar

    async def _embed(self, asked: steps.Asked, left_ms: int) -> Floats | None:
        """One row per text of the question; None when the embedder has no answer in time, or another model."""
        matrix = asked.view.matrix
        if matrix is None:
            return None
        known = {
            text: vector for text in asked.texts if (vector := self._embedded.get(matrix.model_id, text)) is not None
        }
        absent = tuple(text for text in dict.fromkeys(asked.texts) if text not in known)
        if absent:
            try:
                reply = await self._embedder.ask(Embed(texts=absent), budget_ms=max(1, min(EMBED_BUDGET_MS, left_ms)))
            except ProtocolError as error:
                log.warning("answering without vectors: %s", error.text)
                return None
            if not isinstance(reply, Embeddings) or reply.model_id != matrix.model_id or reply.dim != matrix.dim:
                return None
            rows = np.frombuffer(reply.vectors, "<f4").reshape(len(absent), matrix.dim)
            for text, row in zip(absent, rows, strict=True):
                known[text] = row
                self._embedded.put(matrix.model_id, text, row)
        return np.stack([known[text] for text in asked.texts])

    def _count(self, recall: Recall, took: float, hits: tuple[Hit, ...]) -> None:
        self.total += 1
        self._times.append(took)
        self.recent.append(f"{took:.0f} ms  {recall.query[:80]}  -> {hits[0].path if hits else 'nothing'}")


def _conclude(
    conn: sqlite3.Connection, asked: steps.Asked, text: TextEvidence | None, similar: tuple[Similarities, ...]
) -> tuple[Ranking, tuple[Hit, ...], tuple[RawEvent, ...]]:
    evidence, ranking = steps.weigh(asked, text, similar)
    hits = steps.compose(conn, asked, evidence, ranking)
    raw = steps.raw_events(conn, asked) if not ranking.known and "text" in asked.streams else ()
    return ranking, hits, raw


async def _side_by_side(runs: list[Callable[[], object]]) -> None:
    """Run these; the first exception ends the others and is raised as it is, not in a group."""
    try:
        async with anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(run)  # type: ignore[arg-type]
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None


def _note(asked: steps.Asked, ranking: Ranking, degraded: list[str], may_be_stale: bool) -> str:
    view, parts = asked.view, []
    if asked.recall.scope == "project" and not asked.place.project:
        parts.append("No project is known for this folder: ask with scope 'all'.")
    elif view.past_ms is not None and not view.cards:
        parts.append("The index does not reach back to that time.")
    elif not view.cards:
        parts.append("The index is empty: add a folder with `recalld add FOLDER`.")
    elif not ranking.known:
        parts.append("The notes do not seem to contain this; the hits are merely the nearest.")
    if "vector" in degraded:
        parts.append("Answered without vectors: notes that say it in other words may be missing.")
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
