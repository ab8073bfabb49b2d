"""The installer in a temporary home: foreign entries and comments stay, repeating changes nothing, removing gives all back."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recalld.clients import install
from recalld.clients.install import HOSTS, jsonc
from recalld.clients.install.hosts import is_ours
from recalld.clients.install.plan import BACKUP
from recalld.protocol.runtime import locate

CLAUDE = """{
    // my settings
    "model": "opus",   /* keep */
    "hooks": {
        "Stop": [
            { "hooks": [ { "type": "command", "command": "say done", "timeout": 5 } ] } // loud
        ],
        "SessionStart": []
    },
    "permissions": { "allow": ["Bash(ls:*)",], },
}
"""
EXISTING: dict[str, dict[str, str]] = {
    "claude": {".claude/settings.json": CLAUDE, ".claude.json": '{"numStartups":4,"mcpServers":{"other":{"command":"x"}}}'},
    "codex": {".codex/config.toml": '# mine\nmodel = "x" # y\n\n[mcp_servers.other]\ncommand = "z"\n\n[profiles.a]\nb = 1\n',
              ".codex/hooks.json": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}'},
    "gemini": {".gemini/settings.json": '{\r\n\t"theme": "dark",\r\n\t"mcpServers": {}\r\n}\r\n'},
    "cursor": {".cursor/mcp.json": "{}", ".cursor/hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "./x.sh"}]}}\n'},
    "vscode": {".config/Code/User/mcp.json": '{\n  "servers": {},\n  "inputs": []\n}\n'},
    "copilot": {".copilot/mcp-config.json": '{\n  "mcpServers": {\n    "a": {"command": "b"}\n  }\n}'},
    "opencode": {".config/opencode/opencode.jsonc": '{ // c\n  "theme": "x",\n}\n'},
    "claude-desktop": {".config/Claude/claude_desktop_config.json": '{"mcpServers": {"a": {"command": "b"}}, "z": 1}'},
    "windsurf": {".codeium/windsurf/mcp_config.json": "\n"},
    "zed": {".config/zed/settings.json": '// Zed\n//\n{\n  "vim_mode": true, // yes\n  "languages": {\n    "C": {}\n  }\n}\n'},
    "goose": {".config/goose/config.yaml": "# g\nMODEL: x\nextensions:\n  # mine\n  developer:\n    enabled: true\nother: 1\n"},
}  # fmt: skip


@pytest.fixture
def where(tmp_path: Path) -> install.Setting:
    return install.setting(tmp_path, {"HOME": str(tmp_path)})


def put(home: Path, host: str) -> dict[Path, bytes]:
    for name, text in EXISTING[host].items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return snapshot(home)


def snapshot(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()}


def run(host: str, where: install.Setting, **parts: bool) -> int:
    changes = [
        change for target in install.targets(HOSTS[host], where, **parts) if (change := install.installing(target))
    ]
    for change in changes:
        change.apply()
    return len(changes)


def undo(host: str, where: install.Setting) -> int:
    changes = [change for target in install.targets(HOSTS[host], where) if (change := install.removing(target))]
    for change in changes:
        change.apply()
        install.forget_backup(change)
    return len(changes)


def load(path: Path) -> Any:
    text = path.read_bytes().decode()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return yaml.safe_load(text) if path.suffix == ".yaml" else jsonc.value_of(text)


def without_ours(value: Any) -> Any:
    """A configuration without recalld's entries and without what became empty."""
    if isinstance(value, dict):
        found = {key: without_ours(item) for key, item in value.items() if key != "recalld"}
        return {key: item for key, item in found.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [without_ours(item) for item in value if not is_ours(item)]
    return value


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_into_existing_files(host: str, where: install.Setting) -> None:
    """Foreign entries stay, a second run changes nothing, each changed file has a backup, removing restores every byte."""
    before = put(where.home, host)
    assert run(host, where) > 0
    for path, old in before.items():
        text = path.read_bytes().decode()
        assert text != old.decode(), path
        assert (path.parent / (path.name + BACKUP)).read_bytes() == old
        plain = without_ours(load(path))
        if old.strip():
            path.write_bytes(old)
            assert plain == without_ours(load(path))
            path.write_bytes(text.encode())
    installed = snapshot(where.home)
    assert run(host, where) == 0
    assert snapshot(where.home) == installed
    assert undo(host, where) > 0
    assert snapshot(where.home) == before
    assert undo(host, where) == 0


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_into_nothing(host: str, where: install.Setting) -> None:
    """Without files it makes them, closed to others, and removing leaves no file behind."""
    assert run(host, where) > 0
    for path in snapshot(where.home):
        assert path.stat().st_mode & 0o077 == 0
    assert run(host, where) == 0
    assert undo(host, where) > 0
    assert snapshot(where.home) == {}


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_comments_stay(host: str, where: install.Setting) -> None:
    """Every comment of the file is in it after installing."""
    for path, old in put(where.home, host).items():
        comments = [row.split("//", 1)[-1] for row in old.decode().splitlines() if "//" in row or row.startswith("#")]
        run(host, where)
        text = path.read_bytes().decode()
        assert all(comment in text for comment in comments)
        assert ("/* keep */" in text) == ("/* keep */" in old.decode())


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_removing_after_a_persons_edit(host: str, where: install.Setting) -> None:
    """When the file was edited since, only our entries go, and the edit stays."""
    before = put(where.home, host)
    run(host, where)
    edited = [path for path in before if path.suffix in (".json", ".jsonc")]
    for path in edited:
        path.write_bytes(jsonc.set_key(path.read_bytes().decode(), ["added"], {"by": "me"}).encode())
    undo(host, where)
    for path in edited:
        text = path.read_bytes().decode()
        value = load(path)
        assert value.pop("added") == {"by": "me"}
        assert "recalld" not in text
        assert without_ours(value) == without_ours(jsonc.value_of(before[path].decode()))


def hooks_of(value: Any, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        if any(isinstance(value.get(key), str) and "hook.py" in value[key] for key in ("command", "bash")):
            found.append(value)
        for item in value.values():
            hooks_of(item, found)
    elif isinstance(value, list):
        for item in value:
            hooks_of(item, found)
    return found


@pytest.mark.parametrize("host", [name for name, host in HOSTS.items() if host.hooks and name != "opencode"])
def test_hooks_have_timeouts_and_absolute_paths(host: str, where: install.Setting) -> None:
    """Every hook names a timeout of 1 to 10 seconds in the host's unit, and starts a real interpreter by absolute paths."""
    run(host, where)
    found: list[dict[str, Any]] = []
    for path in snapshot(where.home):
        hooks_of(load(path), found)
    assert len(found) >= 6
    for hook in found:
        seconds = hook["timeout"] / 1000 if host == "gemini" else hook["timeout"]
        assert 1 <= seconds <= 10
        python, *words = shlex.split(hook["command"])
        assert python == os.path.realpath(python)
        assert Path(python).is_file()
        assert words[:2] == ["-I", "-S"]
        assert Path(words[2]).is_file()
        assert words[3] == host.replace("vscode", "copilot")


HOOK_FILES = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
CALLING = pytest.mark.parametrize("host", sorted(HOOK_FILES))


def kinds_of(home: Path, host: str) -> dict[str, list[str]]:
    """Our hooks in a host's file: event -> types."""
    events = load(home / HOOK_FILES[host])["hooks"]
    found = {
        event: [hook["type"] for group in groups for hook in group["hooks"] if is_ours(hook)]
        for event, groups in events.items()
    }
    return {event: types for event, types in found.items() if types}


def states(where: install.Setting, host: str) -> dict[str, tuple[str, str]]:
    found = install.present(where.home, where.environ)
    return {finding.part: (finding.state, finding.text) for finding in found if finding.host == host}


@CALLING
def test_tool_events_call_the_bridge(host: str, where: install.Setting) -> None:
    """Tool events are calls of our tool; what orders a session or puts something into it starts a program."""
    run(host, where)
    kinds = kinds_of(where.home, host)
    calls = {event for event, types in kinds.items() if types == ["mcp_tool"]}
    assert calls == {"claude": {"PostToolUse", "PostToolUseFailure"}, "codex": {"PostToolUse"}}[host]
    assert all(types == ["command"] for event, types in kinds.items() if event not in calls)
    assert {"SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "PreCompact"} <= set(kinds) - calls
    for event in calls:
        (group,) = load(where.home / HOOK_FILES[host])["hooks"][event]
        (hook,) = group["hooks"]
        assert (hook["server"], hook["tool"], hook["timeout"]) == ("recalld", "hook_event", 2)
        given = hook["input"]
        assert (given.pop("host"), given.pop("event")) == (host, event)
        assert given == {field: f"${{{field}}}" for field in given}
        assert {"session_id", "cwd", "tool_name", "tool_use_id", "tool_input", "tool_response"} <= set(given)
        if host == "codex":  # a field that is not in every payload would keep the hook from running
            assert {"agent_id", "agent_type", "error", "prompt_id"}.isdisjoint(given)


@CALLING
@pytest.mark.parametrize("why", ["no entry", "wanted"])
def test_commands_throughout(host: str, why: str, where: install.Setting) -> None:
    """Without our MCP entry, or where it is asked for, no event depends on the bridge; either kind is as it should be."""
    if why == "no entry":
        run(host, where, mcp=False)
    else:
        run(host, replace(where, tool_hooks=False))
    assert {kind for types in kinds_of(where.home, host).values() for kind in types} == {"command"}
    assert states(where, host)["hooks"][0] == "current"
    run(host, where)
    assert states(where, host) == dict.fromkeys(("mcp", "hooks"), ("current", "as this version writes it"))
    assert all(len(types) == 1 for types in kinds_of(where.home, host).values())


@CALLING
@pytest.mark.parametrize("tool_hooks", [True, False])
def test_either_kind_is_taken_out(host: str, tool_hooks: bool, where: install.Setting) -> None:
    """Removing gives every byte back, whichever kind was installed."""
    before = put(where.home, host)
    run(host, replace(where, tool_hooks=tool_hooks))
    assert install.as_installed(HOSTS[host], where).tool_hooks is tool_hooks
    undo(host, install.as_installed(HOSTS[host], where))
    assert snapshot(where.home) == before


@CALLING
def test_calls_without_the_entry_are_said(host: str, where: install.Setting) -> None:
    """Hooks that call an MCP entry that somebody took out lose their events: the check-up says so."""
    run(host, where)
    for target in install.targets(HOSTS[host], where, hooks=False):
        change = install.removing(target)
        assert change is not None
        change.apply()
    state, text = states(where, host)["hooks"]
    assert state == "stale"
    assert "missing" in text
    run(host, where)
    assert states(where, host)["hooks"][0] == "current"


def test_other_peoples_calls_are_theirs() -> None:
    """A hook that calls another server, or another tool of ours, is not touched."""
    call = {"type": "mcp_tool", "server": "recalld", "tool": "hook_event"}
    assert is_ours(call)
    assert not is_ours({**call, "server": "other"})
    assert not is_ours({**call, "tool": "recall"})


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_mcp_entry(host: str, where: install.Setting) -> None:
    """The MCP entry starts the bridge by absolute paths that exist."""
    run(host, where, hooks=False)
    (path,) = snapshot(where.home)
    value = load(path)
    for key in ("mcpServers", "mcp_servers", "servers", "mcp", "context_servers", "extensions"):
        value = value.get(key, value)
    entry = value["recalld"]
    command = entry.get("command", entry.get("cmd"))
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert words[1:3] == ["-I", "-S"]
    assert Path(words[0]).is_file()
    assert Path(words[3]).name == "mcp_bridge.py"
    assert Path(words[3]).is_file()


def test_stale_entries_are_replaced_in_place(where: install.Setting) -> None:
    """An entry of an older installation is brought up to date where it stands, not added to."""
    put(where.home, "claude")
    run("claude", install.Setting(where.home, where.environ, "/old/python3", Path("/old/clients")))
    path = where.home / ".claude" / "settings.json"
    assert {finding.state for finding in install.present(where.home, where.environ) if finding.host == "claude"} == {
        "stale"
    }
    run("claude", where)
    text = path.read_text()
    assert "/old/" not in text
    assert len(jsonc.value_of(text)["hooks"]["Stop"]) == 2
    assert {finding.state for finding in install.present(where.home, where.environ) if finding.host == "claude"} == {
        "current"
    }


def test_present_says_absent_and_unreadable(where: install.Setting) -> None:
    """A check-up tells a host without recalld from one whose file cannot be read."""
    put(where.home, "cursor")
    (where.home / ".cursor" / "mcp.json").write_text("{ nonsense")
    states = {(finding.part, finding.state) for finding in install.present(where.home, where.environ)}
    assert states == {("mcp", "unreadable"), ("hooks", "absent")}


def test_broken_file_is_left_alone(where: install.Setting) -> None:
    """A file that is not JSON is refused with its place, and nothing is written."""
    put(where.home, "claude")
    path = where.home / ".claude.json"
    path.write_text('{"a": 1,\n "b" 2}')
    with pytest.raises(install.InstallError, match=r"line 2: expected a colon"):
        install.installing(install.targets(HOSTS["claude"], where)[0])
    assert path.read_text() == '{"a": 1,\n "b" 2}'


def test_changed_meanwhile_is_refused(where: install.Setting) -> None:
    """A file that changed after its diff was shown is not overwritten."""
    put(where.home, "cursor")
    change = install.installing(install.targets(HOSTS["cursor"], where)[0])
    assert change is not None
    change.path.write_text('{"new": 1}')
    with pytest.raises(install.InstallError, match="changed since"):
        change.apply()


def test_symlinked_configuration_stays_a_link(where: install.Setting) -> None:
    """A configuration that is a link into somebody's dotfiles is edited where it really lies."""
    real = where.home / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text(CLAUDE)
    (where.home / ".claude").mkdir()
    link = where.home / ".claude" / "settings.json"
    link.symlink_to(real)
    run("claude", where, mcp=False)
    assert link.is_symlink()
    assert "hook.py" in real.read_text()


def test_options_are_passed_on(tmp_path: Path) -> None:
    """Another data folder is named in every command: hosts start programs with almost no environment."""
    paths = locate("/some where", str(tmp_path / "run"), environ={})
    where = install.setting(tmp_path, {}, paths)
    assert shlex.split(where.hook("claude"))[3:] == [str(where.programs / "hook.py"), "--data", "/some where",
                                                  "--runtime", str(tmp_path / "run"), "claude"]  # fmt: skip
    assert where.python == os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]


LEAF = st.one_of(st.none(), st.booleans(), st.integers(-9, 99), st.text(st.characters(codec="ascii"), max_size=5))
VALUE = st.recursive(LEAF, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
), max_leaves=8)  # fmt: skip
GAP = st.sampled_from(["", " ", "\n", "\n  ", " // note }\n", "/* , */", "\r\n\t"])


@st.composite
def written(draw: st.DrawFn) -> str:
    """A JSON object as people write them: comments and white space anywhere, trailing commas."""

    def show(value: Any) -> str:
        gap = lambda: draw(GAP)  # noqa: E731
        if isinstance(value, dict):
            rows = [f"{gap()}{json.dumps(key)}{gap()}:{gap()}{show(item)}{gap()}" for key, item in value.items()]
            opening, closing = "{", "}"
        elif isinstance(value, list):
            rows = [f"{gap()}{show(item)}{gap()}" for item in value]
            opening, closing = "[", "]"
        else:
            return json.dumps(value)
        tail = draw(st.sampled_from(["", ","])) if rows else ""
        return opening + ",".join(rows) + tail + gap() + closing

    value = draw(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUE, max_size=4))
    return draw(GAP) + show(value) + draw(GAP)


