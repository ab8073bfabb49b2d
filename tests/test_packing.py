"""The wiki's history is packed while nothing else happens: beside the real git, and without losing an object."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from recalld.actors.writer.wiki import committer, packing
from recalld.actors.writer.wiki.store import Wiki

PAGES = 30


def git(root: Path, *arguments: str, stdin: str = "") -> str:
    person = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
    command = ["git", "-C", str(root), *person, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def loose(root: Path) -> int:
    return int(git(root, "count-objects").split()[0])


def whole(root: Path) -> str:
    """The history as git tells it; everything that it refers to is there."""
    assert "missing" not in (fsck := git(root, "fsck", "--full", "--strict"))
    assert "error" not in fsck
    return git(root, "log", "--stat", "--format=%H %an %s")


async def filled(wiki: Wiki, pages: range) -> None:
    for number in pages:
        await wiki.write(f"p/notes/n{number}.md", f"Gear {number} turns.\n".encode(), f"write {number}")
        await wiki.flush()


async def test_history_is_packed_and_goes_on(tmp_path: Path) -> None:
    """Few files instead of many; the log is the same, git finds nothing missing, and pages and versions follow."""
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    await filled(wiki, range(PAGES))
    before, many = whole(root), loose(root)
    staged = git(root, "hash-object", "-w", "--stdin", stdin="about to be committed\n").strip()
    assert await wiki.pack() == many + 1
    assert loose(root) == 0
    assert whole(root) == before
    # What nothing refers to yet is somebody's who is about to: it went along.
    assert git(root, "cat-file", "blob", staged) == "about to be committed\n"
    await filled(wiki, range(PAGES, PAGES + 3))
    (root / "p/notes/mine.md").write_text("By hand.\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "by hand")
    assert [version.subject for version in await wiki.log("p/notes/n3.md", 5)] == ["write 3"]
    assert await wiki.pack() == 0, "a few are left alone"
    await wiki.aclose()
    assert whole(root).endswith(before)
    assert git(root, "status", "--porcelain") == ""


async def test_it_is_done_when_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for it: many objects are reason enough, once."""
    monkeypatch.setattr(packing, "MANY", 1)
    monkeypatch.setattr(packing, "SAMPLE", "")
    monkeypatch.setattr(committer, "SWEEP_S", 0.05)
    started: list[Path] = []
    begun = threading.Event()
    start = packing.start

    def counted(path: Path) -> subprocess.Popen[bytes]:
        started.append(path)
        begun.set()
        return start(path)

    monkeypatch.setattr(packing, "start", counted)
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    assert await asyncio.to_thread(begun.wait, 30)
    for _ in range(3):
        await wiki.sweep()
    await wiki.aclose()
    assert started == [root / ".git"]


@pytest.mark.parametrize("fault", ["sync", "gc", "purge"])
async def test_what_goes_wrong_leaves_every_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """A disk that refuses, a git or a purge at work: nothing is removed."""
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    await filled(wiki, range(PAGES))
    await wiki.aclose()
    before, many = whole(root), loose(root)
    if fault == "sync":

        def refuse(path: Path) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(packing, "sync", refuse)
        with pytest.raises(OSError, match="Input/output"):
            packing.pack(root / ".git")
    elif fault == "gc":
        (root / ".git" / "gc.pid").write_text("1 localhost")
        assert packing.pack(root / ".git") is None
    else:
        with packing.alone(root / ".git", wait=True):
            assert packing.pack(root / ".git") is None
    assert loose(root) == many
    assert whole(root) == before
    (root / ".git" / "gc.pid").unlink(missing_ok=True)
    monkeypatch.undo()
    assert packing.pack(root / ".git") == packing.Packed(many)
    assert whole(root) == before


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "is not what git writes": lambda data: b"not an object",
    "is cut off": lambda data: data[:-6],
    "another hash": lambda data: zlib.compress(b"blob 3\0abc"),
    "stands behind": lambda data: data + b"more",
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_a_damaged_object_stays_and_the_others_are_packed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """It may be the only copy. It is named, with what to do, until a person has put it back; the log has it once."""
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    await filled(wiki, range(PAGES))
    before, many = whole(root), loose(root)
    name = git(root, "rev-parse", "HEAD~3:p/notes/n3.md").strip()
    victim = root / ".git" / "objects" / name[:2] / name[2:]
    good = victim.read_bytes()
    victim.chmod(0o600)
    victim.write_bytes(DAMAGES[what](good))
    damaged = victim.read_bytes()
    assert await wiki.pack() == many - 1
    assert await wiki.pack() == 0
    assert victim.read_bytes() == damaged
    for word in (f"{name[:2]}/{name[2:]}", what, "recalld compact"):
        assert word in wiki.packing_problem
    assert caplog.text.count(name[2:]) == 1
    victim.write_bytes(good)
    await wiki.pack()
    assert wiki.packing_problem == ""
    await wiki.aclose()
    assert whole(root) == before


