"""
The model in memory: text in, vectors out. The only module that imports onnxruntime and tokenizers.

A session may be used by several threads at once; each call runs on the thread that makes it, so that a query never waits
for bulk work inside the runtime.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

# Read when the tokenizers library first encodes: our own threads are the parallelism.
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import onnxruntime  # type: ignore[import-untyped]
from tokenizers import BertWordPieceTokenizer, Tokenizer

from ...models.registry import Model, ModelProblem, Spec, sha256_of
from ...models.rows import DISABLED_FUSIONS
from .unigram import Unigram

Floats = NDArray[np.float32]
Run = Callable[[dict[str, NDArray[np.int64]]], NDArray[Any]]

BATCH_TOKENS = 256
"""
Padded tokens per batch. Larger ones are no faster on one thread and cost memory: texts/s and resident MB at 256, 512,
1024, 2048 tokens: 91/101, 88/101, 85/129, 81/173 (MiniLM, sentences and passages mixed); 256 saves 18 MB at the peak.
"""
QUICK_THREADS = 2
"""One question on two threads takes four fifths of the time; the vector is the same to the bit."""
CHARS_PER_TOKEN = 16
"""More of a text than max_tokens times this is not even tokenised: the longest run of tokens in prose is far shorter."""

TESTS = (
    "The meeting was moved to Thursday because Anna is ill.",
    "Anna is sick, so we meet on Thursday instead.",
    "Rinse the rice until the water stays clear.",
)
"""A sentence, its paraphrase, and noise: any model that understands anything keeps the first two closer."""


class Embedded(msgspec.Struct, frozen=True):
    """Vectors of texts, one row each; rows named in ``errors`` could not be embedded and hold zeros."""

    vectors: Floats
    errors: dict[int, str]


def batches(lengths: Sequence[int], size: int, tokens: int = BATCH_TOKENS) -> list[list[int]]:
    """
    Indices of texts, grouped: shortest first, at most ``size`` texts and ``tokens`` padded tokens to a group.

    Texts of like length share a batch, so that little of it is padding; a text longer than ``tokens`` is alone.
    """
    groups: list[list[int]] = []
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) >= size or (len(group) + 1) * lengths[index] > tokens):
            groups.append(group)
            group = []
        group.append(index)
    return [*groups, group] if group else groups


class Embedding:
    """A loaded embedding model. ``run`` is the graph; ``between`` of ``embed`` is called before each batch."""

    def __init__(self, model: Model, tokenizer: Any, run: Run, inputs: frozenset[str], batch: int = 8) -> None:
        self.model = model
        self.batch = batch
        self._tokenizer = tokenizer
        self._run = run
        self._typed = "token_type_ids" in inputs
        self.dim = int(self._forward([self._ids(["dim"])[0]]).shape[1])

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        limit = self.model.spec.max_tokens * CHARS_PER_TOKEN
        return [found.ids for found in self._tokenizer.encode_batch([text[:limit] for text in texts])]

    def embed(
        self, texts: Sequence[str], *, query: bool = False, between: Callable[[], None] | None = None
    ) -> Embedded:
        """
        The vectors of ``texts`` (float32, L2-normalised where the model's spec says so).

        A batch that fails is halved until the text that the model fails on is alone: one bad text costs no other.
        """
        spec = self.model.spec
        prefix = spec.query_prefix if query else spec.passage_prefix
        errors: dict[int, str] = {}
        vectors = np.zeros((len(texts), self.dim), np.float32)
        ids = self._ids([prefix + text for text in texts])
        for group in batches([len(one) for one in ids], self.batch):
            if between is not None:
                between()
            self._fill(group, ids, vectors, errors)
        return Embedded(vectors, errors)

    def quicken(self) -> None:
        """
        Exchange the session for one of QUICK_THREADS, while others may use it. Blocks while it loads. Raises what the runtime
        raises, and then leaves things as they are.
        """
        self._run, _ = _session(self.model.onnx, QUICK_THREADS)

    def _fill(self, group: list[int], ids: list[list[int]], vectors: Floats, errors: dict[int, str]) -> None:
        try:
            found = self._forward([ids[index] for index in group])
        except Exception as error:  # whatever the runtime raises, it is about these texts
            if len(group) == 1:
                errors[group[0]] = f"{type(error).__name__}: {error}"[:500]
                return
            middle = len(group) // 2
            self._fill(group[:middle], ids, vectors, errors)
            self._fill(group[middle:], ids, vectors, errors)
            return
        for index, vector in zip(group, found, strict=True):
            if np.isfinite(vector).all():
                vectors[index] = vector
            else:
                errors[index] = "the model returned a vector that is not finite"

    def _forward(self, ids: list[list[int]]) -> Floats:
        width = max(1, *map(len, ids))
        tokens = np.zeros((len(ids), width), np.int64)
        mask = np.zeros((len(ids), width), np.int64)
        for row, one in enumerate(ids):
            tokens[row, : len(one)] = one
            mask[row, : len(one)] = 1
        feeds = {"input_ids": tokens, "attention_mask": mask}
        if self._typed:
            feeds["token_type_ids"] = np.zeros_like(tokens)
        return _pooled(np.asarray(self._run(feeds), np.float32), mask, self.model)

    def self_test(self) -> None:
        """Raises ModelProblem when a paraphrase is no closer than noise: the wrong tokenizer, pooling or file."""
        same, paraphrase, noise = self.embed(TESTS).vectors
        if not float(same @ paraphrase) > float(same @ noise) + 0.05:
            raise ModelProblem(
                f"model '{self.model.name}' does not tell a paraphrase ({same @ paraphrase:.2f}) from noise "
                f"({same @ noise:.2f}): check pooling and tokenizer in its model.json"
            )


def _pooled(output: Floats, mask: NDArray[np.int64], model: Model) -> Floats:
    if output.ndim == 3:
        if model.spec.pooling == "cls":
            output = output[:, 0]
        else:
            kept = mask[:, :, None].astype(np.float32)
            output = (output * kept).sum(axis=1) / np.maximum(kept.sum(axis=1), 1)
    if model.spec.normalise:
        output = output / np.maximum(np.linalg.norm(output, axis=1, keepdims=True), 1e-12)
    return output


def load(model: Model, batch: int = 8) -> Embedding:
    """Load and try a model whose digests were verified. Blocks for up to some seconds. Raises ModelProblem."""
    try:
        tokenizer = _tokenizer(model.tokenizer, model.spec)
        run, inputs = _session(model.onnx)
        embedding = Embedding(model, tokenizer, run, inputs, batch)
    except ModelProblem:
        raise
    except Exception as error:  # the runtime and the tokenizer raise what they like about a bad file
        raise ModelProblem(f"model '{model.name}' cannot be loaded: {error}") from None
    if model.spec.dim not in (0, embedding.dim):
        raise ModelProblem(f"model '{model.name}' has {embedding.dim} dimensions, its model.json says {model.spec.dim}")
    embedding.self_test()
    return embedding


def _tokenizer(path: Path, spec: Spec) -> Any:
    try:
        if spec.unigram:
            return Unigram(path, spec.max_tokens)
        vocabulary = path.suffix == ".txt"
        tokenizer = (
            BertWordPieceTokenizer(str(path), lowercase=spec.lowercase)
            if vocabulary
            else Tokenizer.from_file(str(path))
        )
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ModelProblem(f"{path} is not a tokenizer that can be read: {error}") from None
    tokenizer.enable_truncation(spec.max_tokens)
    # A tokenizer.json may pad every text to a fixed width; batches are padded here, to their own.
    tokenizer.no_padding()
    return tokenizer


def _session(path: Path, threads: int = 1) -> tuple[Run, frozenset[str]]:
    options = onnxruntime.SessionOptions()
    # Threads that spin fall below one as soon as anything else wants a core.
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.inter_op_num_threads = 1
    # The arena never gives memory back: one batch of long texts would be paid for ever after.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(DISABLED_FUSIONS)
    )
    inputs = frozenset(item.name for item in session.get_inputs())
    unknown = inputs - {"input_ids", "attention_mask", "token_type_ids"}
    if unknown or "input_ids" not in inputs:
        raise ModelProblem(f"{path} is not a text encoder: its inputs are {', '.join(sorted(inputs))}")
    output = session.get_outputs()[0].name

    def run(feeds: dict[str, NDArray[np.int64]]) -> NDArray[Any]:
        (found,) = session.run([output], {name: value for name, value in feeds.items() if name in inputs})
        return np.asarray(found)

    return run, inputs


class CrossEncoder:
    """A reranker: a folder with model.onnx and tokenizer.json that scores a question and a passage together."""

    def __init__(self, folder: Path, max_tokens: int = 512) -> None:
        """Blocks while it loads. Raises ModelProblem."""
        self.name = folder.name
        try:
            self.sha256 = _digest(folder)
            self._tokenizer = _tokenizer(folder / "tokenizer.json", Spec(name=folder.name, max_tokens=max_tokens))
            self._run, _ = _session(folder / "model.onnx")
        except ModelProblem:
            raise
        except Exception as error:
            raise ModelProblem(f"the reranker in {folder} cannot be loaded: {error}") from None

    def score(self, query: str, passages: Sequence[str], unwanted: Callable[[], bool] = lambda: False) -> list[float]:
        """
        The model's own score of each passage, larger is better; not comparable between models.

        ``unwanted`` is asked between batches; once it is true, nothing more is computed and the scores are none.
        """
        pairs = self._tokenizer.encode_batch([(query, passage) for passage in passages])
        scores = [0.0] * len(pairs)
        for group in batches([len(pair.ids) for pair in pairs], 8):
            if unwanted():
                return []
            width = max(len(pairs[index].ids) for index in group)
            feeds = {
                name: np.zeros((len(group), width), np.int64)
                for name in ("input_ids", "attention_mask", "token_type_ids")
            }
            for row, index in enumerate(group):
                size = len(pairs[index].ids)
                feeds["input_ids"][row, :size] = pairs[index].ids
                feeds["attention_mask"][row, :size] = 1
                feeds["token_type_ids"][row, :size] = pairs[index].type_ids
            logits = np.asarray(self._run(feeds), np.float32).reshape(len(group), -1)
            for index, score in zip(group, logits[:, -1], strict=True):
                scores[index] = float(score)
        return scores


def _digest(folder: Path) -> str:
    """SHA-256 over the digests of all that decides a score: the model's files, then the tokenizer."""
    found = hashlib.sha256()
    for path in (*sorted(folder.glob("model.onnx*")), folder / "tokenizer.json"):
        found.update(bytes.fromhex(sha256_of(path)))
    return found.hexdigest()
