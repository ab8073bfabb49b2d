"""
What each host's hook payload means. One table of names, one reader per shape; the shape wins over what we were told.

``read`` gives the fields as they are written: nothing is redacted or cut here, and nothing of it may be kept unredacted.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import msgspec

from . import outputs, tools

KIND_BY_NAME = {
    "sessionstart": "session-start",
    "userprompt": "user-prompt",
    "userpromptsubmit": "user-prompt",
    "userpromptsubmitted": "user-prompt",
    "beforesubmitprompt": "user-prompt",
    "beforeagent": "user-prompt",
    "chatmessage": "user-prompt",
    "pretooluse": "pre-tool-use",
    "beforetool": "pre-tool-use",
    "toolexecutebefore": "pre-tool-use",
    "posttooluse": "post-tool-use",
    "posttoolusefailure": "post-tool-use",
    "aftertool": "post-tool-use",
    "toolexecuteafter": "post-tool-use",
    "afterfileedit": "post-tool-use",
    "aftershellexecution": "post-tool-use",
    "aftermcpexecution": "post-tool-use",
    "precompact": "pre-compact",
    "precompress": "pre-compact",
    "experimentalsessioncompacting": "pre-compact",
    "postcompact": "post-compaction",
    "postcompaction": "post-compaction",
    "sessioncompacted": "post-compaction",
    "notification": "notification",
    "stop": "stop",
    "stopfailure": "stop",
    "afteragent": "stop",
    "agentstop": "stop",
    "sessionidle": "stop",
    "sessionend": "session-end",
    "sessiondeleted": "session-end",
    "sessioncreated": "session-start",
    "subagentstart": "subagent-start",
    "subagentstop": "subagent-stop",
    "subagentend": "subagent-stop",
}
"""Event names without separators, in lower case, to kinds."""

NOISE = frozenset(
    "sessionupdated sessionstatus messageupdated messageremoved messagepartupdated messagepartremoved messagepartdelta"
    " messagedisplay fileedited filewatcherupdated todoupdated lspclientdiagnostics lspupdated serverconnected"
    " serverheartbeat installationupdated storagewrite beforemodel aftermodel beforetoolselection".split()
)
"""Events that repeat what another one says, many times a second."""

HOSTS = {
    "claude": "claude", "claude-code": "claude", "codex": "codex", "gemini": "gemini", "gemini-cli": "gemini",
    "cursor": "cursor", "vscode": "vscode", "vs-code": "vscode", "copilot": "copilot", "copilot-cli": "copilot",
    "opencode": "opencode",
}  # fmt: skip

_SELDOM = frozenset(
    "timestamp occurred_at time model source trigger reason status session_title title agent_id subagentId agent_type"
    " subagentType last_assistant_message prompt_response assistant_message".split()
)
"""Fields that most events have none of: one look at the keys spares twenty."""
NESTS = ("payload", "event", "properties", "info", "input", "path", "extra")
SESSION_KEYS = (
    "session_id", "sessionId", "sessionID", "session", "conversation_id", "conversationId", "thread_id",
)  # fmt: skip
CWD_KEYS = ("cwd", "current_dir", "working_dir", "directory", "workspace")
CWD_LIST_KEYS = ("workspace_roots", "workspacePaths", "workspaceRoots")
NAME_KEYS = ("hook_event_name", "hookEventName", "event_name", "eventName", "event", "type")
TEXT_KEYS = ("prompt", "user_prompt", "message", "text", "summary", "compact_summary", "initialPrompt")
OUTPUT_KEYS = (
    "tool_response",
    "tool_output",
    "tool_result",
    "toolResult",
    "result_json",
    "output",
    "result",
    "response",
)
PLACEHOLDER_SESSIONS = ("empty-state-draft",)
"""Cursor names a session so before there is one."""
ISO_YEAR_MIN = 2020


class Seen(msgspec.Struct, kw_only=True):
    """A payload's fields under our names. Absent ones are empty."""

    host: str
    kind: str
    name: str
    session: str
    cwd: str
    at_ms: int = 0
    tool: str = ""
    call_id: str = ""
    command: str = ""
    paths: list[str] = []
    outcome: str = ""
    exit_code: int | None = None
    duration_ms: int = 0
    output: str | None = None
    text: str = ""
    assistant: str = ""
    model: str = ""
    source: str = ""
    reason: str = ""
    title: str = ""
    agent_id: str = ""
    agent_type: str = ""
    turn: str = ""
    interactive: bool = True
    blobs: int = 0


