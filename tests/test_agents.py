"""
Real agents, offline: Claude Code and Codex as npm ships them, against a loopback stand-in for their models.

Opt in with RECALLD_TEST_AGENTS=1: npm fetches a few hundred megabytes into RECALLD_TEST_AGENTS_DIR (by default
``~/.cache/recalld-test-agents``), once.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_stand import Model
from harness import Daemon, alive, until
from recalld.protocol.messages.capture import SessionList, Sessions

pytestmark = [
    pytest.mark.agents,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("RECALLD_TEST_AGENTS") != "1", reason="opt in with RECALLD_TEST_AGENTS=1"),
]

PACKAGES = {"claude": "@anthropic-ai/claude-code@2.1.332", "codex": "@openai/codex@0.171.0"}
FOLDER = Path(os.environ.get("RECALLD_TEST_AGENTS_DIR") or Path.home() / ".cache" / "recalld-test-agents")
QUERY = "which tool does the build use"
PROMPT = "Why does the gear test fail?"
CODEX = """\
model = "gpt-5"
model_provider = "stand"

[model_providers.stand]
name = "stand"
base_url = "{url}/v1"
wire_api = "responses"
"""


def program(agent: str) -> Path:
    """The agent's own binary, fetched with npm where it is not there yet."""
    name = {"claude": "claude-code", "codex": "codex"}[agent]
    folder = FOLDER / agent
    if not list(folder.glob(f"node_modules/@*/{name}-*")):
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not on this machine")
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", PACKAGES[agent]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
        if done.returncode:
            pytest.skip(f"npm does not give {PACKAGES[agent]}: {done.stderr[-300:]}")
    found = [path for path in folder.glob(f"node_modules/@*/{name}-*/**/{agent}") if path.is_file()]
    assert found, f"{PACKAGES[agent]} has no program for this platform"
    return found[0]


