"""The connection to ``mcp.sock``."""

from __future__ import annotations

from _socket import AF_UNIX, SOCK_STREAM, socket

from .wire import Lines, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

FIRST_PAUSE_S, PAUSE_GROWTH, LONGEST_PAUSE_S = 0.02, 1.6, 0.5
MAX_BUFFER_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 256 * 1024


class Daemon:
    """The connection to ``mcp.sock``. It counts as there only once its first line has come: a listening socket outlives
    the process that answers on it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pause = FIRST_PAUSE_S
        self._lines = Lines(MAX_BUFFER_BYTES)
        self.socket: socket | None = None
        self.is_there = False
        self.was_ever_there = False
        self.outbox = bytearray()
        self.next_try = 0.0
        self.connected_at = 0.0
        self.heard_at = 0.0
        self.probed_at: float | None = None
        self.era = ""
        """Of this connection: the daemon fixes it by the first request."""
        self.attempts = 0

    def connect(self, first_line: Json, now: float) -> bool:
        """Try once, without waiting. False: nobody listens, or its backlog is full."""
        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.setblocking(False)
        self.attempts += 1
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            self._pause = min(self._pause * PAUSE_GROWTH, LONGEST_PAUSE_S)
            self.next_try = now + self._pause
            return False
        self.socket = connection
        self._lines = Lines(MAX_BUFFER_BYTES)
        self.outbox = bytearray(encode({**first_line, "attempt": self.attempts}))
        self.connected_at = self.heard_at = now
        self.probed_at = None
        self.era = ""
        return True

    def greeted(self) -> None:
        self.is_there = self.was_ever_there = True
        self._pause = FIRST_PAUSE_S

    def drop(self, now: float) -> None:
        if self.socket is not None:
            self.socket.close()
        # A daemon that accepts and dies again and again is met with growing pauses like one that is not there.
        self.next_try = now if self.is_there else now + self._pause
        self._pause = min(self._pause * PAUSE_GROWTH, LONGEST_PAUSE_S)
        self.socket = None
        self.is_there = False
        self.outbox.clear()

    def send(self, line: bytes) -> None:
        self.outbox += line if line.endswith(b"\n") else line + b"\n"

    def flush(self) -> None:
        """Raises OSError when the connection is gone."""
        assert self.socket is not None
        try:
            while self.outbox:
                del self.outbox[: self.socket.send(self.outbox[:CHUNK_BYTES])]
        except BlockingIOError:
            pass

    def receive(self) -> list[bytes | None]:
        """Lines that have come. Raises OSError when the connection is gone."""
        assert self.socket is not None
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError
        return self._lines.feed(data)
