"""Frames, and calls over a real Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.protocol import framing, sockets
from recalld.protocol.client import Peer, ask_sync
from recalld.protocol.envelope import (
    ERRORS,
    BadFrame,
    Call,
    Conflict,
    Hello,
    Internal,
    Invalid,
    Overloaded,
    TimedOut,
    Unavailable,
    encode,
)
from recalld.protocol.messages import (
    AnyReply,
    ControlRequest,
    EmbedRequest,
    QueryRequest,
    WriterRequest,
    decode_control,
)
from recalld.protocol.messages.common import Message, Ok
from recalld.protocol.messages.control import GetStatus, Reload, RestartActor, SetPaused, Status, StopAll
from recalld.protocol.server import MAX_CONNECTIONS, Handler, Server
from recalld.protocol.version import WIRE


class Gate:
    """A handler that waits until the test lets it go on, and tells when it was cancelled."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.release = anyio.Event()
        self.cancelled = anyio.Event()

    async def __call__(self, _: Message) -> Ok:
        self.entered.set()
        try:
            await self.release.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return Ok()


async def done(_: Message) -> Ok:
    return Ok()


def status(text: str) -> Status:
    """A reply with a text of any size."""
    return Status(version=text, pid=1, uptime_s=0.0, data="", runtime="", actors={}, degraded=(), last_error="")


@contextlib.asynccontextmanager
async def serving(path: Path, limit: int = 8, **handlers: Handler) -> AsyncIterator[Server]:
    """A server on ``path`` whose handlers are named after the message they take."""
    kinds: dict[type[Message], Handler] = dict.fromkeys((GetStatus, StopAll, RestartActor, Reload, SetPaused), done)
    for kind in kinds:
        kinds[kind] = handlers.get(kind.__name__, done)
    listener = sockets.bind(path)
    server = Server(listener, decode_control, kinds, limit=limit, name="test")
    async with anyio.create_task_group() as group:
        group.start_soon(server.run)
        try:
            yield server
        finally:
            group.cancel_scope.cancel()
            listener.close()


@pytest.fixture
def path(short_tmp: Path) -> Path:
    return short_tmp / "s.sock"


# -- frames -----------------------------------------------------------------------------------------------------------


@given(bodies=st.lists(st.binary(min_size=1, max_size=200), max_size=8), cut=st.integers(1, 50))
def test_frames_survive_any_split_of_the_bytes(bodies: list[bytes], cut: int) -> None:
    """Whatever pieces the bytes arrive in, the same bodies come out in the same order, and then a clean end."""

    async def run() -> list[bytes]:
        reader = asyncio.StreamReader()
        data = b"".join(framing.pack_bytes(body) for body in bodies)
        for start in range(0, len(data), cut):
            reader.feed_data(data[start : start + cut])
        reader.feed_eof()
        out = []
        while (body := await framing.read_body(reader)) is not None:
            out.append(body)
        return out

    assert bodies == asyncio.run(run())


@pytest.mark.parametrize(
    "header", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", (16 * 1024 * 1024 + 1).to_bytes(4, "big")]
)
def test_a_length_out_of_bounds_is_refused_before_anything_is_read(header: bytes) -> None:
    """The length alone is enough to refuse a frame."""
    with pytest.raises(BadFrame):
        framing.body_length(header)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_envelope_or_a_bad_frame(data: bytes) -> None:
    """Decoding never fails in another way."""
    with contextlib.suppress(BadFrame):
        assert framing.unpack(data)


async def test_a_connection_that_ends_inside_a_frame_is_a_bad_frame() -> None:
    """A torn frame is told from a clean end."""
    for data in (b"\x00\x00", framing.pack_bytes(b"abc")[:-1]):
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        with pytest.raises(BadFrame):
            await framing.read_body(reader)


def test_tags_are_unique_over_all_unions() -> None:
    """One decoder can read every message, so a reply cannot be taken for another."""
    everything = WriterRequest | QueryRequest | EmbedRequest | ControlRequest | AnyReply
    msgspec.msgpack.Decoder(everything)


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    """An older or newer peer is understood."""
    data = msgspec.msgpack.encode({"type": "set_paused", "paused": True, "from_the_future": 1})

    assert SetPaused(paused=True) == decode_control(data)


