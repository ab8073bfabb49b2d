"""
Transformer layers that multiply int8 weights with activations of 8 bits, each row (token) with a scale of its own.

A row's numbers depend on that row alone, so a text has the same vector whatever is in its batch. One number far from the rest
would take the whole scale for itself: the few channels that every text has such numbers in (``Outliers``) are centred and
shrunk, and their weights grow by as much, as in SmoothQuant (Xiao et al. 2022, https://arxiv.org/abs/2211.10438).

The hidden state is a matrix of rows here, and carries the bias of the sum that it will be part of: one addition less each time.
"""

from __future__ import annotations

import numpy as np

from .encoder import Encoder, Int8, Layer, Linear, Outliers, int8_columns
from .onnxfile import MICROSOFT, Array, Graph

ZERO = 128
"""The number that stands for 0 where signed numbers are stored unsigned."""

LEAST_GELU = -0.17
"""No value of GELU is smaller: what is added to it to make it unsigned."""

DISABLED_FUSIONS = ("SkipLayerNormFusion",)
"""What onnxruntime must leave apart: its fused sum and norm takes 57 us for 20 rows, the two by themselves 28."""


def layers(graph: Graph, encoder: Encoder, placed: str, ids: str, mask: str) -> str:
    """
    The whole encoder behind ``placed``, the sum of word and position vectors (batch, tokens, dim): the last hidden state, in
    that shape.
    """
    _constants(graph, encoder, ids)
    x = graph.node("Reshape", [placed, "flat"], "placed.rows")
    biases = [*(layer.out_bias for layer in encoder.layers), np.zeros(encoder.dim, np.float32)]
    x = _norm(graph, encoder, x, encoder.norm, biases[0], "embedded")
    for number, layer in enumerate(encoder.layers):
        x = _layer(graph, encoder, layer, f"l{number}.", x, mask, biases[number + 1])
    return graph.node("Reshape", [x, "whole"], "hidden")


def _constants(graph: Graph, encoder: Encoder, ids: str) -> None:
    dim = encoder.dim
    for name, size in (("thirds", [dim] * 3), ("flat", [-1, dim]), ("one_dim", [dim]), ("three_dims", [dim * 3])):
        graph.weight(name, np.array(size, np.int64))
    for name, steps in (("signed_step", 127), ("unsigned_step", 255)):
        graph.weight(name, np.array(1 / steps, np.float32))
    graph.weight("no_zero", np.array(0, np.uint8))
    graph.weight("zero8", np.array(ZERO, np.uint8))
    graph.weight("raise", np.array(-LEAST_GELU, np.float32))
    graph.node("Shape", [ids], "sizes")
    graph.node("Concat", ["sizes", "one_dim"], "whole", axis=0)
    graph.node("Concat", ["sizes", "three_dims"], "whole3", axis=0)
    graph.node("Reshape", [ids, graph.weight("any", np.array([-1], np.int64))], "all_ids")
    graph.node("Shape", ["all_ids"], "row_count")
    graph.node("Expand", ["zero8", "row_count"], "zeros8")


