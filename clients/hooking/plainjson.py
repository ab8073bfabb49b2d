"""
JSON without the ``json`` module, whose import (it brings ``re``) would cost as much as everything else the hook client does.

Uses the accelerator that ``json`` itself uses; where that is missing or has changed, ``json``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SPACE = " \t\r\n"


class _Settings:
    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # the accelerator reads it from an instance


def loads(text: str) -> Any:
    """The value in ``text``. Raises ValueError."""
    try:
        from _json import make_scanner

        scan = make_scanner(_Settings())  # type: ignore[arg-type]  # the stub wants one of its own kind
    except (ImportError, AttributeError, TypeError):
        import json

        return json.loads(text, strict=False)
    start = len(text) - len(text.lstrip(_SPACE + "\ufeff"))
    try:
        value, end = scan(text, start)
    except (StopIteration, SystemError):
        # The accelerator's own error lives in ``json``; without that imported it cannot raise it.
        raise ValueError("not JSON") from None
    if text[end:].strip(_SPACE):
        raise ValueError("more than one JSON value")
    return value


def quoted(text: str) -> str:
    """``text`` as a JSON string, ASCII only."""
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        import json

        return json.dumps(text)
    return str(encode_basestring_ascii(text))
