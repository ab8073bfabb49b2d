"""The wiki's files and its git repository, with real files and the real git beside ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from recalld.actors.writer.wiki import files
from recalld.actors.writer.wiki.files import BadPath
from recalld.actors.writer.wiki.outcomes import Expect, Refused, Written
from recalld.actors.writer.wiki.store import Wiki
from recalld.protocol.envelope import Unavailable

PERSON = "Ada Person"


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Wiki]:
    wiki = Wiki(root)
    await wiki.start()
    try:
        yield wiki
    finally:
        await wiki.aclose()


@pytest.fixture(autouse=True)
def _a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """libgit2 and git find the name of a person, and nothing of the machine's."""
    import pygit2
    from pygit2.enums import ConfigLevel

    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f"[user]\nname = {PERSON}\nemail = ada@localhost\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    before = pygit2.settings.search_path[ConfigLevel.GLOBAL]
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = str(home)
    yield
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = before


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout


async def test_a_page_is_written_and_committed(tmp_path: Path) -> None:
    """One file, one commit by recalld; git sees a clean tree; writing the same again changes nothing."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        written = await wiki.write("p/notes/a.md", b"hello\n", "write a")
        assert isinstance(written, Written)
        assert written.created
        await wiki.flush()
        again = await wiki.write("p/notes/a.md", b"hello\n", "write a")
        await wiki.flush()
        assert isinstance(again, Written)
        assert (again.created, again.hash) == (False, written.hash)
    assert git(root, "log", "--format=%an|%s") == "recalld|write a\n"
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "fsck") == ""
    assert [path.name for path in (root / "p/notes").iterdir()] == ["a.md"]


async def test_many_pages_share_commits(tmp_path: Path) -> None:
    """Two hundred writes in a burst are a few commits; every page is in the last one."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        for number in range(200):
            await wiki.write(f"p/notes/{number}.md", b"%d\n" % number, f"write {number}")
        await wiki.flush()
        assert wiki.commits_total < 20
    assert len(git(root, "ls-tree", "-r", "--name-only", "HEAD").split()) == 200


async def test_an_edit_in_between_is_kept_as_theirs(tmp_path: Path) -> None:
    """Their version stands on the disk and in history under their name; ours is refused until they are read."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
        (root / "p/a.md").write_text("theirs\n")
        refused = await wiki.write("p/a.md", b"ours again\n", "write a")
        assert isinstance(refused, Refused)
        assert refused.why == "theirs"
        await wiki.sweep()
        assert git(root, "log", "-1", "--format=%an|%s") == f"{PERSON}|edit p/a.md\n"
        refused = await wiki.write("p/a.md", b"ours again\n", "write a")
        assert isinstance(refused, Refused)
        written = await wiki.write("p/a.md", b"both\n", "write a", Expect(hash=refused.hash))
        assert isinstance(written, Written)
        await wiki.flush()
        assert git(root, "log", "--format=%an") == f"recalld\n{PERSON}\nrecalld\n"
        assert [each.author for each in await wiki.log("p/a.md", 10)] == ["recalld", PERSON, "recalld"]


async def test_an_edit_that_was_not_swept_is_saved_before_it_is_replaced(tmp_path: Path) -> None:
    """Compare-and-write over an uncommitted edit: their version goes into history first."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
        (root / "p/a.md").write_text("theirs\n")
        await wiki.write("p/a.md", b"both\n", "write a", Expect(hash=files.hash_of(b"theirs\n")))
        await wiki.flush()
        assert git(root, "show", "HEAD~1:p/a.md") == "theirs\n"
        assert git(root, "log", "--format=%an") == f"recalld\n{PERSON}\nrecalld\n"


async def test_their_new_pages_and_removals_get_into_history(tmp_path: Path) -> None:
    """A page made in Obsidian, one removed in a shell; Obsidian's own folder is nobody's page."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
        (root / "p/new.md").write_text("by hand\n")
        (root / "p/a.md").unlink()
        (root / ".obsidian").mkdir()
        (root / ".obsidian/app.json").write_text("{}")
        await wiki.sweep()
        await wiki.flush()
    assert git(root, "ls-tree", "-r", "--name-only", "HEAD").split() == ["p/new.md"]
    assert git(root, "status", "--porcelain") == ""


async def test_a_mass_disappearance_is_confirmed_first(tmp_path: Path) -> None:
    """An unmounted folder looks like a thousand deletions: the first sweep commits none of them."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        for number in range(40):
            await wiki.write(f"p/{number}.md", b"x\n", "write")
        await wiki.flush()
        await wiki.sweep()
        shutil.rmtree(root / "p")
        await wiki.sweep()
        assert len(git(root, "ls-tree", "-r", "--name-only", "HEAD").split()) == 40
        await wiki.sweep()
        assert git(root, "ls-tree", "-r", "--name-only", "HEAD") == ""


