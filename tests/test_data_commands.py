"""Backup, restore, reindex, export and purge, as a person types them, on a daemon that has captured something."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import FIRST_MS, ended, prompt, ran
from harness import Daemon, talk, until
from recalld.clients.cli import data

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

QUIET = {"RECALLD_EMBEDDER__MODEL": "none"}


def populate(daemon: Daemon) -> None:
    """Two sessions in two projects, an open handoff, and a page by hand."""
    daemon.write("build.md", "# Build\n\nThe build uses ninja.\n")
    for number, name in enumerate(("acme", "zeta")):
        root = repository(daemon, name)
        at = FIRST_MS + number * 100_000
        talk(
            daemon,
            prompt(f"session-{name}", root, f"Why does the gear of {name} slip?", at),
            ran(f"session-{name}", root, "make test", at_ms=at + 1000),
            ended(f"session-{name}", root, at + 2000),
        )
    acme = daemon.folder / "acme"
    daemon.cli("handoff", "new", "Look at the axle next", cwd=acme)
    write = [
        sys.executable,
        "-P",
        "-m",
        "recalld.clients.cli",
        "page",
        "write",
        "decisions/axle.md",
        "--project",
        "acme",
    ]
    subprocess.run(write, env=daemon.environ, cwd=acme, input="The axle is steel.\n", text=True, check=True)
    until("both session pages", lambda: len(list(daemon.paths.wiki.glob("*/sessions/*.md"))) == 2)
    daemon.settle()


def repository(daemon: Daemon, name: str) -> Path:
    root = daemon.folder / name
    (root / ".git").mkdir(parents=True, exist_ok=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


def memory(daemon: Daemon) -> dict[str, Any]:
    """Everything that a person can see of the memory."""
    acme = daemon.folder / "acme"
    asked = {
        "sessions": ["session", "list", "--json"],
        "acme": ["events", "--json"],
        "handoffs": ["handoff", "list", "--json"],
    }
    seen: dict[str, Any] = {name: lines(daemon.cli(*words, cwd=acme).stdout) for name, words in asked.items()}
    seen["pages"] = {
        path.relative_to(daemon.paths.wiki).as_posix(): path.read_text() for path in daemon.paths.wiki.rglob("*.md")
    }
    hits = json.loads(daemon.cli("ask", "what is the axle made of", "--json", cwd=acme).stdout)["hits"]
    seen["hits"] = [(hit["path"], hit["lines"], hit["passage"]) for hit in hits]
    return seen


def lines(text: str) -> list[Any]:
    """The rows of a list, which some commands print as one JSON list and some as a line each."""
    rows = [json.loads(line) for line in text.splitlines()]
    return rows[0] if len(rows) == 1 and isinstance(rows[0], list) else rows


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    made = Daemon(folder, QUIET)
    yield made
    made.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_backup_restore_and_reindex_compare_equal(daemon: Daemon) -> None:
    """What a backup holds comes back as it was, on another data folder too; and a reindex changes nothing of it."""
    daemon.start()
    populate(daemon)
    before = memory(daemon)
    assert before["sessions"]
    assert before["handoffs"]
    assert before["hits"]
    verdicts = daemon.paths.data / "eval" / "ab.jsonl"
    verdicts.parent.mkdir(exist_ok=True)
    verdicts.write_text('{"query": "what is the axle made of", "preferred": "vector"}\n')
    missing = daemon.cli("backup", str(daemon.folder / "not-there" / "backup.tar.gz"), check=False)
    assert missing.returncode == 1
    assert f"there is no folder {daemon.folder / 'not-there'}: make it first" in missing.stderr
    archive = daemon.folder / "backup.tar.gz"
    report = json.loads(daemon.cli("backup", str(archive), "--json").stdout)
    assert report["file"] == str(archive)
    assert archive.stat().st_mode & 0o777 == 0o600

    refused = daemon.cli("restore", str(archive), check=False)
    assert (refused.returncode, "recalld stop" in refused.stderr) == (1, True)
    assert daemon.cli("stop").returncode == 0
    assert daemon.process is not None
    daemon.process.wait()
    assert "--force" in daemon.cli("restore", str(archive), check=False).stderr
    daemon.cli("purge", "--everything", "--yes")
    daemon.cli("restore", str(archive))
    assert not daemon.paths.database.exists()
    assert "axle" in verdicts.read_text()
    daemon.start()
    settled(daemon)
    assert memory(daemon) == before

    daemon.cli("reindex")
    settled(daemon)
    assert memory(daemon) == before


def settled(daemon: Daemon) -> None:
    """The journal is replayed and the files are read."""
    daemon.settle()
    until("recall finds the page", lambda: daemon.finds("what is the axle made of", "acme/decisions/axle.md"))


def test_restore_keeps_what_was_there_and_refuses_what_is_no_backup(daemon: Daemon) -> None:
    """--force moves the old memory aside; a foreign archive, or one cut short, changes nothing."""
    daemon.start()
    populate(daemon)
    archive = daemon.folder / "backup.tar.gz"
    daemon.cli("backup", str(archive))
    daemon.stop()
    pages = sorted(daemon.paths.wiki.rglob("*.md"))
    foreign = daemon.folder / "foreign.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        tar.add(daemon.vault / "build.md", "../build.md")
    cut = daemon.folder / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    for wrong in (foreign, cut):
        done = daemon.cli("restore", "--force", str(wrong), check=False)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert sorted(daemon.paths.wiki.rglob("*.md")) == pages
        assert not list(daemon.paths.data.glob(".restore-*"))
    daemon.cli("restore", "--force", str(archive))
    (aside,) = daemon.paths.data.glob("before-restore-*")
    assert (aside / "wiki").is_dir()
    assert (aside / "recalld.sqlite").is_file()


def test_export_is_plain_files(daemon: Daemon) -> None:
    """Pages as markdown, journal lines as JSON; nothing of git, and never into a folder that holds something."""
    daemon.start()
    populate(daemon)
    target = daemon.folder / "out"
    daemon.cli("export", str(target))
    assert (target / "pages" / "acme" / "decisions" / "axle.md").read_text().rstrip().endswith("The axle is steel.")
    assert not list(target.rglob(".git*"))
    kinds = [
        json.loads(line) for path in (target / "journal").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert len(kinds) >= 7
    assert daemon.cli("export", str(target), check=False).returncode == 1


def test_purge_of_a_project_leaves_the_other(daemon: Daemon) -> None:
    """Nothing of it is found in any byte of journal, index or pages; the other project stays as it was."""
    daemon.start()
    populate(daemon)
    daemon.cli("purge", "--project", "zeta", "--yes")
    daemon.settle()
    assert not list(daemon.paths.wiki.glob("zeta/**/*.md"))
    assert [row["project"] for row in memory(daemon)["sessions"]] == ["acme"]
    assert daemon.stop() == 0
    for path in (*daemon.paths.journal.iterdir(), *daemon.paths.data.glob("recalld.sqlite*")):
        assert b"gear of zeta" not in path.read_bytes(), path.name
    assert list(daemon.paths.wiki.glob("acme/sessions/*.md"))


def test_purge_of_everything_leaves_nothing_but_the_notes(daemon: Daemon) -> None:
    """The data folder is gone, with a daemon running it is refused, and the watched folder is untouched."""
    daemon.start()
    populate(daemon)
    assert "recalld stop" in daemon.cli("purge", "--everything", "--yes", check=False).stderr
    daemon.stop()
    daemon.cli("purge", "--everything", "--yes")
    assert not daemon.paths.data.exists()
    assert (daemon.vault / "build.md").read_text() == "# Build\n\nThe build uses ninja.\n"


@pytest.mark.parametrize("has_filter", [True, False])
@pytest.mark.parametrize("evil", ["../out", "/tmp/recalld-out", "wiki/link"])
def test_an_archive_stays_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evil: str, has_filter: bool
) -> None:
    """Neither names nor links of an archive lead out, with the standard library's filter and on Pythons that lack it."""
    if not has_filter:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no such filter")
    member = tarfile.TarInfo(evil)
    if evil.endswith("link"):
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.addfile(member)
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "a.tar.gz") as tar, contextlib.suppress(tarfile.TarError):
        data._extract(tar, tmp_path / "in")  # refused, or put inside
    assert not any(path.is_symlink() for path in (tmp_path / "in").rglob("*"))
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/recalld-out").exists()
