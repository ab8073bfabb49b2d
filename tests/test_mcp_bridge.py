"""The stdio bridge as a real process, against real sessions in a process that is killed, stopped and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_stage import BRIDGE, DEADLINE_S, MODERN, Stage
from recalld.clients.bridge.wire import Lines

pytestmark = pytest.mark.process


@pytest.fixture
def stage(short_tmp: Path) -> Iterator[Stage]:
    stage = Stage(short_tmp)
    yield stage
    stage.close()


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@ERAS
def test_a_session(stage: Stage, era: str) -> None:
    """With the daemon up: capabilities, lists, a call and a resource, in both eras."""
    stage.server()
    client = stage.client(era)
    assert "recall" in client.start()["instructions"]
    names = [tool["name"] for tool in client.ask("tools/list")["tools"]]
    assert names[0] == "recall"
    assert client.recall("ninja")["hits"][0]["lines"] == [3, 5]
    status = client.ask("resources/read", {"uri": "recalld://status"})["contents"][0]
    assert json.loads(status["text"])["index"]["notes"] == 40
    assert client.close() == (0, b"")


@ERAS
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_call_survives_the_daemon(stage: Stage, era: str, number: signal.Signals) -> None:
    """A daemon that dies in the middle of a call is replaced, the call is sent again, and answered once."""
    first = stage.server()
    client = stage.client(era)
    client.start()
    waiting = client.call("recall", query="sleep 1.5")
    stage.wait_logged("asked", 1)
    first.send_signal(number)
    first.wait()
    second = stage.server()
    answered = client.answer(waiting)["result"]["structuredContent"]
    assert answered["note"] == f"pid {second.pid}"
    client.nothing_more()


@ERAS
def test_an_idle_restart_goes_unnoticed(stage: Stage, era: str) -> None:
    """Between two calls the daemon is replaced: the second is answered by the new one."""
    first = stage.server()
    client = stage.client(era)
    client.start()
    assert client.recall("one")["note"] == f"pid {first.pid}"
    first.kill()
    first.wait()
    second = stage.server()
    assert client.recall("two")["note"] == f"pid {second.pid}"
    client.nothing_more()


@ERAS
def test_a_daemon_that_never_comes(stage: Stage, era: str) -> None:
    """Without a daemon the client still starts, lists tools, and gets well-formed answers that say what to do."""
    client = stage.client(era, RECALLD_GRACE_MS="150")
    assert client.start()["instructions"]
    assert len(client.ask("tools/list")["tools"]) == 8
    assert client.ask("resources/templates/list")["resourceTemplates"]
    if era == "legacy":
        assert client.ask("ping") == {}
    result = client.ask("tools/call", {"name": "recall", "arguments": {"query": "x"}})
    assert result["isError"] is False
    assert result["structuredContent"]["hits"] == []
    assert result["structuredContent"]["degraded"] == ["query"]
    assert "recalld up" in result["structuredContent"]["note"]
    assert result.get("resultType") == ("complete" if era == "modern" else None)
    written = client.ask("tools/call", {"name": "write_page", "arguments": {"path": "a", "body": "b"}})
    assert written["isError"] is True
    assert written["structuredContent"]["error"]["retryable"] is True
    assert client.close() == (0, b"")


@ERAS
def test_a_daemon_that_comes_later(stage: Stage, era: str) -> None:
    """A client that started alone is served as soon as there is a daemon; the handshake is repeated in private."""
    client = stage.client(era, RECALLD_GRACE_MS="100")
    client.start()
    assert client.recall("x")["degraded"] == ["query"]
    server = stage.server()
    client.until_served_by(server.pid)
    client.nothing_more()


def test_a_stuck_daemon(stage: Stage) -> None:
    """A stopped process keeps its connection: it is asked, and a call past the grace gets a degraded answer, once."""
    server = stage.server(ready=True)
    client = stage.client(RECALLD_GRACE_MS="400")
    client.start()
    client.until_served_by(server.pid)
    server.send_signal(signal.SIGSTOP)
    stuck = client.recall("stuck")
    assert stuck["degraded"] == ["query"]
    assert len(client.ask("tools/list")["tools"]) == 8
    server.send_signal(signal.SIGCONT)
    client.until_served_by(server.pid)
    client.nothing_more()


def test_a_replayed_write_has_the_same_key(stage: Stage) -> None:
    """A write that is sent again after a restart carries the key of the first one, so that it is done once."""
    first = stage.server()
    client = stage.client()
    client.start()
    client.call("write_page", path="sleep", body="b", project="widgets")
    stage.wait_logged("asked", 1)
    first.kill()
    first.wait()
    stage.server()
    one, two = stage.wait_logged("asked", 2)
    assert one["pid"] != two["pid"]
    assert one["replay_key"] == two["replay_key"] != ""


def test_cancelling(stage: Stage) -> None:
    """A cancelled call is given up on in the daemon and never answered; the session goes on."""
    stage.server()
    client = stage.client()
    client.start()
    waiting = client.call("recall", query="sleep 30")
    stage.wait_logged("asked", 1)
    client.notify("notifications/cancelled", {"requestId": waiting})
    stage.wait_logged("cancelled", 1)
    assert client.recall("next")["hits"]
    assert waiting not in [line.get("id") for line in client.lines]


def test_ten_clients(stage: Stage) -> None:
    """Ten bridges at once, each with calls in flight, all get their own answers."""
    stage.server()
    clients = [stage.client("modern" if number % 2 else "legacy") for number in range(10)]
    for client in clients:
        client.start()
    ids = [
        [client.call("recall", query=f"big {1000 + number}") for _ in range(3)] for number, client in enumerate(clients)
    ]
    for number, (client, calls) in enumerate(zip(clients, ids, strict=True)):
        for call in calls:
            passage = client.answer(call)["result"]["structuredContent"]["hits"][0]["passage"]
            assert len(passage) == 1000 + number


def test_large_messages(stage: Stage) -> None:
    """Megabytes pass both ways; a line beyond the cap is refused and the session goes on."""
    stage.server()
    client = stage.client()
    client.start()
    page = "y" * 900_000
    assert client.answer(client.call("write_page", path="a.md", body=page, project="w"))["result"]["isError"] is False
    assert len(client.recall("big 3000000")["hits"][0]["passage"]) == 3_000_000
    client.write(b'{"jsonrpc":"2.0","id":7,"method":"' + b"z" * (17 * 1024 * 1024) + b'"}\n')
    assert client.read()["error"]["code"] == -32700
    assert client.recall("after")["hits"]


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"{not json\n", -32700), (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600), (b"17\n", -32600),
     (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', -32600)],
)  # fmt: skip
def test_what_is_not_a_message(stage: Stage, line: bytes, code: int) -> None:
    """A line that is no JSON-RPC message is answered with the standard error, and the session goes on."""
    client = stage.client("legacy")
    client.write(line)
    refused = client.read()
    assert (refused["id"], refused["error"]["code"]) == (None, code)
    assert client.ask("ping") == {}


def test_only_mcp_on_stdout(stage: Stage) -> None:
    """A stray print, also one below Python, goes to stderr; every line on stdout is a message."""
    stage.server()
    noisy = (
        "import os, sys; from recalld.clients import mcp_bridge as bridge; run = bridge.Bridge.run\n"
        "def loud(self): print('stray'); os.write(1, b'native'); return run(self)\n"
        "bridge.Bridge.run = loud; sys.exit(bridge.main([]))"
    )
    client = stage.client(command=[sys.executable, "-c", noisy])
    client.start()
    assert client.recall("quiet")["hits"]
    code, errors = client.close()
    assert code == 0
    assert b"stray" in errors
    assert b"native" in errors


def test_a_piped_session(stage: Stage) -> None:
    """With stdin already at its end, unanswered requests are still answered, the last line also without a newline."""
    stage.server(ready=True)
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "recall", "arguments": {"query": "x"}},
    }
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "sh", "version": "0"}}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}) + "\n" + json.dumps(call)
    env = {"HOME": str(stage.folder), "RECALLD_RUNTIME": str(stage.folder)}
    done = subprocess.run(BRIDGE, input=text.encode(), env=env, capture_output=True, timeout=DEADLINE_S, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"]["hits"]


def test_another_toolset_is_announced(stage: Stage) -> None:
    """Tools listed before the daemon was there are announced as changed when its list is another."""
    client = stage.client("legacy")
    client.start()
    assert len(client.ask("tools/list")["tools"]) == 8
    stage.server("full")
    while client.read().get("method") != "notifications/tools/list_changed":
        pass
    assert len(client.ask("tools/list")["tools"]) > 8


def test_a_client_that_probes_and_settles_for_the_handshake(stage: Stage) -> None:
    """The daemon fixes the era of a connection by its first request; a client may still change its mind."""
    stage.server()
    client = stage.client("legacy")
    assert client.answer(client.send("server/discover", modern=True))["result"]["supportedVersions"] == [MODERN]
    assert client.start()["protocolVersion"] == "2025-06-18"
    assert client.recall("x")["hits"]


def test_ends_without_noise(stage: Stage) -> None:
    """SIGINT, which clients send first, ends the bridge at once without a traceback."""
    client = stage.client()
    client.start()
    client.process.send_signal(signal.SIGINT)
    code, errors = client.close()
    assert code == -signal.SIGINT
    assert errors == b""


def test_ends_with_its_reader(stage: Stage) -> None:
    """A client that closed our stdout is gone: the bridge ends, though stdin is still open."""
    client = stage.client()
    client.start()
    assert client.process.stdout is not None
    client.process.stdout.close()
    assert client.process.wait(DEADLINE_S) == 0


def test_ends_with_its_parent(stage: Stage) -> None:
    """A client that died without closing anything takes its bridge along."""
    start = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(60)"
    env = {"HOME": str(stage.folder), "RECALLD_RUNTIME": str(stage.folder)}
    read, write = os.pipe()
    client = subprocess.Popen([sys.executable, "-c", start, *BRIDGE], stdin=read, stdout=subprocess.PIPE, env=env)
    os.close(read)
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    os.write(write, b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert json.loads(client.stdout.readline())["result"] == {}
    client.kill()
    client.wait()
    deadline = time.monotonic() + DEADLINE_S
    while _runs(pid):
        assert time.monotonic() < deadline, "the bridge outlived its client"
        time.sleep(0.02)
    client.stdout.close()
    os.close(write)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_the_command_is_as_quick(stage: Stage) -> None:
    """`recalld mcp` is the same bridge, and imports nothing of the command line on its way."""
    stage.server()
    code = (
        "import atexit, sys; from recalld.clients.entry import main; sys.argv = ['recalld', 'mcp']\n"
        "slow = {'click', 'msgspec', 'asyncio', 'rich'}\n"
        "atexit.register(lambda: print(*sorted(slow & set(sys.modules)), file=sys.stderr))\n"
        "main()"
    )
    client = stage.client(command=[sys.executable, "-c", code])
    client.start()
    assert client.recall("ninja")["hits"]
    assert client.close() == (0, b"\n")


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: b"\n" not in line), max_size=20), st.data())
def test_lines_come_whole(lines: list[bytes], data: st.DataObject) -> None:
    """However bytes are split on the way: the same lines in the same order, long ones reported once, blank ones dropped."""
    cap = 20
    stream, splitter = b"".join(line + b"\n" for line in lines), Lines(cap)
    found: list[bytes | None] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    whole = [line + b"\n" for line in lines if not line.isspace()]
    kept = [line for line in found if line is not None]
    assert kept == [line for line in whole if line in kept]
    assert {line for line in whole if len(line) <= cap} <= set(kept)
    assert len(found) <= len(lines)
