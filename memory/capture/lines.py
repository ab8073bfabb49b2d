"""Lines of JSON that agents write: a hook client's to a Wire, and what JavaScript makes of a text that it cut."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from .events import Wire

T = TypeVar("T")
_decode = msgspec.json.Decoder(Wire).decode
# Escape by escape, so that the backslash of one is not taken for the beginning of the next.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def read(line: bytes) -> Wire:
    """The content of a hook client's line. Raises msgspec.MsgspecError, RecursionError."""
    return decoded(line, _decode)


def decoded(line: bytes, decode: Callable[[bytes], T]) -> T:
    """
    What ``decode`` makes of ``line``. Half a surrogate pair, which is left where a text was cut within an emoji, is U+FFFD.
    Raises what ``decode`` raises.
    """
    try:
        return decode(line)
    except msgspec.DecodeError:
        mended = _ESCAPES.sub(lambda found: rb"\ufffd" if found["half"] else found[0], line)
        if mended == line:
            raise
        return decode(mended)
