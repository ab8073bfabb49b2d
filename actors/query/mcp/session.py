"""
``mcp.sock``: newline-delimited JSON, one session per connection.

The first line says who connects: ``{"recalld": 1, "role": "mcp" | "hook", "key", "cwd", "host", "session", …}``.

- ``mcp`` (the stdio bridge): answered with ``{"recalld": 1, "manifest": …}``, then MCP's own JSON-RPC in both directions.
  ``{"recalld": "probe"}`` is answered with ``{"recalld": "alive"}`` at any time.
- ``hook``: one JSON request line, one JSON reply line.

The MCP SDK takes about a second to import, so it is imported beside everything else after the socket is open: hooks are
answered meanwhile, and a bridge is told that it is being loaded.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from ....protocol.lines import LineReader, LineWriter, read_line, serve_lines
from ....protocol.version import VERSION
from . import sdk
from .desk import Ask, Desk, Facts, caller_of

if TYPE_CHECKING:
    from .server import McpServer

FIRST_LINE_S = 10.0
"""A client that connects and says nothing is closed after this long."""
LOADING_S = 0.2
"""How often a waiting bridge is told that this process lives while the SDK is imported."""
MANIFEST = Path(__file__).parents[3] / "clients" / "manifest.json"

log = logging.getLogger("recalld.query.mcp")


class Sessions:
    """All connections on ``mcp.sock``."""

    def __init__(self, ask: Ask, facts: Facts) -> None:
        self.desk = Desk(ask, facts)
        self.open = 0
        self._loaded = anyio.Event()
        self._server: McpServer | None = None
        self._manifest = manifest_hash()

    def figures(self) -> dict[str, float]:
        """For vitals."""
        return {
            "mcp_sessions": self.open,
            "mcp_calls_total": self.desk.calls_total,
            "mcp_calls_running": self.desk.running,
            "mcp_calls_refused": self.desk.refused,
        }

    async def serve(self, listener: socket.socket, *, after: anyio.Event | None = None) -> None:
        """Serve until cancelled. The SDK's import leaves the interpreter alone until ``after`` is set."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._load, after)
            await serve_lines(listener, self._connection)

    async def _load(self, after: anyio.Event | None) -> None:
        if after is not None:
            await after.wait()
        module = await anyio.to_thread.run_sync(sdk.import_server)
        self._server = module.McpServer(self.desk)
        self._loaded.set()

    async def _connection(self, reader: LineReader, writer: LineWriter) -> None:
        first: Any = None
        with anyio.move_on_after(FIRST_LINE_S):
            first = _object(await read_line(reader))
        if first is None or first.get("recalld") != 1 or first.get("role") not in ("mcp", "hook"):
            log.warning("closed a connection on mcp.sock whose first line does not name its role")
            return
        if first["role"] == "hook":
            await self._hook(first, reader, writer)
        else:
            await self._mcp(first, reader, writer)

    async def _hook(self, first: Mapping[str, Any], reader: LineReader, writer: LineWriter) -> None:
        request = first if "op" in first else _object(await read_line(reader))
        reply = {"error": "a hook request is one JSON object on one line"}
        if request is not None:
            reply = await self.desk.hook(request, caller_of(first))
        writer.write(msgspec.json.encode(reply) + b"\n")
        await writer.drain()

    async def _mcp(self, first: Mapping[str, Any], reader: LineReader, writer: LineWriter) -> None:
        self.open += 1
        try:
            await self._greet(writer)
            assert self._server is not None
            await self._server.serve(caller_of(first), reader, writer)
        finally:
            self.open -= 1

    async def _greet(self, writer: LineWriter) -> None:
        facts = self.desk.facts
        hello = {
            "recalld": 1,
            "version": VERSION,
            "pid": os.getpid(),
            "manifest": self._manifest,
            "toolset": facts.config.recall.toolset,
            "budget_ms": self.desk.recall_budget_ms,
        }
        writer.write(msgspec.json.encode(hello) + b"\n")
        await writer.drain()
        while not self._loaded.is_set():
            with anyio.move_on_after(LOADING_S):
                await self._loaded.wait()
                return
            writer.write(b'{"recalld":"loading"}\n')
            await writer.drain()


async def serve(listener: socket.socket, ask: Ask, facts: Facts) -> None:
    """Serve ``mcp.sock`` until cancelled."""
    await Sessions(ask, facts).serve(listener)


def manifest_hash() -> str:
    """The hash that the packaged manifest of the bridge carries; '' when it cannot be read."""
    try:
        data = msgspec.json.decode(MANIFEST.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return ""
    value = data.get("hash")
    return value if isinstance(value, str) else ""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
