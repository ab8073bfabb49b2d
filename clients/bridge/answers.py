"""What the bridge answers by itself: static questions from the manifest, and calls that no daemon answered in time."""

from __future__ import annotations

import json
import os

from .wire import INTERNAL_ERROR, UNSUPPORTED_VERSION, Request, encode, error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
READS = {"recall", "read_note", "related", "recent", "status", "briefing", "handoff_list", "session_events"}


class Manifest:
    """Answers to the static questions, as the daemon of this package's version would give them."""

    def __init__(self, content: Json) -> None:
        self._content = content
        self.toolset = "default"
        self.is_stale = False
        """The daemon is of another version: its own lists are better, when it is there."""

    @classmethod
    def packaged(cls) -> Manifest:
        with open(os.path.join(FOLDER, "manifest.json"), encoding="utf-8") as file:
            return cls(json.load(file))

    def learn(self, hello: Json) -> bool:
        """Take the daemon's first line in; true when its lists differ from those told so far."""
        before = (self.toolset, self.is_stale)
        self.is_stale = hello.get("manifest") != self._content["hash"]
        if hello.get("toolset") in self._content["toolsets"]:
            self.toolset = hello["toolset"]
        return before != (self.toolset, self.is_stale)

    def knows(self, request: Request) -> bool:
        return request.method in self._of(request)

    def answer(self, request: Request) -> bytes:
        """For a request that it ``knows``."""
        if request.is_modern and request.version not in self._content["modern_versions"]:
            data = {"supported": self._content["modern_versions"], "requested": request.version}
            return error(request.id, UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        result = self._of(request)[request.method]
        if request.method == "initialize":
            asked, known = request.params.get("protocolVersion"), self._content["legacy_versions"]
            result = {**result, "protocolVersion": asked if asked in known else known[-1]}
        return encode({"jsonrpc": "2.0", "id": request.id, "result": result})

    def server_meta(self) -> Json:
        """What a modern result carries in ``_meta``."""
        meta: Json = self._content["toolsets"]["default"]["modern"]["server/discover"]["_meta"]
        return meta

    def _of(self, request: Request) -> Json:
        views: Json = self._content["toolsets"][self.toolset]["modern" if request.is_modern else "legacy"]
        return views


def degraded(request: Request, manifest: Manifest, why: str) -> bytes:
    """The answer to a request that no daemon answered in time: well-formed, and saying what to do."""
    advice = f"recalld {why}. `recalld status` says more, `recalld up` starts it."
    if request.method != "tools/call":
        return error(request.id, INTERNAL_ERROR, f"{advice} Try again in a moment.")
    tool = request.params.get("name")
    structured: Json
    if tool == "recall":
        note = f"No notes were searched: {advice} Go on without them, or ask again later."
        structured = {"hits": [], "degraded": ["query"], "took_ms": 0, "note": note}
    elif tool == "status":
        note = advice
        structured = {"ok": False, "degraded": ["query"], "index": {}, "note": note}
    else:
        what = "Nothing was read" if tool in READS else "It is not known to have been stored"
        note = f"{what}: {advice} Try again in a moment, or go on without it."
        structured = {"error": {"code": "unavailable", "text": note, "retryable": True}}
    result: Json = {
        "content": [{"type": "text", "text": note}],
        "structuredContent": structured,
        "isError": "error" in structured,
    }
    return _tool_result(request, manifest, result)


def told(request: Request, manifest: Manifest, problem: str) -> bytes:
    """The answer to a host that told an event: the empty output of a hook, or an error that says why it was lost."""
    text = f"recalld lost an event: {problem}" if problem else "{}"
    result = {"content": [{"type": "text", "text": text}], "isError": bool(problem)}
    return _tool_result(request, manifest, result)


def _tool_result(request: Request, manifest: Manifest, result: Json) -> bytes:
    if request.is_modern:
        result |= {"resultType": "complete", "_meta": manifest.server_meta()}
    return encode({"jsonrpc": "2.0", "id": request.id, "result": result})
