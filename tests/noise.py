"""Hypothesis strategies for what may come over a socket: any value of a message's type, and frames with something wrong."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["", " ", "\x00", "../x", "/etc/passwd", "a" * 5000, "\u202e", "'; DROP TABLE notes; --", '"', "[[x]]", "2024-01-01",
         "9999-99-99", "0000-00-00", "NEAR(a b)", "a*", "\U0010ffff", "%s", "{}", "-1", "vault", "x.md", "text"]
    ),
)  # fmt: skip
INTS = st.one_of(
    st.integers(-3, 300),
    st.sampled_from([-(2**63), -(2**31), -1, 0, 2**31, 2**53, 2**62, 2**63 - 1]),
    st.integers(0, 10**13),
)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e308, -1e308, math.nan, math.inf, -math.inf, 1e-308])


def of(kind: types.Type, depth: int = 0) -> st.SearchStrategy[Any]:
    """Plain values that decode as ``kind``."""
    few = 0 if depth > 4 else 3
    match kind:
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            return INTS
        case types.FloatType():
            return FLOATS
        case types.StrType():
            return TEXTS
        case types.BytesType():
            return st.one_of(st.binary(max_size=40), st.sampled_from([b"", bytes(16), bytes(768), b"\xff" * 768]))
        case types.NoneType():
            return st.none()
        case types.LiteralType():
            return st.sampled_from(kind.values)
        case types.ListType() | types.VarTupleType() | types.SetType() | types.FrozenSetType():
            return st.lists(of(kind.item_type, depth + 1), max_size=few)
        case types.TupleType():
            return st.tuples(*(of(item, depth + 1) for item in kind.item_types)).map(list)
        case types.DictType():
            return st.dictionaries(of(kind.key_type, depth + 1), of(kind.value_type, depth + 1), max_size=few)
        case types.UnionType():
            return st.one_of(*(of(each, depth) for each in kind.types))
        case types.StructType():
            return _struct(kind, depth)
        case _:
            return st.one_of(st.none(), TEXTS, INTS, st.lists(TEXTS, max_size=2))


def _struct(kind: types.StructType, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    must = {field.encode_name: of(field.type, depth + 1) for field in kind.fields if field.required}
    may = {field.encode_name: of(field.type, depth + 1) for field in kind.fields if not field.required}
    tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
    return st.fixed_dictionaries(must, optional=may).map(lambda fields: {**tag, **fields})


def message(cls: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of this class, as plain values."""
    return of(types.type_info(cls))


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """``data`` with bytes changed, cut out, doubled or put in."""
    raw = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        match draw(st.integers(0, 3)):
            case 0 if raw:
                raw[at] = draw(st.integers(0, 255))
            case 1:
                del raw[at : at + draw(st.integers(1, 8))]
            case 2:
                raw[at:at] = raw[at : at + draw(st.integers(1, 32))]
            case _:
                raw[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(raw)
