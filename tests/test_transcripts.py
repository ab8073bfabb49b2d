"""Past transcripts as events: the same ones as a live capture would have given, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recalld.memory.capture import events, transcripts
from recalld.memory.capture.events import Event, Wire
from recalld.protocol.messages.capture import ImportEvents

from .capturing import running

HOOKS = Path(__file__).parent / "golden" / "hooks"


def lines(format: transcripts.Format, name: str, *, over: bool = True) -> list[dict[str, Any]]:
    with (HOOKS / name).open("rb") as stream:
        return list(transcripts.lines_of(format, stream, over=over))


def accepted(found: list[dict[str, Any]]) -> list[Event]:
    import msgspec

    taken = [events.accept(msgspec.convert(line, Wire), line["sent_ms"]) for line in found]
    assert all(isinstance(each, Event) for each in taken)
    return [each for each in taken if isinstance(each, Event)]


def test_claude() -> None:
    """Start, prompt, command with its output, stop, end; environment and summaries of hooks are passed over."""
    found = accepted(lines("claude", "transcript.claude.jsonl"))
    assert [each.kind for each in found] == ["session-start", "user-prompt", "post-tool-use", "stop", "session-end"]
    tool = found[2]
    assert (tool.command, tool.outcome, tool.branch) == ("ninja -C build test", "success", "main")
    assert "41 passed" in tool.output_head
    assert "environment text" not in repr(found)


def test_codex() -> None:
    """The same for a rollout; a headless run says so; base instructions are never taken."""
    found = accepted(lines("codex", "rollout.codex.jsonl"))
    assert [each.kind for each in found] == ["session-start", "user-prompt", "post-tool-use", "stop", "session-end"]
    assert (found[2].tool, found[2].command) == ("Bash", "ninja -C build test")
    assert not found[1].interactive
    assert "never index" not in repr(found)


def test_a_file_that_is_still_written_has_no_end() -> None:
    """An import must not end a session that runs."""
    assert accepted(lines("claude", "transcript.claude.jsonl", over=False))[-1].kind == "stop"


def test_garbage_is_passed_over() -> None:
    """Half lines, other types, nonsense: what is understood is taken."""
    with (HOOKS / "transcript.claude.jsonl").open("rb") as stream:
        real = stream.readlines()
    noisy = [
        b"{half",
        b"[]\n",
        b"null\n",
        b'{"type":"new-thing"}\n',
        *real,
        b'{"type":"user","message":{"content":7}}\n',
    ]
    assert (
        list(transcripts.lines_of("claude", noisy, over=True))[:5]
        == list(transcripts.lines_of("claude", real, over=True))[:5]
    )


def test_half_an_emoji_costs_no_line() -> None:
    """JavaScript cuts texts within a pair of surrogates, and writes the half as an escape, which is no character."""
    line = {
        "type": "user",
        "sessionId": "s",
        "cwd": "/w",
        "uuid": "u",
        "message": {"role": "user", "content": "cut \ud83d"},
    }
    found = list(transcripts.lines_of("claude", [json.dumps(line).encode()], over=False))
    assert found[-1]["payload"]["prompt"] == "cut \ufffd"


def test_prompts_and_calls_have_the_ids_of_the_live_capture() -> None:
    """Captured by hooks and imported later: one event, not two."""
    for format, transcript, hooks in (
        ("claude", "transcript.claude.jsonl", "hooks.claude.jsonl"),
        ("codex", "rollout.codex.jsonl", "hooks.codex.jsonl"),
    ):
        live = [
            events.adapt(format, "", json.loads(line), 1_796_029_200_000)
            for line in (HOOKS / hooks).read_text().splitlines()
        ]
        known = {each.id for each in live if isinstance(each, Event) and each.kind in ("user-prompt", "post-tool-use")}
        imported = {
            each.id for each in accepted(lines(format, transcript)) if each.kind in ("user-prompt", "post-tool-use")
        }  # type: ignore[arg-type]
        assert len(imported & known) == 2, format


def test_a_call_is_one_event_whatever_is_known_of_its_end() -> None:
    """Codex tells its hooks no exit code and its transcript one; tools of an MCP server have the hooks' name for them."""
    head = {"type": "session_meta", "payload": {"session_id": "s", "cwd": "/w"}}
    rows: list[dict[str, object]] = [head]
    for number, (name, more, output) in enumerate(
        [
            ("exec_command", {}, "Process exited with code 3\nOutput:\noops\n"),
            ("recall", {"namespace": "mcp__recalld"}, "{}"),
        ]
    ):
        for kind, said in (
            ("function_call", {"name": name, "arguments": "{}"}),
            ("function_call_output", {"output": output}),
        ):
            rows.append({"type": "response_item", "payload": {"type": kind, "call_id": f"c{number}", **said, **more}})
    imported = accepted(list(transcripts.lines_of("codex", [json.dumps(row).encode() for row in rows], over=False)))[1:]
    live = [
        events.adapt("codex", "", {"session_id": "s", "cwd": "/w", "hook_event_name": "PostToolUse", "tool_name": tool,
                                   "tool_input": {}, "tool_response": "oops\n", "tool_use_id": f"c{number}"}, 1)
        for number, tool in enumerate(("Bash", "mcp__recalld__recall"))
    ]  # fmt: skip
    assert [each.id for each in imported] == [each.id for each in live if isinstance(each, Event)]
    assert [(each.tool, each.outcome) for each in imported] == [("Bash", "error"), ("mcp__recalld__recall", "unknown")]


async def test_an_import_makes_pages(short_tmp: Path) -> None:
    """Through the writer: two sessions with pages; a second import stores nothing."""
    async with running(short_tmp) as rig:
        found = [*lines("claude", "transcript.claude.jsonl"), *lines("codex", "rollout.codex.jsonl")]
        message = ImportEvents(lines=tuple(json.dumps(line) for line in found))
        first = await rig.ingest.handlers[ImportEvents](message)
        await rig.ingest.settle()
        again = await rig.ingest.handlers[ImportEvents](message)
        assert (first.stored, again.stored, again.duplicates) == (10, 0, 10)
        assert len(rig.pages()) == 2
