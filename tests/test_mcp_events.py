"""Events that a host tells by calling ``hook_event``: the bridge as a real process, with and without somebody to tell."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp_stage import DEADLINE_S, Client, Stage
from recalld.clients.bridge.post import MAX_ERRANDS, payload_of
from recalld.memory.capture import events

from .test_hook import SECRET, Listener

pytestmark = pytest.mark.process

CLAUDE = {
    "host": "claude", "event": "PostToolUse", "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash",
    "tool_input": '{"command":"echo \\"é\\"\\n"}', "tool_response": '{"stdout":"[1] ${session_id}","interrupted":false}',
    "tool_use_id": "toolu_1", "duration_ms": "64", "prompt_id": "p", "agent_id": "", "agent_type": "", "error": "",
}  # fmt: skip
"""As Claude Code 2.1.332 fills it in: objects and numbers as text, nothing for what is not there."""
CODEX = {
    "host": "codex", "event": "PostToolUse", "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash",
    "tool_input": {"command": "cat x.json"}, "tool_response": '{"a": 1}\n', "tool_use_id": "call_1", "turn_id": "t",
    "model": "m",
}  # fmt: skip
"""As Codex 0.171.0 does: types are kept."""


class Desk:
    """A bridge with a data folder and, where wanted, a listener for its events."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.data = stage.folder / "data"
        self.data.mkdir(mode=0o700)
        self.listener: Listener | None = None

    def listen(self, reply: bytes | None) -> Listener:
        self.listener = Listener(self.stage.folder / "events.sock", reply)
        return self.listener

    def client(self, era: str = "modern", patience: str = "100", **environ: str) -> Client:
        environ = {
            "RECALLD_DATA": str(self.data),
            "RECALLD_TEST_PATIENCE": patience,
            "RECALLD_GRACE_MS": "100",
            **environ,
        }
        client = self.stage.client(era, **environ)
        client.start()
        return client

    def spooled(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.data / "spool").glob("*.json"))]


@pytest.fixture
def desk(short_tmp: Path) -> Iterator[Desk]:
    stage = Stage(short_tmp)
    desk = Desk(stage)
    yield desk
    stage.close()
    if desk.listener is not None:
        desk.listener.close()


def told(client: Client, **arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.answer(client.call("hook_event", **arguments))["result"]
    return result


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_told_to_the_daemon(desk: Desk, era: str) -> None:
    """The daemon gets the line that the hook client would have sent; the host gets a hook's empty output."""
    heard = desk.listen(b'{"ok":true,"seq":1}\n')
    client = desk.client(era)
    work = desk.stage.folder / "w"
    work.mkdir()
    result = told(client, **CLAUDE, cwd=str(work))
    assert (result["content"], result["isError"]) == ([{"type": "text", "text": "{}"}], False)
    assert result.get("resultType") == ("complete" if era == "modern" else None)
    wire = msgspec.json.decode(heard.lines[0], type=events.Wire)
    assert (wire.host, wire.event, wire.cwd) == ("claude", "PostToolUse", str(work))
    assert wire.payload == {
        "session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": {"command": 'echo "é"\n'},
        "tool_response": {"stdout": "[1] ${session_id}", "interrupted": False}, "tool_use_id": "toolu_1", "duration_ms": 64,
        "prompt_id": "p", "cwd": str(work),
    }  # fmt: skip
    made = events.accept(wire, wire.sent_ms + 1)
    assert isinstance(made, events.Event)
    assert (made.kind, made.outcome, made.call_id, made.duration_ms) == ("post-tool-use", "success", "toolu_1", 64)
    assert desk.spooled() == []
    client.nothing_more()


def test_types_are_the_hosts() -> None:
    """What Codex sends as an object is one, and what its tool printed stays a text whatever it looks like."""
    payload = payload_of(CODEX, "s")
    assert payload == {name: value for name, value in CODEX.items() if name not in ("host", "event")}
    assert payload_of(CODEX, "thread of a subagent")["agent_id"] == "thread of a subagent"
    assert payload_of({"event": "X", "tool_input": "{ not JSON"}, "")["tool_input"] == "{ not JSON"
    odd = {"tool_response": "[" * 200_000, "duration_ms": "9" * 5000}
    assert payload_of({"host": "claude", "event": "X", **odd}, "") == {**odd, "hook_event_name": "X"}


@pytest.mark.parametrize("reply", [b'{"error":"overloaded","retry_after_ms":250}\n', b"", None, "gone", "stopped"])
def test_spooled_when_the_daemon_does_not_take_it(desk: Desk, reply: Any) -> None:
    """Refused, hung up, silent, gone, or stopped: the event lies redacted in the spool before the host is answered."""
    listening = None
    if reply == "stopped":  # a socket that nobody accepts on
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(desk.stage.folder / "events.sock"))
        listening.listen(8)
    elif reply != "gone":
        desk.listen(reply)
    client = desk.client(patience="1")
    result = told(client, **{**CLAUDE, "tool_response": json.dumps({"stdout": SECRET})}, cwd=str(desk.stage.folder))
    assert result["isError"] is False
    (wire,) = desk.spooled()
    assert wire["payload"]["tool_response"] == {"stdout": "[redacted:github]"}
    assert (wire["host"], wire["event"]) == ("claude", "PostToolUse")
    if listening is not None:
        listening.close()


