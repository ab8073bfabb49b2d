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
from recalld.models.onnxfile import Graph
from recalld.models.registry import ModelProblem
from recalld.protocol.config import Config
from recalld.protocol.config import Embedder as Settings
from recalld.protocol.messages.embed import Rerank
from recalld.protocol.runtime import Paths

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "sleeps", "barks", "where", "the", "is"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """
    A cross-encoder with one logit: the dot product of the summed random vectors of both sides.

    Sides are told apart by token_type_ids, padding by the mask, so that a wrong feed changes the score.
    """
    from tokenizers import BertWordPieceTokenizer

    folder = tmp_path / "reranker"
    folder.mkdir()
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=True).save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(3).normal(0, 1, (len(VOCABULARY), 64)).astype(np.float32)
    table[[0, 1, 2, 3, 9, 10, 11]] = 0  # only nouns and verbs count
    graph = Graph()
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        graph.input(name, np.int64, ("batch", "tokens"))
    graph.output("logits", np.float32, ("batch", 1))
    graph.weight("table", table)
    graph.weight("one", np.array([1], np.int64))
    graph.weight("two", np.array([2], np.int64))
    graph.weight("unit", np.array(1, np.float32))
    graph.node("Gather", ["table", "input_ids"], "words")
    graph.node("Cast", ["token_type_ids"], "second", to=1)
    graph.node("Cast", ["attention_mask"], "kept", to=1)
    graph.node("Sub", ["unit", "second"], "first")
    for side in ("first", "second"):
        graph.node("Mul", [side, "kept"], f"{side}.kept")
        graph.node("Unsqueeze", [f"{side}.kept", "two"], f"{side}.mask")
        graph.node("Mul", ["words", f"{side}.mask"], f"{side}.words")
        graph.node("ReduceSum", [f"{side}.words", "one"], f"{side}.sum", keepdims=0)
    graph.node("Mul", ["first.sum", "second.sum"], "both")
    graph.node("ReduceSum", ["both", "one"], "logits", keepdims=1)
    graph.save(folder, "test")
    return folder


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
    """Behind its message: scores where a reranker is configured."""
    with socket.socket(socket.AF_UNIX) as listener:
        config = Config(embedder=Settings(model="none", reranker=str(folder)))
        env = Env("embedder", config, Paths(tmp_path, tmp_path), {"embedder": listener})
        embedder = Embedder(env)
        await embedder._desk.rerank_with(config.embedder.reranker)
        with anyio.fail_after(10):
            scores = await embedder.handlers()[Rerank](Rerank(query="cat", passages=("dog", "cat")))
        embedder._queries.close()
        assert scores.values[1] > scores.values[0]