def read(host_hint: str, event_hint: str, payload: Mapping[str, Any]) -> Seen | str:
    """What ``payload`` says, or why it is dropped."""
    host = host_of(host_hint, payload)
    if "plugin_hook" in payload:
        payload = _unplugged(payload)
    name = _text(payload, "hook_event_name", "hookEventName") or event_hint or _name(payload) or _name_by_shape(payload)
    flat = _squeeze(name)
    if flat in NOISE:
        return f"{name}: repeats what other events say"
    session = _first(payload, SESSION_KEYS) or _nested_text(payload, ("info",), ("id",))
    if host == "cursor":
        session = _text(payload, "conversation_id") or session
    if session in PLACEHOLDER_SESSIONS:
        return f"session '{session}' is a placeholder"
    seen = Seen(
        host=host,
        kind=KIND_BY_NAME.get(flat, "other"),
        name=name,
        session=session,
        cwd=cwd_of(payload),
        turn=_text(payload, "prompt_id", "turn_id", "generation_id", "messageID"),
        interactive=payload.get("is_background_agent") is not True and payload.get("interactive") is not False,
    )
    if not _SELDOM.isdisjoint(payload):
        _read_seldom(seen, payload)
    _read_tool(seen, payload, flat)
    _read_text(seen, payload, flat)
    if seen.kind == "session-start" and not seen.source:
        seen.source = "startup"
    return seen


def _read_seldom(seen: Seen, payload: Mapping[str, Any]) -> None:
    seen.at_ms = _time(payload.get("timestamp") or payload.get("occurred_at") or payload.get("time"))
    seen.model = _text(payload, "model")
    seen.source = _text(payload, "source", "trigger")
    seen.reason = _text(payload, "reason", "status")
    seen.title = _text(payload, "session_title", "title")
    seen.agent_id = _text(payload, "agent_id", "subagentId")
    seen.agent_type = _text(payload, "agent_type", "subagentType")
    seen.assistant = _text(payload, "last_assistant_message", "prompt_response", "assistant_message")


def host_of(hint: str, payload: Mapping[str, Any]) -> str:
    """The agent that ran: Cursor and VS Code fire Claude's hook files too, so shape comes before hint."""
    if "cursor_version" in payload or "conversation_id" in payload:
        return "cursor"
    if "plugin_hook" in payload:
        return "opencode"
    if "hookEventName" in payload and "sessionId" in payload:
        return "vscode"
    if "sessionId" in payload and isinstance(payload.get("timestamp"), int) and "hook_event_name" not in payload:
        return "copilot"
    name = payload.get("hook_event_name")
    if name in ("BeforeAgent", "AfterAgent", "BeforeTool", "AfterTool", "PreCompress", "BeforeModel", "AfterModel"):
        return "gemini"
    hint = hint.lower()
    given = HOSTS.get(hint, hint)
    if given in ("", "claude", "codex"):
        if "turn_id" in payload:
            return "codex"
        if "prompt_id" in payload or "effort" in payload:
            return "claude"
    return given or str(payload.get("host") or payload.get("agent") or "generic").lower()


def has_cwd(payload: Mapping[str, Any]) -> bool:
    """Whether the payload itself says where it happened."""
    return bool(cwd_of(payload))


def cwd_of(payload: Mapping[str, Any]) -> str:
    """The folder that a payload names, or ''."""
    found = _text(payload, *CWD_KEYS)
    if not found:
        for key in CWD_LIST_KEYS:
            roots = payload.get(key)
            if isinstance(roots, list) and roots and isinstance(roots[0], str):
                found = roots[0].removeprefix("file://")
                break
    return found or _first(payload, CWD_KEYS)


