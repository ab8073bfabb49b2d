"""Every host's payloads become the same events; one event that arrives twice is one; nothing personal or secret is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recalld.memory.capture import events, hosts, sessions, tools
from recalld.memory.capture.events import Dropped, Event, Intake, Wire

NOW = 1_800_000_000_000
SHELL = {"command": "ninja -C build test"}


def adapt(payload: dict[str, Any], host: str = "", event: str = "", intake: Intake = events.DEFAULT) -> Event:
    made = events.adapt(host, event, payload, NOW, intake)
    assert isinstance(made, Event), made
    return made


CLAUDE = {"session_id": "s1", "cwd": "/w/app", "prompt_id": "p1"}
CODEX = {"session_id": "s2", "cwd": "/w/app", "turn_id": "t1", "model": "m"}
CURSOR = {"conversation_id": "s3", "generation_id": "g1", "workspace_roots": ["/w/app"], "cursor_version": "9",
          "user_email": "me@example.org", "model": "m"}  # fmt: skip
GEMINI = {"session_id": "s4", "cwd": "/w/app", "timestamp": "2026-11-30T09:00:00.000Z"}
VSCODE = {"sessionId": "s5", "cwd": "/w/app", "timestamp": "2026-11-30T09:00:00.000Z"}
COPILOT = {"sessionId": "s6", "cwd": "/w/app", "timestamp": 1_796_029_200_000}

CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("claude", "", {**CLAUDE, "hook_event_name": "SessionStart", "source": "compact", "model": "x"},
     {"host": "claude", "kind": "session-start", "source": "compact", "model": "x", "session": "s1"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "why?"},
     {"kind": "user-prompt", "text": "why?", "turn": "p1"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "u",
                    "tool_response": {"stdout": "ok", "stderr": "warn", "interrupted": False}, "duration_ms": 8},
     {"kind": "post-tool-use", "tool": "Bash", "family": "shell", "command": SHELL["command"], "outcome": "success",
      "output_head": "ok\nwarn", "call_id": "u", "duration_ms": 8}),
    ("claude", "", {**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Edit", "tool_use_id": "u",
                    "tool_input": {"file_path": "/w/app/a.py", "new_string": "password = 'hunter22'"},
                    "tool_response": {"filePath": "/w/app/a.py"}},
     {"family": "file", "paths": ("/w/app/a.py",), "wrote": True, "outcome": "success", "output_head": ""}),
    ("claude", "", {**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Read", "tool_use_id": "u",
                    "tool_input": {"file_path": "a.py"}, "tool_response": {"type": "text", "file": {"content": "x = 1"}}},
     {"family": "file", "paths": ("/w/app/a.py",), "wrote": False, "output_head": ""}),
    ("claude", "", {**CLAUDE, "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_input": SHELL,
                    "tool_use_id": "u", "error": "Command failed with exit code 2"},
     {"kind": "post-tool-use", "outcome": "error", "exit_code": 2, "text": "Command failed with exit code 2"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "PostCompact", "trigger": "auto", "compact_summary": "did x"},
     {"kind": "post-compaction", "text": "did x", "source": "auto"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "SubagentStop", "agent_id": "a1", "agent_type": "Explore"},
     {"kind": "subagent-stop", "agent_id": "a1", "agent_type": "Explore"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "StopFailure", "error": "rate_limit"},
     {"kind": "stop", "outcome": "error", "text": "rate_limit"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "SessionEnd", "reason": "logout"}, {"kind": "session-end", "reason": "logout"}),
    ("claude", "", {**CLAUDE, "hook_event_name": "FileChanged"}, {"kind": "other", "name": "FileChanged"}),
    ("codex", "", {**CODEX, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "c",
                   "tool_response": "Exit code: 1\nWall time: 1\nboom"},
     {"host": "codex", "outcome": "error", "exit_code": 1, "call_id": "c"}),
    *[("codex", "", {**CODEX, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "c",
                     "tool_response": f"It ended with exit code {code}"}, {"exit_code": told, "outcome": outcome})
      for code, told, outcome in (("-1", -1, "error"), ("--1", None, "unknown"), ("²", None, "unknown"))],
    *[("codex", "", {**CODEX, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "c",
                     "tool_response": {"stdout": "x", "exit_code": code}}, {"exit_code": told})
      for code, told in ((-1, -1), (0xC000_0005, 0xC000_0005), (10**30, None), (True, None))],
    ("codex", "", {**CODEX, "hook_event_name": "PostToolUse", "tool_name": "apply_patch", "tool_use_id": "c",
                   "tool_input": {"command": "*** Begin Patch\n*** Update File: src/a.py\n*** Add File: b.md\n+x\n"},
                   "tool_response": "Success"},
     {"family": "file", "paths": ("/w/app/src/a.py", "/w/app/b.md"), "wrote": True, "command": ""}),
    ("gemini", "", {**GEMINI, "hook_event_name": "BeforeAgent", "prompt": "hi"},
     {"host": "gemini", "kind": "user-prompt", "at_ms": 1_796_029_200_000}),
    ("gemini", "", {**GEMINI, "hook_event_name": "AfterTool", "tool_name": "run_shell_command", "tool_input": SHELL,
                    "tool_response": {"llmContent": "out", "returnDisplay": "out", "error": "bad"}},
     {"family": "shell", "outcome": "error", "output_head": "out"}),
    ("cursor", "", {**CURSOR, "hook_event_name": "beforeSubmitPrompt", "prompt": "hi", "attachments": []},
     {"host": "cursor", "kind": "user-prompt", "session": "s3", "cwd": "/w/app"}),
    ("claude", "", {**CURSOR, "hook_event_name": "postToolUse", "tool_name": "Shell", "tool_input": SHELL, "tool_use_id": "t",
                    "tool_output": '{"exitCode":1,"stdout":"x"}', "duration": 5},
     {"host": "cursor", "outcome": "error", "exit_code": 1, "output_head": "x"}),
    ("cursor", "", {**CURSOR, "hook_event_name": "sessionStart", "session_id": "s3", "is_background_agent": True},
     {"kind": "session-start", "interactive": False}),
    ("vscode", "", {**VSCODE, "hookEventName": "PostToolUse", "tool_name": "runInTerminal", "tool_input": SHELL,
                    "tool_use_id": "t", "tool_response": "x"},
     {"host": "vscode", "family": "shell", "session": "s5", "outcome": "unknown"}),
    ("copilot", "postToolUse", {**COPILOT, "toolName": "bash", "toolArgs": '{"command":"ls"}',
                                "toolResult": {"resultType": "failure", "textResultForLlm": "no"}},
     {"host": "copilot", "command": "ls", "outcome": "error", "output_head": "no", "session": "s6"}),
    ("copilot", "", {**COPILOT, "prompt": "hi"}, {"kind": "user-prompt", "text": "hi"}),
    ("opencode", "", {"plugin_hook": "event", "cwd": "/w", "event": {"type": "session.created", "properties": {
        "info": {"id": "o1", "directory": "/w/app", "title": "T"}}}},
     {"host": "opencode", "kind": "session-start", "session": "o1", "cwd": "/w", "title": "T"}),
    ("opencode", "", {"plugin_hook": "tool.execute.after", "input": {"tool": "bash", "sessionID": "o1", "callID": "c",
                      "args": SHELL}, "output": {"output": "41 passed", "metadata": {"exit": 0}}},
     {"kind": "post-tool-use", "command": SHELL["command"], "outcome": "success", "exit_code": 0, "call_id": "c"}),
    ("opencode", "", {"plugin_hook": "chat.message", "input": {"sessionID": "o1", "messageID": "m"},
                      "output": {"parts": [{"type": "text", "text": "a"}, {"type": "file", "data": "zz"}]}},
     {"kind": "user-prompt", "text": "a\n[file]"}),
    ("mine", "user-prompt", {"session": "g", "directory": "/w/app", "text": "hello"},
     {"host": "mine", "kind": "user-prompt", "text": "hello", "session": "g", "cwd": "/w/app"}),
    ("mine", "", {"type": "SessionStart", "properties": {"info": {"sessionID": "deep"}}},
     {"kind": "session-start", "session": "deep"}),
]  # fmt: skip


@pytest.mark.parametrize(("host", "event", "payload", "expected"), CASES)
def test_hosts(host: str, event: str, payload: dict[str, Any], expected: dict[str, Any]) -> None:
    """Each host's shape is understood, whatever the command line said."""
    made = adapt(payload, host, event)
    assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(("host", "event", "payload", "expected"), CASES)