def _layer(graph: Graph, encoder: Encoder, layer: Layer, at: str, x: str, mask: str, bias_after: Array) -> str:
    """``x`` carries ``layer.out_bias``; what is returned carries ``bias_after``."""
    calm, weights, gained = _calmed(graph, x, layer.qkv, layer.qkv_outliers, layer.out_bias, f"{at}qkv")
    joined = graph.node("Reshape", [_linear(graph, calm, weights, f"{at}qkv"), "whole3"], f"{at}joined")
    q, k, v = f"{at}q", f"{at}k", f"{at}v"
    graph.node("Split", [joined, "thirds"], [q, k, v], axis=-1)
    bias = graph.weight(f"{at}qkv.bias", layer.qkv_bias + gained)
    whole = graph.node("MultiHeadAttention", [q, k, v, bias, mask], f"{at}whole", MICROSOFT, num_heads=encoder.heads)
    attended = graph.node("Reshape", [whole, "flat"], f"{at}attended")
    summed = graph.node("Add", [_linear(graph, attended, layer.out, f"{at}out"), x], f"{at}out.sum")
    down_bias = layer.down_bias + LEAST_GELU * _floats(layer.down).sum(axis=0)
    y = _norm(graph, encoder, summed, layer.out_norm, down_bias, f"{at}out.norm")

    calm, weights, gained = _calmed(graph, y, layer.up, layer.up_outliers, down_bias, f"{at}up")
    up = _linear(graph, calm, weights, f"{at}up")
    graph.weight(f"{at}up.bias", layer.up_bias + gained)
    activated = graph.node("BiasGelu", [up, f"{at}up.bias"], f"{at}activated", MICROSOFT)
    raised = graph.node("Add", [activated, "raise"], f"{at}raised")
    down = _linear(graph, raised, layer.down, f"{at}down", unsigned=True)
    summed = graph.node("Add", [down, y], f"{at}down.sum")
    return _norm(graph, encoder, summed, layer.down_norm, bias_after, f"{at}down.norm")


def _norm(graph: Graph, encoder: Encoder, x: str, norm: tuple[Array, Array], carried: Array, name: str) -> str:
    gain, shift = graph.weight(f"{name}.gain", norm[0]), graph.weight(f"{name}.shift", norm[1] + carried)
    return graph.node("LayerNormalization", [x, gain, shift], name, axis=-1, epsilon=encoder.epsilon)


def _calmed(
    graph: Graph, x: str, weights: Linear, outliers: Outliers, carried: Array, name: str
) -> tuple[str, Int8, Array]:
    """
    ``x`` without the bias that it carries and with its outliers centred and shrunk; the weights for that; and what the centres
    come to behind them, to be added to the bias.
    """
    assert isinstance(weights, Int8)
    centres, factors = np.zeros(len(carried), np.float32), np.ones(len(carried), np.float32)
    for channel, (centre, factor) in outliers.items():
        centres[channel], factors[channel] = centre, factor
    shrunk = graph.node("Mul", [x, graph.weight(f"{name}.shrink", 1 / factors)], f"{name}.shrunk")
    offset = graph.weight(f"{name}.offset", -(carried + centres) / factors)
    calm = graph.node("Add", [shrunk, offset], f"{name}.calm")
    if not outliers:
        return calm, weights, np.zeros(weights.values.shape[1], np.float32)
    matrix = _floats(weights)
    return calm, int8_columns(matrix * factors[:, None]), centres @ matrix


def _linear(graph: Graph, x: str, weights: Linear, name: str, *, unsigned: bool = False) -> str:
    """``x`` float32 (rows, inputs), not negative if ``unsigned``, times the weights: float32 (rows, outputs)."""
    assert isinstance(weights, Int8)
    # Weights are stored unsigned: with signed ones pairs of products overflow their 16 bits on processors without VNNI
    # (onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "S8S8 and U8S8").
    graph.weight(f"{name}.w", (weights.values.astype(np.int16) + ZERO).astype(np.uint8))
    graph.weight(f"{name}.s", weights.scales)
    size = x if unsigned else graph.node("Abs", [x], f"{name}.size")
    graph.node("ReduceMax", [size], f"{name}.most", axes=[1], keepdims=0)
    scale = graph.node("Mul", [f"{name}.most", "unsigned_step" if unsigned else "signed_step"], f"{name}.scale")
    zeros = [] if unsigned else ["zeros8"]
    graph.node("QuantizeLinear", [x, scale, *zeros], f"{name}.x8", axis=0)
    graph.node("Unsqueeze", [scale, "last"], f"{name}.scales")
    inputs = [f"{name}.x8", f"{name}.w", f"{name}.scales", f"{name}.s", "no_zero" if unsigned else "zero8", "zero8"]
    return graph.node("MatMulIntegerToFloat", inputs, f"{name}.y", MICROSOFT)


def _floats(weights: Linear) -> Array:
    assert isinstance(weights, Int8)
    matrix: Array = weights.values.astype(np.float32) * weights.scales
    return matrix
