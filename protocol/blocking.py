"""
The asking side of programs without an event loop: a command or hook that is over in a tenth of a second does not wait for
asyncio to be imported.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import msgspec

from .envelope import Call, Fail, Hello, ProtocolError, Reply, TimedOut, Unavailable, encode, error_of
from .framing import HEADER_BYTES, body_length, pack, unpack
from .messages import AnyReply, decode_reply
from .messages.common import Message
from .version import WIRE

CONNECT_RETRY_S = 0.02


def new_trace() -> str:
    """A short random id that follows one piece of work through every process and log."""
    return os.urandom(6).hex()


def ask_sync(path: Path, body: Message, *, budget_ms: int, role: str = "cli", trace: str = "") -> AnyReply:
    """One blocking call over a connection of its own. Raises as ``client.Peer.ask`` does."""
    deadline = time.monotonic() + budget_ms / 1000
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _connect_sync(connection, path, deadline)
            raw = msgspec.Raw(encode(body))
            call = Call(1, max(1, _left_ms(deadline)), trace or new_trace(), raw)
            connection.sendall(pack(Hello(WIRE, role, os.getpid())) + pack(call))
            greeting = _receive(connection, deadline)
            if not isinstance(greeting, Hello) or greeting.wire != WIRE:
                raise Unavailable(f"{path.stem} is of another version: restart the daemon")
            answer = _receive(connection, deadline)
        except TimeoutError:
            raise TimedOut(f"no answer from {path.stem} within {budget_ms} ms") from None
        except OSError as error:
            raise Unavailable(f"{path.stem} cannot be reached: {error.strerror or error}") from None
    if isinstance(answer, Fail):
        raise error_of(answer)
    if not isinstance(answer, Reply):
        raise ProtocolError(f"{path.stem} answered with a {type(answer).__name__}")
    return decode_reply(answer.body)


def _connect_sync(connection: socket.socket, path: Path, deadline: float) -> None:
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            return connection.connect(os.fspath(path))
        except BlockingIOError:  # a full backlog
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(CONNECT_RETRY_S)


def _receive(connection: socket.socket, deadline: float) -> object:
    header = _exactly(connection, HEADER_BYTES, deadline)
    return unpack(_exactly(connection, body_length(header), deadline))


def _exactly(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise ConnectionResetError(errno.ECONNRESET, "closed before it answered")
        data += piece
    return bytes(data)


def _left_ms(deadline: float) -> int:
    return int((deadline - time.monotonic()) * 1000)
