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
from .room import SMALL_BYTES, Room

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 1024
LINE_S = 10.0
"""A large line is whole within this long after there was room for it, or its connection is closed."""

log = logging.getLogger("recalld.protocol")

LineWriter = asyncio.StreamWriter


class LineTooLong(Exception):
    """Raised when a peer sends a line over the cap; the connection is of no further use."""


class LineReader:
    """Lines of at most ``max_bytes``. A large one holds as many bytes of ``room`` while it is read."""

    def __init__(self, stream: asyncio.StreamReader, max_bytes: int, room: Room) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._room = room

    async def line(self) -> bytes:
        """See ``read_line``."""
        start, whole = await self._piece()
        if whole:
            return start
        await self._room.take(self._max_bytes)
        try:
            with anyio.fail_after(LINE_S):
                return await self._rest(start)
        finally:
            self._room.give(self._max_bytes)

    async def _rest(self, start: bytes) -> bytes:
        pieces, size, whole = [start], len(start), False
        while not whole:
            piece, whole = await self._piece()
            pieces.append(piece)
            size += len(piece)
            if size > self._max_bytes:
                raise LineTooLong
        return b"".join(pieces)

    async def _piece(self) -> tuple[bytes, bool]:
        """What is there of the line, and whether that is its end."""
        try:
            return await self._stream.readuntil(b"\n"), True
        except asyncio.IncompleteReadError as error:
            return error.partial, True
        except asyncio.LimitOverrunError as error:
            return await self._stream.readexactly(error.consumed), False


async def open_lines(
    connection: socket.socket, room: Room, max_line_bytes: int = MAX_LINE_BYTES
) -> tuple[LineReader, LineWriter]:
    """A connected socket as lines. Raises OSError."""
    stream, writer = await sockets.streams(connection, limit=min(max_line_bytes, SMALL_BYTES))
    return LineReader(stream, max_line_bytes, room), writer


async def read_line(reader: LineReader) -> bytes:
    """
    The next line with its newline; b"" at the end. Raises LineTooLong; OSError passes, and is a TimeoutError for a large
    line that does not come to its end.
    """
    return await reader.line()


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
    room = Room()

    async def one(connection: socket.socket) -> None:
        nonlocal open_now
        writer: LineWriter | None = None
        try:
            reader, writer = await open_lines(connection, room, max_line_bytes)
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
