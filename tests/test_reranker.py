"""The optional cross-encoder, with a tiny one whose score counts the words that question and passage share a token for."""

from __future__ import annotations

import socket
from pathlib import Path

import anyio
import numpy as np
import pytest
from recalld.actors.base import Env
from recalld.actors.embedder.actor import Embedder
from recalld.actors.embedder.desk import Desk
from recalld.actors.embedder.session import CrossEncoder
from recalld.models.registry import ModelProblem
from recalld.protocol.config import Config
from recalld.protocol.config import Embedder as Settings
from recalld.protocol.messages.embed import Rerank
from recalld.protocol.runtime import Paths

from .crossencoder import write_cross_encoder

WORDS = ("cat", "dog", "sleeps", "barks", "where", "the", "is")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Words have vectors of their own; only nouns and verbs count."""
    table = np.random.default_rng(3).normal(0, 1, (len(WORDS), 64)).astype(np.float32)
    table[4:] = 0
    return write_cross_encoder(tmp_path / "reranker", dict(zip(WORDS, table, strict=True)))


def test_the_passage_that_fits_scores_highest(folder: Path) -> None:
    """Each passage gets its own score, in the order given, whatever lengths share a batch."""
    reranker = CrossEncoder(folder)
    passages = ["the dog barks", "the cat sleeps", "is the", "the the the the the the cat is the the the"]
    scores = reranker.score("where is the cat", passages)
    assert sorted(range(4), key=lambda one: -scores[one])[:2] in ([1, 3], [3, 1])
    assert scores == pytest.approx([reranker.score("where is the cat", [one])[0] for one in passages], abs=1e-3)
    assert scores[2] == 0.0


def test_a_folder_without_model_is_a_problem(tmp_path: Path) -> None:
    """The error names the folder."""
    with pytest.raises(ModelProblem, match="reranker"):
        CrossEncoder(tmp_path / "reranker")


async def test_a_reranker_that_cannot_be_loaded_is_only_a_problem(tmp_path: Path, folder: Path) -> None:
    """A wrong folder leaves recall without reranking and is told in status; a right one clears it."""
    desk = Desk(tmp_path)
    await desk.rerank_with(str(tmp_path / "none"))
    assert desk.reranker is None
    assert "none" in desk.reranker_problem
    await desk.rerank_with(str(folder))
    assert desk.reranker is not None
    assert desk.reranker_problem == ""
    await desk.rerank_with("")
    assert desk.reranker is None


async def test_rerank_answers_with_scores(tmp_path: Path, folder: Path) -> None:
    """Behind its message: scores where a reranker is configured; none when another one is asked for."""
    with socket.socket(socket.AF_UNIX) as listener:
        config = Config(embedder=Settings(model="none", reranker=str(folder)))
        env = Env("embedder", config, Paths(tmp_path, tmp_path), {"embedder": listener})
        embedder = Embedder(env)
        await embedder._desk.rerank_with(config.embedder.reranker)
        with anyio.fail_after(10):
            scores = await embedder.handlers()[Rerank](Rerank(query="cat", passages=("dog", "cat")))
            other = await embedder.handlers()[Rerank](Rerank(query="cat", passages=("dog",), sha256="another"))
        embedder._reranks.close()
        assert scores.values[1] > scores.values[0]
        assert len(scores.sha256) == 64
        assert (other.values, other.sha256) == ((), scores.sha256)
        assert embedder._desk.describe().reranker_sha256 == scores.sha256


def test_what_nobody_waits_for_is_not_computed(folder: Path) -> None:
    """Asked between batches whether it is still wanted, it stops."""
    asked = iter((False, True))
    assert CrossEncoder(folder).score("cat", ["dog"] * 40, lambda: next(asked)) == []


def test_another_tokenizer_is_another_model(folder: Path) -> None:
    """The digest is of all that decides a score, so that a verdict on one model is not taken for another."""
    before = CrossEncoder(folder).sha256
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("barks", "bores"))
    assert CrossEncoder(folder).sha256 != before