async def test_their_own_commits_are_built_upon(tmp_path: Path) -> None:
    """The person commits with git between two of ours: nothing is lost, and what they changed is theirs."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
        (root / "p/a.md").write_text("theirs\n")
        git(root, "commit", "-qam", "my words")
        await wiki.write("p/b.md", b"ours\n", "write b")
        await wiki.flush()
        refused = await wiki.write("p/a.md", b"ours again\n", "write a")
        assert isinstance(refused, Refused)
    assert git(root, "log", "--format=%s") == "write b\nmy words\nwrite a\n"
    assert git(root, "status", "--porcelain") == ""


async def test_pushing_just_works(tmp_path: Path) -> None:
    """A bare remote of theirs takes what is there."""
    root, remote = tmp_path / "wiki", tmp_path / "remote.git"
    remote.mkdir()
    git(remote, "init", "-q", "--bare")
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
        git(root, "remote", "add", "origin", str(remote))
        git(root, "push", "-q", "origin", "main")
    assert git(remote, "log", "--format=%s", "main") == "write a\n"


async def test_a_crash_before_the_commit_is_made_good_as_ours(tmp_path: Path) -> None:
    """The page stood on the disk, the commit was never made: the next start commits it, not as somebody's edit."""
    root = tmp_path / "wiki"
    first = Wiki(root)
    first._open()  # no git thread: what is written waits, as after kill -9
    first._write("p/a.md", b"ours\n", "write a", Expect())
    (root / "p/.#recalld-0123.tmp.md").write_text("half a pa")
    async with opened(root) as wiki:
        await wiki.flush()
        written = await wiki.write("p/a.md", b"ours, later\n", "write a")
        assert isinstance(written, Written)
    assert git(root, "log", "--format=%an").split() == ["recalld", "recalld"]
    assert os.listdir(root / "p") == ["a.md"]


