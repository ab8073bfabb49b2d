"""
Every host that recalld installs into: its files, the shape of an MCP entry and of a hook there, and what is left to do.

A hook starts a process, except for tool events of Claude Code and Codex: these call ``hook_event`` on the bridge that the
session has open anyway, in milliseconds. What that rests on was looked at in Claude Code 2.1.332 and Codex 0.171.0, and
``tests/test_agents.py`` looks again:

- What a field of the payload holds arrives whole: Claude Code writes objects and numbers as text, Codex keeps types
  (``bridge.post.payload_of`` undoes the difference). A field that is not there is '' to Claude Code; Codex does not run the
  hook at all, so that only fields that are always there are named to it. The subagent, which is not, calls from a thread of
  its own.
- ``tool_use_id`` is the one that a command hook and the transcript carry: an event that comes twice is stored once.
- While the bridge is starting both wait for it, up to the hook's timeout. Claude Code starts a bridge that has died again
  for the next call; Codex does not, and shows each hook of that session as failed.
- At a session's start and end such hooks are refused, so those, and all that order a session or put something into it, stay
  commands. So does everything where our MCP entry is not installed with the hooks, or ``--command-hooks`` asks for it: for
  hosts that run Claude Code's hook file too and know commands alone.

Timeouts are in the host's own unit: seconds for Claude Code, Codex, Cursor, VS Code and Copilot, milliseconds for Gemini.
A hook needs a tenth of a second; two seconds is for a machine that swaps.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bridge.post import TOOL
from .edits import Default, Item, Member, TomlTable, YamlBlock
from .plan import Edit, Target
from .plugin import opencode_plugin

NAME = "recalld"
HOOK_S = 2
HOOK_MS = 2000
MCP_START_S = 10
MCP_CALL_S = 30
MCP_CALL_MS = 30_000
"""Answers come within five seconds; the rest is for a daemon that is being restarted."""


@dataclass(frozen=True)
class Setting:
    """Where things are on this machine, and how our programs are started."""

    home: Path
    environ: Mapping[str, str]
    python: str
    """The real interpreter, absolute: version managers' shims cost more than the hook."""
    programs: Path
    """The folder of hook.py and mcp_bridge.py."""
    options: tuple[str, ...] = ()
    """``--data``/``--runtime`` where they are not the defaults: hosts start us with almost no environment."""
    wrapper: str = ""
    """The ``/bin/sh`` script that stands before the hook client (see ``wrapper``); '' = none."""
    tool_hooks: bool = True
    """Tool events call the MCP entry, where the host can; False: hooks are commands throughout."""

    @property
    def bridge(self) -> list[str]:
        return [self.python, "-I", "-S", str(self.programs / "mcp_bridge.py"), *self.options]

    def hook(self, host: str, event: str = "") -> str:
        """The shell command of a hook."""
        return shlex.join([*self.hook_words, host, *([event] if event else [])])

    @property
    def hook_words(self) -> list[str]:
        """The hook's command without host and event."""
        return [self.wrapper] if self.wrapper else self.client

    @property
    def client(self) -> list[str]:
        """The hook client's command without host and event."""
        return [self.python, "-I", "-S", str(self.programs / "hook.py"), *self.options]

    def folder(self, variable: str, *default: str) -> Path:
        """A host's folder: as its variable says, else below home."""
        named = self.environ.get(variable)
        return Path(named).expanduser() if named else self.home.joinpath(*default)


@dataclass(frozen=True)
class Host:
    """One agent. ``mcp`` and ``hooks`` give the files with our edits; ``traces`` are paths that say it is installed."""

    name: str
    title: str
    mcp: Callable[[Setting], list[Target]]
    hooks: Callable[[Setting], list[Target]] | None
    traces: Callable[[Setting], list[Path]]
    afterwards: str
    """What the person must still do."""


def is_ours(value: Any) -> bool:
    """Whether a hook entry, or a group of one, is recalld's: by the program that it runs or the tool that it calls."""
    if isinstance(value, dict):
        inner = value.get("hooks")
        if isinstance(inner, list):
            return bool(inner) and all(is_ours(item) for item in inner)
        if value.get("type") == "mcp_tool":
            return (value.get("server"), value.get("tool")) == (NAME, TOOL)
        return any(_runs_us(value.get(key)) for key in ("command", "bash", "powershell"))
    return False


