"""JSON-RPC on lines: splitting, the few messages made here, and what is remembered of a request."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

MAX_LINE_BYTES = 15 * 1024 * 1024
"""Below the daemon's own cap of 16 MiB: what passes here passes there, and is not sent again and again."""
META = "io.modelcontextprotocol/"
CONNECTION_CLOSED = -32000
"""What the SDK answers calls in flight with when its process is told to stop: not an answer, the call is sent again."""
PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR, UNSUPPORTED_VERSION = -32700, -32600, -32603, -32022


def encode(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def error(request_id: object, code: int, text: str, data: object = None) -> bytes:
    detail: Json = {"code": code, "message": text}
    if data is not None:
        detail["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": detail})


class Lines:
    """Bytes to lines. A line over the cap is skipped, and reported as None once."""

    def __init__(self, cap: int = MAX_LINE_BYTES) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._searched = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        self._buffer += data
        found: list[bytes | None] = []
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._searched = 0
            if self._skipping:
                self._skipping = False
            elif not line.isspace():
                found.append(line)
        self._searched = len(self._buffer)
        if self._searched > self._cap:
            self._buffer.clear()
            self._searched = 0
            if not self._skipping:
                found.append(None)
            self._skipping = True
        return found


class Request:
    """A request of the client that has no answer yet."""

    __slots__ = ("deadline", "id", "line", "message", "method", "since")

    def __init__(self, line: bytes, message: Json, now: float) -> None:
        self.line = line
        self.message = message
        self.id = message["id"]
        self.method = message["method"]
        self.since = now
        self.deadline: float | None = None

    @property
    def params(self) -> Json:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def version(self) -> str:
        """The protocol version in the request's own envelope; "" in the era of the handshake."""
        meta = self.params.get("_meta")
        version = meta.get(META + "protocolVersion", "") if isinstance(meta, dict) else ""
        return version if isinstance(version, str) else ""

    @property
    def is_modern(self) -> bool:
        return self.version != "" and self.method != "initialize"


def cancellation(request: Request) -> Json:
    params: Json = {"requestId": request.id, "reason": "timeout"}
    if request.is_modern:
        params["_meta"] = request.params["_meta"]
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
