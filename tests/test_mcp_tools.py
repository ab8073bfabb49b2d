"""What tools look like and take: schemas as strict clients want them, arguments, results against their own schemas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from mcp_stand import StandFacts, Table
from recalld.actors.query.mcp import arguments, manifest, resources, results, schemas, tools
from recalld.actors.query.mcp.arguments import BadArguments
from recalld.actors.query.mcp.desk import Desk
from recalld.actors.query.mcp.session import MANIFEST
from recalld.actors.query.mcp.tools import Caller
from recalld.clients.bridge.paths import socket_path
from recalld.clients.cli.ask import show
from recalld.protocol import render
from recalld.protocol.messages import capture, recall
from recalld.protocol.runtime import locate

CALLER = Caller(key="k", cwd="/home/dev/widgets", host="claude", session="s")
EXAMPLES: dict[str, dict[str, Any]] = {
    "recall": {
        "query": "q",
        "k": 3,
        "tags": ["#Build"],
        "since": "2026-01-01",
        "vault": "notes",
        "scope": "vault",
        "include_expired": True,
    },
    "read_note": {"path": "tools/build.md", "lines": [1, 2]},
    "related": {"path": "tools/build.md"},
    "recent": {"k": 5, "kinds": ["decision"]},
    "status": {},
    "write_page": {"path": "a", "body": "b", "kind": "gotcha", "relations": {"fixes": ["gotchas/c.md"]}},
    "handoff_begin": {"summary": "s", "next_steps": ["one"]},
    "handoff_accept": {},
    "briefing": {"max_chars": 500},
    "handoff_list": {},
    "handoff_cancel": {"id": "h1"},
    "delete_page": {"path": "a"},
    "session_events": {"kinds": ["user-prompt"]},
    "feedback": {"path": "a.md", "signal": "stale", "reason": "r"},
    "message_send": {"to_project": "gears", "body": "b"},
    "message_list": {"box": "outbox"},
    "message_pop": {},
    "message_cancel": {"id": "m-1"},
    "lint": {"kinds": ["flagged"], "cold": True},
}
TOOLS = pytest.mark.parametrize("name", list(schemas.TOOLS))


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema, itself first. Names of properties are not keywords."""
    if isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            for part in value.values() if key == "properties" else [value]:
                yield from nodes(part)


@TOOLS
def test_schemas_are_plain(name: str) -> None:
    """An object at the root, no combinators, references or dialects anywhere: each of these costs some client every tool."""
    tool = schemas.TOOLS[name]
    for schema in filter(None, (tool.input_schema(), tool.output_schema())):
        assert schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(schema)
        for node in nodes(schema):
            assert not {"anyOf", "oneOf", "allOf", "not", "if", "$ref", "$defs", "$schema", "const"} & set(node)
    assert tool.input_schema()["additionalProperties"] is False
    assert set(tool.required) <= set(tool.properties)
    assert set(tool.output_required) <= set(tool.output)


@TOOLS
def test_descriptions_fit(name: str) -> None:
    """Names, titles and descriptions within what clients show: name 20 characters, description 1 KB."""
    tool = schemas.TOOLS[name]
    assert len(name) <= 20
    assert tool.title
    assert 40 <= len(tool.description.encode()) < 1024


async def test_the_list_is_small() -> None:
    """Eight tools and 8,000 bytes on the wire by default, in either era: each session of each agent pays for them."""
    answers = (await manifest.build())["toolsets"]
    for era in ("legacy", "modern"):
        listed = answers["default"][era]["tools/list"]
        assert len(listed["tools"]) == 8
        assert len(json.dumps(listed, separators=(",", ":")).encode()) <= 8000
        assert len(answers["full"][era]["tools/list"]["tools"]) == len(schemas.listed("full"))
    assert len(schemas.INSTRUCTIONS.encode()) < 2048


async def test_the_manifest_is_what_the_server_says() -> None:
    """The packaged file equals the server's answers, per toolset and era; else: python -m recalld.actors.query.mcp.manifest"""
    assert MANIFEST.read_text(encoding="utf-8") == manifest.text_of(await manifest.build())


def test_annotations() -> None:
    """Readers say that they only read; what can destroy says so; nothing reaches beyond this machine."""
    hints = {name: tool.annotations() for name, tool in schemas.TOOLS.items()}
    assert {name for name, hint in hints.items() if hint["readOnlyHint"]} == {
        "recall", "read_note", "related", "recent", "status", "briefing", "handoff_list", "session_events",
        "message_list", "lint",
    }  # fmt: skip
    assert all(hint["openWorldHint"] is False for hint in hints.values())
    assert hints["write_page"]["destructiveHint"] is True
    assert hints["handoff_begin"]["destructiveHint"] is False


@TOOLS
async def test_each_tool_answers_as_its_schema_says(name: str) -> None:
    """From arguments to structuredContent, for every tool."""
    desk = Desk(Table(), StandFacts())
    result = await desk.call_tool(name, EXAMPLES[name], CALLER, 1)
    assert result.is_error is False, result.text
    assert result.text
    output = schemas.TOOLS[name].output_schema()
    if output is not None:
        jsonschema.validate(json.loads(json.dumps(result.structured)), output)


