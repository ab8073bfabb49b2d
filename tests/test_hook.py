"""The hook client as agents run it: a process of its own, against listeners that answer, stall, refuse or are not there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recalld.clients import hook as hook_module
from recalld.clients.bridge import paths as client_paths
from recalld.clients.hooking import client, gate, plainjson, spooling
from recalld.memory.capture import events
from recalld.protocol import place
from recalld.protocol.runtime import locate

PROGRAM = Path(hook_module.__file__).resolve()
PYTHON = os.path.realpath(sys.executable)
SECRET = "ghp_" + "a1B2c3D4e5" * 4
LIMIT_S = 20.0

START = {"session_id": "s", "hook_event_name": "SessionStart", "source": "startup"}
PROMPT = {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": f"use {SECRET} please"}


class Listener:
    """A line-by-line listener in a thread: keeps what it gets, answers ``reply`` (None = never)."""

    def __init__(self, path: Path, reply: bytes | None) -> None:
        self.lines: list[bytes] = []
        self.reply = reply
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(path))
        self.socket.listen(64)
        self.held: list[socket.socket] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer.makefile("rb") as stream:
                self.lines.append(stream.readline())
            if self.reply is None:
                self.held.append(peer)
            else:
                with contextlib.suppress(OSError):
                    peer.sendall(self.reply)
                peer.close()

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(LIMIT_S)
        for peer in self.held:
            peer.close()


class Stand:
    """A data folder, sockets, and the client run against them."""

    def __init__(self, folder: Path) -> None:
        self.data, self.runtime, self.home = folder / "data", folder / "run", folder / "home"
        for each in (self.data, self.runtime, self.home):
            each.mkdir(mode=0o700)
        self.listeners: dict[str, Listener] = {}
        self.environ = {"HOME": str(self.home), "RECALLD_DATA": str(self.data), "RECALLD_RUNTIME": str(self.runtime),
                        "RECALLD_TEST_PATIENCE": "50"}  # fmt: skip

    def listen(self, name: str, reply: bytes | None) -> Listener:
        found = self.listeners[name] = Listener(self.runtime / f"{name}.sock", reply)
        return found

    def run(self, payload: Any, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        done = subprocess.run(
            [PYTHON, "-I", "-S", str(PROGRAM), *words], input=raw, capture_output=True, timeout=LIMIT_S,
            env=self.environ | more.get("env", {}), cwd=more.get("cwd", self.home), check=False,
        )  # fmt: skip
        assert done.returncode == 0
        assert done.stderr == b""
        return done

    def hurry(self) -> None:
        """The real deadlines, for tests in which they pass."""
        del self.environ["RECALLD_TEST_PATIENCE"]

    def spooled(self, expect: int | None = None) -> list[dict[str, Any]]:
        folder = self.data / "spool"
        deadline = time.monotonic() + LIMIT_S
        while True:
            names = sorted(folder.glob("*.json")) if folder.is_dir() else []
            if expect is None or len(names) == expect or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert expect is None or len(names) == expect
        return [json.loads(name.read_bytes()) for name in names]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    for listener in made.listeners.values():
        listener.close()


def test_tells_the_daemon(stand: Stand) -> None:
    """One line with the payload as it came; nothing is printed, nothing is spooled."""
    heard = stand.listen("events", b'{"ok":true,"seq":1}\n')
    work = stand.home / "w"
    work.mkdir()
    done = stand.run(json.dumps(PROMPT, indent=2).encode(), "claude", "UserPromptSubmit", cwd=work)
    assert done.stdout == b""
    wire = msgspec.json.decode(heard.lines[0], type=events.Wire)
    assert (wire.host, wire.event, wire.cwd, wire.payload) == ("claude", "UserPromptSubmit", str(work), PROMPT)
    assert stand.spooled() == []


@pytest.mark.parametrize(
    "reply", [None, b'{"error":"overloaded","retry_after_ms":250}\n', b"", b'{"error":"invalid"}\n', "gone"]
)
def test_spools_when_the_daemon_does_not_take_it(stand: Stand, reply: Any) -> None:
    """A daemon that is silent, refuses, hangs up or is gone: the event lies redacted in a private file, whole."""
    stand.hurry()
    if reply != "gone":
        stand.listen("events", reply)
    assert stand.run(PROMPT, "claude").stdout == b""
    (wire,) = stand.spooled(1)
    assert wire["payload"]["prompt"] == "use [redacted:github] please"
    (path,) = (stand.data / "spool").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.name.split("-")[0].isdigit()
    made = events.accept(msgspec.json.decode(path.read_bytes(), type=events.Wire), wire["sent_ms"] + 1)
    assert isinstance(made, events.Event)
    assert made.kind == "user-prompt"


def test_personal_fields_blobs_and_named_secrets_do_not_reach_the_spool(stand: Stand) -> None:
    """What rests on disk has no address, no image, and no value whose key says that it is a secret."""
    stand.run({"conversation_id": "c", "user_email": "me@example.org", "hook_event_name": "postToolUse", "tool_name": "x",
               "tool_input": {"api_key": "zz-top-12", "deep": [{"password": "hunter2"}],
                              "image": "iVBORw0KGgoAAAANSUhEUgAA" * 20},  # as a screenshot is sent
               "tool_output": '{"client_secret": "abc123def"}'}, "cursor")  # fmt: skip
    (wire,) = stand.spooled(1)
    text = json.dumps(wire)
    for secret in ("example.org", "zz-top-12", "hunter2", "abc123def", "iVBORw0"):
        assert secret not in text


def test_user_patterns_hold_in_the_spool(stand: Stand) -> None:
    """The user's patterns and allowed strings of config.toml count in the client too."""
    (stand.data / "config.toml").write_text(
        '[capture]\nredact_patterns = ["EMP-[0-9]{6}"]\nredact_allow = ["hunter22"]\n'
    )
    stand.run({"hook_event_name": "UserPromptSubmit", "prompt": "EMP-123456 password=hunter22"}, "claude")
    (wire,) = stand.spooled(1)
    assert wire["payload"]["prompt"] == "[redacted:custom] password=hunter22"