def _runs_us(command: object) -> bool:
    if not isinstance(command, str):
        return False
    return "recalld-hook" in command or ("/clients/hook.py" in command.replace("\\", "/") and "-I -S" in command)


def _nested(events: Mapping[str, bool], entry: Callable[[str, bool], dict[str, Any]], **group: Any) -> tuple[Edit, ...]:
    """Claude's shape: event -> groups -> hooks. ``events`` maps to whether the agent need not wait for it."""
    return tuple(
        Item(("hooks", event), {**group, "hooks": [entry(event, detached)]}, is_ours)
        for event, detached in events.items()
    )


def _call(host: str, event: str, fields: tuple[str, ...]) -> dict[str, Any]:
    """A hook that calls the bridge, with these fields of the payload."""
    filled = {"host": host, "event": event, **{field: f"${{{field}}}" for field in fields}}
    return {"type": "mcp_tool", "server": NAME, "tool": TOOL, "input": filled, "timeout": HOOK_S}


def _stdio(setting: Setting, **more: Any) -> dict[str, Any]:
    command, *args = setting.bridge
    return {"command": command, "args": args, **more}


# --- Claude Code

# Tool and subagent events need not be waited for; the others order a session or put something into it.
CLAUDE_EVENTS = {
    "SessionStart": False, "UserPromptSubmit": False, "PostToolUse": True, "PostToolUseFailure": True, "SubagentStart": True,
    "SubagentStop": True, "PreCompact": False, "PostCompact": False, "Stop": False, "SessionEnd": False,
}  # fmt: skip
CLAUDE_CALLS = ("PostToolUse", "PostToolUseFailure")
CLAUDE_FIELDS = (
    "session_id", "cwd", "prompt_id", "agent_id", "agent_type", "tool_name", "tool_use_id", "tool_input", "tool_response",
    "error", "duration_ms",
)  # fmt: skip


def _claude_mcp(setting: Setting) -> list[Target]:
    base = setting.environ.get("CLAUDE_CONFIG_DIR")
    path = Path(base).expanduser() / ".claude.json" if base else setting.home / ".claude.json"
    # Connected before the first request, so that no tool event waits for it, and tools that need not be searched for.
    entry = {"type": "stdio", **_stdio(setting, env={}, timeout=MCP_CALL_MS, alwaysLoad=True)}
    return [Target(path, (Member(("mcpServers", NAME), entry),))]


