"""
Just enough of the ONNX file format (protobuf, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto) to take the weights
out of a model and to write a new one whose weights lie beside it, in a file that the runtime maps into memory.

The onnx package would do as much, and weighs more than everything else that recalld installs for its models.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Attribute = int | float | str | Sequence[int]

IR_VERSION = 9
OPSET = 17
MICROSOFT = "com.microsoft"
WEIGHTS = "weights.bin"
INLINE_BYTES = 1024
"""Smaller tensors stay in the graph: the runtime reads shapes and scalars from there while it loads."""
ALIGN = 4096
"""Page size: the runtime maps each tensor separately, and a map starts on a page."""

DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("u1"),
    3: np.dtype("i1"),
    6: np.dtype("<i4"),
    7: np.dtype("<i8"),
    10: np.dtype("<f2"),
}
CODES = {dtype: code for code, dtype in DTYPES.items()}


class BadModelFile(Exception):
    """Raised when bytes are not an ONNX model of the kind that is read here."""


# Reading


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
            case 2:
                size, at = _varint(data, at)
                yield key >> 3, data[at : at + size]
                at += size
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                yield key >> 3, data[at : at + size]
                at += size
            case kind:
                raise BadModelFile(f"protobuf wire type {kind} at byte {at}")
    if at > len(data):
        raise BadModelFile("the file is cut short")


def read_tensors(content: bytes) -> dict[str, Array]:
    """The named weights of an ONNX model that carries them inside. Raises BadModelFile."""
    tensors: dict[str, Array] = {}
    try:
        for number, graph in _fields(memoryview(content)):
            if number == 7 and isinstance(graph, memoryview):
                for inner, tensor in _fields(graph):
                    if inner == 5 and isinstance(tensor, memoryview):
                        name, array = _tensor(tensor)
                        tensors[name] = array
    except (IndexError, ValueError, KeyError, UnicodeDecodeError) as error:
        raise BadModelFile(f"not an ONNX model: {error}") from None
    return tensors


def _tensor(data: memoryview) -> tuple[str, Array]:
    name, code, shape, raw = "", 1, [], memoryview(b"")
    for number, value in _fields(data):
        match number, value:
            case 1, int():
                shape.append(value)
            case 1, memoryview():
                at = 0
                while at < len(value):
                    size, at = _varint(value, at)
                    shape.append(size)
            case 2, int():
                code = value
            case 8, memoryview():
                name = bytes(value).decode()
            case 9, memoryview():
                raw = value
    if code not in DTYPES or not raw:  # bool masks and constants in typed fields are no weights
        return name, np.zeros(0, np.float32)
    return name, np.frombuffer(raw, DTYPES[code]).reshape(shape)


# Writing


def _encoded(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _encoded(field << 3) + _encoded(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return _encoded(field << 3 | 2) + _encoded(len(content)) + content


def _attribute(name: str, value: Attribute) -> bytes:
    match value:
        case float():
            body = _encoded(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
        case int():
            body = _number(3, value) + _number(20, 2)
        case str():
            body = _bytes(4, value) + _number(20, 3)
        case _:
            body = b"".join(_number(8, item) for item in value) + _number(20, 7)
    return _bytes(1, name) + body


def _value_info(name: str, code: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(_bytes(1, _bytes(2, dim) if isinstance(dim, str) else _number(1, dim)) for dim in shape)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, code) + _bytes(2, dims)))


class Graph:
    """An ONNX graph in the making. ``weight`` and ``node`` return the name of what they added."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: dict[str, Array] = {}
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        self._inputs.append(_value_info(name, CODES[np.dtype(dtype)], shape))
        return name

    def output(self, name: str, dtype: Any, shape: Sequence[int | str]) -> None:
        self._outputs.append(_value_info(name, CODES[np.dtype(dtype)], shape))

    def weight(self, name: str, values: Array) -> str:
        self._weights[name] = np.ascontiguousarray(values)
        return name

    def node(
        self, kind: str, inputs: Sequence[str], outputs: str | Sequence[str], domain: str = "", **attributes: Attribute
    ) -> str:
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in names)
        body += _bytes(4, kind) + b"".join(_bytes(5, _attribute(k, v)) for k, v in attributes.items())
        self._nodes.append(body + (_bytes(7, domain) if domain else b""))
        return names[0]

    def save(self, folder: Path, note: str) -> dict[str, str]:
        """
        Write model.onnx and weights.bin into ``folder``; returns their SHA-256 by file name.

        ``note`` and the digest of weights.bin go into model.onnx, so that its own digest names all of the model.
        """
        digest = hashlib.sha256()
        tensors: list[bytes] = []
        at = 0
        with open(folder / WEIGHTS, "wb") as file:
            for name, array in self._weights.items():
                head = b"".join(_number(1, size) for size in array.shape) + _number(2, CODES[array.dtype])
                head += _bytes(8, name)
                content = array.tobytes()
                if len(content) < INLINE_BYTES:
                    tensors.append(head + _bytes(9, content))
                    continue
                padding = bytes(-at % ALIGN)
                file.write(padding + content)
                digest.update(padding + content)
                place = {"location": WEIGHTS, "offset": str(at + len(padding)), "length": str(len(content))}
                entries = b"".join(_bytes(13, _bytes(1, key) + _bytes(2, value)) for key, value in place.items())
                tensors.append(head + entries + _number(14, 1))
                at += len(padding) + len(content)
            file.flush()
            os.fsync(file.fileno())
        graph = b"".join(_bytes(1, node) for node in self._nodes) + _bytes(2, "encoder")
        graph += b"".join(_bytes(5, tensor) for tensor in tensors)
        graph += b"".join(_bytes(11, item) for item in self._inputs)
        graph += b"".join(_bytes(12, item) for item in self._outputs)
        opsets = _bytes(8, _bytes(1, "") + _number(2, OPSET)) + _bytes(8, _bytes(1, MICROSOFT) + _number(2, 1))
        doc = f"{note}; {WEIGHTS} sha256:{digest.hexdigest()}"
        model = _number(1, IR_VERSION) + _bytes(2, "recalld") + _bytes(6, doc) + _bytes(7, graph) + opsets
        (folder / "model.onnx").write_bytes(model)
        return {"model.onnx": hashlib.sha256(model).hexdigest(), WEIGHTS: digest.hexdigest()}
