"""The weights of a BERT encoder, as they are handed from where they were read to where they are written."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from .onnxfile import Array

Outliers = Mapping[int, tuple[float, float]]
"""
Channels in which every text has numbers far from the rest: channel -> (the middle of them, how many times too far they reach).
Empty = not known.
"""


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
    qkv_outliers: Outliers = {}
    """Of what goes into the attention, and of what goes into the feed-forward part:"""
    up_outliers: Outliers = {}


class Encoder(msgspec.Struct, frozen=True):
    """All weights, the matrices of one kind. ``words`` of kind Int8 has one scale per row (word)."""

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
