"""The optional cross-encoder's part in an answer: whether it is asked, what it is asked, what becomes of its scores."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ...memory.recall.params import Params
from ...memory.recall.rank import Candidate
from ...memory.recall.rerank import Reranked, Standing, Verdict, blend, wanted
from ...protocol.config import Config
from ...protocol.envelope import ProtocolError
from ...protocol.messages.common import Message
from ...protocol.messages.embed import Rerank, Scores
from ...protocol.messages.recall import Hit, StreamScore
from ...protocol.runtime import Paths
from .recall import Found

VERDICT = "reranker.json"
"""In the data folder, written by `recalld eval rerank`."""
RERANK_BUDGET_MS = 500
"""Past this the answer keeps its order, and says so: a person notices waiting from about half a second on."""
LEAVE_MS = 20
"""Of a question's own budget, kept for what is still to be done after reranking."""
PASSAGE_CHARS = 2000
"""Of a passage, more than a model's 512 tokens hold together with the question."""

log = logging.getLogger("recalld.query")


class Embedder(Protocol):
    """The embedder's side of ``protocol.client.Peer``."""

    async def ask(self, body: Message, *, budget_ms: int, trace: str = "") -> object: ...


class Settings(NamedTuple):
    """Whether a cross-encoder is configured, and what was measured of one."""

    configured: bool = False
    verdict: Verdict | None = None


def settings(config: Config, paths: Paths) -> Settings:
    """From config.toml and reranker.json. A file that cannot be read counts as none, and the log says so."""
    configured = bool(config.embedder.reranker)
    try:
        return Settings(configured, msgspec.json.decode((paths.data / VERDICT).read_bytes(), type=Verdict))
    except FileNotFoundError:
        pass
    except (OSError, msgspec.DecodeError) as error:
        log.warning("%s cannot be read: %s; answering without the reranker", VERDICT, error)
    return Settings(configured)


class Reranking:
    """Asks the embedder for the cross-encoder's scores and orders hits by them."""

    def __init__(self, embedder: Embedder, up: Collection[str]) -> None:
        self.settings = Settings()
        self.total = 0
        self._embedder = embedder
        self._up = up

    def depth(self, params: Params) -> int:
        """How many hits it wants to read for a question with these parameters; 0: it is not asked."""
        return 0 if self._digest(params) is None else int(params.rerank_depth)

    async def order(
        self, question: str, found: Sequence[Found], params: Params, left_ms: int
    ) -> Sequence[Found] | None:
        """
        ``found`` in the cross-encoder's order as far as it has a say; unchanged when it is off or not the one that won.

        None: it should have had one, and did not answer in time or at all.
        """
        sha256 = self._digest(params)
        if sha256 is None or not found:
            return found
        passages = tuple(f"{one.passage.context}\n{one.passage.text}"[:PASSAGE_CHARS] for one in found)
        passages = passages[: int(params.rerank_depth)]
        reply = await self._scores(Rerank(query=question, passages=passages, sha256=sha256), left_ms - LEAVE_MS)
        if reply is None or not reply.sha256:
            return None
        if reply.sha256 != (sha256 or reply.sha256):
            return found
        if len(reply.values) != len(passages):
            return None
        self.total += 1
        standings = [_standing(one.candidate) for one in found]
        ordered = blend(standings, reply.values, weight=params.rerank_weight, margin=params.current_margin)
        return [_moved(found[one.at], one, params.rerank_weight) for one in ordered]

    def _digest(self, params: Params) -> str | None:
        return wanted(params, self.settings.verdict) if self.settings.configured else None

    async def _scores(self, ask: Rerank, left_ms: int) -> Scores | None:
        if "embedder" not in self._up or left_ms <= 0:
            return None
        try:
            reply = await self._embedder.ask(ask, budget_ms=min(RERANK_BUDGET_MS, left_ms))
        except ProtocolError as error:
            log.warning("answering without the reranker: %s", error.text)
            return None
        return reply if isinstance(reply, Scores) else None


def _standing(candidate: Candidate) -> Standing:
    factors = (value for name, value in candidate.factors.items() if name != "fused")
    return Standing(
        note_id=candidate.note_id,
        score=candidate.score,
        factor=math.prod(factors),
        superseded_by=candidate.superseded_by,
    )


def _moved(found: Found, now: Reranked, weight: float) -> Found:
    if now.said is None:
        return found
    hit, before = found.hit, found.candidate.score
    said = StreamScore(rank=now.rank, score=now.said, weight=weight, detail=f"before: rank {now.at + 1}")
    factors = {**hit.factors, "reranker": round(now.score / before, 4)} if hit.factors and before else hit.factors
    return found._replace(hit=_changed(hit, now.score, said, factors))


def _changed(hit: Hit, score: float, said: StreamScore, factors: dict[str, float]) -> Hit:
    return msgspec.structs.replace(
        hit, score=round(score, 4), streams={**hit.streams, "reranker": said}, factors=factors
    )
