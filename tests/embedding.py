"""A model that is arithmetic, for tests of what is around a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from recalld.actors.embedder import session
from recalld.models.registry import Model, Spec
from recalld.protocol.messages.index import PendingChunk

POISON = 999


class Words:
    """A tokenizer for which each word is one token, numbered by its length; 'poisonous' is POISON."""

    def encode_batch(self, texts: list[str]) -> list[Any]:
        return [
            SimpleNamespace(ids=[2, *(POISON if word == "poisonous" else 3 + len(word) for word in text.split()), 3])
            for text in texts
        ]


def poisoned(feeds: dict[str, Any]) -> Any:
    """A model that sums what it is given, and fails on the word 'poisonous'."""
    if (feeds["input_ids"] == POISON).any():
        raise RuntimeError("poison")
    return np.stack([np.eye(4, dtype=np.float32)[int(row.sum()) % 4] + 0.1 for row in feeds["input_ids"]])


def fake_embedding(name: str = "fake", run: Callable[[dict[str, Any]], Any] = poisoned, batch: int = 8) -> Any:
    spec = Spec(name=name, sha256=f"sha-{name}", pooling="graph")
    model = Model(spec=spec, onnx=Path("model.onnx"), tokenizer=Path("vocab.txt"))
    return session.Embedding(model, Words(), run, frozenset({"input_ids", "attention_mask"}), batch)


def chunk(number: int, text: str = "") -> PendingChunk:
    return PendingChunk(bytes([number]) * 16, f"Title {number}", text or f"Text of number {number}.")
