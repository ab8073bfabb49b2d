"""
Whether an event may leave the hook client's process: the marker above its folder and config.toml's capture table.

Parsing TOML costs more than everything else together, so the parsed form is kept beside the data and used again while the
file's size, time and inode stay the same.
"""

from __future__ import annotations

import os

from recalld.clients.hooking import plainjson
from recalld.protocol import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from recalld.memory.capture.policy import Policy

METADATA_KEYS = (
    "session_id", "sessionId", "sessionID", "conversation_id", "generation_id", "turn_id", "prompt_id", "cwd", "directory",
    "workspace_roots", "hook_event_name", "hookEventName", "tool_name", "toolName", "tool_use_id", "agent_id", "agent_type",
    "timestamp", "cursor_version", "source", "reason", "model",
)  # fmt: skip
"""What of a payload passes when only the fact may be told."""


class Gate:
    """What applies at one place. ``capture`` is config.toml's table, as far as it was written."""

    def __init__(self, facts: place.Facts, data: str, environ: Mapping[str, str]) -> None:
        self.facts = facts
        self.capture = config_table(data)
        self.mode = environ.get("RECALLD_CAPTURE__MODE", "").strip("\"' ") or str(self.capture.get("mode", "all"))
        self.policy: Policy | None = None
        if facts.markers:
            self.policy = policy_of(facts.markers[0], facts.home, data)

    def decide(self, payload: Mapping[str, Any]) -> tuple[str, str]:
        """(``keep`` | ``metadata`` | ``drop``, why)."""
        if self.policy is None and self.mode == "all":
            return "keep", f"no {place.MARKER} here or above"
        from recalld.memory.capture import policy, tools

        tool, given = tool_of(payload)
        family = tools.family(tool) if tool else ""
        command = tools.command_of(given)
        return policy.decide(
            self.policy or policy.Policy(),
            self.mode,
            family if family != tools.UNKNOWN or not command else tools.SHELL,
            tools.paths_of(given),
            tools.words_of(command) if command else [],
            self.facts.cwd,
            self.facts.home,
        )


def tool_of(payload: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and input of the tool that a payload is about; ('', None) when it is about none."""
    inner = payload.get("input") if "plugin_hook" in payload else None
    where = inner if isinstance(inner, dict) else payload
    name = next((where[key] for key in ("tool_name", "toolName", "tool") if isinstance(where.get(key), str)), "")
    given = next((where[key] for key in ("tool_input", "toolArgs", "args") if key in where), None)
    if not name and "file_path" in where:
        return "edit", where
    if not name and isinstance(where.get("command"), str):
        return "shell", where
    if isinstance(given, str):
        try:
            given = plainjson.loads(given)
        except ValueError:
            pass
    return name, given


def bare(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload's metadata alone."""
    return {key: payload[key] for key in METADATA_KEYS if key in payload}


def policy_of(marker: str, home: str, data: str) -> Policy:
    """The policy in a marker file."""
    from recalld.memory.capture import policy

    return policy.read(_cached(marker, data, place.read_marker), os.path.dirname(marker), home)


def config_table(data: str) -> dict[str, Any]:
    """The capture table of config.toml as it is written; empty when there is none, or the file cannot be parsed."""
    path = f"{data}/config.toml"
    raw = place.read_text(path, place.MAX_MARKER_BYTES * 4)
    if "capture" not in raw:
        return {}

    def parse(_: str) -> object:
        import tomllib

        try:
            return tomllib.loads(raw).get("capture")
        except tomllib.TOMLDecodeError:
            return None

    table = _cached(path, data, parse)
    return table if isinstance(table, dict) else {}


def _cached(path: str, data: str, read: Callable[[str], object]) -> object:
    try:
        info = os.stat(path)
    except OSError:
        return read(path)
    state = f"{info.st_mtime_ns} {info.st_size} {info.st_ino} {info.st_ctime_ns}"
    name = path.replace("%", "%%").replace("/", "%")
    keep = f"{data}/cache/hook/{name}.json" if len(name) < 200 else ""
    if keep:
        text = place.read_text(keep, 4 * place.MAX_MARKER_BYTES)
        if text.startswith(state + "\n"):
            try:
                return plainjson.loads(text.partition("\n")[2])
            except ValueError:
                pass
    value = read(path)
    if keep and os.path.isdir(data):
        import json

        try:
            os.makedirs(f"{data}/cache/hook", mode=0o700, exist_ok=True)
            temporary = f"{keep}.{os.getpid()}"
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(state + "\n" + json.dumps(value))
            os.replace(temporary, keep)
        except (OSError, TypeError, ValueError):
            pass  # slower next time, no more
    return value