def _claude_hooks(setting: Setting) -> list[Target]:
    def entry(event: str, detached: bool) -> dict[str, Any]:
        if setting.tool_hooks and event in CLAUDE_CALLS:
            return _call("claude", event, CLAUDE_FIELDS)
        hook: dict[str, Any] = {"type": "command", "command": setting.hook("claude"), "timeout": HOOK_S}
        return {**hook, "async": True} if detached else hook

    path = setting.folder("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
    return [Target(path, _nested(CLAUDE_EVENTS, entry))]


# --- Codex

CODEX_EVENTS = dict.fromkeys(
    ("SessionStart", "UserPromptSubmit", "PostToolUse", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Stop",
     "SessionEnd"),
    False,
)  # fmt: skip
CODEX_CALLS = ("PostToolUse",)
CODEX_FIELDS = ("session_id", "cwd", "turn_id", "model", "tool_name", "tool_use_id", "tool_input", "tool_response")


def _codex_mcp(setting: Setting) -> list[Target]:
    values = _stdio(setting, startup_timeout_sec=MCP_START_S, tool_timeout_sec=MCP_CALL_S)
    return [Target(setting.folder("CODEX_HOME", ".codex") / "config.toml", (TomlTable("mcp_servers", NAME, values),))]


def _codex_hooks(setting: Setting) -> list[Target]:
    def entry(event: str, detached: bool) -> dict[str, Any]:
        if setting.tool_hooks and event in CODEX_CALLS:
            return _call("codex", event, CODEX_FIELDS)
        return {"type": "command", "command": setting.hook("codex"), "timeout": HOOK_S}

    return [Target(setting.folder("CODEX_HOME", ".codex") / "hooks.json", _nested(CODEX_EVENTS, entry))]


# --- Gemini CLI

GEMINI_EVENTS = dict.fromkeys(
    ("SessionStart", "BeforeAgent", "AfterTool", "AfterAgent", "PreCompress", "SessionEnd"), False
)


def _gemini_path(setting: Setting) -> Path:
    return setting.home / ".gemini" / "settings.json"


def _gemini_mcp(setting: Setting) -> list[Target]:
    return [Target(_gemini_path(setting), (Member(("mcpServers", NAME), _stdio(setting, timeout=MCP_CALL_MS)),))]


def _gemini_hooks(setting: Setting) -> list[Target]:
    def entry(event: str, detached: bool) -> dict[str, Any]:
        return {"name": NAME, "type": "command", "command": setting.hook("gemini"), "timeout": HOOK_MS}

    return [Target(_gemini_path(setting), _nested(GEMINI_EVENTS, entry, matcher="*"))]


# --- Cursor

# Names that Cursor knows: one that it does not know may make it refuse the file.
CURSOR_EVENTS = (
    "sessionStart", "beforeSubmitPrompt", "postToolUse", "afterAgentResponse", "preCompact", "stop", "sessionEnd",
)  # fmt: skip


def _cursor_mcp(setting: Setting) -> list[Target]:
    entry = {"type": "stdio", **_stdio(setting, env={})}
    return [Target(setting.home / ".cursor" / "mcp.json", (Member(("mcpServers", NAME), entry),))]


def _cursor_hooks(setting: Setting) -> list[Target]:
    hook = {"command": setting.hook("cursor"), "timeout": HOOK_S}
    edits: list[Edit] = [Default(("version",), 1)]
    edits += [Item(("hooks", event), hook, is_ours) for event in CURSOR_EVENTS]
    return [Target(setting.home / ".cursor" / "hooks.json", tuple(edits))]


# --- VS Code and Copilot CLI

COPILOT_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "PreCompact", "SubagentStop", "Stop", "SessionEnd")


def _copilot_hooks(setting: Setting) -> list[Target]:
    """Both read this folder, each its own keys: one file serves both."""
    path = setting.folder("COPILOT_HOME", ".copilot") / "hooks" / "recalld.json"
    edits: list[Edit] = [Default(("version",), 1)]
    for event in COPILOT_EVENTS:
        command = setting.hook("copilot", event)
        entry = {"type": "command", "command": command, "bash": command, "timeout": HOOK_S, "timeoutSec": HOOK_S}
        edits.append(Item(("hooks", event), entry, is_ours))
    return [Target(path, tuple(edits))]


def _copilot_mcp(setting: Setting) -> list[Target]:
    path = setting.folder("COPILOT_HOME", ".copilot") / "mcp-config.json"
    entry = {"type": "local", **_stdio(setting, env={}, tools=["*"])}
    return [Target(path, (Member(("mcpServers", NAME), entry),))]


def _vscode_user(setting: Setting) -> Path:
    if sys.platform == "darwin":
        return setting.home / "Library" / "Application Support" / "Code" / "User"
    return setting.folder("XDG_CONFIG_HOME", ".config") / "Code" / "User"


def _vscode_mcp(setting: Setting) -> list[Target]:
    entry = {"type": "stdio", **_stdio(setting, env={})}
    return [Target(_vscode_user(setting) / "mcp.json", (Member(("servers", NAME), entry),))]


# --- OpenCode


def _opencode_folder(setting: Setting) -> Path:
    return setting.folder("XDG_CONFIG_HOME", ".config") / "opencode"


def _opencode_mcp(setting: Setting) -> list[Target]:
    folder = _opencode_folder(setting)
    path = folder / "opencode.jsonc" if (folder / "opencode.jsonc").exists() else folder / "opencode.json"
    entry = {"type": "local", "command": setting.bridge, "enabled": True, "timeout": MCP_START_S * 1000}
    return [Target(path, (Member(("mcp", NAME), entry),))]


def _opencode_hooks(setting: Setting) -> list[Target]:
    text = opencode_plugin([*setting.client, "opencode"])
    return [Target(_opencode_folder(setting) / "plugins" / "recalld.js", own=text)]


