"""The capture commands against a real daemon, as a person types them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .capturing import FIRST_MS, ended, prompt, ran
from .harness import Daemon

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    daemon = Daemon(folder, {"RECALLD_EMBEDDER__MODEL": "none"})
    root = folder / "acme-widgets"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    daemon.start()
    lines = [
        prompt("session-one", root, "Why does the gear slip?"),
        ran("session-one", root, "make test", at_ms=FIRST_MS + 1000),
        ended("session-one", root, FIRST_MS + 2000),
        prompt("session-two", folder / "elsewhere", "Forget this", FIRST_MS + 3000),
    ]
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.paths.socket("events")))
        answers = client.makefile("rb")
        for line in lines:
            client.sendall(json.dumps(line).encode() + b"\n")
            assert json.loads(answers.readline())["ok"]
    daemon.settle()
    yield daemon
    daemon.stop()
    shutil.rmtree(folder, ignore_errors=True)


def recalld(daemon: Daemon, *arguments: str, given: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "recalld.clients.cli", *arguments], env=daemon.environ, cwd=daemon.folder / "acme-widgets",
        input=given, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def as_json_any(daemon: Daemon, *arguments: str, code: int) -> Any:
    """What a command prints as JSON although it does not exit with 0."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "recalld.clients.cli", *arguments, "--json"], env=daemon.environ,
        cwd=daemon.folder / "acme-widgets", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return json.loads(done.stdout)


def as_json(daemon: Daemon, *arguments: str, given: str = "") -> Any:
    return json.loads(recalld(daemon, *arguments, "--json", given=given))


def test_sessions(daemon: Daemon) -> None:
    """Listed, shown as page and as events."""
    listed = {each["id"]: each["project"] for each in as_json(daemon, "session", "list", "--here")}
    assert listed["session-one"] == "acme-widgets"
    assert "session-two" not in listed
    assert "# Why does the gear slip?" in recalld(daemon, "session", "show", "session-one")
    assert "make test" in recalld(daemon, "session", "show", "session-one", "--events")
    assert "no session" in recalld(daemon, "session", "show", "nonsense", code=1)


def test_feedback(daemon: Daemon) -> None:
    """By path in the project or by file; a wrong path and a wrong signal say what to do."""
    as_json(daemon, "page", "write", "notes/axle", given="It is round.\n")
    said = as_json(daemon, "feedback", "notes/axle", "wrong", "--reason", "square")
    assert (said["path"], said["tally"]) == ("acme-widgets/notes/axle.md", {"wrong": 1})
    file = daemon.paths.wiki / "acme-widgets/notes/axle.md"
    assert as_json(daemon, "feedback", str(file), "helpful")["tally"] == {"helpful": 1}
    assert "pass the path of a hit" in recalld(daemon, "feedback", "notes/none", "wrong", code=1)
    assert "not_helpful" in recalld(daemon, "feedback", "notes/axle", "bad", code=2)
    recalld(daemon, "page", "rm", "notes/axle")


def test_messages(daemon: Daemon) -> None:
    """Sent from one project, listed and read in another one, withdrawn by the sender."""
    recalld(daemon, "page", "write", "notes/a", "--project", "gears", given="x")
    sent = as_json(daemon, "message", "send", "gears", "-", "--subject", "API", given="The API moved.\n")
    recalld(daemon, "message", "send", "gears", "second", "message")
    assert "API" in recalld(daemon, "message", "list", "--sent")
    assert [
        each["subject"] for each in as_json(daemon, "message", "list", "--project", "gears") if "subject" in each
    ] == ["API"]
    assert recalld(daemon, "message", "pop", "--project", "gears") == "The API moved.\n"
    assert "no message" in recalld(daemon, "message", "pop", sent["id"], "--project", "gears", code=1)
    assert "no unread message" in recalld(daemon, "message", "cancel", sent["id"], code=1)
    assert "pass --all" in recalld(daemon, "message", "cancel", code=2)
    recalld(daemon, "message", "cancel", "--all")
    assert "no message" in recalld(daemon, "message", "pop", "--project", "gears", code=1)
    assert "known projects" in recalld(daemon, "message", "send", "nobody", "x", code=1)


