"""
A BERT encoder as an ONNX graph whose matrices stay quantised in memory, with mean pooling and L2 norm inside.

Three precisions, measured on one core of an AVX2 machine for MiniLM-L6 (sentences and passages mixed, texts/s; resident
memory after load; cosine to the same weights in float32, mean and least of 195 texts):

=========  =====  ======  ================
float32       52  231 MB  1
blocks        84   71 MB  0.9996 / 0.9991
dynamic      145   90 MB  0.9932 / 0.9836
=========  =====  ======  ================

``blocks`` multiplies int8 weights with activations that are quantised per row and block, so that a text's vector doesn't
depend on what else is in its batch; ``dynamic`` scales the activations of a whole batch at once. Its row is of signed weights,
which onnxruntime multiplies with overflows on a processor without VNNI, as that one; unsigned ones, as they are stored now,
take a tenth more time and come 0.002 nearer.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from .onnxfile import MICROSOFT, Array, Graph

Precision = Literal["blocks", "dynamic"]

QKV_BLOCK = 32
"""The projections into attention are the sensitive ones: blocks of 128 there cost half of the loss."""
BLOCK = 128
ZERO = 128
"""The number that stands for 0 where weights are stored unsigned: MatMulNBits knows it, DynamicQuantizeMatMul is told."""
INT8_ACTIVATIONS = 4
"""MatMulNBits accuracy_level: int8 times int8 where the processor has it."""


class Int8(msgspec.Struct, frozen=True):
    """A linear layer's weights: ``values`` int8 (inputs, outputs), ``scales`` float32 (outputs,)."""

    values: Array
    scales: Array


class Int4(msgspec.Struct, frozen=True):
    """
    A matrix of 4-bit numbers, less 8, in blocks of 32 along a row.

    ``packed`` uint8 (rows, blocks, 16): byte i holds numbers i (low half) and i + 16; ``scales`` float32 (rows, blocks).
    As a linear layer, a row is one output.
    """

    packed: Array
    scales: Array


Linear = Int8 | Int4


class Layer(msgspec.Struct, frozen=True):
    """One transformer layer. Query, key and value weights are joined, in this order, along the outputs."""

    qkv: Linear
    qkv_bias: Array
    out: Linear
    out_bias: Array
    out_norm: tuple[Array, Array]
    up: Linear
    up_bias: Array
    down: Linear
    down_bias: Array
    down_norm: tuple[Array, Array]


class Encoder(msgspec.Struct, frozen=True):
    """All weights. ``words`` of kind Int8 has one scale per row (word)."""

    words: Linear
    positions: Array
    """float32 (positions, dim); the vector of token type 0 is added already."""
    norm: tuple[Array, Array]
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float = 1e-12

    @property
    def dim(self) -> int:
        return int(self.positions.shape[1])


def int8_columns(matrix: Array) -> Int8:
    """float32 (inputs, outputs) rounded to int8 with one scale per output."""
    scales = np.maximum(np.abs(matrix).max(axis=0), 1e-12) / 127
    return Int8(np.rint(matrix / scales).astype(np.int8), scales.astype(np.float32))


def int8_rows(matrix: Array) -> Int8:
    """float32 (rows, dim) rounded to int8 with one scale per row."""
    scales = np.maximum(np.abs(matrix).max(axis=1), 1e-12) / 127
    return Int8(np.rint(matrix / scales[:, None]).astype(np.int8), scales.astype(np.float32))


def save(encoder: Encoder, folder: Path, precision: Precision) -> dict[str, str]:
    """Write the model into ``folder``; SHA-256 by file name. Inputs input_ids and attention_mask, output embedding."""
    graph = Graph()
    ids = graph.input("input_ids", np.int64, ("batch", "tokens"))
    mask = graph.input("attention_mask", np.int64, ("batch", "tokens"))
    graph.output("embedding", np.float32, ("batch", encoder.dim))
    x = _embedding(graph, encoder, ids)
    graph.node("Cast", [mask], "mask32", to=6)
    graph.weight("thirds", np.array([encoder.dim] * 3, np.int64))
    for number, layer in enumerate(encoder.layers):
        x = _layer(graph, encoder, layer, f"l{number}.", x, precision)
    _pool(graph, x, mask)
    return graph.save(folder, f"BERT encoder, {precision}")


