"""
``events.sock``: newline-delimited JSON in, one acknowledgement per line out, in order.

A connection is a protocol object, not a task: at thousands of events a second the wake-ups of a task per line would cost
more than the events themselves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from ...protocol import sockets
from ...protocol.lines import MAX_CONNECTIONS, MAX_LINE_BYTES
from ...protocol.room import ROOM_BYTES, SMALL_BYTES

log = logging.getLogger("recalld.writer.capture")

MAX_OUTSTANDING = 64
"""Lines of one connection that may wait for their acknowledgement; a client that sends more is not read meanwhile."""
MAX_ANSWER_BYTES = 1024 * 1024
"""Unread acknowledgements after which a client that does not read is closed."""

NO_ROOM = b'{"error":"overloaded","retry_after_ms":1000}\n'

Take = Callable[[bytes, Callable[[bytes], None]], None]
"""Takes one line, and calls back with its acknowledgement: at once, or when the line is durable."""


class Door:
    """Serves a listening socket until cancelled."""

    def __init__(self, take: Take) -> None:
        self.take = take
        self.connections: set[Connection] = set()
        self.held = 0
        """Bytes of lines whose end has not come yet, over all connections."""

    async def run(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for connection in sockets.accept(listener):
                if len(self.connections) >= MAX_CONNECTIONS:
                    log.warning("more than %d hook clients: one was refused", MAX_CONNECTIONS)
                    connection.close()
                    continue
                try:
                    await loop.connect_accepted_socket(lambda: Connection(self), connection)
                except OSError:
                    connection.close()
        finally:
            for each in tuple(self.connections):
                each.close()


class Connection(asyncio.Protocol):
    """One client. Acknowledgements leave in the order of the lines, whichever is known first."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._slots: deque[list[bytes]] = deque()
        self._paused = False
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not subclasses
        self._door.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep(b"")
        self._door.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        if data[-1:] == b"\n" and data.count(b"\n") == 1:
            if self._rest:
                self._keep(b"")
            self._line(data)
            return
        *lines, rest = data.split(b"\n")
        self._keep(rest)
        for line in lines:
            self._line(line)
        if len(rest) > MAX_LINE_BYTES:
            log.warning("closed a connection that sent a line of over %d bytes", MAX_LINE_BYTES)
            self.close()
        elif len(rest) > SMALL_BYTES and self._door.held > ROOM_BYTES and self._transport is not None:
            # Its client spools the event: that costs nobody memory.
            self._transport.write(NO_ROOM)
            self.close()

    def eof_received(self) -> bool:
        """A client may close its sending half and wait for the last acknowledgement."""
        if self._rest:
            last = self._rest
            self._keep(b"")
            self._line(last)
        self._ended = True
        return bool(self._slots)  # stays open for what is owed; ``_flush`` closes it then

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _keep(self, rest: bytes) -> None:
        self._door.held += len(rest) - len(self._rest)
        self._rest = rest

    def _line(self, line: bytes) -> None:
        slot: list[bytes] = []
        self._slots.append(slot)

        def answer(text: bytes) -> None:
            slot.append(text)
            self._flush()

        self._door.take(line, answer)
        if len(self._slots) > MAX_OUTSTANDING and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _flush(self) -> None:
        slots, transport = self._slots, self._transport
        ready: list[bytes] = []
        while slots and slots[0]:
            ready.append(slots.popleft()[0])
        if transport is None or not ready:
            return
        transport.write(ready[0] if len(ready) == 1 else b"".join(ready))
        if transport.get_write_buffer_size() > MAX_ANSWER_BYTES:
            log.warning("closed a hook client that does not read its acknowledgements")
            transport.abort()
        elif self._ended and not slots:
            transport.close()
        elif self._paused and len(slots) < MAX_OUTSTANDING // 2:
            self._paused = False
            transport.resume_reading()