def test_nothing_personal_and_it_travels(host: str, event: str, payload: dict[str, Any], expected: Any) -> None:
    """No event holds the person's address, and every one survives encoding."""
    made = adapt(payload, host, event)
    encoded = msgspec.msgpack.encode(made)
    assert b"example.org" not in encoded
    assert msgspec.msgpack.decode(encoded, type=Event) == made


@pytest.mark.parametrize("payload", [
    {"plugin_hook": "event", "event": {"type": "message.part.updated", "properties": {}}},
    {**CURSOR, "conversation_id": "empty-state-draft", "hook_event_name": "sessionStart"},
])  # fmt: skip
def test_noise_is_dropped_with_a_reason(payload: dict[str, Any]) -> None:
    """Events that repeat others, and sessions that are none yet, say why they are not kept."""
    made = events.adapt("", "", payload, NOW)
    assert isinstance(made, Dropped)
    assert made.reason


@settings(max_examples=300, deadline=None)
@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(
        ["session_id", "cwd", "tool_name", "tool_input", "tool_response", "prompt", "event", "payload", "info",
         "plugin_hook",
         "input", "output", "properties", "error", "edits", "paths", "file_path", "timestamp", "model", "command", "toolArgs"]
    ), inner, max_size=6)), max_leaves=20,
).filter(lambda value: isinstance(value, dict)), st.sampled_from(["", "PostToolUse", "Stop", "x"]))  # fmt: skip
def test_strange_payloads_never_raise(payload: dict[str, Any], event: str) -> None:
    """Whatever a host sends becomes an event or is dropped."""
    made = events.adapt("x", event, payload, NOW)
    assert isinstance(made, Event | Dropped)
    if isinstance(made, Event):
        msgspec.msgpack.encode(made)