# -- calls ------------------------------------------------------------------------------------------------------------


async def test_calls_are_answered_under_their_own_id(path: Path) -> None:
    """A slow call does not hold up a fast one on the same connection."""
    gate = Gate()
    async with serving(path, Reload=gate):
        peer = Peer(path, "test")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: peer.ask(Reload(), budget_ms=5000))
            await gate.entered.wait()

            assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)

            gate.release.set()
        await peer.aclose()


@pytest.mark.parametrize("error", [Conflict("no"), Unavailable("later", retry_after_ms=7), Invalid("bug")])
async def test_errors_cross_the_socket(path: Path, error: Exception) -> None:
    """What a handler raises of the closed set arrives as the same kind, with its text."""

    async def fail(_: Message) -> Ok:
        raise error

    async with serving(path, Reload=fail):
        peer = Peer(path, "test")
        with pytest.raises(type(error), match=str(error)) as caught:
            await peer.ask(Reload(), budget_ms=5000)
        assert getattr(error, "retry_after_ms") == caught.value.retry_after_ms  # noqa: B009 - of every ProtocolError
        await peer.aclose()


async def test_an_unforeseen_error_is_internal_and_the_connection_goes_on(path: Path) -> None:
    """A bug in one handler answers ``internal`` and hurts nobody else."""

    async def fail(_: Message) -> Ok:
        raise ZeroDivisionError("oops")

    async with serving(path, Reload=fail):
        peer = Peer(path, "test")
        with pytest.raises(Internal, match="oops"):
            await peer.ask(Reload(), budget_ms=5000)
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
        await peer.aclose()


async def test_the_receiver_enforces_the_budget(path: Path) -> None:
    """A spent budget cancels the handler on the other side and is told as a timeout."""
    gate = Gate()
    async with serving(path, Reload=gate):
        peer = Peer(path, "test")
        with pytest.raises(TimedOut):
            await peer.ask(Reload(), budget_ms=50)
        with anyio.fail_after(5):
            await gate.cancelled.wait()
        await peer.aclose()


async def test_a_cancelled_caller_cancels_the_work(path: Path) -> None:
    """Nobody works for a caller that has gone."""
    gate = Gate()
    async with serving(path, Reload=gate):
        peer = Peer(path, "test")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: peer.ask(Reload(), budget_ms=60_000))
            await gate.entered.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await gate.cancelled.wait()
        await peer.aclose()


async def test_more_calls_than_the_limit_are_refused_at_once(path: Path) -> None:
    """A full server says so instead of queueing without bound, and counts it."""
    gate = Gate()
    async with serving(path, limit=1, Reload=gate) as server:
        peer = Peer(path, "test")
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: peer.ask(Reload(), budget_ms=5000))
            await gate.entered.wait()

            with pytest.raises(Overloaded) as caught:
                await peer.ask(GetStatus(), budget_ms=5000)

            assert caught.value.retry_after_ms > 0
            assert server.stats()["test calls"].refused == 1
            gate.release.set()
        await peer.aclose()


async def test_a_peer_reconnects_after_its_server_was_replaced(path: Path) -> None:
    """A connection that broke is opened again by the next call."""
    peer = Peer(path, "test")
    async with serving(path):
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
    async with serving(path):
        with anyio.fail_after(5):
            while True:
                try:
                    assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
                    break
                except Unavailable:
                    await anyio.lowlevel.checkpoint()
    await peer.aclose()


async def test_waiting_calls_fail_when_the_connection_breaks(path: Path) -> None:
    """No caller waits for an answer that cannot come."""
    gate = Gate()
    peer = Peer(path, "test")
    async with anyio.create_task_group() as group:

        async def call() -> None:
            with pytest.raises(Unavailable):
                await peer.ask(Reload(), budget_ms=60_000)

        async with serving(path, Reload=gate):
            group.start_soon(call)
            await gate.entered.wait()
    await peer.aclose()


async def test_nobody_listening_is_unavailable_at_once(path: Path) -> None:
    """A refused connection is the sign that an actor was given up on."""
    with pytest.raises(Unavailable):
        await Peer(path, "test").ask(GetStatus(), budget_ms=60_000)
    with pytest.raises(Unavailable):
        ask_sync(path, GetStatus(), budget_ms=60_000)