def _unplugged(payload: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenCode plugin's ``{plugin_hook, event | input + output}`` as a flat payload."""
    hook = str(payload["plugin_hook"])
    flat: dict[str, Any] = {key: payload[key] for key in ("cwd", "timestamp", "branch") if key in payload}
    if hook == "event":
        event = payload.get("event")
        event = event if isinstance(event, dict) else {}
        properties = event.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        info = properties.get("info")
        info = info if isinstance(info, dict) else {}
        flat |= {
            "hook_event_name": str(event.get("type", "")),
            "sessionID": properties.get("sessionID") or info.get("id"),
        }
        flat.setdefault("cwd", info.get("directory"))
        if isinstance(info.get("title"), str):
            flat["session_title"] = info["title"]
        if info.get("parentID"):
            flat["agent_id"] = info.get("id")
        if properties.get("error"):
            flat["error"] = properties["error"]
        return flat
    given = payload.get("input")
    given = given if isinstance(given, dict) else {}
    out = payload.get("output")
    out = out if isinstance(out, dict) else {}
    flat |= {"hook_event_name": hook, "sessionID": given.get("sessionID"), "messageID": given.get("messageID")}
    if "tool" in given:
        flat |= {"tool_name": given["tool"], "tool_use_id": given.get("callID")}
        flat["tool_input"] = given.get("args") or out.get("args") or {}
        if hook.endswith(".after"):
            meta = out.get("metadata")
            flat["tool_response"] = {"output": out.get("output"), **(meta if isinstance(meta, dict) else {})}
    elif "parts" in out:
        flat["prompt"] = out["parts"]
    return flat


def _read_tool(seen: Seen, payload: Mapping[str, Any], flat: str) -> None:
    seen.tool = _text(payload, "tool_name", "toolName", "tool")
    if flat in ("aftershellexecution", "afterfileedit", "aftermcpexecution"):
        own = {"aftershellexecution": "Shell", "afterfileedit": "Edit"}.get(flat)
        seen.tool = own or f"MCP:{seen.tool}"
    nested = payload if seen.tool else next((payload[k] for k in NESTS if isinstance(payload.get(k), dict)), payload)
    if not seen.tool:
        seen.tool = _text(nested, "tool_name", "toolName", "tool")
    if not seen.tool:
        return
    seen.call_id = _text(nested, "tool_use_id", "tool_call_id", "toolUseId", "callID", "call_id", "toolCallId")
    given = outputs.opened(_present(nested, ("tool_input", "toolArgs", "toolInput", "args", "input")))
    if given is None and flat.startswith("after"):
        given = {key: nested[key] for key in ("command", "file_path", "edits") if key in nested}
    family = tools.family(seen.tool)
    seen.command = tools.command_of(given) if family in (tools.SHELL, tools.UNKNOWN) else ""
    seen.paths = tools.paths_of(given)
    seen.duration_ms = _number(nested.get("duration_ms")) or _number(nested.get("duration"))
    if seen.kind != "post-tool-use":
        return
    response = outputs.opened(_present(nested, OUTPUT_KEYS))
    seen.output, seen.exit_code, failed = outputs.output_of(response)
    error = nested.get("error") or nested.get("error_message")
    if error:
        failed = True
        seen.text = error if isinstance(error, str) else outputs.dump(error)
    if seen.exit_code is None:
        seen.exit_code = outputs.exit_code(seen.output) if seen.output else outputs.exit_code(seen.text)
    if failed or flat.endswith("failure") or seen.exit_code:
        seen.outcome = "error"
    else:
        # Claude Code reports a failure as an event of its own, so the plain one means success.
        known = failed is False or seen.exit_code == 0 or seen.host == "claude"
        seen.outcome = "success" if known else "unknown"
    if family == tools.FILE and seen.outcome != "error":
        seen.output = None  # a file's content is in the file
    if isinstance(response, dict) and response.get("isImage"):
        seen.output, seen.blobs = None, 1


def _read_text(seen: Seen, payload: Mapping[str, Any], flat: str) -> None:
    if seen.text:
        return
    if seen.kind == "user-prompt":
        seen.text = outputs.flatten(next((payload[key] for key in TEXT_KEYS if payload.get(key)), "")) or _first(
            payload, TEXT_KEYS
        )
    elif seen.kind == "post-compaction":
        seen.text = _first(payload, ("compact_summary", "summary", "text"))
    elif seen.kind == "notification":
        seen.text = _first(payload, ("message", "text"))
        seen.source = seen.source or _text(payload, "notification_type")
    elif seen.kind == "session-start":
        seen.text = _text(payload, "initialPrompt")
    elif seen.kind in ("stop", "other", "subagent-stop"):
        error = payload.get("error")
        seen.text = error if isinstance(error, str) else outputs.dump(error) if error else ""
        seen.outcome = "error" if error else seen.outcome
        if flat == "afteragentresponse":
            seen.assistant = _text(payload, "text")


def _name_by_shape(payload: Mapping[str, Any]) -> str:
    """Copilot's camelCase payloads carry no event name; the hook's command line normally does."""
    if "toolResult" in payload or "tool_response" in payload:
        return "postToolUse"
    if "toolName" in payload or "tool_name" in payload:
        return "preToolUse"
    if "prompt" in payload:
        return "userPromptSubmitted"
    if "source" in payload:
        return "sessionStart"
    return "sessionEnd" if "reason" in payload else "unknown"


def _name(payload: Mapping[str, Any]) -> str:
    return _text(payload, *NAME_KEYS) or _nested_text(payload, NESTS, NAME_KEYS)


def _squeeze(name: str) -> str:
    flat = _squeezed.get(name)
    if flat is None:
        flat = "".join(char for char in name if char.isalnum()).lower()
        if len(_squeezed) < tools.NAMES:
            _squeezed[name] = flat
    return flat


_squeezed: dict[str, str] = {}


def _present(payload: Mapping[str, Any], keys: tuple[str, ...]) -> object:
    """What stands under the first of ``keys`` that has something."""
    for key in keys:
        value = payload.get(key)
        if value is not None:
            return value
    return None


def _text(payload: Mapping[str, Any], *keys: str) -> str:
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _first(payload: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """The first non-empty text under one of ``keys``: at the top, then in the objects that hosts wrap fields in."""
    return _text(payload, *keys) or _nested_text(payload, NESTS, keys)


def _nested_text(payload: Mapping[str, Any], nests: tuple[str, ...], keys: tuple[str, ...], depth: int = 0) -> str:
    for nest in nests:
        inner = payload.get(nest)
        if isinstance(inner, dict):
            found = _text(inner, *keys) or (_nested_text(inner, nests, keys, depth + 1) if depth < 2 else "")
            if found:
                return found
    return ""


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12 else 0


def _time(value: object) -> int:
    """Milliseconds from ISO text, seconds or milliseconds; 0 when it is none of these."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, (int, float)) and 0 < value < 1e15:
        return int(value if value > 1e11 else value * 1000)
    if isinstance(value, str):
        try:
            when = datetime.datetime.fromisoformat(value)
        except ValueError:
            return 0
        if when.year >= ISO_YEAR_MIN:
            return int((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp() * 1000)
    return 0
