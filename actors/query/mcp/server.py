"""
The official SDK's low-level server over our line streams: both protocol eras, one session per connection.

The only module that imports ``mcp``; ``sdk`` sees to it that little of it comes. ``serve_dual_era_loop`` is called directly,
because ``Server.run`` would enter a lifespan of its own per connection; it is not in the SDK's public list, so the dependency
is pinned and this is tested.
"""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import Any, Self

import anyio
import mcp_types as wire
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from ....protocol.envelope import ProtocolError
from ....protocol.lines import LineReader, LineTooLong, LineWriter, read_line
from ....protocol.version import VERSION
from . import resources, schemas, tools
from .desk import Desk
from .tools import Caller

LIST_TTL_MS = 300_000
"""Lists change with the configuration and with an upgrade: a client may keep them for five minutes."""
HANDSHAKE_VERSIONS: tuple[str, ...] = tuple(HANDSHAKE_PROTOCOL_VERSIONS)
MODERN_VERSIONS: tuple[str, ...] = tuple(MODERN_PROTOCOL_VERSIONS)
"""Oldest first."""
PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603

log = logging.getLogger("recalld.query.mcp")
Context = ServerRequestContext[Caller, Any]


class McpServer:
    """Speaks MCP for a Desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        hint = CacheHint(ttl_ms=LIST_TTL_MS, scope="private")
        self._server: Server[Caller] = Server(
            schemas.SERVER_NAME,
            version=VERSION,
            title=schemas.SERVER_TITLE,
            instructions=schemas.INSTRUCTIONS,
            cache_hints={
                "server/discover": hint,
                "tools/list": hint,
                "resources/list": hint,
                "resources/templates/list": hint,
            },
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        # Tracing is the SDK's outermost layer; without an exporter it only costs time on every call.
        self._server.middleware.clear()
        self._options = self._server.create_initialization_options(NotificationOptions(tools_changed=True))

    async def serve(self, caller: Caller, reader: LineReader, writer: LineWriter) -> None:
        """Serve one connection until its end."""
        incoming, outgoing = Incoming(reader, writer), Outgoing(writer)
        await serve_dual_era_loop(self._server, incoming, outgoing, lifespan_state=caller, init_options=self._options)

    async def _list_tools(self, _context: Context, _params: Any) -> wire.ListToolsResult:
        shown = schemas.listed(self._desk.facts.config.recall.toolset)
        return wire.ListToolsResult(tools=[wire.Tool.model_validate(schemas.definition(tool)) for tool in shown])

    async def _list_resources(self, _context: Context, _params: Any) -> wire.ListResourcesResult:
        return wire.ListResourcesResult(resources=[wire.Resource.model_validate(resources.STATUS)])

    async def _list_templates(self, _context: Context, _params: Any) -> wire.ListResourceTemplatesResult:
        return wire.ListResourceTemplatesResult(
            resource_templates=[wire.ResourceTemplate.model_validate(resources.NOTE)]
        )

    async def _call_tool(self, context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        if params.name not in schemas.TOOLS:
            known = ", ".join(schemas.TOOLS)
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool '{params.name}'. There are: {known}.")
        request_id = context.request_id if context.request_id is not None else ""
        result = await self._desk.call_tool(params.name, params.arguments, _caller(context), request_id)
        return wire.CallToolResult(
            content=[wire.TextContent(type="text", text=result.text)],
            structured_content=result.structured,
            is_error=result.is_error,
        )

    async def _read_resource(self, context: Context, params: wire.ReadResourceRequestParams) -> wire.ReadResourceResult:
        try:
            mime_type, text = await self._desk.read_resource(params.uri, _caller(context))
        except resources.NoResource as error:
            raise MCPError(code=INVALID_PARAMS, message=str(error)) from None
        except ProtocolError as error:
            raise MCPError(code=INTERNAL_ERROR, message=f"{error.code}: {error.text}") from None
        content = wire.TextResourceContents(uri=params.uri, mime_type=mime_type, text=text)
        return wire.ReadResourceResult(contents=[content])


def _caller(context: Context) -> Caller:
    """
    The connection's caller under the name its MCP client gives. An agent that was started by another one inherits its
    environment: then the session that the bridge saw there is not this agent's.
    """
    caller = context.lifespan_context
    client = context.session.client_params
    host = tools.host_of(client.client_info.name) if client is not None else ""
    if not host or host == caller.host:
        return caller
    return Caller(caller.key, caller.cwd, host, "" if caller.host else caller.session, caller.home)


class Incoming:
    """Lines to messages: the SDK's ReadStream. What is not a message is answered here, and the session goes on."""

    def __init__(self, reader: LineReader, writer: LineWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                line = await read_line(self._reader)
            except (OSError, LineTooLong):
                raise anyio.EndOfStream from None
            if not line:
                raise anyio.EndOfStream
            if (message := await self._message(line)) is not None:
                return SessionMessage(message)

    async def _message(self, line: bytes) -> wire.JSONRPCMessage | None:
        if line.isspace():
            return None
        if line.startswith(b'{"recalld"'):
            await self._say({"recalld": "alive"})
            return None
        try:
            return wire.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            pass
        # A lone surrogate or a stray byte in a string is no reason to lose a question.
        try:
            value = json.loads(line.decode("utf-8", "replace"))
            text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        except (ValueError, RecursionError):
            await self._refuse(None, PARSE_ERROR, "Parse error: a message is one JSON object on one line")
            return None
        if isinstance(value, list):
            await self._refuse(None, INVALID_REQUEST, "Batches are not part of MCP: send one message per line")
            return None
        try:
            return wire.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError:
            request_id = value.get("id") if isinstance(value, dict) else None
            known = request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None
            await self._refuse(known, INVALID_REQUEST, "Not a JSON-RPC 2.0 message")
            return None

    async def _refuse(self, request_id: int | str | None, code: int, text: str) -> None:
        await self._say({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    async def _say(self, value: dict[str, Any]) -> None:
        try:
            self._writer.write(json.dumps(value).encode() + b"\n")
            await self._writer.drain()
        except (OSError, RuntimeError):
            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        """The connection's owner closes the socket."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """Messages to lines: the SDK's WriteStream. A client that does not read makes its own session wait, and no other."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            self._writer.write(_line(item.message))
            await self._writer.drain()
        except (OSError, RuntimeError):
            raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _line(message: wire.JSONRPCMessage) -> bytes:
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except ValueError:
        # A file name that is not UTF-8 came back as lone surrogates: ASCII escapes carry them.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"
