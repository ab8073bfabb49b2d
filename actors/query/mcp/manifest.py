"""
The bridge's manifest: what this server answers to the questions whose answers do not depend on its data.

``python -m recalld.actors.query.mcp.manifest`` asks a real server over a socket pair, in both protocol eras and for each
toolset, and writes clients/manifest.json; with ``--check`` it writes nothing and exits with 1 when the file is out of date.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sys
from typing import Any, get_args, get_type_hints

import msgspec

from ....protocol.config import Config
from ....protocol.config import Recall as RecallConfig
from ....protocol.envelope import Unavailable
from ....protocol.lines import open_lines
from ....protocol.messages.common import Message
from ....protocol.room import Room
from ....protocol.sockets import streams
from .desk import Desk
from .server import HANDSHAKE_VERSIONS, MODERN_VERSIONS, McpServer
from .session import MANIFEST
from .tools import Caller

LISTS = ("tools/list", "resources/list", "resources/templates/list")
CLIENT = {"name": "manifest", "version": "0"}


class _NoActors:
    def __init__(self, toolset: str) -> None:
        self.config = Config(recall=msgspec.convert({"toolset": toolset}, RecallConfig))
        self.up: set[str] = set()


async def _nobody(_body: Message, *, budget_ms: int, trace: str = "") -> Message:
    raise Unavailable("there are no actors here")


async def build() -> dict[str, Any]:
    """The manifest as the server of this code would answer."""
    toolsets = get_args(get_type_hints(RecallConfig)["toolset"])
    content: dict[str, Any] = {
        "legacy_versions": list(HANDSHAKE_VERSIONS),
        "modern_versions": list(MODERN_VERSIONS),
        "toolsets": {
            name: {"legacy": await _answers(name, modern=False), "modern": await _answers(name, modern=True)}
            for name in toolsets
        },
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return {"hash": hashlib.blake2b(canonical, digest_size=16).hexdigest(), **content}


async def _answers(toolset: str, *, modern: bool) -> dict[str, Any]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in (ours, theirs):
        end.setblocking(False)
    server = McpServer(Desk(_nobody, _NoActors(toolset)))
    reader, writer = await open_lines(ours, Room())
    serving = asyncio.ensure_future(server.serve(Caller(), reader, writer))
    answers, sender = await streams(theirs, limit=1 << 20)
    envelope: dict[str, Any] = {}
    if modern:
        prefix = "io.modelcontextprotocol/"
        meta = {"protocolVersion": MODERN_VERSIONS[-1], "clientCapabilities": {}, "clientInfo": CLIENT}
        envelope = {"_meta": {prefix + name: value for name, value in meta.items()}}
    first = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": CLIENT}
    calls = {"server/discover": envelope} if modern else {"initialize": first, "ping": {}}
    calls |= dict.fromkeys(LISTS, envelope)
    found: dict[str, Any] = {}
    for number, (method, params) in enumerate(calls.items()):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        sender.write(json.dumps(request).encode() + b"\n")
        found[method] = json.loads(await answers.readline())["result"]
        if method == "initialize":
            sender.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    sender.close()
    await serving
    writer.close()
    return found


def text_of(manifest: dict[str, Any]) -> str:
    return json.dumps(manifest, ensure_ascii=False, indent=1) + "\n"


def main() -> int:
    wanted = text_of(asyncio.run(build()))
    if "--check" in sys.argv[1:]:
        if MANIFEST.is_file() and MANIFEST.read_text(encoding="utf-8") == wanted:
            return 0
        sys.stderr.write(f"{MANIFEST} is out of date: run python -m recalld.actors.query.mcp.manifest\n")
        return 1
    MANIFEST.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
