"""Broken, hostile and greedy clients on every socket of one real daemon: it stays as it was, and others are served."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import noise
import pytest
from harness import Bridge, Daemon, running, until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recalld.protocol.envelope import Call, Cast, Fail, Hello, Reply, encode
from recalld.protocol.framing import pack, unpack
from recalld.protocol.messages import ControlRequest, EmbedRequest, QueryRequest, WriterRequest, decode_reply
from recalld.protocol.messages.capture import PurgeSession
from recalld.protocol.messages.control import GetStatus, RestartActor, SetPaused, StopAll
from recalld.protocol.messages.index import Backup, Reindex
from recalld.protocol.messages.recall import Recall
from recalld.protocol.version import WIRE

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

FRAMED = {"control": ControlRequest, "writer": WriterRequest, "query": QueryRequest, "embedder": EmbedRequest}
LINES = ("events", "mcp")
SOCKETS = (*FRAMED, *LINES)
NOT_ASKED = (StopAll, RestartActor, SetPaused, Backup, Reindex, PurgeSession)
"""What these do to a daemon is what they are for."""
NOISE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
GROWTH_MB = 150.0
"""A process may keep caches and the allocator its arenas; 128 frames of 16 MiB would be 2,000 MB."""
NO_MODEL = '[embedder]\nmodel = "none"\n'


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(start=False) as stopped:
        for name in ("heron", "otter", "lynx"):
            stopped.write(f"{name}.md", f"# The {name}\n\nThe {name} lives by the river.\n")
        stopped.start(config=NO_MODEL)
        stopped.settle()
        yield stopped


@pytest.fixture(autouse=True)
def _as_before(daemon: Daemon) -> Iterator[None]:
    """After each test the same processes run, everyone is answered, and no process has grown out of bounds."""
    before, pids = memory_mb(daemon), daemon.pids()
    yield
    assert daemon.finds("heron", "heron.md")
    assert daemon.pids() == pids, daemon.cli("logs").stdout[-3000:]
    until("memory is given back", lambda: all(now - before[n] < GROWTH_MB for n, now in memory_mb(daemon).items()))


def memory_mb(daemon: Daemon) -> dict[str, float]:
    assert daemon.process is not None
    pids = {"supervisor": daemon.process.pid, **daemon.pids()}
    page = os.sysconf("SC_PAGE_SIZE")
    return {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page / 1e6 for name, pid in pids.items()}


def descriptors(daemon: Daemon) -> dict[str, int]:
    return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in daemon.pids().items()}


def connected(daemon: Daemon, name: str, timeout_s: float = 20.0) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(timeout_s)
    try:
        one.connect(os.fspath(daemon.paths.socket(name)))
    except OSError:
        one.close()
        raise
    return one


def spoken_to(daemon: Daemon, name: str, data: bytes) -> bytes:
    """What comes back until the other side closes, when this one sends ``data`` and then nothing more."""
    answer = b""
    with connected(daemon, name) as one, contextlib.suppress(ConnectionError):
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        while piece := one.recv(65_536):
            answer += piece
    return answer


def frames(data: bytes) -> list[object]:
    found: list[object] = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(unpack(data[4 : 4 + size]))
        data = data[4 + size :]
    return found


GREETING = pack(Hello(WIRE, "noise", 1))
ASK = pack(Call(1, 5000, "t", msgspec.Raw(encode(GetStatus()))))
LINE = json.dumps(
    {"recalld": 1, "role": "hook", "host": "claude", "event": "Stop", "payload": {"session_id": "n"}}
).encode()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", SOCKETS)
def test_random_bytes_close_one_connection(daemon: Daemon, name: str) -> None:
    """Whatever the bytes are, the connection ends, and that is all that happens."""

    @NOISE
    @given(st.binary(max_size=2000))
    def check(data: bytes) -> None:
        spoken_to(daemon, name, data)

    check()


@pytest.mark.parametrize("name", FRAMED)
def test_mutated_frames_are_refused_or_answered(daemon: Daemon, name: str) -> None:
    """A greeting and a call with bytes changed, missing or added: an answer in the protocol's own words, or the end."""

    @NOISE
    @given(noise.mutated(GREETING + ASK), noise.mutated(ASK))
    def check(whole: bytes, call: bytes) -> None:
        for data in (whole, GREETING + call):
            for envelope in frames(spoken_to(daemon, name, data)):
                assert isinstance(envelope, Hello | Reply | Fail)

    check()


@pytest.mark.parametrize("name", FRAMED)
def test_messages_with_any_values_are_answered_and_never_by_an_accident(daemon: Daemon, name: str) -> None:
    """Every message with every field at a strange value has a reply or a stated refusal: none is an unforeseen error."""
    classes = [cls for cls in get_args(FRAMED[name]) if cls not in NOT_ASKED]
    accidents: dict[str, str] = {}

    @settings(NOISE, max_examples=250)
    @given(st.sampled_from(classes).flatmap(lambda cls: st.tuples(st.just(cls), noise.message(cls))))
    def check(drawn: tuple[type, dict[str, object]]) -> None:
        cls, body = drawn
        call = pack(Call(7, 3000, "noise", msgspec.Raw(msgspec.msgpack.encode(body))))
        with connected(daemon, name) as one:
            one.sendall(GREETING + call)
            stream = one.makefile("rb")
            while True:
                envelope = unpack(stream.read(int.from_bytes(stream.read(4), "big")))
                if not isinstance(envelope, Hello):
                    break
        assert isinstance(envelope, Reply | Fail)
        if isinstance(envelope, Fail) and envelope.code == "internal":
            accidents.setdefault(cls.__name__, f"{envelope.text} {body}"[:600])

    check()
    assert accidents == {}


