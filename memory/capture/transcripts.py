"""
Past transcripts of Claude Code and Codex as hook clients' lines, so that what was done before recalld came is known too.

The formats are undocumented and change: unknown lines are passed over. An event that was captured live gets the same id
again (the host's own call and turn ids are in it), and is stored once.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from . import lines

Format = Literal["claude", "codex"]

EDGE_CHARS = 200_000
"""Of longer texts both ends are sent: more than the windows that the writer looks at, so that no cut shows."""
_decode = msgspec.json.Decoder().decode


def lines_of(format: Format, transcript: Iterable[bytes], *, over: bool) -> Iterator[dict[str, Any]]:
    """
    The events of one transcript file, in order, as objects for ``ImportEvents``.

    ``over``: nobody writes to the file any more, so its session has ended. A line that is not JSON is passed over.
    """
    reader: _Reader = _Claude() if format == "claude" else _Codex()
    for line in transcript:
        try:
            item = lines.decoded(line, _decode)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(item, dict):
            yield from reader.take(item)
    if over and reader.session:
        yield reader.wire("SessionEnd", {"reason": "imported"})


class _Reader:
    host = ""

    def __init__(self) -> None:
        self.session = ""
        self.cwd = ""
        self.branch = ""
        self.at_ms = 0
        self.turn = ""
        self.interactive = True
        self.calls: dict[str, dict[str, Any]] = {}

    def take(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def wire(self, event: str, payload: dict[str, Any]) -> dict[str, Any]:
        payload = {"session_id": self.session, "cwd": self.cwd, "hook_event_name": event, **payload}
        line = {
            "recalld": 1,
            "role": "hook",
            "host": self.host,
            "event": event,
            "sent_ms": self.at_ms,
            "payload": payload,
        }
        if self.branch:
            line["branch"] = self.branch
        if not self.interactive:
            line["interactive"] = False
        return line

    def seen_at(self, stamp: object) -> None:
        if isinstance(stamp, str):
            try:
                moment = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
            except ValueError:
                return
            self.at_ms = int(moment.timestamp() * 1000)


class _Claude(_Reader):
    """``~/.claude/projects/<folder>/<session>.jsonl``: one line a content block; sidechains belong to subagents."""

    host = "claude"

    def take(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        kind = item.get("type")
        if kind not in ("user", "assistant") or item.get("isSidechain") or item.get("isMeta"):
            return
        first = not self.session
        self.session = _text(item.get("sessionId")) or self.session
        self.cwd = _text(item.get("cwd")) or self.cwd
        self.branch = _text(item.get("gitBranch")) or self.branch
        self.seen_at(item.get("timestamp"))
        if not self.session:
            return
        self.interactive = item.get("entrypoint") not in ("sdk", "sdk-cli", "sdk-ts", "sdk-py")
        if first:
            yield self.wire("SessionStart", {"source": "startup"})
        self.turn = _text(item.get("promptId")) or self.turn
        message = item.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if kind == "user":
            yield from self._user(content, item)
        else:
            yield from self._assistant(content, message if isinstance(message, dict) else {})

    def _user(self, content: object, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if item.get("isCompactSummary"):
            yield self.wire("PostCompact", {"compact_summary": _edges(_flat(content)), "trigger": "auto"})
            return
        if isinstance(content, list):
            for block in content:
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    yield from self._result(block, item.get("toolUseResult"))
        text = content if isinstance(content, str) else ""
        if isinstance(content, list):
            text = _flat([block for block in content if _is(block, "text")])
        if text.strip():
            payload = {"prompt": _edges(text)}
            yield self.wire("UserPromptSubmit", payload | ({"prompt_id": self.turn} if self.turn else {}))

    def _result(self, block: dict[str, Any], full: object) -> Iterator[dict[str, Any]]:
        call = self.calls.pop(_text(block.get("tool_use_id")), None)
        if call is None:
            return
        output = _edges(_flat(block.get("content")))
        if block.get("is_error"):
            yield self.wire("PostToolUseFailure", {**call, "error": output})
        else:
            structured = isinstance(full, dict) and isinstance(full.get("stdout"), str)
            response = {**full, "stdout": _edges(full["stdout"])} if structured else output  # type: ignore[dict-item,index]
            yield self.wire("PostToolUse", {**call, "tool_response": response})

    def _assistant(self, content: object, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for block in content if isinstance(content, list) else ():
            if _is(block, "tool_use"):
                key = _text(block.get("id"))
                self.calls[key] = {
                    "tool_name": _text(block.get("name")), "tool_input": block.get("input"), "tool_use_id": key,
                    **({"prompt_id": self.turn} if self.turn else {}),
                }  # fmt: skip
        if message.get("stop_reason") == "end_turn":
            last = _flat([block for block in content if _is(block, "text")]) if isinstance(content, list) else ""
            payload = {"last_assistant_message": _edges(last), "stop_hook_active": False}
            yield self.wire("Stop", payload | ({"prompt_id": self.turn} if self.turn else {}))


class _Codex(_Reader):
    """``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``: {timestamp, type, payload}."""

    host = "codex"

    def take(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        payload = item.get("payload")
        if not isinstance(payload, dict):
            return
        self.seen_at(item.get("timestamp"))
        kind, what = item.get("type"), payload.get("type")
        if kind == "session_meta":
            # A resumed or forked file repeats the head of the one it came from.
            first = not self.session
            self.session = _text(payload.get("session_id")) or _text(payload.get("id")) or self.session
            self.cwd = _text(payload.get("cwd")) or self.cwd
            git = payload.get("git")
            self.branch = _text(git.get("branch")) if isinstance(git, dict) else ""
            self.interactive = payload.get("source") != "exec"
            if first and self.session:
                yield self.wire("SessionStart", {"source": "startup"})
        elif not self.session:
            return
        elif kind == "turn_context":
            self.turn = _text(payload.get("turn_id")) or self.turn
            self.cwd = _text(payload.get("cwd")) or self.cwd
        elif kind == "compacted":
            yield self.wire(
                "PostCompact", {"compact_summary": _edges(_text(payload.get("message"))), "trigger": "auto"}
            )
        elif kind == "event_msg" and what == "task_complete":
            message = {
                "last_assistant_message": _edges(_text(payload.get("last_agent_message"))),
                "stop_hook_active": False,
            }
            yield self.wire("Stop", {**message, "turn_id": _text(payload.get("turn_id")) or self.turn})
        elif kind == "response_item":
            yield from self._response(payload, _text(what))

    def _response(self, payload: dict[str, Any], what: str) -> Iterator[dict[str, Any]]:
        if what == "message" and payload.get("role") == "user":
            text = _flat(payload.get("content"))
            if text.strip() and not text.lstrip().startswith("<"):  # the harness' own blocks are markup
                yield self.wire("UserPromptSubmit", {"prompt": _edges(text), "turn_id": self.turn})
        elif what in ("function_call", "custom_tool_call"):
            given = payload.get("arguments") if what == "function_call" else payload.get("input")
            if isinstance(given, str):
                try:
                    given = _decode(given)
                except (msgspec.DecodeError, RecursionError):
                    given = {"input": given}
            space = _text(payload.get("namespace"))  # of an MCP server: mcp__recalld
            name = f"{space}__{payload.get('name')}" if space else _text(payload.get("name"))
            key = _text(payload.get("call_id"))
            # The hooks call Codex's shell "Bash".
            shell = name in ("exec_command", "shell", "shell_command", "local_shell")
            call = {
                "tool_name": "Bash" if shell else name,
                "tool_input": given,
                "tool_use_id": key,
                "turn_id": self.turn,
            }
            self.calls[key] = call
        elif what in ("function_call_output", "custom_tool_call_output"):
            call_or_none = self.calls.pop(_text(payload.get("call_id")), None)
            if call_or_none is not None:
                output = payload.get("output")
                response = _edges(output) if isinstance(output, str) else _edges(_flat(output))
                yield self.wire("PostToolUse", {**call_or_none, "tool_response": response})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is(block: object, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _flat(content: object) -> str:
    """The text in a string or in content blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (
        block if isinstance(block, str) else _text(block.get("text"))
        for block in content
        if isinstance(block, str | dict)
    )
    return "\n".join(text for text in texts if text)


def _edges(text: str) -> str:
    return text if len(text) <= 2 * EDGE_CHARS else text[:EDGE_CHARS] + "\n" + text[-EDGE_CHARS:]
