"""What a process holds of large frames and lines is bounded over all its connections, and small ones pass meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc
from pathlib import Path

import anyio
import pytest
from recalld.actors.writer import door as doors
from recalld.actors.writer.door import Door
from recalld.protocol import lines, server, sockets
from recalld.protocol.client import Peer
from recalld.protocol.envelope import Call, Hello, encode
from recalld.protocol.framing import MAX_FRAME_BYTES, pack
from recalld.protocol.messages import decode_control
from recalld.protocol.messages.common import Ok
from recalld.protocol.messages.control import GetStatus, Reload, RestartActor
from recalld.protocol.room import ROOM_BYTES, SMALL_BYTES, Room
from recalld.protocol.server import Server
from recalld.protocol.version import WIRE

CLIENTS = 12
SLACK_BYTES = 4 * 1024 * 1024
"""Per connection: what two kernels' socket buffers, a stream and an event loop's read may hold beside."""


async def ok(_: object) -> Ok:
    return Ok()


HANDLERS = {GetStatus: ok, Reload: ok, RestartActor: ok}


async def push(path: Path, data: bytes) -> int:
    """Send as much of ``data`` as is taken within a second of no progress; how much. The connection stays open."""
    sent = 0
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, str(path))
        idle = 0
        while sent < len(data) and idle < 50:
            try:
                sent += client.send(data[sent : sent + (1 << 20)])
                idle = 0
            except BlockingIOError:
                idle += 1
                await asyncio.sleep(0.02)
            except OSError:
                break
        HELD.append(client.detach())
    return sent


HELD: list[int] = []


@pytest.fixture(autouse=True)
def _close() -> object:
    yield
    while HELD:
        socket.close(HELD.pop())


async def test_room_is_given_in_turn_and_comes_back() -> None:
    """Who waits longest is let in first; who gives up waiting, or is cancelled as it is let in, holds nothing."""
    room = Room(100)
    entered: list[str] = []

    async def take(name: str, count: int) -> None:
        await room.take(count)
        entered.append(name)

    await room.take(80)
    async with anyio.create_task_group() as group:
        group.start_soon(take, "large", 60)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(take, "small", 10)  # there is room for it, but it is not its turn
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01):
            await room.take(5)
        assert entered == []
        room.give(80)
    assert entered == ["large", "small"]
    assert (room.stat().depth, room.stat().peak) == (70, 80)
    room.give(60)
    room.give(10)
    await room.take(1000)  # more than there can be is all there is
    assert room.stat().depth == 100
    room.give(1000)
    assert room.stat().depth == 0


async def test_large_calls_share_one_room(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Twelve connections send nearly all of the largest frame: what is taken of them is bounded, a small call is answered
    meanwhile, and a large one as soon as those who never end are cut off.
    """
    path = short_tmp / "s"
    listener = sockets.bind(path)
    serving = Server(listener, decode_control, HANDLERS, name="s")
    small, large = Peer(path, "small"), Peer(path, "large")
    monkeypatch.setattr(server, "FRAME_S", 60.0)
    hello = pack(Hello(WIRE, "test", 1))
    call = pack(Call(1, 60_000, "", encode_raw(RestartActor(name="x" * (MAX_FRAME_BYTES - 200)))))
    async with anyio.create_task_group() as group:
        group.start_soon(serving.run)
        taken = await asyncio.gather(*(push(path, hello + call[:-1]) for _ in range(CLIENTS)))
        assert ROOM_BYTES - MAX_FRAME_BYTES < sum(taken) < ROOM_BYTES + CLIENTS * SLACK_BYTES
        assert isinstance(await small.ask(GetStatus(), budget_ms=20_000), Ok)
        assert serving.stats()["s bytes of large calls"].depth <= ROOM_BYTES
        while HELD:
            socket.close(HELD.pop())
        body = RestartActor(name="x" * (MAX_FRAME_BYTES - 300))
        for _ in range(ROOM_BYTES // MAX_FRAME_BYTES + 2):
            assert isinstance(await large.ask(body, budget_ms=60_000), Ok)
        with anyio.fail_after(20):
            while serving.stats()["s bytes of large calls"].depth:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await small.aclose()
        await large.aclose()
        group.cancel_scope.cancel()
    listener.close()


async def test_a_large_frame_that_does_not_end_is_cut_off(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold its room for ever; one that has announced much and sent little holds none."""
    monkeypatch.setattr(server, "FRAME_S", 0.05)
    path = short_tmp / "s"
    listener = sockets.bind(path)
    serving = Server(listener, decode_control, HANDLERS, name="s")
    hello = pack(Hello(WIRE, "test", 1))
    header = MAX_FRAME_BYTES.to_bytes(4, "big")
    async with anyio.create_task_group() as group:
        group.start_soon(serving.run)
        quiet_reader, quiet = await asyncio.open_unix_connection(str(path))
        quiet.write(hello + header + bytes(SMALL_BYTES - 1))
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(hello + header + bytes(SMALL_BYTES + 1))
        with anyio.fail_after(20):
            await reader.read(1 << 16)  # the greeting
            assert await reader.read(1 << 16) == b""
        assert serving.stats()["s bytes of large calls"].depth == 0
        assert not quiet_reader.at_eof()
        quiet.close()
        writer.close()
        group.cancel_scope.cancel()
    listener.close()


def encode_raw(body: RestartActor) -> object:
    import msgspec

    return msgspec.Raw(encode(body))


async def test_large_lines_share_one_room(short_tmp: Path) -> None:
    """Lines of twelve clients that never end: bounded, while others are read; large lines that end arrive whole."""
    path = short_tmp / "s"
    listener = sockets.bind(path)

    async def echo(reader: lines.LineReader, writer: lines.LineWriter) -> None:
        while line := await lines.read_line(reader):
            writer.write(b"%d\n" % len(line))

    async def length(data: bytes) -> int:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(data)
        with anyio.fail_after(20):
            answer = int(await reader.readline())
        writer.close()
        return answer

    async with anyio.create_task_group() as group:
        group.start_soon(lines.serve_lines, listener, echo)
        for size in (1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, 1_000_000):
            assert await length(b"x" * size + b"\n") == size + 1
        taken = await asyncio.gather(*(push(path, b"x" * (lines.MAX_LINE_BYTES - 1)) for _ in range(CLIENTS)))
        assert ROOM_BYTES - lines.MAX_LINE_BYTES < sum(taken) < ROOM_BYTES + CLIENTS * SLACK_BYTES
        assert await length(b"x\n") == 2
        group.cancel_scope.cancel()
    listener.close()


async def test_events_that_never_end_share_one_room(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a hook client is told to come again, and spools; who sends a whole event is heard."""
    monkeypatch.setattr(doors, "ROOM_BYTES", 1_000_000)
    path = short_tmp / "s"
    listener = sockets.bind(path)
    door = Door(lambda line, answer: answer(b'{"ok":true}\n'))
    async with anyio.create_task_group() as group:
        group.start_soon(door.run, listener)
        clients = [await asyncio.open_unix_connection(str(path)) for _ in range(4)]
        for _, writer in clients:
            writer.write(b"x" * 400_000)
        refused = [asyncio.create_task(reader.readline()) for reader, _ in clients]
        with anyio.fail_after(20):
            done, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        assert json.loads(done.pop().result())["error"] == "overloaded"
        assert door.held <= 1_000_000
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"{}\n")
        with anyio.fail_after(20):
            assert json.loads(await reader.readline())["ok"]
        for task in refused:
            task.cancel()
        await asyncio.wait(refused)
        for each in (*(writer for _, writer in clients), writer):
            each.close()
        with anyio.fail_after(20):
            while door.held:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        group.cancel_scope.cancel()
    listener.close()


async def test_the_bytes_of_a_large_call_are_let_go_of_while_it_is_answered(short_tmp: Path) -> None:
    """Neither side keeps the frame of a call beside what was decoded from it."""
    size = 4_000_000
    held: list[int] = []

    async def weigh(ask: object) -> Ok:
        await anyio.sleep(0.05)  # until the caller, in this very process, waits for the answer
        held.append(tracemalloc.get_traced_memory()[0])
        return Ok()

    path = short_tmp / "s"
    listener = sockets.bind(path)
    serving = Server(listener, decode_control, {**HANDLERS, RestartActor: weigh}, name="test")
    async with anyio.create_task_group() as group:
        group.start_soon(serving.run)
        peer = Peer(path, "test")
        await peer.ask(Reload(), budget_ms=5000)
        tracemalloc.start()
        try:
            await peer.ask(RestartActor(name="x" * size), budget_ms=5000)
        finally:
            tracemalloc.stop()
            await peer.aclose()
            group.cancel_scope.cancel()
    listener.close()
    assert held[0] < 2.5 * size  # as it was asked, and as it was understood
