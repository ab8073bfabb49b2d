"""A cross-encoder that is arithmetic: its score is the dot product of the summed word vectors of question and passage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from recalld.models.onnxfile import Graph

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_cross_encoder(folder: Path, words: Mapping[str, NDArray[np.float32]]) -> Path:
    """
    ``words`` are all that it knows, with their vectors; other words count nothing.

    Sides are told apart by token_type_ids, padding by the mask, so that a wrong feed changes the score.
    """
    from tokenizers import BertWordPieceTokenizer

    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join((*SPECIAL, *words)))
    BertWordPieceTokenizer(str(vocabulary), lowercase=True).save(str(folder / "tokenizer.json"))
    width = len(next(iter(words.values())))
    table = np.stack([*np.zeros((len(SPECIAL), width)), *words.values()]).astype(np.float32)
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