SHAPES = {
    "claude": {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "# Briefing\né"}},
    "cursor": {"additional_context": "# Briefing\né"},
    "mine": {"additionalContext": "# Briefing\né"},
} | {
    host: {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "# Briefing\né"}}
    for host in ("codex", "gemini", "vscode")
}


@pytest.mark.parametrize("host", sorted(SHAPES))
def test_briefing_in_the_hosts_shape(stand: Stand, host: str) -> None:
    """At a session's start the briefing is printed in exactly the shape of the host."""
    stand.listen("events", b'{"ok":true}\n')
    asked = stand.listen("mcp", json.dumps({"text": "# Briefing\né", "handoff": ""}).encode() + b"\n")
    done = stand.run(START, host)
    assert json.loads(done.stdout) == SHAPES[host]
    request = json.loads(asked.lines[0])
    assert (request["role"], request["op"], request["session"], request["host"]) == ("hook", "brief", "s", host)


@pytest.mark.parametrize("reply", [None, b'{"error":"x"}\n', b'{"text":"  "}\n', b"nonsense\n", b""])
def test_no_briefing_prints_nothing(stand: Stand, reply: bytes | None) -> None:
    """Without a briefing, or with one that is late or broken, nothing at all is printed."""
    if reply is None:
        stand.hurry()
    heard = stand.listen("events", b'{"ok":true}\n')
    stand.listen("mcp", reply)
    assert stand.run(START, "claude").stdout == b""
    # With the real deadlines an acknowledgement may come too late: then the event is told and spooled, one id for both.
    assert len(heard.lines) + len(stand.spooled()) in ((1, 2) if reply is None else (1,))


@pytest.mark.parametrize(
    "payload",
    [
        {**START, "source": "resume"},
        {**START, "agent_id": "a"},
        {"session_id": "s", "hook_event_name": "Stop", "stop_hook_active": False},
        {"session_id": "s", "hook_event_name": "SubagentStop"},
        {"session_id": "s", "hook_event_name": "PreCompact"},
        PROMPT,
    ],
)
def test_other_events_never_print(stand: Stand, payload: dict[str, Any]) -> None:
    """No event but a fresh session's start prints: context from Stop would make the agent go on."""
    stand.listen("events", b'{"ok":true}\n')
    asked = stand.listen("mcp", b'{"text":"brief"}\n')
    assert stand.run(payload, "claude").stdout == b""
    assert asked.lines == []