def test_one_event_through_two_configurations_is_one() -> None:
    """Cursor running Claude's hook file beside its own: the same ids, also across a time bucket's border."""
    payload = {**CURSOR, "hook_event_name": "sessionStart"}
    first = events.adapt("cursor", "", payload, 10_000 * events.NEAR_MS - 1)
    second = events.adapt("claude", "UserPromptSubmit", payload, 10_000 * events.NEAR_MS + 1)
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert first.id != second.id
    assert first.id in events.near_ids(second)
    assert second.id in events.near_ids(first)
    later = events.adapt("claude", "", payload, 10_002 * events.NEAR_MS)
    assert isinstance(later, Event)
    assert first.id not in events.near_ids(later)


def test_ids_tell_apart() -> None:
    """Another call, session, kind or prompt is another event; the same one again is not."""
    base = {**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "u1"}
    variants = [base, {**base, "tool_use_id": "u2"}, {**base, "session_id": "s9"}, {**base, "hook_event_name": "PreToolUse"},
                {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "a"},
                {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "b"}]  # fmt: skip
    ids = [adapt(payload).id for payload in variants]
    assert len(set(ids)) == len(ids)
    assert ids == [adapt(payload).id for payload in variants]
    assert events.near_ids(adapt(base)) == ()


def test_assistant_messages_are_opt_in() -> None:
    """The agent's last message is kept only where the user wants it."""
    payload = {**CLAUDE, "hook_event_name": "Stop", "last_assistant_message": "done"}
    assert adapt(payload).assistant == ""
    assert adapt(payload, intake=Intake(assistant_messages=True)).assistant == "done"


def test_sizes_are_bounded() -> None:
    """Prompt, command and output keep head and tail within their limits, and say how much there was."""
    made = adapt({**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "é" * 40_000})
    assert len(made.text.encode()) < events.TEXT_BYTES + 100
    assert "[… cut …]" in made.text
    output = "start " + "x y " * 200_000 + " end"
    made = adapt({**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "u",
                  "tool_input": {"command": "c" * 9000}, "tool_response": output})  # fmt: skip
    assert made.output_head.startswith("start ")
    assert made.output_tail.endswith(" end")
    assert made.output_bytes == len(output)
    assert len(made.output_head) <= events.HEAD_BYTES
    assert len(made.output_tail) <= events.TAIL_BYTES
    assert len(made.command) <= events.COMMAND_BYTES + 20


