"""
The asking side: ``Peer`` for programs with an event loop, ``ask_sync`` (of ``blocking``) for those without.

Every call has a budget and an id of its own; an answer that comes too late is dropped and counted, never handed to the
next caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from pathlib import Path

import anyio
import msgspec

from .blocking import CONNECT_RETRY_S, ask_sync, new_trace
from .envelope import (
    BadFrame,
    Call,
    Cancel,
    Cast,
    Fail,
    Hello,
    Invalid,
    Reply,
    TimedOut,
    Unavailable,
    encode,
    error_of,
)
from .framing import pack, read_envelope
from .messages import AnyReply, decode_reply
from .messages.common import Message
from .version import WIRE

MAX_PENDING = 1024

__all__ = ["Peer", "ask_sync", "new_trace"]


class Peer:
    """
    A connection to one actor, opened at the first call and again after it broke; shared by all callers.

    Connecting is not retried within a call beyond a full backlog: an actor that restarts keeps its listener, so a call
    simply waits in it. A refused connection means that the actor was given up on.
    """

    def __init__(self, path: Path, role: str) -> None:
        self._path = path
        self._role = role
        self._lock = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._pending: dict[int, asyncio.Future[AnyReply]] = {}
        self._next_id = 1
        self.late_replies = 0

    async def ask(self, body: Message, *, budget_ms: int, trace: str = "") -> AnyReply:
        """
        The peer's answer.

        Raises Unavailable (not reachable, or gone before it answered), TimedOut (``budget_ms`` is spent), Invalid,
        Conflict, Overloaded, Internal as the peer says.
        """
        call_id = 0
        try:
            with anyio.fail_after(budget_ms / 1000):
                started = time.monotonic()
                writer = await self._open_for_more()
                left_ms = budget_ms - int((time.monotonic() - started) * 1000)
                raw = msgspec.Raw(encode(body))
                call_id, future = self._register()
                writer.write(pack(Call(call_id, max(1, left_ms), trace or new_trace(), raw)))
                del raw  # a large one is not kept until the answer comes
                await writer.drain()
                return await future
        except TimeoutError:
            text = f"no answer from {self._path.stem} to {type(body).__name__} within {budget_ms} ms"
            raise TimedOut(text) from None
        except OSError as error:
            raise Unavailable(f"{self._path.stem} went away: {error}") from None
        finally:
            if self._pending.pop(call_id, None) is not None and self._writer is not None and call_id:
                # Not answered: budget spent or cancelled here. The peer need not go on.
                with contextlib.suppress(OSError, RuntimeError):
                    self._writer.write(pack(Cancel(call_id)))

    async def cast(self, body: Message, *, trace: str = "", budget_ms: int = 1000) -> None:
        """Send without waiting for an answer. Raises Unavailable when the peer cannot be reached in ``budget_ms``."""
        try:
            with anyio.fail_after(budget_ms / 1000):
                writer = await self._open_for_more()
                raw = msgspec.Raw(encode(body))
                writer.write(pack(Cast(trace or new_trace(), raw)))
                await writer.drain()
        except TimeoutError:
            raise Unavailable(f"{self._path.stem} does not take messages") from None
        except OSError as error:
            raise Unavailable(f"{self._path.stem} went away: {error}") from None

    async def aclose(self) -> None:
        """Close the connection; callers that still wait get Unavailable."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            with anyio.move_on_after(1, shield=True):
                await asyncio.wait([listening])
        self._drop("the connection was closed")

    def _register(self) -> tuple[int, asyncio.Future[AnyReply]]:
        if len(self._pending) >= MAX_PENDING:
            raise Unavailable(f"{MAX_PENDING} calls wait for {self._path.stem}", retry_after_ms=100)
        call_id, self._next_id = self._next_id, self._next_id + 1
        future: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = future
        return call_id, future

    async def _open_for_more(self) -> asyncio.StreamWriter:
        """
        The connection, when the other side takes what was written before.

        A call whose budget ends leaves its bytes in the buffer: without waiting here first, callers of a process that hangs
        would fill memory with calls that nobody waits for any more.
        """
        while True:
            writer = await self._connected()
            await writer.drain()
            if not writer.is_closing():
                return writer

    async def _connected(self) -> asyncio.StreamWriter:
        if self._writer is not None and not self._writer.is_closing():
            return self._writer
        async with self._lock:
            if self._writer is not None and not self._writer.is_closing():
                return self._writer
            self._drop("the connection broke")
            reader, writer = await self._connect()
            try:
                writer.write(pack(Hello(WIRE, self._role, os.getpid())))
                greeting = await read_envelope(reader, cap=64 * 1024)
                if not isinstance(greeting, Hello) or greeting.wire != WIRE:
                    raise Unavailable(f"{self._path.stem} is of another version: restart the daemon")
            except BadFrame as error:
                writer.close()
                raise Unavailable(f"{self._path.stem} does not speak this protocol: {error.text}") from None
            except BaseException:
                writer.close()
                raise
            self._writer = writer
            self._listening = asyncio.get_running_loop().create_task(self._listen(reader, writer))
            return writer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_unix_connection(os.fspath(self._path))
            except OSError as error:
                # A full backlog answers EAGAIN on Linux: the actor is there, and busy.
                if error.errno != errno.EAGAIN:
                    raise
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reason = "the connection ended"
        try:
            while (envelope := await read_envelope(reader)) is not None:
                self._settle(envelope)
        except (OSError, BadFrame) as error:
            reason = str(error)
        finally:
            writer.close()
            if self._writer is writer:
                self._drop(reason)

    def _settle(self, envelope: object) -> None:
        if not isinstance(envelope, Reply | Fail):
            raise BadFrame(f"a {type(envelope).__name__} is not an answer")
        future = self._pending.pop(envelope.id, None)
        if future is None or future.done():
            self.late_replies += 1
        elif isinstance(envelope, Fail):
            future.set_exception(error_of(envelope))
        else:
            try:
                future.set_result(decode_reply(envelope.body))
            except msgspec.MsgspecError as error:
                future.set_exception(Invalid(f"cannot read the answer of {self._path.stem}: {error}"))

    def _drop(self, reason: str) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(Unavailable(f"{self._path.stem}: {reason}"))