@pytest.mark.parametrize(
    ("reply", "tool"),
    [
        (recall.NotFound(ref="x", nearest=("y.md",)), "read_note"),
        (recall.Ambiguous(ref="x", candidates=("a/x.md", "b/x.md")), "read_note"),
        (recall.NotFound(ref="x"), "related"),
        (
            capture.PageWritten(path="p", file="f", project=capture.ProjectRef(name="w"), hash="", twin="q.md"),
            "write_page",
        ),
        (capture.HandoffDone(handoff=None, project=capture.ProjectRef(name="w")), "handoff_accept"),
        (recall.Answer(hits=()), "recall"),
        (recall.LintReport(findings=(), counts={}, warnings=0, notes=0), "lint"),
        (capture.MessageDone(letter=None, project=capture.ProjectRef(name="w")), "message_pop"),
        (capture.Messages(items=(), project=capture.ProjectRef(name="w")), "message_list"),
    ],
)
def test_other_outcomes_fit_the_schema(reply: Any, tool: str) -> None:
    """Not found, ambiguous, a twin, nothing to accept, no hits: answers, not errors, and within the output schema."""
    result = results.of(reply)
    assert result.is_error is False
    jsonschema.validate(json.loads(json.dumps(result.structured)), schemas.TOOLS[tool].output_schema())


def test_recall_says_everything_inside() -> None:
    """What was degraded, where each passage stands and that a note is superseded: clients show the model nothing else."""
    hit = recall.Hit(
        path="a.md", title="A", score=0.123456, lines=(3, 5), passage="p", vault="notes", file="/v/a.md",
        streams={"text": recall.StreamScore(rank=1, score=2.0)}, superseded_by=recall.Superseded(path="b.md", title="B"),
    )  # fmt: skip
    answer = recall.Answer(
        hits=(hit,), degraded=("vector",), took_ms=1.239, known=False, project="w", project_from="git"
    )
    data = results.of(answer).structured
    assert data == render.answer(answer)
    assert data is not None
    assert data["hits"][0] | {"streams": None} == {
        "path": "a.md", "title": "A", "score": 0.1235, "lines": [3, 5], "passage": "p", "vault": "notes",
        "file": "/v/a.md", "superseded_by": {"path": "b.md", "title": "B"}, "streams": None,
    }  # fmt: skip
    assert (data["degraded"], data["took_ms"], data["known"]) == (["vector"], 1.24, False)
    assert (data["project"], data["project_from"]) == ("w", "git")
    assert "superseded by b.md" in results.of(answer).text


def test_fields_that_scripts_rely_on_are_always_there() -> None:
    """Also at their default."""
    assert render.answer(recall.Answer(hits=())) == {
        "hits": [], "degraded": [], "took_ms": 0.0, "confidence": 0.0, "known": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "'query' is required: The question"),
        ({"query": ""}, "'query' is required"),
        ({"query": "q", "limit": 3}, "unknown argument 'limit'. Allowed: query, k, folder"),
        ({"query": "q", "tag": "x"}, "Did you mean 'tags'?"),
        ({"query": "q", "k": 0}, "must be 1 to 50, not 0"),
        ({"query": "q", "k": "many"}, "must be a whole number"),
        ({"query": "q", "k": True}, "must be a whole number"),
        ({"query": "q", "k": 2.5}, "must be a whole number"),
        ({"query": "q", "scope": "mine"}, "must be one of all, project, vault, global"),
        ({"query": ["q"]}, "must be a string"),
        ({"query": "q", "tags": {"a": 1}}, "must be a list of strings"),
        ({"query": "q", "tags": [["a"]]}, "'tags'[0] must be a string"),
        ({"query": "q", "explain": "yes"}, "must be true or false"),
    ],
)
def test_refused_arguments(given: dict[str, Any], text: str) -> None:
    """The message names the key, what it must be and what is allowed."""
    with pytest.raises(BadArguments) as caught:
        arguments.check("recall", schemas.RECALL.input_schema(), given)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        ({"k": "5"}, {"k": 5}),
        ({"k": 5.0}, {"k": 5}),
        ({"k": None}, {}),
        ({"tags": "a"}, {"tags": ("a",)}),
        ({"tags": '["a", "b"]'}, {"tags": ("a", "b")}),
        ({"explain": "True"}, {"explain": True}),
        ({"since": 2026}, {"since": "2026"}),
    ],
)
def test_careless_arguments(given: dict[str, Any], settled: dict[str, Any]) -> None:
    """A value with one reading is taken for it."""
    checked = arguments.check("recall", schemas.RECALL.input_schema(), {"query": "q", **given})
    assert checked == {"query": "q", **settled}


