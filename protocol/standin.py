"""
Answers in place of an actor that was given up on, on a listening socket that cannot be closed: it belongs to a service
manager. Without them callers would wait in its backlog until their budget is spent.
"""

from __future__ import annotations

import functools
import json
import socket
from typing import Any

from .envelope import Unavailable
from .lines import LineReader, LineWriter, read_line, serve_lines
from .messages.common import Ok
from .server import Server


async def stand_in(listener: socket.socket, name: str, why: str, retry_after_ms: int) -> None:
    """
    Tell every caller of the socket called ``name`` that nobody will answer before ``retry_after_ms``, until cancelled.

    Frames get ``unavailable``, hook clients the same as a line; a bridge is let go, and answers for us.
    """
    if name in ("events", "mcp"):
        refusal = json.dumps({"error": "unavailable", "retry_after_ms": retry_after_ms}).encode() + b"\n"
        await serve_lines(listener, functools.partial(_refuse_line, refusal))
        return

    async def refuse(_: Any) -> Ok:
        raise Unavailable(why, retry_after_ms=retry_after_ms)

    # Whatever is asked is refused: it need not be understood.
    await Server(listener, lambda _: Ok(), {Ok: refuse}, name=name).run()


async def _refuse_line(refusal: bytes, reader: LineReader, writer: LineWriter) -> None:
    line = await read_line(reader)
    if b'"hook"' in line:
        writer.write(refusal)
        await writer.drain()