@pytest.mark.parametrize("tool", ["mcp__recalld__recall", "mcp_recalld_recall", "recalld_recall", "recalld.read_note"])
def test_our_own_answers_are_not_kept(tool: str) -> None:
    """That recall was asked is an event; what it answered stands in the notes, and would be found again as an event."""
    payload = {"session_id": "s", "cwd": "/w", "hook_event_name": "PostToolUse", "tool_name": tool,
               "tool_input": {"query": "q"}, "tool_response": {"hits": [{"passage": "The build uses ninja."}]},
               "tool_use_id": "t"}  # fmt: skip
    event = adapt(payload)
    assert (event.kind, event.tool) == ("post-tool-use", tool)
    assert "ninja" not in event.output_head + event.output_tail + event.text
    assert event.output_bytes > 0
    assert "ninja" in adapt({**payload, "tool_name": "mcp__other__recall"}).output_head


def test_secret_in_a_window_never_shows() -> None:
    """A secret at the inner edge of what is read of a very long output is not in what is kept."""
    secret = "password=" + "Zq7!" * 500
    for shift in (-3000, -2000, -1000, -1, 0):
        filler = "<private>" + "z" * (events.WINDOW_CHARS + shift - 9)
        kept = events.both_ends(
            filler + secret + "w " * events.WINDOW_CHARS, 1500, 2500, lambda text: text.replace("z", "")
        )
        assert "Zq7!" not in kept[0] + kept[1]


def test_redaction_is_counted_and_images_dropped() -> None:
    """Removed secrets are counted by kind, dropped blobs by number."""
    made = adapt({**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "u",
                  "tool_input": {"command": "curl -u me:hunter22 https://x"},
                  "tool_response": {"stdout": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3" * 20}})  # fmt: skip
    assert made.redacted == {"curl": 1}
    assert made.blobs == 1
    made = adapt({**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": "u", "tool_input": SHELL,
                  "tool_response": {"stdout": "iVBOR", "isImage": True}})  # fmt: skip
    assert (made.output_head, made.blobs) == ("", 1)


def test_accept_believes_a_plausible_clock() -> None:
    """The client's time counts unless it lies in the future; a spooled event keeps the time at which it happened."""
    payload = {"session_id": "s", "hook_event_name": "Stop"}

    def at(sent_ms: int) -> int:
        made = events.accept(Wire(recalld=1, host="claude", cwd="/w", sent_ms=sent_ms, payload=payload), NOW)
        assert isinstance(made, Event)
        assert made.cwd == "/w"
        return made.at_ms

    assert at(NOW - 86_400_000) == NOW - 86_400_000
    assert at(NOW + events.FUTURE_MS + 1) == NOW
    assert at(0) == NOW


def test_metadata_only() -> None:
    """What a policy reduces to its fact has no text, path or command."""
    payload = {**CLAUDE, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": SHELL, "tool_use_id": "u"}
    made = events.accept(Wire(recalld=1, host="claude", payload=payload, disposition="metadata"), NOW)
    assert isinstance(made, Event)
    assert made.metadata_only
    assert (made.tool, made.command, made.paths, made.output_head) == ("Bash", "", (), "")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/w/app/src/a.py", "src/a.py"),
        ("/w/app", "."),
        ("/w/app-two/a", "/w/app-two/a"),
        ("/home/me/x", "~/x"),
        ("rel", "rel"),
    ],
)
def test_settle_makes_paths_relative(path: str, expected: str) -> None:
    """Paths are relative to the project on path boundaries, else below home, else absolute."""
    assert events.relative(path, "/w/app", "/home/me") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Bash", "shell"), ("run_shell_command", "shell"), ("Edit", "file"), ("str_replace_editor", "file"),
     ("NotebookEdit", "file"),
     ("Grep", "search"), ("list_directory", "search"), ("WebFetch", "web"), ("mcp__x__y", "mcp"), ("Task", "agent"),
     ("Frobnicate", "unknown")],
)  # fmt: skip
def test_families(name: str, expected: str) -> None:
    """Tools of every host fall into one family, whatever the spelling."""
    assert tools.family(name) == expected


def test_every_kind_is_reachable() -> None:
    """The table of event names covers the closed set of kinds, apart from ``other``."""
    assert set(hosts.KIND_BY_NAME.values()) | {"other"} == set(events.KINDS)


@pytest.mark.parametrize("session", ["main:7", "7:7", "main"])
def test_the_end_that_recalld_writes_has_no_neighbours_in_time(session: str) -> None:
    """Its id has the session's in it, colons and all, which no time bucket follows."""
    begun = sessions.begin(Event(id="x", kind="user-prompt", host="claude", session=session, at_ms=5))
    for reason in sessions.ENDS:
        assert events.near_ids(sessions.end_event(begun, reason)) == ()
