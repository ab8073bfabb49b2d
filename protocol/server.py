"""
The answering side of a connection.

Each connection has a reader and a writer that never wait on each other: a caller that sends without reading fills its own
outbox and is cut off, and nobody else notices. Each call runs in its own task under the budget that came with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import msgspec

from . import sockets
from .envelope import (
    BadFrame,
    Call,
    Cancel,
    Cast,
    Code,
    Envelope,
    Fail,
    Hello,
    ProtocolError,
    Reply,
    encode,
)
from .framing import pack, read_envelope, read_length, unpack
from .messages.common import Message
from .messages.control import QueueStat
from .room import SMALL_BYTES, Room
from .version import WIRE

Handler = Callable[[Any], Awaitable[Message]]

OUTBOX_FRAMES = 256
OUTBOX_BYTES = 32 * 1024 * 1024
"""Two of the largest frames: a reader that lets more than this wait is not reading."""
STALLED_S = 10.0
"""A caller that has not taken a byte for this long while its outbox is full is disconnected."""
HELLO_S = 10.0
FRAME_S = 10.0
"""A large frame is whole within this long after there was room for it, or its connection is closed: others wait for the room."""
MAX_ERROR_CHARS = 2000
MAX_CONNECTIONS = 1024
NO_BODY = msgspec.Raw()
"""Of a call whose body was decoded: a large frame is not kept beside what was in it."""

log = logging.getLogger("recalld.protocol")


class Server:
    """
    Answers calls on a listening socket until cancelled.

    ``decode`` turns a body into a message, ``handlers`` has one coroutine per message type. At most ``limit`` calls run at
    once over all connections; the next one is answered ``overloaded`` at once. Large calls take their bytes of a ``Room``
    from before they are read until they are answered; without room nothing is read from their connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        decode: Callable[[bytes | msgspec.Raw], Message],
        handlers: Mapping[type[Message], Handler],
        *,
        limit: int = 256,
        name: str = "server",
    ) -> None:
        self._listener = listener
        self._decode = decode
        self._handlers = handlers
        self._limit = limit
        self._name = name
        self._running = 0
        self._peak = 0
        self._refused = 0
        self._connections = 0
        self._room = Room()

    async def run(self) -> None:
        """Serve until cancelled; then every open connection is closed."""
        async with anyio.create_task_group() as group:
            async for connection in sockets.accept(self._listener):
                if self._connections >= MAX_CONNECTIONS:
                    log.warning("%s: more than %d connections: one was refused", self._name, MAX_CONNECTIONS)
                    connection.close()
                    continue
                self._connections += 1
                group.start_soon(self._serve, connection)

    def stats(self) -> dict[str, QueueStat]:
        """Depth and peak of the calls in flight."""
        stat = QueueStat(
            depth=self._running, peak=self._peak, limit=self._limit, policy="refuse", refused=self._refused
        )
        return {f"{self._name} calls": stat, f"{self._name} bytes of large calls": self._room.stat()}

    async def _serve(self, connection: socket.socket) -> None:
        try:
            reader, writer = await sockets.streams(connection, limit=SMALL_BYTES)
        except OSError:
            connection.close()
            self._connections -= 1
            return
        outbox = Outbox(writer)
        try:
            await self._greet(reader, writer)
            async with anyio.create_task_group() as group:
                group.start_soon(outbox.run)
                await self._read(reader, outbox, group)
                group.cancel_scope.cancel()
        except BadFrame as error:
            log.warning("%s: closed a connection: %s", self._name, error.text)
        except (OSError, TimeoutError):
            pass  # the other side is gone; whatever it asked for is cancelled with the group
        except BaseExceptionGroup as group_error:
            if group_error.split((OSError, BadFrame, Stalled))[1] is not None:
                raise
            log.info("%s: a connection ended: %s", self._name, group_error.exceptions[0])
            if group_error.split(Stalled)[0] is not None:
                # Closing would wait until the last byte is taken, and keep descriptor and buffer until then.
                writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with anyio.fail_after(HELLO_S):
            first = await read_envelope(reader, cap=64 * 1024)
        if first is None:
            raise ConnectionResetError
        if not isinstance(first, Hello):
            raise BadFrame("the first frame is not a greeting")
        writer.write(pack(Hello(WIRE, self._name, os.getpid())))  # also to another version: it says so to its user
        if first.wire != WIRE:
            raise BadFrame(f"{first.role} speaks wire {first.wire}, this side {WIRE}: update and restart both")

    async def _read(self, reader: asyncio.StreamReader, outbox: Outbox, group: anyio.abc.TaskGroup) -> None:
        scopes: dict[int, anyio.CancelScope] = {}
        while (taken := await self._take(reader)) is not None:
            body, held = taken
            try:
                if await self._begin(unpack(body), held, scopes, outbox, group):
                    held = 0  # the call gives it back
            finally:
                self._room.give(held)
            del taken, body  # not while the next frame is waited for

    async def _take(self, reader: asyncio.StreamReader) -> tuple[bytes, int] | None:
        """The next frame's bytes and how many of the room they hold; None at a clean end. Raises BadFrame; OSError passes."""
        length = await read_length(reader)
        if length is None:
            return None
        try:
            # The beginning first: who announces much and sends nothing takes no room from others.
            body = await reader.readexactly(min(length, SMALL_BYTES))
            if length <= SMALL_BYTES:
                return body, 0
            await self._room.take(length)
            try:
                with anyio.fail_after(FRAME_S):
                    return body + await reader.readexactly(length - SMALL_BYTES), length
            except BaseException:
                self._room.give(length)
                raise
        except TimeoutError:
            raise BadFrame(f"a frame of {length:,} bytes was not whole after {FRAME_S:.0f} s") from None
        except asyncio.IncompleteReadError:
            raise BadFrame("the connection ended inside a frame") from None

    async def _begin(
        self,
        envelope: Envelope,
        held: int,
        scopes: dict[int, anyio.CancelScope],
        outbox: Outbox,
        group: anyio.abc.TaskGroup,
    ) -> bool:
        """Start what a frame asks for. True: it runs, and gives back ``held`` at its end."""
        match envelope:
            case Call():
                await outbox.room()
                if self._running >= self._limit:
                    self._refused += 1
                    text = f"{self._limit} calls are in flight"
                    await outbox.put(pack(Fail(envelope.id, "overloaded", text, retry_after_ms=100)))
                    return False
                scope = scopes[envelope.id] = anyio.CancelScope()
                self._running += 1
                self._peak = max(self._peak, self._running)
                group.start_soon(self._call, envelope, held, scope, scopes, outbox)
                return True
            case Cast():
                if self._running >= self._limit:
                    self._refused += 1
                    return False
                self._running += 1
                self._peak = max(self._peak, self._running)
                group.start_soon(self._cast, envelope, held)
                return True
            case Cancel():
                if (found := scopes.get(envelope.id)) is not None:
                    found.cancel()
                return False
            case _:
                raise BadFrame(f"a {type(envelope).__name__} does not belong here")

    async def _call(
        self, call: Call, held: int, scope: anyio.CancelScope, scopes: dict[int, anyio.CancelScope], outbox: Outbox
    ) -> None:
        answer: bytes | None = None
        call_id, answering = call.id, self._answer(call)
        del call  # its body is let go of once it is decoded
        try:
            with scope:
                answer = await answering
        finally:
            # Before the answer waits for its reader: a client that does not read must not use up what others share.
            self._running -= 1
            self._room.give(held)
            scopes.pop(call_id, None)
        if answer is not None:
            await outbox.put(answer)

    async def _answer(self, call: Call) -> bytes:
        if call.budget_ms <= 0:
            return _failed(call, "invalid", "a call needs a budget")
        try:
            body = self._decode(call.body)
        except msgspec.MsgspecError as error:
            return _failed(call, "invalid", f"{self._name} does not understand this: {error}")
        call = msgspec.structs.replace(call, body=NO_BODY)
        try:
            with anyio.fail_after(call.budget_ms / 1000):
                reply = await self._handlers[type(body)](body)
            return pack(Reply(call.id, msgspec.Raw(encode(reply))))
        except BadFrame as error:
            return _failed(call, "invalid", f"the answer to {type(body).__name__} is too large: {error.text}")
        except ProtocolError as error:
            return _failed(call, error.code, error.text, error.retry_after_ms)
        except TimeoutError:
            return _failed(call, "timeout", f"{type(body).__name__} was not done within {call.budget_ms} ms")
        except Exception as error:
            log.exception("%s failed", type(body).__name__, extra={"trace": call.trace})
            return _failed(call, "internal", f"{type(body).__name__} failed: {type(error).__name__}: {error}")

    async def _cast(self, cast: Cast, held: int) -> None:
        try:
            body = self._decode(cast.body)
            await self._handlers[type(body)](body)
        except msgspec.MsgspecError as error:
            log.warning("%s does not understand a cast: %s", self._name, error, extra={"trace": cast.trace})
        except ProtocolError as error:
            log.info("%s: a cast was refused: %s", self._name, error.text, extra={"trace": cast.trace})
        except Exception:
            log.exception("%s: a cast failed", self._name, extra={"trace": cast.trace})
        finally:
            self._running -= 1
            self._room.give(held)


