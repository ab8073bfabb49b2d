"""actors/query/reranking: when the cross-encoder is asked, and what its scores do to answers."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from recalld.actors.query.reranking import VERDICT, Settings, settings
from recalld.memory.recall.rerank import Verdict
from recalld.protocol.config import Config
from recalld.protocol.config import Embedder as EmbedderConfig

from .asking import desk
from .indexing import Index

QUESTION = "how do boats come through the lock"
FILES = {
    "keeper.md": "# Lock keeper\n\nBoats, boats, boats: how many boats come through the lock, the keeper counts.\n",
    "gate.md": "# Gates\n\nThe chamber fills until both levels are even, then the gate of the lock opens.\n",
    "weir.md": "# Weir\n\nThe weir beside the lock holds the water back.\n",
    "paint.md": "---\nsuperseded_by: '[[paint2]]'\n---\n# Paint\n\nBoats at the lock are painted red.\n",
    "paint2.md": "# Paint, second\n\nBoats at the lock are painted blue.\n",
    "picnic.md": "# Picnic\n\nBread and cheese near the lock.\n",
}
WON = Verdict(won=True, sha256="ab", why="")
LOST = Verdict(won=False, sha256="ab", why="")
FORCED = {"rerank": 2.0, "rerank_weight": 1.0}


@pytest.fixture
async def asked(tmp_path):
    """Six notes about a lock; the cross-encoder likes the one that answers, which the words rank low."""
    index = Index(tmp_path)
    index.write_all(FILES)
    index.embed()
    async with desk(index) as made:
        made.embedder.likes = {"chamber": 9.0, "red": 5.0, "keeper": -3.0}
        made.answers.reranking.settings = Settings(configured=True)
        yield made
    with contextlib.suppress(Exception):
        index.close()


def verdict(made, found: Verdict | None, *, configured: bool = True) -> None:
    made.answers.reranking.settings = Settings(configured, found)


def paths(answer) -> list[str]:
    return [hit.path for hit in answer.hits]


@pytest.mark.parametrize(("configured", "found"), [(False, None), (False, WON), (True, None), (True, LOST)])
async def test_it_is_off_unless_it_won(asked, configured, found):
    """None configured, not measured, or measured and lost: it is not even asked, and nothing is missing."""
    verdict(asked, found, configured=configured)
    answer = await asked.ask(QUESTION)
    assert paths(answer)[0] == "keeper.md"
    assert answer.degraded == ()
    assert asked.embedder.reranks == []
    assert all("reranker" not in hit.streams for hit in answer.hits)


async def test_it_is_on_when_it_won(asked):
    """With a verdict for the loaded model its order counts, and every hit says what it got and where it stood."""
    before = paths(await asked.ask(QUESTION, k=6))
    verdict(asked, WON)
    answer = await asked.ask(QUESTION, k=6, ranking={"rerank_weight": 1.0}, explain=True)
    assert paths(answer)[0] == "gate.md"
    assert sorted(paths(answer)) == sorted(before)
    assert asked.embedder.reranks[0].sha256 == "ab"
    said = answer.hits[0].streams["reranker"]
    assert (said.rank, said.score, said.weight) == (1, 9.0, 1.0)
    assert said.detail == f"before: rank {before.index('gate.md') + 1}"
    factors = answer.hits[0].factors
    product = 1.0
    for value in factors.values():
        product *= value
    assert product == pytest.approx(answer.hits[0].score, rel=0.01)
    scores = [hit.score for hit in answer.hits]
    assert scores == sorted(scores, reverse=True)


async def test_it_brings_in_what_stood_below_the_answer(asked):
    """It reads more hits than the answer has, so that the best of them can come in."""
    assert "gate.md" not in paths(await asked.ask(QUESTION, k=1))
    assert paths(await asked.ask(QUESTION, k=1, ranking=FORCED)) == ["gate.md"]


async def test_it_reads_as_many_as_configured(asked):
    """Beyond ``rerank_depth`` nothing is sent; the rest follows as it stood."""
    before = paths(await asked.ask(QUESTION, k=6))
    after = paths(await asked.ask(QUESTION, k=6, ranking={**FORCED, "rerank_depth": 2}))
    assert len(asked.embedder.reranks[-1].passages) == 2
    assert after[2:] == before[2:]


async def test_the_passage_that_answers_is_what_it_reads(asked):
    """The question as asked, and of each hit its heading and passage, whole even where only the sentence is shown."""
    await asked.ask(QUESTION, ranking=FORCED, sentence_only=True)
    (sent,) = asked.embedder.reranks
    assert sent.query == QUESTION
    assert any(text.startswith("Gates") and "The chamber fills" in text for text in sent.passages)


async def test_a_replaced_note_stays_behind_its_replacement(asked):
    """Even where the cross-encoder likes only the old text."""
    asked.embedder.likes = {"red": 9.0}
    found = paths(await asked.ask(QUESTION, k=6, ranking=FORCED))
    assert found.index("paint2.md") < found.index("paint.md")


async def test_another_model_was_not_measured(asked):
    """A verdict on one model does not count for another one in its place: off, and nothing is missing."""
    verdict(asked, WON)
    asked.embedder.reranker = "cd"
    answer = await asked.ask(QUESTION)
    assert paths(answer)[0] == "keeper.md"
    assert answer.degraded == ()


async def test_a_request_can_do_without(asked):
    """Measuring needs both ways, whatever the verdict is."""
    verdict(asked, WON)
    await asked.ask(QUESTION, ranking={"rerank": 0.0})
    assert asked.embedder.reranks == []


@pytest.mark.parametrize("fault", ["late", "not loaded", "down"])
async def test_where_it_fails_the_order_stays(asked, fault):
    """Too slow, not loaded or without embedder: the same hits in the order of the streams, and the answer says so."""
    before = paths(await asked.ask(QUESTION, streams=("text",)))
    verdict(asked, WON)
    match fault:
        case "late":
            asked.embedder.fault = "late"
        case "not loaded":
            asked.embedder.likes = None
        case _:
            asked.up.discard("embedder")
    answer = await asked.ask(QUESTION, streams=("text",))
    assert paths(answer) == before
    assert answer.degraded == ("reranker",)
    assert "reranker" in answer.note


def test_the_verdict_is_read_from_the_data_folder(tmp_path):
    """Absent or broken: as if nothing had been measured."""
    index = Index(tmp_path)
    index.close()
    config = Config(embedder=EmbedderConfig(reranker="/models/x"))
    assert settings(Config(), index.paths) == Settings(False, None)
    assert settings(config, index.paths) == Settings(True, None)
    file = index.paths.data / VERDICT
    file.write_bytes(msgspec.json.encode(WON))
    assert settings(config, index.paths) == Settings(True, WON)
    file.write_text("{")
    assert settings(config, index.paths) == Settings(True, None)