async def test_why_nothing_is_packed_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a process that never ends, for which commits would wait."""
    wiki = Wiki(tmp_path / "wiki")
    await wiki.start()

    def run(code: str) -> None:
        command = [sys.executable, "-c", code]
        monkeypatch.setattr(
            packing, "start", lambda git: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )

    run("raise OSError('no room')")
    for _ in range(3):
        assert await wiki.pack() == 0
    assert "OSError: no room" in wiki.packing_problem
    assert caplog.text.count("no room") == 1
    monkeypatch.setattr(packing, "LIMIT_S", 0.2)
    run("import threading; threading.Event().wait()")
    assert await wiki.pack() == 0
    assert "did not end" in wiki.packing_problem
    run("print('null')")
    assert await wiki.pack() == 0
    assert wiki.packing_problem, "nobody has looked since"
    run("print('{}')")
    assert await wiki.pack() == 0
    assert wiki.packing_problem == ""
    await wiki.aclose()


async def test_purging_what_is_packed_already_keeps_it(tmp_path: Path) -> None:
    """
    A purge that changes nothing makes the very pack that stands there: after another purge, or after packing. Tags, of
    commits and of what is none, lead where they did.
    """
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    await filled(wiki, range(PAGES))
    git(root, "tag", "-a", "-m", "as it was", "then", "HEAD~2")
    git(root, "tag", "one-page", "HEAD:p/notes/n1.md")
    before = whole(root)
    for _ in range(3):
        await wiki.purge(set(), "a session without a page")
        assert whole(root) == before
        assert len(list((root / ".git" / "objects" / "pack").glob("*.pack"))) == 1
    assert git(root, "cat-file", "-t", "then").strip() == "tag"
    assert git(root, "cat-file", "blob", "one-page") == "Gear 1 turns.\n"
    await filled(wiki, range(PAGES, PAGES + 1))
    await wiki.aclose()
    assert wiki.note == ""
    assert whole(root).endswith(before)


async def test_purging_while_a_page_waits_for_its_commit(tmp_path: Path) -> None:
    """The person looks at an old version, so that nothing is committed: neither what waits nor where they stand is lost."""
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    await filled(wiki, range(5))
    git(root, "checkout", "-q", "--detach", "HEAD")
    git(root, "commit", "-q", "--allow-empty", "-m", "a thought")
    await wiki.write("p/notes/late.md", b"Late.\n", "write late")
    await wiki.write("p/notes/later.md", b"Ours.\n", "write later")
    await wiki.purge({"p/notes/n4.md"}, "no session")
    assert git(root, "log", "-1", "--format=%s").strip() == "a thought"
    assert "n4" not in git(root, "log", "--all", "--stat", "HEAD")
    (root / "p/notes/later.md").write_text("Mine.\n")
    git(root, "checkout", "-q", "main")
    await wiki.flush()
    await wiki.sweep()
    await wiki.aclose()
    assert wiki.note == ""
    assert whole(root).count("n1.md") == 1
    assert git(root, "log", "-1", "--format=%an", "--", "p/notes/late.md").strip() == "recalld"
    assert git(root, "show", "main:p/notes/later.md") == "Mine.\n"
    assert git(root, "status", "--porcelain") == ""