def _failed(call: Call, code: Code, text: str, retry_after_ms: int = 0) -> bytes:
    """The frame of a failure; never one that cannot be sent (a text may quote a file's name, or a whole document)."""
    sendable = text[:MAX_ERROR_CHARS].encode(errors="backslashreplace").decode()
    return pack(Fail(call.id, code, sendable, retry_after_ms))


class Stalled(Exception):
    """Raised when a peer has not read for STALLED_S while its outbox was full."""


class Outbox:
    """Frames on their way out: bounded in number and bytes. ``put`` waits while it is full; ``run`` writes them."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._frames: list[bytes] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put_nowait(self, frame: bytes) -> None:
        """Add a frame whatever the size of the queue."""
        self._frames.append(frame)
        self._bytes += len(frame)
        self._filled.set()
        if len(self._frames) >= OUTBOX_FRAMES or self._bytes >= OUTBOX_BYTES:
            self._room.clear()

    async def room(self) -> None:
        """Wait until there is room. Raises Stalled when there was none for STALLED_S."""
        if not self._room.is_set():
            try:
                with anyio.fail_after(STALLED_S):
                    await self._room.wait()
            except TimeoutError:
                raise Stalled("the caller does not read its answers") from None

    async def put(self, frame: bytes) -> None:
        """Add a frame, waiting for room. Raises Stalled when there was none for STALLED_S."""
        await self.room()
        self.put_nowait(frame)

    async def run(self) -> None:
        """Write frames until cancelled. Raises Stalled, OSError."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            frames, self._frames, self._bytes = self._frames, [], 0
            self._writer.write(b"".join(frames))
            try:
                with anyio.fail_after(STALLED_S):
                    await self._writer.drain()
            except TimeoutError:
                raise Stalled("the caller does not read its answers") from None
            self._room.set()