@pytest.mark.parametrize("lines", [[0, 3], [5, 2]])
def test_lines_that_cannot_be(lines: list[int]) -> None:
    """A range that has no lines is refused with what it should be."""
    with pytest.raises(BadArguments, match=r"\[from, to\]"):
        tools.call("read_note", {"path": "a", "lines": lines}, CALLER, 1, 0)


def test_recall_arguments_become_a_question() -> None:
    """Every filter arrives; tags are folded as the index has them."""
    call = tools.call("recall", EXAMPLES["recall"], CALLER, 1, 0)
    filters = recall.Filters(tags=("build",), since="2026-01-01", vaults=("notes",), expired=True)
    assert call.message == recall.Recall(query="q", k=3, filters=filters, scope="vault", cwd=CALLER.cwd)


@pytest.mark.parametrize(
    ("name", "host"),
    [("claude-code", "claude"), ("codex-mcp-client", "codex"), ("gemini-cli-mcp-client", "gemini"), ("opencode", "opencode"),
     ("Visual Studio Code", "vscode"), ("zed", "zed")],
)  # fmt: skip
def test_one_agent_one_name(name: str, host: str) -> None:
    """An MCP client is called as its hooks are."""
    assert tools.host_of(name) == host


def test_note_uris_round_trip() -> None:
    """Any path survives its URI."""
    for path in ("a.md", "a b/ü #1?.md", "50%.md"):
        message = resources.wanted(resources.note_uri(path))
        assert message is not None
        assert message.ref == path


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": "/home/dev"},
        {"HOME": "/home/dev", "XDG_RUNTIME_DIR": "/tmp"},
        {"HOME": "/home/dev", "XDG_RUNTIME_DIR": "/nowhere"},
        {"HOME": "/home/dev", "XDG_DATA_HOME": "/data//x/./y"},
        {"HOME": "/home/dev", "RECALLD_DATA": "/srv/memory", "XDG_RUNTIME_DIR": "/tmp"},
        {"HOME": "/home/dev", "RECALLD_DATA": "relative/data"},
        {"HOME": "/home/dev", "RECALLD_RUNTIME": "/tmp/run/"},
        {"HOME": "/home/dev", "RECALLD_RUNTIME": "/tmp/" + "long/" * 30},
        {"HOME": "/home/dev", "RECALLD_DATA": "~/memory", "XDG_RUNTIME_DIR": "/nowhere"},
        {"HOME": "/home/" + "n" * 90, "XDG_RUNTIME_DIR": "/nowhere"},
    ],
)
def test_the_bridge_finds_the_socket_that_the_daemon_binds(environ: dict[str, str]) -> None:
    """Two implementations of one rule: the bridge has no packages."""
    assert socket_path(environ) == str(locate(environ=environ).socket("mcp"))
    assert socket_path(environ, "/a/b", "/c/d") == str(locate("/a/b", "/c/d", environ).socket("mcp"))


def test_the_bridge_needs_the_standard_library_only() -> None:
    """It runs in an isolated interpreter without site-packages, and imports none of what is slow."""
    bridge = MANIFEST.with_name("mcp_bridge.py")
    code = (
        "import sys; sys.argv = ['x', '--bad']\n"
        f"space = dict(__name__='__main__', __file__={str(bridge)!r}, __package__=None)\n"
        f"try: exec(compile(open({str(bridge)!r}).read(), 'bridge', 'exec'), space)\n"
        "except SystemExit as end: assert end.code == 2\n"
        "print(*sorted({'asyncio', 'typing', 'dataclasses', 'socket', 'inspect', 'msgspec', 'hashlib'} & set(sys.modules)))\n"
        "print(*sorted(name for name in sys.modules if name.startswith(('recalld.memory', 'recalld.clients.hooking'))))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == ""
    assert "unknown option '--bad'" in done.stderr


def test_the_manifest_command_checks(tmp_path: Path) -> None:
    """--check is what a build runs; it says what to do when the file is out of date."""
    command = [sys.executable, "-m", "recalld.actors.query.mcp.manifest", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ), timeout=50)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_tool_has_a_row_in_the_docs() -> None:
    """docs/mcp.md names each tool and where it is listed, in the server's order."""
    page = (MANIFEST.parents[1] / "docs" / "mcp.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (default|full) \|", page, re.MULTILINE)
    assert rows == [(name, tool.listed) for name, tool in schemas.TOOLS.items()]
    for uri in (resources.STATUS_URI, resources.NOTE_TEMPLATE):
        assert f"`{uri}`" in page


def test_that_it_does_not_know_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The note says why, be it that nothing matches or that no project is known: neither reader is told twice."""
    note = "The notes do not seem to contain this; the hits are merely the nearest."
    hit = recall.Hit(path="a.md", title="A", score=0.1, lines=(1, 1), passage="p", streams={})
    answer = recall.Answer(hits=(hit,), known=False)
    for said in (note, "No project is known for this folder: ask with scope 'all'."):
        there = msgspec.structs.replace(answer, note=said)
        show(there, explain=False)
        for text in (results.of(there).text, capsys.readouterr().out):
            assert said in text
            assert text.count("do not seem to contain") == said.count("do not seem to contain")