def test_other_calls_go_on_meanwhile(desk: Desk) -> None:
    """A daemon that is silent about an event does not hold up the session."""
    heard = desk.listen(None)
    client = desk.client()
    first = client.call("hook_event", **CLAUDE)
    assert client.ask("tools/list")["tools"]
    desk.listener = None
    heard.close()  # hangs up
    assert client.answer(first)["result"]["isError"] is False
    assert len(desk.spooled()) == 1


def test_an_end_in_the_middle(desk: Desk) -> None:
    """The session ends while events are under way: all of them are on disk when the bridge is gone."""
    desk.listen(None)
    client = desk.client()
    for number in range(3):
        client.call("hook_event", **{**CLAUDE, "tool_use_id": f"call-{number}"})
    assert client.ask("tools/list")["tools"]
    assert client.process.stdout is not None
    client.process.stdout.close()
    assert client.process.wait(DEADLINE_S) == 0
    assert {wire["payload"]["tool_use_id"] for wire in desk.spooled()} == {"call-0", "call-1", "call-2"}


def test_more_than_it_carries_at_once(desk: Desk) -> None:
    """Calls beyond the bound are spooled at once; each is answered once."""
    desk.listen(None)
    client = desk.client()
    ids = [client.call("hook_event", **{**CLAUDE, "tool_use_id": f"c{number}"}) for number in range(MAX_ERRANDS + 2)]
    assert {client.read()["id"], client.read()["id"]} == set(ids[-2:])
    assert len(desk.spooled()) == 2


def test_large_events(desk: Desk) -> None:
    """Outputs of megabytes arrive whole, many times what a socket's buffer holds."""
    heard = desk.listen(b'{"ok":true}\n')
    client = desk.client()
    output = "x\n" * 1_500_000
    assert told(client, **{**CODEX, "tool_response": output})["isError"] is False
    assert json.loads(heard.lines[0])["payload"]["tool_response"] == output


def test_policy_holds_here_too(desk: Desk) -> None:
    """Below a marker, excluded files leave the bridge neither to the daemon nor to the spool."""
    heard = desk.listen(b'{"ok":true}\n')
    client = desk.client(CLAUDE_CODE_ENTRYPOINT="sdk-cli")
    repo = desk.stage.folder / "repo"
    repo.mkdir()
    marker = repo / ".recalld.toml"

    def read(path: str) -> None:
        given = json.dumps({"file_path": path} if path else {})
        assert (
            told(client, **{**CLAUDE, "tool_name": "Read", "tool_input": given, "cwd": str(repo)})["isError"] is False
        )

    marker.write_text('[capture]\nignore_paths = ["secrets/**"]\n')
    for path in ("secrets/a", "src/a", ""):
        read(path)
    lines = [json.loads(line) for line in heard.lines]
    assert [line.get("disposition", "") for line in lines] == ["", "metadata"]
    assert [line["interactive"] for line in lines] == [False, False]
    marker.write_text("[capture]\nenabled = false\n")
    read("src/a")
    assert len(heard.lines) == 2
    assert desk.spooled() == []


def test_what_is_lost_is_said(desk: Desk) -> None:
    """An event that can neither be told nor written down is an error to the host, which shows it."""
    (desk.data / "spool").write_text("no folder")
    client = desk.client()
    result = told(client, **CLAUDE)
    assert result["isError"] is True
    assert "lost an event" in result["content"][0]["text"]
    assert told(client)["isError"] is True
    assert told(client, event="Stop", cwd=7)["isError"] is True
    client.nothing_more()


def test_a_session_that_is_not_named(desk: Desk) -> None:
    """The host's environment names the session where the call does not."""
    heard = desk.listen(b'{"ok":true}\n')
    client = desk.client(CLAUDECODE="1", CLAUDE_CODE_SESSION_ID="s-env")
    told(client, event="Notification", message="m")
    line = json.loads(heard.lines[0])
    assert (line["host"], line["payload"]["session_id"]) == ("claude", "s-env")


def test_killed_while_it_waits(desk: Desk) -> None:
    """A bridge that is killed before the acknowledgement has told the daemon all the same."""
    heard = desk.listen(None)
    client = desk.client()
    client.call("hook_event", **CLAUDE)
    assert client.ask("tools/list")["tools"]
    client.process.send_signal(signal.SIGKILL)
    client.process.wait(DEADLINE_S)
    while not heard.lines:
        os.sched_yield()
    assert json.loads(heard.lines[0])["payload"]["tool_use_id"] == "toolu_1"