def test_lint(daemon: Daemon) -> None:
    """Exit code 1 with warnings, 0 without; cold session pages are listed, and removed only with --apply, kept in git."""
    project = ("--project", "lintable")
    recalld(daemon, "page", "write", "notes/a", *project, given="See [[no such page]].\n")
    assert recalld(daemon, "lint", *project, code=1) == ""
    report = as_json_any(daemon, "lint", *project, code=1)
    assert [(each["kind"], each["pages"]) for each in report["findings"]] == [
        ("unresolved_link", ["lintable/notes/a.md"])
    ]
    recalld(daemon, "page", "write", "notes/a", *project, given="See nothing.\n")
    assert "nothing found" in recalld(daemon, "lint", *project)

    folder = daemon.paths.wiki / "lintable" / "sessions"
    folder.mkdir()
    fresh = daemon.folder / "old.md"
    fresh.write_text("---\nkind: session\n---\n# Long ago\n\nNobody asks.\n")
    os.utime(fresh, (1_600_000_000, 1_600_000_000))
    fresh.rename(folder / "old.md")
    daemon.settle()
    cold = as_json(daemon, "lint", *project, "--cold")
    assert [each["kind"] for each in cold["findings"]] == ["cold_session"]
    assert "pass --cold too" in recalld(daemon, "lint", "--apply", code=2)
    removed = as_json(daemon, "lint", *project, "--cold", "--apply")
    assert removed["removed"] == ["lintable/sessions/old.md"]
    assert not (folder / "old.md").exists()
    assert "recalld" in recalld(daemon, "page", "log", "sessions/old", *project)
    assert as_json(daemon, "lint", *project, "--cold")["findings"] == []


def test_pages(daemon: Daemon) -> None:
    """Written from stdin, read, its history, removed."""
    written = as_json(daemon, "page", "write", "gear", "--kind", "gotcha", "--tag", "gears", given="It slips.\n")
    assert written["path"] == "gotchas/gear.md"
    assert "It slips." in recalld(daemon, "page", "read", "gotchas/gear")
    assert "recalld" in recalld(daemon, "page", "log", "gotchas/gear")
    recalld(daemon, "page", "rm", "gotchas/gear")
    assert "there is no page" in recalld(daemon, "page", "read", "gotchas/gear", code=1)


def test_handoffs_and_briefing(daemon: Daemon) -> None:
    """One by rule, one by hand; the briefing shows the manual one; claimed once, then gone."""
    made = as_json(daemon, "handoff", "new", "Grease the gear", "--next", "buy grease")
    assert "open" in {each["state"] for each in as_json(daemon, "handoff", "list")}
    assert "Grease the gear" in recalld(daemon, "brief", "--host", "codex")
    assert "buy grease" in recalld(daemon, "handoff", "show", made["id"])
    assert as_json(daemon, "handoff", "accept", made["id"])["state"] == "accepted"
    assert "not open" in recalld(daemon, "handoff", "accept", made["id"], code=1)
    assert "no open handoff" in recalld(daemon, "handoff", "cancel", made["id"], code=1)


def test_events_and_spool(daemon: Daemon) -> None:
    """The last events, by kind and by word; an empty spool says so; a dead letter is shown with its reason and put back."""
    assert recalld(daemon, "events", "-n", "1").count("\n") == 1
    assert "gear slip" in recalld(daemon, "events", "--kind", "user-prompt")
    assert "make test" in recalld(daemon, "events", "--query", "make")
    dead = daemon.paths.dead_letters
    dead.mkdir(parents=True, exist_ok=True)
    (dead / "1-1-1.json").write_text("{nope")
    (dead / "1-1-1.json.reason").write_text("no line of a hook client\n")
    assert as_json(daemon, "spool")["refused"][0]["reason"] == "no line of a hook client"


def test_import(daemon: Daemon) -> None:
    """Files are imported once; a second run has nothing to do."""
    source = Path(__file__).parent / "golden" / "hooks" / "rollout.codex.jsonl"
    first = as_json(daemon, "import", "codex", str(source))
    assert first["stored"] >= 4
    again = as_json(daemon, "import", "codex", str(source))
    assert (again["files"], again["unchanged"]) == (0, 1)


def test_purge(daemon: Daemon) -> None:
    """Gone everywhere, and the report says from where."""
    report = as_json(daemon, "session", "purge", "session-two", "--yes")
    assert report["journal"].endswith("entries")
    assert "session-two" not in recalld(daemon, "session", "list")