async def test_the_blocking_client_speaks_the_same(path: Path) -> None:
    """The command line needs no event loop."""

    async def fail(_: Message) -> Ok:
        raise Conflict("held")

    async with serving(path, Reload=fail):
        assert Ok() == await anyio.to_thread.run_sync(lambda: ask_sync(path, GetStatus(), budget_ms=5000))
        with pytest.raises(Conflict, match="held"):
            await anyio.to_thread.run_sync(lambda: ask_sync(path, Reload(), budget_ms=5000))


async def test_an_unknown_tag_is_answered_as_invalid(path: Path) -> None:
    """A message of another version gets an answer under its own id."""
    async with serving(path):
        reader, writer = await asyncio.open_unix_connection(os.fspath(path))
        raw = msgspec.Raw(msgspec.msgpack.encode({"type": "from_the_future"}))
        writer.write(framing.pack(Hello(WIRE, "test", 1)) + framing.pack(Call(9, 1000, "t", raw)))
        await framing.read_envelope(reader)
        answer = await framing.read_envelope(reader)
        assert (getattr(answer, "id", None), getattr(answer, "code", None)) == (9, "invalid")
        writer.close()


@pytest.mark.parametrize(
    "noise",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, framing.pack_bytes(b"\xc1"), framing.pack(Hello(WIRE + 1, "x", 1))],
)
async def test_a_wrong_first_frame_closes_that_connection_only(path: Path, noise: bytes) -> None:
    """A stray client costs one connection; others are served."""
    async with serving(path):
        reader, writer = await asyncio.open_unix_connection(os.fspath(path))
        writer.write(noise)
        with anyio.fail_after(5):
            await reader.read()  # until the server closes
        writer.close()
        assert Ok() == await anyio.to_thread.run_sync(lambda: ask_sync(path, GetStatus(), budget_ms=5000))


async def test_a_caller_that_does_not_read_does_not_stop_others(path: Path) -> None:
    """A full outbox belongs to one connection."""
    async with serving(path, limit=512):
        _, writer = await asyncio.open_unix_connection(os.fspath(path))
        writer.write(framing.pack(Hello(WIRE, "deaf", 1)))
        body = msgspec.Raw(encode(GetStatus()))
        try:
            writer.write(b"".join(framing.pack(Call(n, 5000, "t", body)) for n in range(1, 2000)))
            assert Ok() == await anyio.to_thread.run_sync(asked_until_there_is_room, path)
        finally:
            writer.close()