def _embedding(graph: Graph, encoder: Encoder, ids: str) -> str:
    graph.weight("zero", np.array([0], np.int64))
    graph.weight("last", np.array([-1], np.int64))
    graph.node("Shape", [ids], "length", start=1, end=2)
    words = (
        _int8_words(graph, encoder.words, ids) if isinstance(encoder.words, Int8) else _int4_words(graph, encoder, ids)
    )
    graph.weight("positions", encoder.positions)
    # A Slice by Shape: position ids through Range and Gather are rewritten by onnxruntime 1.32 into an invalid Slice.
    graph.node("Slice", ["positions", "zero", "length", "zero"], "here")
    graph.node("Add", [words, "here"], "placed")
    return _norm(graph, "placed", encoder.norm, "embedded", encoder.epsilon)


def _int8_words(graph: Graph, words: Int8, ids: str) -> str:
    graph.weight("words", words.values)
    graph.weight("word_scales", words.scales)
    graph.node("Gather", ["words", ids], "rows8")
    graph.node("Cast", ["rows8"], "rows", to=1)
    graph.node("Gather", ["word_scales", ids], "row_scales")
    graph.node("Unsqueeze", ["row_scales", "last"], "row_scale")
    return graph.node("Mul", ["rows", "row_scale"], "word_vectors")


def _int4_words(graph: Graph, encoder: Encoder, ids: str) -> str:
    words = encoder.words
    assert isinstance(words, Int4)
    graph.weight("words", words.packed)
    graph.weight("word_scales", words.scales)
    graph.weight("four", np.array(4, np.uint8))
    graph.weight("eight", np.array(8, np.float32))
    graph.weight("flat", np.array([0, 0, encoder.dim], np.int64))
    graph.node("Gather", ["words", ids], "bytes")
    graph.node("BitShift", ["bytes", "four"], "high", direction="RIGHT")
    graph.node("BitShift", ["bytes", "four"], "raised", direction="LEFT")
    graph.node("BitShift", ["raised", "four"], "low", direction="RIGHT")
    graph.node("Concat", ["low", "high"], "numbers8", axis=3)
    graph.node("Cast", ["numbers8"], "numbers", to=1)
    graph.node("Sub", ["numbers", "eight"], "centred")
    graph.node("Gather", ["word_scales", ids], "row_scales")
    graph.node("Unsqueeze", ["row_scales", "last"], "row_scale")
    graph.node("Mul", ["centred", "row_scale"], "scaled")
    return graph.node("Reshape", ["scaled", "flat"], "word_vectors")


def _norm(graph: Graph, x: str, norm: tuple[Array, Array], name: str, epsilon: float) -> str:
    gain, bias = graph.weight(f"{name}.gain", norm[0]), graph.weight(f"{name}.bias", norm[1])
    return graph.node("LayerNormalization", [x, gain, bias], name, axis=-1, epsilon=epsilon)


def _layer(graph: Graph, encoder: Encoder, layer: Layer, at: str, x: str, precision: Precision) -> str:
    joined = _linear(graph, x, layer.qkv, f"{at}qkv", precision, QKV_BLOCK)
    q, k, v = f"{at}q", f"{at}k", f"{at}v"
    graph.node("Split", [joined, "thirds"], [q, k, v], axis=-1)
    bias = graph.weight(f"{at}qkv.bias", layer.qkv_bias)
    attended = graph.node(
        "MultiHeadAttention", [q, k, v, bias, "mask32"], f"{at}attended", MICROSOFT, num_heads=encoder.heads
    )
    out = _linear(graph, attended, layer.out, f"{at}out", precision, BLOCK)
    y = _add_norm(graph, out, x, layer.out_norm, layer.out_bias, f"{at}out.norm", encoder.epsilon)
    up = _linear(graph, y, layer.up, f"{at}up", precision, BLOCK)
    graph.weight(f"{at}up.bias", layer.up_bias)
    activated = graph.node("BiasGelu", [up, f"{at}up.bias"], f"{at}activated", MICROSOFT)
    down = _linear(graph, activated, layer.down, f"{at}down", precision, BLOCK)
    return _add_norm(graph, down, y, layer.down_norm, layer.down_bias, f"{at}down.norm", encoder.epsilon)


