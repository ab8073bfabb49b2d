"""
Newline-delimited JSON on a Unix socket, for peers that have nothing but a socket: hook clients and the MCP bridge.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import anyio

from . import sockets

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 1024

log = logging.getLogger("recalld.protocol")

LineReader = asyncio.StreamReader
LineWriter = asyncio.StreamWriter


class LineTooLong(Exception):
    """Raised when a peer sends a line over the cap; the connection is of no further use."""


async def read_line(reader: LineReader) -> bytes:
    """The next line with its newline; b"" at the end. Raises LineTooLong; OSError passes."""
    try:
        return await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError:
        raise LineTooLong from None


async def serve_lines(
    listener: socket.socket,
    on_connection: Callable[[LineReader, LineWriter], Awaitable[None]],
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    connections: int = MAX_CONNECTIONS,
) -> None:
    """
    Run ``on_connection`` for each client until cancelled; its streams are closed for it.

    A client over ``connections`` is closed at once. What ``on_connection`` raises is logged and ends that client alone.
    """
    open_now = 0

    async def one(connection: socket.socket) -> None:
        nonlocal open_now
        writer: LineWriter | None = None
        try:
            reader, writer = await sockets.streams(connection, limit=max_line_bytes)
            await on_connection(reader, writer)
        except OSError:
            pass  # the client is gone
        except LineTooLong:
            log.warning("closed a connection that sent a line of over %d bytes", max_line_bytes)
        except Exception:
            log.exception("a client's connection failed")
        finally:
            open_now -= 1
            if writer is not None:
                writer.close()
            else:
                connection.close()

    async with anyio.create_task_group() as group:
        async for connection in sockets.accept(listener):
            if open_now >= connections:
                log.warning("more than %d clients: one was refused", connections)
                connection.close()
                continue
            open_now += 1
            group.start_soon(one, connection)