def asked_until_there_is_room(path: Path) -> AnyReply:
    """The answer of a caller who comes again when told to: 2,000 calls at once are more than the server takes."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return ask_sync(path, GetStatus(), budget_ms=10_000)
        except Overloaded as error:
            assert time.monotonic() < deadline
            time.sleep(error.retry_after_ms / 1000)


async def test_a_caller_that_never_reads_is_cut_off_for_good(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its descriptor and what was written for it are given back, though it stays connected and takes nothing."""
    monkeypatch.setattr("recalld.protocol.server.STALLED_S", 0.1)

    async def much(_: Message) -> Status:
        return status("x" * 10_000_000)

    transports: list[asyncio.BaseTransport] = []
    streams = sockets.streams

    async def noted(connection: socket.socket, *, limit: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await streams(connection, limit=limit)
        transports.append(writer.transport)
        return reader, writer

    monkeypatch.setattr(sockets, "streams", noted)
    async with serving(path, Reload=much):
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(os.fspath(path))
            body = msgspec.Raw(encode(Reload()))
            deaf.sendall(framing.pack(Hello(WIRE, "deaf", 1)) + framing.pack(Call(1, 60_000, "t", body)))
            with anyio.fail_after(10):
                while not transports or transports[0].get_extra_info("socket").fileno() >= 0:  # noqa: ASYNC110 - nothing tells when a transport has let go
                    await anyio.sleep(0.01)


async def test_another_version_is_told_of_ours(path: Path) -> None:
    """Who speaks another wire learns it from the greeting, and can tell a person to restart the daemon."""
    async with serving(path):
        reader, writer = await asyncio.open_unix_connection(os.fspath(path))
        writer.write(framing.pack(Hello(WIRE + 1, "x", 1)))
        greeting = await framing.read_envelope(reader)
        assert isinstance(greeting, Hello)
        assert greeting.wire == WIRE
        writer.close()


async def test_an_error_that_names_a_strange_file_reaches_the_caller(path: Path) -> None:
    """A name that is not UTF-8 cannot be sent; its error arrives all the same, and the server goes on."""

    async def fail(_: Message) -> Ok:
        raise Conflict("caf\udce9.md changed")

    async with serving(path, Reload=fail):
        peer = Peer(path, "test")
        with pytest.raises(Conflict, match="caf"):
            await peer.ask(Reload(), budget_ms=5000)
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
        await peer.aclose()


async def test_an_answer_over_the_cap_is_an_error_for_its_caller_alone(path: Path) -> None:
    """Who asks for too much is told so; others on the connection are served."""

    async def much(_: Message) -> Status:
        return status("x" * framing.MAX_FRAME_BYTES)

    async def long(_: Message) -> Ok:
        raise Conflict("x" * framing.MAX_FRAME_BYTES)

    async with serving(path, Reload=much, StopAll=long):
        peer = Peer(path, "test")
        with pytest.raises(Invalid, match="too large"):
            await peer.ask(Reload(), budget_ms=20_000)
        with pytest.raises(Conflict):
            await peer.ask(StopAll(), budget_ms=20_000)
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
        await peer.aclose()


async def test_calls_to_a_process_that_hangs_do_not_pile_up(path: Path) -> None:
    """Calls whose budget ended do not fill memory: what is not taken is not added to."""
    listener = sockets.bind(path)
    peer = Peer(path, "test")
    connecting = asyncio.ensure_future(peer.ask(RestartActor(name="x" * 500_000), budget_ms=300))
    with listener:
        connection, _ = await asyncio.get_running_loop().sock_accept(listener)
        with connection:
            await asyncio.get_running_loop().sock_sendall(connection, framing.pack(Hello(WIRE, "hung", 1)))
            with pytest.raises(TimedOut):
                await connecting
            assert peer._writer is not None
            before = peer._writer.transport.get_write_buffer_size()
            for _ in range(5):
                with pytest.raises(TimedOut):
                    await peer.ask(RestartActor(name="x" * 500_000), budget_ms=20)
            assert peer._writer.transport.get_write_buffer_size() < before + 10_000
            await peer.aclose()


async def test_connections_over_the_limit_are_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of connections is bounded, and the rest go on."""
    monkeypatch.setattr("recalld.protocol.server.MAX_CONNECTIONS", 1)
    assert MAX_CONNECTIONS > 128
    async with serving(path):
        peer = Peer(path, "test")
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
        with pytest.raises(Unavailable):
            await anyio.to_thread.run_sync(lambda: ask_sync(path, GetStatus(), budget_ms=5000))
        assert Ok() == await peer.ask(GetStatus(), budget_ms=5000)
        await peer.aclose()


def test_a_socket_is_private_from_its_first_instant(short_tmp: Path) -> None:
    """Mode 0600 without a moment in which others may connect; the umask is as before."""
    before = os.umask(0o022)
    try:
        with sockets.bind(short_tmp / "x.sock"):
            assert (short_tmp / "x.sock").stat().st_mode & 0o777 == 0o600
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_the_peer_uid_is_known() -> None:
    """Who connects is asked of the kernel."""
    left, right = socket.socketpair()
    with left, right:
        assert os.getuid() == sockets.peer_uid(left)


async def test_a_foreign_uid_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's connection is closed before a byte of it is read."""
    monkeypatch.setattr(sockets, "peer_uid", lambda _: os.getuid() + 1)
    async with serving(path):
        with pytest.raises(Unavailable):
            await anyio.to_thread.run_sync(lambda: ask_sync(path, GetStatus(), budget_ms=5000))


def test_every_code_has_its_error() -> None:
    """The closed set of codes and the exceptions are the same set."""
    assert {code: kind.code for code, kind in ERRORS.items()} == {code: code for code in ERRORS}