@settings(max_examples=400, deadline=None)
@example('{"b":[null,[null]], // note }\n"a":null}', ["a"], None)
@given(written(), st.lists(st.text("abcd", min_size=1, max_size=2), min_size=1, max_size=3), VALUE)
def test_jsonc_edits_mean_what_they_say(text: str, path: list[str], value: Any) -> None:
    """Setting then dropping a member changes that member alone, whatever comments and commas stand around it."""
    before = jsonc.value_of(text)
    try:
        after = jsonc.set_key(text, path, value)
    except jsonc.NotJson:
        return
    expected = json.loads(json.dumps(before))
    inner = expected
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    assert jsonc.value_of(after) == expected
    assert jsonc.set_key(after, path, value) == after
    assert text.count("note }") == after.count("note }") or path[0] in before
    dropped = jsonc.value_of(jsonc.drop_key(after, path))
    del inner[path[-1]]
    assert _without_empty(dropped) == _without_empty(expected)


@settings(max_examples=300, deadline=None)
@given(written(), st.integers(0, 3))
def test_jsonc_items(text: str, many: int) -> None:
    """An owned item is added once, kept once, and taken out without its neighbours."""
    owned = lambda item: isinstance(item, dict) and "mine" in item  # noqa: E731
    text = jsonc.set_key(text, ["list"], [*range(many), {"mine": 0}, "x", {"mine": 1}])
    once = jsonc.set_item(text, ["list"], {"mine": 2}, owned)
    assert jsonc.value_of(once)["list"] == [*range(many), {"mine": 2}, "x"]
    assert jsonc.value_of(jsonc.drop_items(once, ["list"], owned))["list"] == [*range(many), "x"]


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item != {}}
    return value
