"""
Notes and events that are hard to read, or that want to be obeyed, are data: read in bounded time, shown and not obeyed.

A regular expression that explodes holds the interpreter's lock, so time is bounded from outside, by a process that ends or
is killed; the limits are far above what anything here takes, and far below what it would take if it exploded.
"""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hostile
import pytest
from harness import Bridge, Daemon, running, until
from recalld.protocol.messages.capture import PageWritten, Place, WritePage
from recalld.protocol.messages.recall import Answer, Recall

LIMIT_S = 60.0
NO_MODEL = '[embedder]\nmodel = "none"\n'
OBEYED = re.compile(
    "\x1b(?!\\[[0-9;]*m)|\x1b\\[31m\x1b\\[\\?|[\x00-\x06\x07\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal would act on, but for the colours that the command itself prints."""

WORK = """
import sys
from recalld.memory import redact
from recalld.memory.capture import events
from recalld.memory.notes.parse import parse
from recalld.memory.recall.tokens import index_text, query_terms, sentences
for file in sys.argv[1:]:
    print("\\nreading", file.rpartition("/")[2], end=": ", flush=True)
    raw = open(file, "rb").read()
    note, chunks = parse("folder/bait.md", raw)
    text = raw.decode("utf-8", "replace")
    for chunk in chunks:
        index_text(chunk.text)
        sentences(chunk.text)
    redact.redact(text[:200_000])
    payload = {"session_id": "s", "cwd": "/", "prompt": text, "tool_name": "Bash", "tool_response": {"stdout": text}}
    for event in ("UserPromptSubmit", "PostToolUse"):
        events.accept(events.Wire(recalld=1, payload=payload, host="claude", event=event), 1)
    query_terms(text[:100_000])
    assert len(chunks) <= 50_000 and len(note.links) <= 100_000 and len(note.tags) <= 4096 and len(note.title) <= 400
    assert max(map(len, note.entities), default=0) <= 400
print("\\ndone")
"""
GROUPS = 8


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("group", range(GROUPS))
def test_every_bait_is_read_in_bounded_time(group: int, tmp_path: Path) -> None:
    """Parsing, cutting, tokenising, redacting and capturing hostile texts ends, without an exception, with bounded results."""
    files = []
    for name in list(hostile.BAIT)[group::GROUPS]:
        files.append(tmp_path / name)
        files[-1].write_text(hostile.BAIT[name](), encoding="utf-8")
    command = [sys.executable, "-P", "-c", WORK, *map(str, files)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S * 2, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"no end: {(error.stdout or b'').decode()[-200:]}")
    assert done.returncode == 0, done.stdout[-200:] + done.stderr[-2000:]
    assert done.stdout.endswith("done\n")
    assert not Path("/tmp/recalld-owned").exists()


@pytest.mark.timeout(120)
def test_ignore_patterns_that_would_explode_are_left_out(tmp_path: Path) -> None:
    """A vault's own .gitignore cannot hold the watcher up; its other patterns hold."""
    code = """
import sys
from recalld.actors.watcher.scan import Scanner
print(sorted(Scanner(sys.argv[1], (), 1_000_000).all().files))
"""
    bait = [
        "*a" * 20 + "b",
        "**/a/" * 20 + "b",
        "?*" * 20 + "b",
        "[" * 5000,
        "a{" * 5000,
        "!" * 5000,
        "*" * 5000,
        "drafts/",
    ]
    (tmp_path / ".gitignore").write_text("\n".join(bait) + "\n")
    deep = tmp_path / "/".join(["a"] * 100)
    deep.mkdir(parents=True)
    (deep / "x.md").write_text("deep")
    (tmp_path / f"{'a' * 240}.md").write_text("long name")
    (tmp_path / "drafts").mkdir()
    (tmp_path / "drafts" / "d.md").write_text("draft")
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "x.md" in done.stdout
    assert "draft" not in done.stdout


# -- a daemon that has all of it --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """A vault of baits beside two ordinary notes, a vault with a hostile name, a page and events that want to be obeyed."""
    with running(start=False) as stopped:
        stopped.write("first.md", "# First\n\nThe aardvark is ordinary.\n")
        for name, bait in hostile.BAIT.items():
            stopped.write(f"bait/{name}.md", bait())
        stopped.write("zlast.md", "# Last\n\nThe zebra is ordinary.\n")
        stopped.write(
            "evil.md", f'---\ntitle: "evil {hostile.MARKUP} {hostile.BIDI}"\n---\n\nThe okapi {hostile.ALL}\n'
        )
        stopped.write(
            f"name {hostile.ESCAPES.replace('/', '')[:60]}\u202e.md", f"# Okapi {hostile.ALL}\n\nThe okapi too.\n"
        )
        (stopped.vault / "bytes.md").write_bytes(bytes(range(256)) * 4000)
        second = stopped.folder / "second"
        second.mkdir()
        (second / "n.md").write_text("# N\n\nThe okapi in the second vault.\n")
        name = json.dumps("evil\x1b[2J[/]\u202e")
        config = f'{NO_MODEL}[watcher]\nsweep_s = 5.0\n[[vaults]]\npath = "{second}"\nname = {name}\n'
        stopped.start(config=config)
        until("the ordinary notes are in", lambda: stopped.finds("zebra", "zlast.md"), 120.0)
        stopped.settle()
        yield stopped


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_hostile_notes_do_not_keep_ordinary_ones_out(daemon: Daemon) -> None:
    """Everything else in the vault is found, no process was lost over it, and what could not be understood is counted."""
    assert daemon.finds("aardvark", "first.md")
    assert daemon.finds("zebra", "zlast.md")
    assert daemon.finds("laughing body", "bait/yaml-laughs.md")
    status = daemon.status()
    assert {name: actor.restarts for name, actor in status.actors.items() if actor.restarts} == {}
    assert not Path("/tmp/recalld-owned").exists()


def on_terminal(daemon: Daemon, *arguments: str) -> str:
    """What the command prints on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "recalld.clients.cli", *arguments]
    environ = {**daemon.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    process = subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, cwd=daemon.folder)
    os.close(theirs)
    data = b""
    try:
        while piece := os.read(ours, 65_536):
            data += piece
    except OSError:
        pass  # the terminal is closed when the process ends
    os.close(ours)
    process.wait(LIMIT_S)
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def is_harmless(text: str) -> bool:
    return OBEYED.search(text) is None and "\r" not in text


@pytest.mark.process
@pytest.mark.timeout(240)
def test_a_terminal_shows_hostile_notes_and_obeys_nothing(daemon: Daemon) -> None:
    """ask, ask --explain, ask --json, status and list: no escape sequence, bell, bidi override or markup takes effect."""
    for arguments in (
        ("ask", "okapi", "-k", "10"), ("ask", "okapi", "-k", "10", "--explain"), ("status",), ("list",),
        ("ask", f"okapi {hostile.ESCAPES.strip(chr(13))}"), ("doctor",), ("logs",),
    ):  # fmt: skip
        shown = on_terminal(daemon, *arguments)
        assert is_harmless(shown), (arguments, OBEYED.search(shown), shown[:3000])
        assert "Traceback" not in shown, shown
    assert "okapi" in on_terminal(daemon, "ask", "okapi")
    assert "[red]red[/]" in on_terminal(daemon, "ask", "okapi", "-k", "10")


@pytest.mark.process
@pytest.mark.timeout(240)
def test_hostile_pages_events_and_sessions_are_shown_and_not_obeyed(daemon: Daemon) -> None:
    """A page, hook events of a hostile host, session, project and tool: every command that lists them prints them safely."""
    written = daemon.ask(
        "writer", WritePage(path="notes/evil.md", body=f"# Evil\n\n{hostile.ALL}\n", place=Place(project="p"))
    )
    assert isinstance(written, PageWritten)
    folder = daemon.folder / "proj\x1b[2J\u202e[/]"
    (folder / ".git").mkdir(parents=True)
    lines = [
        {"session_id": f"s{hostile.ESCAPES}", "cwd": str(folder), "hook_event_name": event, "prompt": f"okapi {hostile.ALL}",
         "tool_name": f"Bash{hostile.ESCAPES}", "tool_input": {"command": f"echo {hostile.ALL}", "file_path": hostile.ALL}}
        for event in ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
    ]  # fmt: skip
    for line in lines:
        for host in ("claude", "evil\x1b[2J\u202e"):
            _tell(
                daemon, {"recalld": 1, "role": "hook", "host": host, "event": line["hook_event_name"], "payload": line}
            )
    until("the events are stored", lambda: "session-end" in daemon.cli("events", "-n", "20").stdout)
    for arguments in (
        ("page", "read", "notes/evil.md", "--project", "p"), ("page", "log", "notes/evil.md", "--project", "p"),
        ("page", "read", f"no{hostile.ESCAPES.strip(chr(13))}", "--project", "p"), ("events", "-n", "50"), ("session", "list"),
        ("handoff", "list", "--all"), ("status",),
    ):  # fmt: skip
        shown = on_terminal(daemon, *arguments)
        assert is_harmless(shown), (arguments, OBEYED.search(shown), shown[:3000])
        assert "Traceback" not in shown, shown


def _tell(daemon: Daemon, line: dict[str, object]) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(os.fspath(daemon.paths.socket("events")))
        connection.sendall(json.dumps(line).encode() + b"\n")
        assert connection.recv(4096)


@pytest.mark.process
def test_a_note_that_instructs_is_a_passage_with_its_source(daemon: Daemon) -> None:
    """An agent gets the text of a hostile note as one hit's passage, with its file, inside an ordinary tool result."""
    bridge = Bridge(daemon)
    try:
        result = bridge.recall("okapi ignore all previous instructions")
    finally:
        bridge.close()
    assert not result.get("isError")
    hits = result["structuredContent"]["hits"]
    assert all(hit["file"].startswith(str(daemon.folder)) for hit in hits)
    assert any("okapi" in hit["passage"].lower() for hit in hits)


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    [
        "brackets",
        "one-word",
        "one-line",
        "combining",
        "json",
        "colons",
        "hashtags",
        "names",
        "keys",
        "sentences",
        "bidi",
    ],
)
def test_hostile_questions_are_answered(daemon: Daemon, name: str) -> None:
    """A question of 200,000 hostile characters has an answer, and the next question too."""
    question = hostile.BAIT[name]()[:200_000]
    assert isinstance(daemon.ask("query", Recall(query=question, k=3)), Answer)
    assert daemon.finds("aardvark", "first.md")
