"""
A BERT encoder as an ONNX graph whose matrices stay quantised in memory, with mean pooling and L2 norm inside.

Of int8 weights the layers are those of ``rows``, of 4-bit ones those below. For MiniLM-L6 on one core of a machine with AVX2 and
no VNNI (a question of 19 tokens, passages of 200, both against onnxruntime's MatMulNBits over the same weights in blocks of 32
and 128; cosine to float32, mean and least of 120 texts; resident memory after load):

============  ========  ========  ================  =====
              question  passages  cosine            MB
============  ========  ========  ================  =====
rows              0.60      0.56  0.9994 / 0.9976      21
MatMulNBits       1         1     0.9995 / 0.9981      22
============  ========  ========  ================  =====
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import rows
from .encoder import Encoder, Int4, Int8, Layer, Linear
from .onnxfile import MICROSOFT, Array, Graph

INT8_ACTIVATIONS = 4
"""MatMulNBits accuracy_level: int8 times int8 where the processor has it."""


def save(encoder: Encoder, folder: Path) -> dict[str, str]:
    """Write the model into ``folder``; SHA-256 by file name. Inputs input_ids and attention_mask, output embedding."""
    graph = Graph()
    ids = graph.input("input_ids", np.int64, ("batch", "tokens"))
    mask = graph.input("attention_mask", np.int64, ("batch", "tokens"))
    graph.output("embedding", np.float32, ("batch", encoder.dim))
    placed = _placed(graph, encoder, ids)
    graph.node("Cast", [mask], "mask32", to=6)
    if isinstance(encoder.words, Int8):
        x = rows.layers(graph, encoder, placed, ids, "mask32")
    else:
        x = _norm(graph, placed, encoder.norm, "embedded", encoder.epsilon)
        graph.weight("thirds", np.array([encoder.dim] * 3, np.int64))
        for number, layer in enumerate(encoder.layers):
            x = _layer(graph, encoder, layer, f"l{number}.", x)
    _pool(graph, x, mask)
    return graph.save(folder, "BERT encoder")


def _placed(graph: Graph, encoder: Encoder, ids: str) -> str:
    graph.weight("zero", np.array([0], np.int64))
    graph.weight("last", np.array([-1], np.int64))
    graph.node("Shape", [ids], "length", start=1, end=2)
    words = (
        _int8_words(graph, encoder.words, ids) if isinstance(encoder.words, Int8) else _int4_words(graph, encoder, ids)
    )
    graph.weight("positions", encoder.positions)
    # A Slice by Shape: position ids through Range and Gather are rewritten by onnxruntime 1.32 into an invalid Slice.
    graph.node("Slice", ["positions", "zero", "length", "zero"], "here")
    return graph.node("Add", [words, "here"], "placed")


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


def _layer(graph: Graph, encoder: Encoder, layer: Layer, at: str, x: str) -> str:
    joined = _linear(graph, x, layer.qkv, f"{at}qkv")
    q, k, v = f"{at}q", f"{at}k", f"{at}v"
    graph.node("Split", [joined, "thirds"], [q, k, v], axis=-1)
    bias = graph.weight(f"{at}qkv.bias", layer.qkv_bias)
    attended = graph.node(
        "MultiHeadAttention", [q, k, v, bias, "mask32"], f"{at}attended", MICROSOFT, num_heads=encoder.heads
    )
    out = _linear(graph, attended, layer.out, f"{at}out")
    y = _add_norm(graph, out, x, layer.out_norm, layer.out_bias, f"{at}out.norm", encoder.epsilon)
    up = _linear(graph, y, layer.up, f"{at}up")
    graph.weight(f"{at}up.bias", layer.up_bias)
    activated = graph.node("BiasGelu", [up, f"{at}up.bias"], f"{at}activated", MICROSOFT)
    down = _linear(graph, activated, layer.down, f"{at}down")
    return _add_norm(graph, down, y, layer.down_norm, layer.down_bias, f"{at}down.norm", encoder.epsilon)


def _add_norm(
    graph: Graph, x: str, residual: str, norm: tuple[Array, Array], bias: Array, name: str, epsilon: float
) -> str:
    inputs = [x, residual, graph.weight(f"{name}.gain", norm[0]), graph.weight(f"{name}.shift", norm[1])]
    inputs.append(graph.weight(f"{name}.bias", bias))
    return graph.node("SkipLayerNormalization", inputs, name, MICROSOFT, epsilon=epsilon)


def _linear(graph: Graph, x: str, weights: Linear, name: str) -> str:
    assert isinstance(weights, Int4)
    outputs, blocks, _ = weights.packed.shape
    graph.weight(f"{name}.w", _neighbours(weights.packed))
    graph.weight(f"{name}.s", weights.scales)
    return graph.node(
        "MatMulNBits", [x, f"{name}.w", f"{name}.s"], f"{name}.y", MICROSOFT,
        K=blocks * 32, N=outputs, bits=4, block_size=32, accuracy_level=INT8_ACTIVATIONS,
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