@pytest.mark.parametrize("name", LINES)
def test_any_json_line_is_answered_or_closes_one_connection(daemon: Daemon, name: str) -> None:
    """Lines of any JSON, and real lines with bytes changed: answers are JSON lines, and the next client is served."""
    first = b"" if name == "events" else b'{"recalld": 1, "role": "mcp", "cwd": "/"}\n'

    @NOISE
    @given(st.lists(JSON, min_size=1, max_size=4), noise.mutated(LINE), st.binary(max_size=200))
    def check(values: list[object], line: bytes, tail: bytes) -> None:
        text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
        for data in (first + text, text, first + line + b"\n" + tail):
            for answer in spoken_to(daemon, name, data).splitlines():
                json.loads(answer)

    check()


def test_mcp_requests_with_any_parameters_are_answered(daemon: Daemon) -> None:
    """Methods and tools with parameters of any kind: each request has an answer under its id, a result or an error."""
    bridge = Bridge(daemon)
    tools = [tool["name"] for tool in bridge.request("tools/list")["result"]["tools"]]
    reads = [
        name
        for name in tools
        if name in ("recall", "read_note", "related", "recent", "status", "sessions", "recall_events")
    ]
    try:

        @settings(NOISE, max_examples=80)
        @given(
            st.sampled_from(reads),
            st.dictionaries(st.sampled_from(["query", "ref", "k", "lines", "since", "limit"]), JSON),
        )
        def check(tool: str, arguments: dict[str, object]) -> None:
            answer = bridge.request("tools/call", {"name": tool, "arguments": arguments})
            assert ("result" in answer) != ("error" in answer)

        check()
    finally:
        bridge.close()


def test_128_clients_at_once_are_all_answered(daemon: Daemon) -> None:
    """Each of 128 connections that ask at the same moment gets its own answer, or is told to come back and then gets it."""
    wrong: list[str] = []

    def client(number: int) -> None:
        name = ("heron", "otter", "lynx")[number % 3]
        try:
            until(f"client {number}", lambda: daemon.finds(name, f"{name}.md"), 60.0)
        except AssertionError as error:
            wrong.append(str(error))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(128)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_half_open_connections_cost_a_descriptor_each_and_nothing_else(daemon: Daemon) -> None:
    """300 clients that stop in the middle of something: others are answered meanwhile, and nothing is left afterwards."""
    before = descriptors(daemon)
    beginnings = (b"", GREETING, GREETING[:3], GREETING + ASK[:9], b"\x00\xff\xff\xff", b'{"recalld": 1', LINE[:20])
    open_now = []
    try:
        for number in range(300):
            one = connected(daemon, SOCKETS[number % len(SOCKETS)])
            open_now.append(one)
            one.sendall(beginnings[number % len(beginnings)])
        assert daemon.finds("otter", "otter.md")
        assert spoken_to(daemon, "events", LINE + b"\n").startswith(b"{")
        bridge = Bridge(daemon)
        assert bridge.recall("otter")["structuredContent"]["hits"]
        bridge.close()
    finally:
        for one in open_now:
            one.close()
    until("descriptors are given back", lambda: all(n <= before[a] + 8 for a, n in descriptors(daemon).items()))


@pytest.mark.parametrize("name", FRAMED)
def test_a_client_that_never_reads_is_cut_off_alone(daemon: Daemon, name: str) -> None:
    """Thousands of questions whose answers are not taken: the client is disconnected in the end, others are answered."""
    body = {"query": Recall(query="river otter heron", k=50)}.get(name, GetStatus())
    ask = b"".join(pack(Call(n, 5000, "", msgspec.Raw(encode(body)))) for n in range(500))
    with connected(daemon, name, 1.0) as greedy:
        greedy.sendall(GREETING)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(40):
                greedy.sendall(ask)
        assert daemon.finds("lynx", "lynx.md")


def test_announced_sizes_take_no_memory_and_large_frames_give_it_back(daemon: Daemon) -> None:
    """128 clients announce 16 MiB and send little; 8 send 16 MiB of nothing in earnest: memory is as before afterwards."""
    large = (16 * 1024 * 1024 - 16).to_bytes(4, "big")
    before = memory_mb(daemon)
    with contextlib.ExitStack() as stack:
        for number in range(128):
            one = stack.enter_context(connected(daemon, list(FRAMED)[number % 4]))
            one.sendall(GREETING + large + b"x" * 10_000)
        grown = {name: now - before[name] for name, now in memory_mb(daemon).items()}
        assert all(growth < GROWTH_MB for growth in grown.values()), grown
    for name in FRAMED:
        for _ in range(2):
            spoken_to(daemon, name, GREETING + large + bytes(16 * 1024 * 1024 - 16))
    for name in LINES:
        spoken_to(daemon, name, b"[" * (17 * 1024 * 1024) + b"\n")


def test_casts_of_every_message_are_taken_or_dropped(daemon: Daemon) -> None:
    """Nobody waits for a cast; whatever is in it, the connection goes on."""
    for name, union in FRAMED.items():
        bodies = [{"type": cls.__struct_config__.tag} for cls in get_args(union) if cls not in NOT_ASKED]
        data = GREETING + b"".join(pack(Cast("", msgspec.Raw(msgspec.msgpack.encode(body)))) for body in bodies) + ASK
        answers = frames(spoken_to(daemon, name, data))
        assert isinstance(answers[0], Hello)
        if name == "control":
            assert any(isinstance(each, Reply) and decode_reply(each.body) for each in answers)