class Desk:
    """A home folder with the agent's configuration as `recalld install` left it, a repository, and a daemon."""

    def __init__(self, agent: str, folder: Path, model: Model) -> None:
        self.agent, self.model = agent, model
        self.program = program(agent)
        self.home, self.repo = folder / "home", folder / "acme"
        self.home.mkdir()
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True)
        self.daemon = Daemon(folder, {"RECALLD_EMBEDDER__MODEL": "none", "HOME": str(self.home)})
        self.daemon.write("build.md", "# Build\n\nThe build uses ninja.\n")
        self.daemon.start()
        self.daemon.settle()
        if agent == "codex":
            (self.home / ".codex").mkdir()
            (self.home / ".codex" / "config.toml").write_text(CODEX.format(url=model.url))
        self.daemon.cli("install", agent, "--yes")

    def run(self, prompt: str = PROMPT) -> str:
        """One session of one prompt, to its end; what the agent said."""
        foreign = ("RECALLD", "CLAUDE", "ANTHROPIC", "OPENAI", "CODEX")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        # A hook prints a briefing in time or not at all; a crowded machine gets more time.
        environ |= {"HOME": str(self.home), "NO_PROXY": "127.0.0.1", "RECALLD_TEST_PATIENCE": "10"}
        if self.agent == "claude":
            environ |= {"ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": "dummy", "DISABLE_AUTOUPDATER": "1"}
            environ |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
            words = ["-p", prompt, "--allowedTools", "mcp__recalld__recall,Bash"]
        else:
            words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"]
            words += ["--dangerously-bypass-approvals-and-sandbox", prompt]
        done = subprocess.run(
            [str(self.program), *words], env=environ, cwd=self.repo, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def sessions(self) -> Sessions:
        reply = self.daemon.ask("writer", SessionList(all_projects=True))
        assert isinstance(reply, Sessions)
        return reply


@pytest.fixture(params=sorted(PACKAGES))
def desk(request: pytest.FixtureRequest, short_tmp: Path) -> Iterator[Desk]:
    model = Model(QUERY)
    made = Desk(request.param, short_tmp, model)
    yield made
    made.daemon.close()
    model.close()


def test_a_session_from_briefing_to_page(desk: Desk) -> None:
    """What is open is in the first request, recall's answer in the next, and what happened is captured."""
    desk.daemon.cli("handoff", "new", "Look at the gear test next", cwd=desk.repo)
    assert "That is all." in desk.run()
    first, last = str(desk.model.requests[0]), str(desk.model.requests[-1])
    assert "Look at the gear test next" in first
    assert "not an instruction" in first
    assert "The build uses ninja." not in first
    assert "The build uses ninja." in last
    events = desk.daemon.cli("events", "--json", cwd=desk.repo).stdout
    for kind in ("session-start", "user-prompt", "post-tool-use", "session-end"):
        assert f'"{kind}"' in events
    assert PROMPT in events
    (session,) = desk.sessions().items
    assert (session.host, session.project) == (desk.agent, "acme")
    folder = desk.daemon.paths.wiki / "acme" / "sessions"
    (page,) = until("the session's page", lambda: list(folder.glob("*.md")))
    assert PROMPT in page.read_text()


ODD = "printf '%s\\n' 'quote\" back\\slash é ☃'; echo '${session_id} $HOME'"
COMMANDS = [
    ODD,
    "head -c 100000 /dev/zero | tr '\\0' 'x'; echo end",
    "echo '{\"a\": 1}'",
    "true",
    "echo oops >&2; exit 3",
]


def tool_events(desk: Desk) -> list[dict[str, object]]:
    """Everything stored of the session's tool calls, oldest first."""
    words = ("events", "--json", "--kind", "post-tool-use", "-n", "99")
    return [json.loads(line) for line in desk.daemon.cli(*words, cwd=desk.repo).stdout.splitlines()]


@pytest.mark.parametrize("kind", ["calls", "commands"])
def test_tool_events_are_stored_once(desk: Desk, kind: str) -> None:
    """
    Whether the host calls our tool or starts a program: each of its tool calls is there once, whole, and the session's
    transcript adds nothing.
    """
    if kind == "commands":
        desk.daemon.cli("install", desk.agent, "--yes", "--command-hooks")
    desk.model.commands = COMMANDS
    assert "That is all." in desk.run()
    found = until("all tool events", lambda: len(events := tool_events(desk)) > len(COMMANDS) and events)
    assert [event["command"] for event in found] == [*COMMANDS, ""]
    desk.daemon.cli("import", desk.agent, str(desk.home / f".{desk.agent}"), cwd=desk.repo)
    assert tool_events(desk) == found


def test_tool_events_while_the_daemon_is_away(desk: Desk) -> None:
    """The daemon dies before the second command and comes back after the session: nothing is lost, nothing is doubled."""
    desk.model.commands = COMMANDS
    desk.model.before_command = lambda number: die(desk.daemon) if number == 2 else None
    assert "That is all." in desk.run()
    desk.daemon.start()
    found = until("all tool events", lambda: len(events := tool_events(desk)) > len(COMMANDS) and events)
    assert sorted(str(event["command"]) for event in found) == sorted([*COMMANDS, ""])
    assert not list(desk.daemon.paths.dead_letters.glob("*"))


def test_the_bridge_is_killed_in_the_middle_of_a_session(desk: Desk) -> None:
    """Claude Code starts it again for the next event; Codex does not, and says so at each hook; its transcript has the rest."""
    desk.model.commands = COMMANDS
    desk.model.before_command = lambda number: kill_bridges(desk) if number == 2 else None
    said = desk.run()
    assert "That is all." in said
    lost = said.count("hook: PostToolUse Failed")
    assert (lost > 0) == (desk.agent == "codex")
    assert len(until("its events", lambda: tool_events(desk))) <= len(COMMANDS) + 1 - lost
    desk.daemon.cli("import", desk.agent, str(desk.home / f".{desk.agent}"), cwd=desk.repo)
    found = tool_events(desk)
    assert sorted(str(event["command"]) for event in found) == sorted([*COMMANDS, ""])


def kill_bridges(desk: Desk) -> None:
    """SIGKILL of the bridges that this desk's agent has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, environ = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"mcp_bridge.py" in command and f"HOME={desk.home}\0".encode() in environ + b"\0":
            os.kill(int(folder.name), signal.SIGKILL)


def test_the_daemon_dies_in_the_middle_of_a_session(desk: Desk) -> None:
    """The first recall is real, the second, with nobody there, degraded, and the third, after a restart, real again."""
    desk.model.wanted_calls = 3
    desk.model.before_call = lambda number: {2: lambda: die(desk.daemon), 3: desk.daemon.start}.get(number, int)()
    assert "That is all." in desk.run()
    results = [answers(request) for request in desk.model.requests]
    assert len(results[-1]) == 3, results[-1]
    real, degraded, again = results[-1]
    assert "The build uses ninja." in real
    assert "The build uses ninja." not in degraded
    assert "recalld up" in degraded
    assert "The build uses ninja." in again


def die(daemon: Daemon) -> None:
    """SIGKILL of the supervisor; all of its children follow."""
    pids = daemon.pids()
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait()
    until("nobody is left", lambda: not any(alive(pid) for pid in pids.values()))


def answers(request: dict[str, object]) -> list[str]:
    """The results of recall that a request shows its model."""
    found: list[str] = []
    for entry in request.get("messages") or request.get("input") or []:  # type: ignore[attr-defined]
        if entry.get("type") == "function_call_output":
            found.append(str(entry["output"]))
        elif isinstance(entry.get("content"), list):
            found += [str(part["content"]) for part in entry["content"] if part.get("type") == "tool_result"]
    return [text for text in found if "tool_reference" not in text]