def test_never_a_decision(stand: Stand) -> None:
    """No host's output ever carries a decision, a block or a continue."""
    for host in SHAPES:
        text = client.shaped(host, "SessionStart", "x")
        assert not any(word in text for word in ("decision", "block", "continue", "permission"))


def test_nobody_waits_for_a_slow_spool(stand: Stand) -> None:
    """When the time is up the agent goes on while a child finishes the file: nothing is lost, nothing is held open."""
    stand.hurry()
    prompt = " ".join(f"password=hunter{number} token: {SECRET}{number}" for number in range(10_000))
    done = stand.run({**PROMPT, "parts": [prompt[at : at + 60_000] for at in range(0, len(prompt), 60_000)]}, "claude")
    assert done.stdout == b""
    (wire,) = stand.spooled(1)
    assert SECRET not in json.dumps(wire)


def test_policy_holds_before_anything_leaves(stand: Stand) -> None:
    """Below a marker, excluded files leave the process neither to the daemon nor to the spool."""
    heard = stand.listen("events", b'{"ok":true}\n')
    repo = stand.home / "repo"
    repo.mkdir()
    (repo / ".recalld.toml").write_text('[capture]\nignore_paths = ["secrets/**"]\n')

    def event(path: str) -> dict[str, Any]:
        given = {"file_path": path} if path else {}
        return {"session_id": "s", "hook_event_name": "PostToolUse", "cwd": str(repo), "tool_name": "Read", "tool_input": given,
                "tool_response": "content"}  # fmt: skip

    stand.run(event("secrets/a"), "claude")
    stand.run(event("src/a"), "claude")
    stand.run(event(""), "claude")
    lines = [json.loads(line) for line in heard.lines]
    assert [line.get("disposition", "") for line in lines] == ["", "metadata"]
    assert "content" in json.dumps(lines[0])
    assert "content" not in json.dumps(lines[1])
    (repo / ".recalld.toml").write_text("[capture]\nenabled = false\n")
    stand.run(event("src/a"), "claude")
    assert len(heard.lines) == 2
    assert stand.spooled() == []


@pytest.mark.parametrize(("mode", "marked", "kept"), [("off", True, 0), ("marked", False, 0), ("marked", True, 1)])
def test_modes_of_the_configuration(stand: Stand, mode: str, marked: bool, kept: int) -> None:
    """``capture.mode`` holds in the client, from the file and from the environment."""
    heard = stand.listen("events", b'{"ok":true}\n')
    if marked:
        (stand.home / ".recalld.toml").write_text("")
    stand.run(PROMPT, "claude", env={"RECALLD_CAPTURE__MODE": mode})
    (stand.data / "config.toml").write_text(f'[capture]\nmode = "{mode}"\n')
    stand.run(PROMPT, "claude")
    stand.run(PROMPT, "claude")  # now from the kept form
    assert len(heard.lines) == 3 * kept
    assert stand.spooled() == []


def test_kept_form_of_a_marker_is_not_stale(stand: Stand) -> None:
    """A marker that changed is read again, whatever was kept of it."""
    marker = stand.home / ".recalld.toml"
    for number in range(3):
        marker.write_text(f'project = "p{number}"')
        assert gate.policy_of(str(marker), str(stand.home), str(stand.data)).project == f"p{number}"
        assert gate.policy_of(str(marker), str(stand.home), str(stand.data)).project == f"p{number}"


def test_full_spool_takes_no_more(tmp_path: Path) -> None:
    """The spool stops growing at its limit, and takes events again once there is room."""
    folder = tmp_path / "spool"
    wire = {"payload": {"prompt": "x" * 1000}}

    def some() -> list[bool]:
        return [bool(spooling.spool(str(folder), wire, {}, sent_ms=n, max_mb=0)) for n in range(400)]

    assert some()[-1] is False
    assert (folder / ".full").exists()
    taken = [bool(spooling.spool(str(folder), wire, {}, sent_ms=n, max_mb=100)) for n in range(400)]
    assert taken[-1] is True


