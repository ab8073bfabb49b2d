"""The ``/bin/sh`` script before the hook client: quick where nothing is to be decided, the client for all else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recalld.clients import install
from recalld.clients.cli.context import Cli
from recalld.clients.cli.install import install as install_command
from recalld.clients.cli.install import uninstall as uninstall_command
from recalld.clients.install import wrapper
from recalld.protocol.runtime import Paths

from .test_hook import LIMIT_S, Stand  # the same stand, one script further out

pytestmark = pytest.mark.skipif(not wrapper.possible(), reason="needs OpenBSD nc and timeout")


class Script(Stand):
    """The stand with the script in front of the client."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.paths = Paths(self.data, self.runtime)
        where = install.setting(self.home, {"HOME": str(self.home)}, self.paths)
        target = install.script_target(where, self.paths)
        change = install.installing(target)
        assert change is not None
        change.apply()
        self.script = target.path
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "RECALLD_TEST_PATIENCE": "50"}

    def tell(self, payload: Any, **environ: str) -> bytes:
        raw = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
        done = subprocess.run(
            [str(self.script), "claude"], input=raw.encode(), capture_output=True, timeout=LIMIT_S, cwd=self.home,
            env=self.environ | environ, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Script]:
    made = Script(tmp_path)
    yield made
    for listener in made.listeners.values():
        listener.close()


def event(stand: Script, **more: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "cwd": str(stand.home),
        "hook_event_name": "UserPromptSubmit",
        "prompt": 'it\'s "x" $HOME',
        **more,
    }


def by_script(line: bytes) -> bool:
    return b"sent_ms" not in line


def test_quick_way(stand: Script) -> None:
    """A plain event reaches the daemon as it is, quotes and dollars and all, without the interpreter."""
    heard = stand.listen("events", b'{"ok":true,"seq":1}\n')
    assert stand.tell(event(stand), late="cursor", payload="x", answer='{"ok":true}') == b""
    assert by_script(heard.lines[0])
    assert json.loads(heard.lines[0])["payload"] == event(stand)
    assert stand.spooled() == []


@pytest.mark.parametrize("why", ["start", "marker", "configuration", "elsewhere", "pretty", "headless", "mode"])
def test_what_needs_a_decision_goes_to_the_client(stand: Script, why: str) -> None:
    """A session's start, a marker, a capture table, another folder, several lines: the client decides."""
    heard = stand.listen("events", b'{"ok":true,"seq":1}\n')
    payload: Any = event(stand)
    environ: dict[str, str] = {}
    if why == "start":
        payload["hook_event_name"] = "SessionStart"
        stand.listen("mcp", b'{"text":"brief"}\n')
    elif why == "marker":
        (stand.home / ".recalld.toml").write_text("")
    elif why == "configuration":
        (stand.data / "config.toml").write_text("[capture]\nidle_end_min = 5\n")
    elif why == "elsewhere":
        payload["cwd"] = str(stand.data)
    elif why == "pretty":
        payload = json.dumps(payload, indent=2)
    elif why == "headless":
        environ["CLAUDE_CODE_ENTRYPOINT"] = "sdk-py"
    else:
        environ["RECALLD_CAPTURE__MODE"] = "all"
    printed = stand.tell(payload, **environ)
    assert bool(printed) == (why == "start")
    assert not by_script(heard.lines[0])


@pytest.mark.parametrize("reply", [None, b'{"error":"overloaded"}\n', "gone"])
def test_spools_without_asking_twice(stand: Script, reply: Any) -> None:
    """When the daemon does not take the event, the client redacts and spools it."""
    heard = None if reply == "gone" else stand.listen("events", reply)
    stand.tell(event(stand, prompt="password=hunter22"))
    (wire,) = stand.spooled(1)
    assert wire["payload"]["prompt"] == "password=[redacted:assignment]"
    assert heard is None or len(heard.lines) == 1


def test_a_payload_without_an_end(stand: Script) -> None:
    """A host that sends half and leaves stdin open is let go, and what came is a dead letter."""
    process = subprocess.Popen([str(stand.script), "claude"], stdin=subprocess.PIPE, env=stand.environ, cwd=stand.home)
    assert process.stdin is not None
    process.stdin.write(b'{"prompt": "hal')
    process.stdin.flush()
    assert process.wait(LIMIT_S) == 0
    process.stdin.close()
    (reason,) = (stand.data / "spool" / "dead").glob("*.reason")
    assert "15 bytes and no end" in reason.read_text()


def test_installed_and_removed_with_the_hooks(stand: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """`recalld install` puts the script before the hooks, `uninstall` removes it with the last of them."""
    monkeypatch.setenv("HOME", str(stand.home))
    stand.script.unlink()
    cli = Cli(stand.paths)

    def run(command: Any, *words: str) -> str:
        done = CliRunner().invoke(command, words, obj=cli, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    run(install_command, "codex", "cursor", "--yes")
    assert stand.script.stat().st_mode & 0o777 == 0o700
    assert f"{stand.script} codex" in (stand.home / ".codex" / "hooks.json").read_text()
    assert "everything is there already" in run(install_command, "codex", "--yes")
    run(uninstall_command, "codex", "--yes")
    assert stand.script.exists()
    run(uninstall_command, "--yes")
    assert not stand.script.exists()
    assert sorted(path for path in stand.home.rglob("*") if path.is_file()) == []


def test_asks_before_writing(stand: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --yes, and nobody to ask, the diff is shown and nothing is written."""
    from recalld.clients.cli.context import Failed

    monkeypatch.setenv("HOME", str(stand.home))
    with pytest.raises(Failed, match="--yes"):
        CliRunner().invoke(install_command, ["gemini"], obj=Cli(stand.paths), catch_exceptions=False)
    assert sorted(path for path in stand.home.rglob("*") if path.is_file()) == []