@pytest.mark.parametrize("damage", ["HEAD", "objects", "config"])
async def test_a_damaged_repository_is_set_aside(tmp_path: Path, damage: str) -> None:
    """The pages stay, a new history begins with all of them, and status says so."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"ours\n", "write a")
        await wiki.flush()
    if damage == "objects":
        shutil.rmtree(root / ".git/objects")
        (root / ".git/objects").mkdir()
    else:
        (root / ".git" / damage).write_bytes(b"\x00\xff nonsense")
    async with opened(root) as wiki:
        await wiki.write("p/b.md", b"ours\n", "write b")
        await wiki.sweep()
        await wiki.flush()
        assert "set aside" in wiki.note
        assert (root / "p/a.md").read_text() == "ours\n"
    assert sorted(git(root, "ls-tree", "-r", "--name-only", "HEAD").split()) == ["p/a.md", "p/b.md"]
    assert git(root, "fsck") == ""


async def test_a_purged_page_is_in_no_object(tmp_path: Path) -> None:
    """History is written anew without it; the rest keeps its commits, authors and content."""
    root = tmp_path / "wiki"
    page = b"---\nkind: session\nsession_id: abc-1\n---\n# xylophonist\n"
    async with opened(root) as wiki:
        await wiki.write("p/a.md", b"first\n", "write p/a.md")
        await wiki.flush()
        await wiki.write("p/sessions/s.md", page, "session p/sessions/s.md")
        await wiki.flush()
        await wiki.write("p/b.md", b"later\n", "write p/b.md")
        await wiki.flush()
        os.rename(root / "p/sessions/s.md", root / "p/moved.md")
        await wiki.sweep()
        words = await wiki.purge({"p/sessions/s.md"}, "abc-1")
        assert "written anew" in words
        await wiki.write("p/c.md", b"after\n", "write p/c.md")
        await wiki.flush()
    assert sorted(git(root, "ls-tree", "-r", "--name-only", "HEAD").split()) == ["p/a.md", "p/b.md", "p/c.md"]
    everything = git(root, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    assert all("xylophonist" not in git(root, "cat-file", "-p", each) for each in everything)
    assert "xylophonist" not in git(root, "log", "-p", "--all")
    assert git(root, "fsck", "--full") == ""
    assert git(root, "status", "--porcelain") == ""
    assert not (root / "p/moved.md").exists()


@pytest.mark.parametrize(
    ("given", "clean"),
    [("a", "a.md"), ("notes/Use ninja", "notes/Use ninja.md"), ("./notes//b.md", "notes/b.md"), ("notes\\c.md", "notes/c.md")],
)  # fmt: skip
def test_paths_are_cleaned(given: str, clean: str) -> None:
    """'.md' is added, separators are one kind."""
    assert files.page_path(given) == clean


@pytest.mark.parametrize(
    "given",
    [
        "",
        "/etc/passwd",
        "~/x",
        "../x",
        "a/../../x",
        ".hidden",
        "a/.git/config",
        "C:\\x",
        "x/",
        "a|b",
        "a\nb",
        "n" * 300,
    ],
)
def test_paths_out_of_the_wiki_are_refused(given: str) -> None:
    """Nothing absolute, hidden, upward or unportable."""
    with pytest.raises(BadPath):
        files.page_path(given)


async def test_links_do_not_lead_out(tmp_path: Path) -> None:
    """A symlinked folder or page inside the wiki is not written through."""
    root = tmp_path / "wiki"
    outside = tmp_path / "outside"
    outside.mkdir()
    async with opened(root) as wiki:
        (root / "p").symlink_to(outside)
        (root / "link.md").symlink_to(outside / "x.md")
        for path in ("p/a.md", "link.md"):
            with pytest.raises(BadPath):
                await wiki.write(path, b"x", "write")
    assert list(outside.iterdir()) == []


async def test_a_wiki_that_cannot_be_opened_is_tried_again(tmp_path: Path) -> None:
    """A file in its place: writes are refused with a reason; once it is gone they work."""
    root = tmp_path / "wiki"
    root.write_text("in the way")
    async with opened(root) as wiki:
        with pytest.raises(Unavailable):
            await wiki.write("p/a.md", b"x\n", "write")
        assert str(root) in wiki.note
        root.unlink()
        assert isinstance(await wiki.write("p/a.md", b"x\n", "write"), Written)
        await wiki.flush()
        assert wiki.note == ""
    assert git(root, "log", "--format=%s") == "write\n"


async def test_edits_made_while_nobody_ran_are_theirs(tmp_path: Path) -> None:
    """Changed between two runs: found by the first sweep, whatever was remembered of the files."""
    root = tmp_path / "wiki"
    async with opened(root) as wiki:
        for name in ("a", "b"):
            await wiki.write(f"p/{name}.md", b"ours\n", f"write {name}")
        await wiki.sweep()
    (root / "p/a.md").write_text("theirs\n")
    async with opened(root) as wiki:
        await wiki.sweep()
        assert isinstance(await wiki.write("p/a.md", b"ours again\n", "write a"), Refused)
        assert isinstance(await wiki.write("p/b.md", b"ours again\n", "write b"), Written)
    assert git(root, "log", "--format=%an|%s", "--", "p/a.md").splitlines()[0] == f"{PERSON}|edit p/a.md"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["HEAD", "HEAD^{tree}", "HEAD:p", "HEAD:p/n1.md"])
async def test_an_object_that_a_power_cut_cut_off_stops_nobody(tmp_path: Path, what: str) -> None:
    """libgit2 looks for its end for ever. It is kept under another name, and what can go on without it does."""
    root = tmp_path / "wiki"
    wiki = Wiki(root)
    await wiki.start()
    for number in range(3):
        await wiki.write(f"p/n{number}.md", b"Gear %d turns.\n" % number, f"write {number}")
        await wiki.flush()
    await wiki.aclose()
    name = git(root, "rev-parse", what).strip()
    victim = root / ".git" / "objects" / name[:2] / name[2:]
    left = victim.read_bytes()[:-6]
    victim.chmod(0o600)
    victim.write_bytes(left)
    wiki = Wiki(root)
    await wiki.start()
    await wiki.write("p/new.md", b"New.\n", "write new")
    await wiki.flush()
    await wiki.sweep()
    assert wiki.note != ""
    await wiki.aclose()
    assert [path.read_bytes() for path in root.rglob("*.cut-off")] == [left]
    assert git(root, "show", "HEAD:p/new.md") == "New.\n"
    assert git(root, "show", "HEAD:p/n0.md") == "Gear 0 turns.\n"