def test_branch_and_commit_travel(stand: Stand) -> None:
    """The event says on which branch and commit it happened, from the client's own look."""
    heard = stand.listen("events", b'{"ok":true}\n')
    subprocess.run(["git", "init", "-qb", "feature/x", str(stand.home / "r")], check=True)
    stand.run({**PROMPT, "cwd": str(stand.home / "r")}, "claude")
    assert json.loads(heard.lines[0])["branch"] == "feature/x"


def test_headless_runs_say_so(stand: Stand) -> None:
    """A run without a person is marked: it must not swallow a handoff."""
    heard = stand.listen("events", b'{"ok":true}\n')
    stand.run(START, "claude", env={"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"})
    assert json.loads(heard.lines[0])["interactive"] is False


def test_stopped_listener(stand: Stand) -> None:
    """A daemon that is stopped, not dead, accepts connections and answers none: the event is spooled."""
    program = (
        "import socket,sys,time; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(8); print(1,flush=True);"
        "time.sleep(60)"
    )
    process = subprocess.Popen([PYTHON, "-c", program, str(stand.runtime / "events.sock")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        stand.hurry()
        stand.run(PROMPT, "claude")
        stand.spooled(1)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_standard_library_only() -> None:
    """The quick way imports neither packages nor the slow parts of the standard library."""
    program = (
        "import sys; sys.argv=['hook.py']; p=type(sys)('recalld'); p.__path__=[sys.argv.append or '']\n"
        f"p.__path__=[{str(PROGRAM.parent.parent)!r}]; sys.modules['recalld']=p\n"
        "import recalld.clients.hooking.client as c, recalld.clients.hooking.gate\n"
        "c.plainjson.loads('{}'); print(sorted(m for m in ('re','json','enum','msgspec','socket','tomllib') if m in sys.modules))"
    )
    done = subprocess.run(
        [PYTHON, "-I", "-S", "-c", program], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("environ", [
    {"HOME": "/home/a"}, {"HOME": "/home/a", "RECALLD_DATA": "/d"}, {"HOME": "/home/a", "RECALLD_RUNTIME": "/r"},
    {"HOME": "/home/a", "XDG_DATA_HOME": "/x/share"}, {"HOME": "/home/a", "RECALLD_DATA": "/" + "long/" * 30},
])  # fmt: skip
def test_finds_the_daemons_places(environ: dict[str, str]) -> None:
    """The client, without packages, looks where the daemon is."""
    where = locate(environ=environ)
    assert client_paths.data_folder(environ) == str(where.data)
    hook = client.Hook(client.Options(["claude"]), environ)
    assert hook.events_socket == str(where.socket("events"))
    assert hook.mcp_socket == str(where.socket("mcp"))


@pytest.mark.parametrize("text", ['{"a": [1, -2.5, true, null, "é\\u00e9\\n"]}', " {} ", "\ufeff[]", '"\tx"'])
def test_plain_json_is_json(text: str) -> None:
    """JSON is read as the json module reads it, control characters in strings included."""
    assert plainjson.loads(text) == json.loads(text.lstrip("\ufeff"), strict=False)
    assert json.loads(plainjson.quoted(text)) == text


def test_options() -> None:
    """Folders may be named in either form, and what is unknown is ignored."""
    options = client.Options(["--data", "/d", "--runtime=/r", "--new", "codex", "Stop", "x"])
    assert (options.data, options.runtime, options.host, options.event) == ("/d", "/r", "codex", "Stop")


def test_bare_payloads_hold_no_content() -> None:
    """What passes as metadata names session, place and tool, nothing of what was said or read."""
    payload = {
        "session_id": "s",
        "tool_name": "Read",
        "tool_input": {"file_path": "x"},
        "tool_response": "y",
        "prompt": "z",
    }
    assert gate.bare(payload) == {"session_id": "s", "tool_name": "Read"}


def test_marker_name_is_one() -> None:
    """Disk and policy speak of the same file."""
    from recalld.memory.capture import policy

    assert place.MARKER == policy.MARKER
    assert place.MAX_MARKER_BYTES == policy.MAX_MARKER_BYTES
