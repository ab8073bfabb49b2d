"""
Which channels of the packaged model have numbers far from the rest in every text: what models/outliers.py holds.

    python bench/outliers.py            the table, as it stands there
    python bench/outliers.py --check    says whether it still does (exit code 1 if not)

Measured in float32 over the notes of the demo: whole notes as far as the model reads, and every fourth sentence.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import recalld.deploy
from numpy.typing import NDArray
from recalld.memory.recall.tokens import sentences
from recalld.models import outliers, registry, sources
from recalld.models.encoder import Encoder, Int8, Layer
from tokenizers import BertWordPieceTokenizer

Array = NDArray[np.float32]

FAR = 2.0
"""Times the median channel's largest number: beyond it a channel is an outlier, and to it it is shrunk."""
EVERY = 4


def texts() -> Iterator[str]:
    for path in sorted((Path(recalld.deploy.__path__[0]) / "demo" / "vault").rglob("*.md")):
        note = path.read_text()
        yield note
        yield from (note[start:end] for start, end in sentences(note)[::EVERY])


def floats(weights: object) -> Array:
    assert isinstance(weights, Int8)
    return np.asarray(weights.values.astype(np.float32) * weights.scales)


def norm(x: Array, gain_and_shift: tuple[Array, Array], epsilon: float) -> Array:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return np.asarray(x * gain_and_shift[0] + gain_and_shift[1])


def gelu(x: Array) -> Array:
    """By tanh: to three digits, of which one is used."""
    return np.asarray(0.5 * x * (1 + np.tanh(0.7978846 * (x + 0.044715 * x**3))))


def inputs(encoder: Encoder, ids: list[int]) -> Iterator[Array]:
    """What goes into the attention and into the feed-forward part of each layer, in turns: (tokens, dim)."""
    words = encoder.words
    assert isinstance(words, Int8)
    x = words.values[ids].astype(np.float32) * words.scales[ids][:, None] + encoder.positions[: len(ids)]
    x = norm(x, encoder.norm, encoder.epsilon)
    for layer in encoder.layers:
        yield x
        y = norm(attended(layer, x, encoder.heads) + x, layer.out_norm, encoder.epsilon)
        yield y
        hidden = gelu(y @ floats(layer.up) + layer.up_bias)
        x = norm(hidden @ floats(layer.down) + layer.down_bias + y, layer.down_norm, encoder.epsilon)


def attended(layer: Layer, x: Array, heads: int) -> Array:
    joined = x @ floats(layer.qkv) + layer.qkv_bias
    q, k, v = (part.reshape(len(x), heads, -1).transpose(1, 0, 2) for part in np.split(joined, 3, axis=-1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return np.asarray((shares @ v).transpose(1, 0, 2).reshape(x.shape) @ floats(layer.out) + layer.out_bias)


def measure() -> list[dict[int, tuple[float, float]]]:
    """One table for each of what ``inputs`` yields."""
    model = registry.find(registry.DEFAULT, Path("/nonexistent"))
    assert model is not None
    encoder = sources.packaged_minilm(model.onnx)
    tokenizer = BertWordPieceTokenizer(str(model.tokenizer), lowercase=True)
    tokenizer.enable_truncation(model.spec.max_tokens)
    per_text = [list(inputs(encoder, tokenizer.encode(text).ids)) for text in texts()]
    return [table(np.concatenate(rows)) for rows in zip(*per_text, strict=True)]


def table(rows: Array) -> dict[int, tuple[float, float]]:
    """channel -> (centre, factor), to one digit."""
    reach = np.abs(rows).max(axis=0)
    far = FAR * float(np.median(reach))
    found = {}
    for channel in np.flatnonzero(reach > far).tolist():
        column = rows[:, channel]
        centre = round(float(column.min() + column.max()) / 2, 1)
        found[channel] = (centre, max(1.0, round(float(np.abs(column - centre).max()) / far, 1)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with models/outliers.py instead of printing")
    options = parser.parse_args()
    found = measure()
    if options.check:
        same = found == [dict(one) for pair in outliers.MINILM for one in pair]
        print("as in models/outliers.py" if same else "not as in models/outliers.py")
        return not same
    for attention, forward in zip(found[::2], found[1::2], strict=True):
        print("    (", *(lines(one) for one in (attention, forward)), "    ),", sep="\n")
    return 0


def lines(one: dict[int, tuple[float, float]]) -> str:
    """As source code."""
    return textwrap.fill(f"{one},", 120, initial_indent=" " * 8, subsequent_indent=" " * 9, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
