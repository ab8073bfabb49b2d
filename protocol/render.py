"""
Replies as plain JSON values: one shape for `--json` on the command line and for an MCP tool's structuredContent.

Fields at their default are left out, except those that a script may rely on (named per reply here).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from .messages.capture import Handoff, Letter
from .messages.common import Message
from .messages.recall import Answer, Hit, LintReport

SCORE_DIGITS = 4


def plain(message: msgspec.Struct, *always: str) -> dict[str, Any]:
    """``message`` without its tag; fields named in ``always`` are there even at their default."""
    data: dict[str, Any] = msgspec.to_builtins(message)
    if isinstance(message, Message):
        data.pop("type", None)
    for name in always:
        if name not in data:
            data[name] = msgspec.to_builtins(getattr(message, name))
    return data


def answer(reply: Answer) -> dict[str, Any]:
    """`ask --json` and the `recall` tool: ``hits``, ``degraded``, ``took_ms``, ``confidence``, ``known`` and what else is set."""
    rest = plain(reply, "hits", "degraded", "took_ms", "confidence", "known")
    rest.pop("hits")
    data = {"hits": [hit(one) for one in reply.hits], "degraded": list(reply.degraded), **rest}
    data["degraded"] = list(reply.degraded)
    data["took_ms"] = round(reply.took_ms, 2)
    data["confidence"] = round(reply.confidence, SCORE_DIGITS)
    return data


def hit(one: Hit) -> dict[str, Any]:
    """One hit; ``lines`` is [from, to], 1-based and inclusive."""
    data = plain(one, "path", "title", "score", "lines", "passage", "streams")
    data["lines"] = list(one.lines)
    data["score"] = round(one.score, SCORE_DIGITS)
    for stream in data["streams"].values():
        stream["score"] = round(stream["score"], SCORE_DIGITS)
        if stream.get("weight") == 1.0:
            del stream["weight"]
    if one.factors:
        data["factors"] = {name: round(value, SCORE_DIGITS) for name, value in one.factors.items()}
    return data


def handoff(one: Handoff) -> dict[str, Any]:
    """A handoff with its times as ISO instants in UTC."""
    data = plain(one, "automatic", "state")
    data["at"] = instant(data.pop("at_ms"))
    if "accepted_at_ms" in data:
        data["accepted_at"] = instant(data.pop("accepted_at_ms"))
    return data


def letter(one: Letter) -> dict[str, Any]:
    """A message between projects with its times as ISO instants in UTC."""
    data = plain(one, "state")
    data["at"] = instant(data.pop("at_ms"))
    if "read_at_ms" in data:
        data["read_at"] = instant(data.pop("read_at_ms"))
    return data


def lint(report: LintReport) -> dict[str, Any]:
    """`lint --json` and the tool."""
    data = plain(report)
    for finding in data["findings"]:
        finding.pop("vault_id", None)
    return data


def instant(at_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