def _add_norm(
    graph: Graph, x: str, residual: str, norm: tuple[Array, Array], bias: Array, name: str, epsilon: float
) -> str:
    inputs = [x, residual, graph.weight(f"{name}.gain", norm[0]), graph.weight(f"{name}.shift", norm[1])]
    inputs.append(graph.weight(f"{name}.bias", bias))
    return graph.node("SkipLayerNormalization", inputs, name, MICROSOFT, epsilon=epsilon)


def _linear(graph: Graph, x: str, weights: Linear, name: str, precision: Precision, block: int) -> str:
    if isinstance(weights, Int4):
        rows, blocks, _ = weights.packed.shape
        graph.weight(f"{name}.w", _neighbours(weights.packed))
        graph.weight(f"{name}.s", weights.scales)
        return graph.node(
            "MatMulNBits", [x, f"{name}.w", f"{name}.s"], f"{name}.y", MICROSOFT,
            K=blocks * 32, N=rows, bits=4, block_size=32, accuracy_level=INT8_ACTIVATIONS,
        )  # fmt: skip
    inputs, outputs = weights.values.shape
    unsigned = (weights.values.astype(np.int16) + ZERO).astype(np.uint8)
    if precision == "dynamic":
        # Signed ones would be as good on processors with VNNI; on others, pairs of products overflow their 16 bits
        # (onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "S8S8 and U8S8").
        graph.weight(f"{name}.w", unsigned)
        graph.weight(f"{name}.s", weights.scales)
        graph.weight(f"{name}.z", np.full(outputs, ZERO, np.uint8))
        return graph.node("DynamicQuantizeMatMul", [x, f"{name}.w", f"{name}.s", f"{name}.z"], f"{name}.y", MICROSOFT)
    block = math.gcd(inputs, block)  # widths are multiples of 32 in every BERT
    blocks = inputs // block
    graph.weight(f"{name}.w", unsigned.T.reshape(outputs, blocks, block))
    graph.weight(f"{name}.s", np.repeat(weights.scales[:, None], blocks, axis=1))
    return graph.node(
        "MatMulNBits", [x, f"{name}.w", f"{name}.s"], f"{name}.y", MICROSOFT,
        K=inputs, N=outputs, bits=8, block_size=block, accuracy_level=INT8_ACTIVATIONS,
    )  # fmt: skip


def _neighbours(packed: Array) -> Array:
    """The same numbers in MatMulNBits' order: byte i holds numbers 2i (low half) and 2i + 1."""
    numbers = np.concatenate([packed & 15, packed >> 4], axis=2)
    paired: Array = numbers[:, :, 0::2] | numbers[:, :, 1::2] << 4
    return paired


def _pool(graph: Graph, x: str, mask: str) -> None:
    graph.weight("one", np.array([1], np.int64))
    graph.weight("two", np.array([2], np.int64))
    graph.weight("tiny", np.array(1e-9, np.float32))
    graph.node("Cast", [mask], "kept", to=1)
    graph.node("Unsqueeze", ["kept", "two"], "kept3")
    graph.node("Mul", [x, "kept3"], "own")
    graph.node("ReduceSum", ["own", "one"], "sum", keepdims=0)
    graph.node("ReduceL2", ["sum"], "norm", axes=[1], keepdims=1)
    graph.node("Max", ["norm", "tiny"], "positive")
    # The mean differs from the sum by a factor, which the norm takes out.
    graph.node("Div", ["sum", "positive"], "embedding")