# --- MCP alone


def _claude_desktop_mcp(setting: Setting) -> list[Target]:
    entry = _stdio(setting, env={})
    return [Target(_claude_desktop(setting) / "claude_desktop_config.json", (Member(("mcpServers", NAME), entry),))]


def _claude_desktop(setting: Setting) -> Path:
    if sys.platform == "darwin":
        return setting.home / "Library" / "Application Support" / "Claude"
    return setting.folder("XDG_CONFIG_HOME", ".config") / "Claude"


def _windsurf_mcp(setting: Setting) -> list[Target]:
    path = setting.home / ".codeium" / "windsurf" / "mcp_config.json"
    return [Target(path, (Member(("mcpServers", NAME), _stdio(setting, env={}, disabled=False)),))]


def _zed_mcp(setting: Setting) -> list[Target]:
    entry = {"source": "custom", "enabled": True, **_stdio(setting, env={})}
    return [
        Target(
            setting.folder("XDG_CONFIG_HOME", ".config") / "zed" / "settings.json",
            (Member(("context_servers", NAME), entry),),
        )
    ]


def _goose_mcp(setting: Setting) -> list[Target]:
    command, *args = setting.bridge
    values = {
        "type": "stdio", "name": NAME, "enabled": True, "cmd": command, "args": args, "envs": {}, "env_keys": [],
        "timeout": MCP_CALL_S,
    }  # fmt: skip
    path = setting.folder("XDG_CONFIG_HOME", ".config") / "goose" / "config.yaml"
    return [Target(path, (YamlBlock("extensions", NAME, values),))]


HOSTS: dict[str, Host] = {
    host.name: host
    for host in (
        Host("claude", "Claude Code", _claude_mcp, _claude_hooks, lambda s: [s.home / ".claude", s.home / ".claude.json"],
             "Start a new session; /hooks and /mcp list recalld."),
        Host("codex", "Codex", _codex_mcp, _codex_hooks, lambda s: [s.folder("CODEX_HOME", ".codex")],
             "Codex runs no hook that you have not trusted: start codex, enter /hooks, and accept recalld's. Do so again "
             "whenever this installer changes them; until then they are skipped without a word."),
        Host("gemini", "Gemini CLI", _gemini_mcp, _gemini_hooks, lambda s: [s.home / ".gemini"], "Start a new session."),
        Host("cursor", "Cursor", _cursor_mcp, _cursor_hooks, lambda s: [s.home / ".cursor"],
             "Restart Cursor, and switch recalld on under Settings, MCP."),
        Host("vscode", "VS Code", _vscode_mcp, _copilot_hooks, lambda s: [_vscode_user(s)],
             "Run 'MCP: List Servers', start recalld, and trust it. Hooks of the Claude and Codex harnesses are those of "
             "'recalld install claude codex'."),
        Host("copilot", "Copilot CLI", _copilot_mcp, _copilot_hooks, lambda s: [s.folder("COPILOT_HOME", ".copilot")],
             "Start a new session. Copilot CLI shows no briefing at the start: ask it to call recalld's tools."),
        Host("opencode", "OpenCode", _opencode_mcp, _opencode_hooks, lambda s: [_opencode_folder(s)],
             "Restart OpenCode. The plugin is for OpenCode 1; OpenCode 2 uses recalld over MCP alone."),
        Host("claude-desktop", "Claude Desktop", _claude_desktop_mcp, None, lambda s: [_claude_desktop(s)],
             "Quit Claude Desktop and start it again."),
        Host("windsurf", "Windsurf", _windsurf_mcp, None, lambda s: [s.home / ".codeium" / "windsurf"],
             "Press Refresh under Settings, Cascade, MCP servers."),
        Host("zed", "Zed", _zed_mcp, None, lambda s: [s.folder("XDG_CONFIG_HOME", ".config") / "zed"],
             "Nothing: Zed takes it up by itself."),
        Host("goose", "Goose", _goose_mcp, None, lambda s: [s.folder("XDG_CONFIG_HOME", ".config") / "goose"],
             "Start a new session."),
    )
}  # fmt: skip
