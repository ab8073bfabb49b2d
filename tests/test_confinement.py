"""
Index, read and write stay inside the vault and the wiki, also while somebody swaps names under them.

The races are real ones: the swap happens at the moment after the path was checked, by a hook into the system call that
follows. A hard link cannot be told from a file of its own (see ``actors/inside.py``), so what is behind one is indexed like
any note, and a write replaces the name and leaves the other name's bytes alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from harness import Bridge, Daemon, running
from recalld.actors import inside
from recalld.actors.query.documents import read_inside
from recalld.actors.watcher.scan import Scanner, Unreadable
from recalld.actors.writer.wiki import files
from recalld.actors.writer.wiki.files import BadPath
from recalld.actors.writer.wiki.store import Wiki
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages import AnyReply
from recalld.protocol.messages.capture import DeletePage, PageWritten, Place, ReadPage, WritePage
from recalld.protocol.messages.common import Message
from recalld.protocol.messages.recall import NotFound, ReadNote

SECRET = "the outside secret is xylophone"
HOSTILE_PATHS = (
    "/etc/passwd", "/tmp/x.md", "../x.md", "a/../../x.md", "a/../../../../../../tmp/x.md", "..", "a/..", ".", "", " ",
    "\x00", "a\x00b", "a/\x00/b.md", "a\nb.md", "a\rb.md", "\x1b[2J.md", "a\x7f.md", ".git/config", ".git/hooks/pre-commit",
    "a/.git/x.md", ".GIT/x.md", ".hidden.md", "a/.b/c.md", "~/x.md", "~root/x.md", "C:\\x.md", "C:x.md", "..\\..\\x.md",
    "n" * 300, "n" * 300 + "/a.md", "ü" * 150, "/".join("d" * 60 for _ in range(20)), "a//../..//b", "x/", "a/b ", "a./b.md",
    "[[x]]", "a|b", "a#b", "a?b", "\ud800.md",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """(vault, a folder outside with the same names)."""
    vault, outside = tmp_path / "vault", tmp_path / "outside"
    for folder, text in ((vault, "# Mine\n\nplain words\n"), (outside, f"# Theirs\n\n{SECRET}\n")):
        (folder / "sub" / "deep").mkdir(parents=True)
        for name in ("note.md", "sub/note.md", "sub/deep/note.md"):
            (folder / name).write_text(text)
    return vault, outside


def swap(here: Path, target: Path) -> None:
    """``here`` is moved away, and a link to ``target`` takes its place."""
    os.rename(here, here.with_name(here.name + ".was"))
    os.symlink(target, here)


@contextmanager
def just_before_open(name: str, act: Callable[[], None]) -> Iterator[None]:
    """``act`` runs once, in the moment before ``name`` is opened: whatever was checked was checked by then."""
    real = os.open
    done = False

    def racing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        nonlocal done
        if not done and os.path.basename(os.fspath(path)) == name:
            done = True
            act()
        return real(path, flags, mode, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", racing)
        yield
    assert done, f"{name} was never opened"


def scanned(vault: Path, path: str) -> str:
    """What the watcher would index for ``path``; '' when nothing."""
    try:
        return Scanner(str(vault), (), 10_000_000).read(path).raw.decode()
    except (FileNotFoundError, Unreadable):
        return ""


def opened_text(vault: Path, path: str) -> str:
    """What a reader of a note gets from its file; '' when it has to take the indexed text."""
    return read_inside(str(vault), path) or ""


READERS = pytest.mark.parametrize("read", [scanned, opened_text])


@READERS
@pytest.mark.parametrize("part", ["note.md", "sub", "deep"])
def test_a_component_swapped_for_a_link_between_check_and_open_is_not_followed(
    place: tuple[Path, Path], read: Callable[[Path, str], str], part: str
) -> None:
    """Whichever part of the path is swapped in the last moment, no byte from outside comes back."""
    vault, outside = place
    where = {"note.md": "sub/deep/note.md", "sub": "sub", "deep": "sub/deep"}[part]
    with just_before_open(part, lambda: swap(vault / where, outside / where)):
        assert read(vault, "sub/deep/note.md") == ""


@READERS
def test_a_link_that_ends_inside_is_a_note_and_one_that_leads_out_is_not(
    place: tuple[Path, Path], read: Callable[[Path, str], str]
) -> None:
    """Links to notes of the same vault are read; absolute, relative, chained and looping ways out are nothing."""
    vault, outside = place
    os.symlink("sub/note.md", vault / "alias.md")
    os.symlink("alias.md", vault / "again.md")
    os.symlink(outside / "note.md", vault / "absolute.md")
    os.symlink("../outside/note.md", vault / "relative.md")
    os.symlink("absolute.md", vault / "chained.md")
    os.symlink("loop.md", vault / "loop.md")
    os.symlink("/dev/zero", vault / "zero.md")
    assert "plain words" in read(vault, "alias.md")
    assert "plain words" in read(vault, "again.md")
    for name in ("absolute.md", "relative.md", "chained.md", "loop.md", "zero.md"):
        assert read(vault, name) == ""


@READERS
def test_a_link_inside_that_is_turned_outwards_while_it_is_resolved_is_not_followed(
    place: tuple[Path, Path], read: Callable[[Path, str], str]
) -> None:
    """The file that a link led to is swapped for a link after the link was resolved."""
    vault, outside = place
    os.symlink("sub/note.md", vault / "alias.md")
    with just_before_open("note.md", lambda: swap(vault / "sub" / "note.md", outside / "note.md")):
        assert read(vault, "alias.md") == ""


@READERS
@pytest.mark.parametrize("path", ["../outside/note.md", "sub/../../outside/note.md", "sub/./note.md", "sub//note.md"])
def test_dots_in_a_path_are_no_way(place: tuple[Path, Path], read: Callable[[Path, str], str], path: str) -> None:
    """Paths of the index have no dots; one that has some brings nothing from outside."""
    assert SECRET not in read(place[0], path)


@READERS
def test_what_is_no_regular_file_holds_nobody_up(place: tuple[Path, Path], read: Callable[[Path, str], str]) -> None:
    """A pipe, a folder and a socket named like notes are nothing, at once."""
    vault, _ = place
    os.mkfifo(vault / "pipe.md")
    (vault / "folder.md").mkdir()
    os.symlink("pipe.md", vault / "link.md")
    for name in ("pipe.md", "folder.md", "link.md", "note.md/below.md"):
        assert read(vault, name) == ""


@READERS
def test_a_hard_link_is_a_file_like_any_other(place: tuple[Path, Path], read: Callable[[Path, str], str]) -> None:
    """Nothing tells a hard link from a file: its bytes are read. Whoever made it could read them anyway."""
    vault, outside = place
    os.link(outside / "note.md", vault / "hard.md")
    assert SECRET in read(vault, "hard.md")


def test_a_swapping_neighbour_never_wins(place: tuple[Path, Path]) -> None:
    """A thread swaps a folder and a link to the outside for each other all the time; 2,000 reads bring nothing from there."""
    vault, outside = place
    stop = threading.Event()
    os.rename(vault / "sub", vault / "real")
    os.symlink(outside / "sub", vault / "link")

    def swapping() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                os.rename(vault / name, vault / "sub")
                os.rename(vault / "sub", vault / name)

    thread = threading.Thread(target=swapping)
    thread.start()
    try:
        seen = {
            text for _ in range(1000) for text in (scanned(vault, "sub/note.md"), opened_text(vault, "sub/note.md"))
        }
    finally:
        stop.set()
        thread.join()
    assert not any(SECRET in text for text in seen)


def test_a_folder_that_is_swapped_while_it_is_listed_brings_names_at_most(place: tuple[Path, Path]) -> None:
    """The scan may list names from outside; reading them fails, so nothing of them is indexed."""
    vault, outside = place
    (outside / "sub" / "only-outside.md").write_text(SECRET)

    def enter(folder: str) -> None:
        if folder == "sub":
            swap(vault / "sub", outside / "sub")

    scanner = Scanner(str(vault), (), 10_000_000, enter)
    for path in scanner.all().files:
        if path.startswith("sub/"):
            with pytest.raises(FileNotFoundError):
                scanner.read(path)


# -- the wiki ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def wiki_at(root: Path) -> AsyncIterator[Wiki]:
    wiki = Wiki(root)
    await wiki.start()
    try:
        yield wiki
    finally:
        await wiki.aclose()


@pytest.mark.parametrize("given", HOSTILE_PATHS)
def test_hostile_page_paths_are_refused_or_harmless(given: str) -> None:
    """A path is refused, or becomes one that has only plain parts: never absolute, upward, hidden or too long."""
    try:
        path = files.page_path(given)
    except BadPath:
        return
    except UnicodeEncodeError:
        pytest.fail("a path that cannot be stored is to be refused in words")
    for part in path.split("/"):
        assert part not in ("", ".", "..")
        assert not part.startswith(".")
        assert len(part.encode()) <= 255
        assert part.isprintable()


@pytest.mark.parametrize("part", ["p", "notes"])
async def test_a_wiki_folder_swapped_for_a_link_is_not_written_through(tmp_path: Path, part: str) -> None:
    """The folder of a page is swapped for a link in the last moment: the write is refused, and nothing is outside."""
    root, outside = tmp_path / "wiki", tmp_path / "outside"
    (outside / "notes").mkdir(parents=True)
    async with wiki_at(root) as wiki:
        await wiki.write("p/notes/a.md", b"one\n", "write")
        where = root / ("p" if part == "p" else "p/notes")
        target = outside if part == "p" else outside / "notes"
        with just_before_open(part, lambda: swap(where, target)), pytest.raises(BadPath):
            files.write(root, "p/notes/b.md", b"two\n")
        for step in (
            wiki.read("p/notes/a.md"),
            wiki.write("p/notes/c.md", b"x", "w"),
            wiki.remove("p/notes/a.md", "r"),
        ):
            with pytest.raises(BadPath):
                await step
    assert [path for path in outside.rglob("*") if not path.is_dir()] == []


async def test_a_page_swapped_for_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    """The page itself becomes a link after the check: the rename replaces the link; what it led to is untouched."""
    root, outside = tmp_path / "wiki", tmp_path / "outside"
    outside.mkdir()
    (outside / "victim.md").write_text("precious")
    async with wiki_at(root) as wiki:
        await wiki.write("p/a.md", b"one\n", "write")
        real = os.rename

        def racing(src: str, dst: str, **more: int) -> None:
            os.unlink(root / "p" / "a.md")
            os.symlink(outside / "victim.md", root / "p" / "a.md")
            real(src, dst, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "rename", racing)
            await wiki.write("p/a.md", b"two\n", "write")
        assert (root / "p" / "a.md").read_bytes() == b"two\n"
        assert not (root / "p" / "a.md").is_symlink()
    assert (outside / "victim.md").read_text() == "precious"


async def test_a_hard_link_in_the_wiki_keeps_the_other_name_as_it_was(tmp_path: Path) -> None:
    """A page that is a second name of a file elsewhere is replaced by rename: the other name keeps its bytes."""
    root, outside = tmp_path / "wiki", tmp_path / "outside.md"
    outside.write_text("precious")
    async with wiki_at(root) as wiki:
        (root / "p").mkdir()
        os.link(outside, root / "p" / "a.md")
        files.write(root, "p/a.md", b"ours\n")
        await wiki.flush()
    assert outside.read_text() == "precious"


async def test_a_link_planted_in_the_wiki_does_not_reach_its_history(tmp_path: Path) -> None:
    """A sweep commits a person's files; a link, and what is behind it, is neither read nor committed."""
    root, outside = tmp_path / "wiki", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(SECRET)
    async with wiki_at(root) as wiki:
        await wiki.write("p/a.md", b"one\n", "write")
        (root / "p" / "leak.md").symlink_to(outside / "secret.md")
        (root / "q").symlink_to(outside)
        await wiki.sweep()
        await wiki.flush()
        names = wiki._repo.files() if wiki._repo is not None else {}
    assert set(names) == {"p/a.md"}


def test_the_git_folder_is_no_place_for_pages(tmp_path: Path) -> None:
    """Neither by name nor through a link inside the wiki does a page get into the repository's own folder."""
    root = tmp_path / "wiki"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "p").symlink_to(".git")
    with pytest.raises(BadPath):
        files.write(root, "p/hooks/x.md", b"x")
    assert list((root / ".git" / "hooks").iterdir()) == []


def test_opening_below_a_root_never_leaks_a_descriptor(place: tuple[Path, Path]) -> None:
    """Refused, missing or opened: afterwards as many descriptors are open as before."""
    vault, outside = place
    os.symlink(outside, vault / "out")
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    before = len(os.listdir(folder))
    for path in ("note.md", "sub/deep/note.md", "out/note.md", "none/x.md", "note.md/x", "../x", "sub/../x", ""):
        for links in (False, True):
            try:
                os.close(inside.open_file(str(vault), path, links=links))
            except OSError:
                continue
    assert len(os.listdir(folder)) == before


# -- the whole of it --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(config='[embedder]\nmodel = "none"\n', start=False) as stopped:
        outside = stopped.folder / "outside"
        outside.mkdir()
        (outside / "secret.md").write_text(f"# Secret\n\n{SECRET}\n")
        stopped.write("plain.md", "# Plain\n\nordinary words\n")
        (stopped.vault / "leak.md").symlink_to(outside / "secret.md")
        (stopped.vault / "folder").symlink_to(outside)
        stopped.start(config='[embedder]\nmodel = "none"\n')
        stopped.settle()
        yield stopped


@pytest.mark.process
def test_links_out_of_the_vault_are_not_indexed(daemon: Daemon) -> None:
    """Neither a linked file nor a file of a linked folder is found."""
    assert daemon.finds("ordinary words", "plain.md")
    assert not [hit.path for hit in daemon.recall("xylophone outside secret").hits if hit.path != "plain.md"]


@pytest.mark.process
def test_an_indexed_note_that_became_a_link_is_not_read_through_any_door(daemon: Daemon) -> None:
    """The query socket, the MCP tool and the MCP resource give what was indexed, never what the link leads to."""
    note = daemon.write("turned.md", "# Turned\n\nharmless words\n")
    daemon.settle()
    note.unlink()
    note.symlink_to(daemon.folder / "outside" / "secret.md")
    bridge = Bridge(daemon)
    try:
        answers = [
            repr(daemon.ask("query", ReadNote(ref="turned.md"))),
            repr(bridge.request("tools/call", {"name": "read_note", "arguments": {"ref": "turned.md"}})),
            repr(bridge.request("resources/read", {"uri": "recalld://note/turned.md"})),
        ]
    finally:
        bridge.close()
    assert not any("xylophone" in answer for answer in answers)


@pytest.mark.process
def test_paths_out_of_the_vault_name_no_note(daemon: Daemon) -> None:
    """Absolute, upward, encoded and hostile references: no note, over the socket and over MCP, in words."""
    outside = daemon.folder / "outside" / "secret.md"
    bridge = Bridge(daemon)
    try:
        for ref in (str(outside), "../outside/secret.md", "folder/secret.md", "leak.md", *HOSTILE_PATHS[:24]):
            if "\ud800" not in ref:
                assert isinstance(daemon.ask("query", ReadNote(ref=ref)), NotFound), ref
            told = bridge.request("tools/call", {"name": "read_note", "arguments": {"ref": ref}})
            assert "xylophone" not in repr(told)
        for uri in (
            "recalld://note/..%2Foutside%2Fsecret.md", "recalld://note/%2Fetc%2Fpasswd", "recalld://note//etc/passwd",
            f"recalld://note/{outside}", "recalld://note/leak.md", "recalld://note/%00", "file:///etc/passwd", "recalld://",
        ):  # fmt: skip
            told = bridge.request("resources/read", {"uri": uri})
            assert "error" in told, uri
            assert "xylophone" not in repr(told)
            assert "root:" not in repr(told)
    finally:
        bridge.close()


def asked(daemon: Daemon, message: Message) -> AnyReply | None:
    """The writer's reply, None when it refused the message as invalid; anything else fails the test."""
    try:
        return daemon.ask("writer", message)
    except Invalid:
        return None


@pytest.mark.process
@pytest.mark.parametrize("given", [path for path in HOSTILE_PATHS if "\ud800" not in path])
def test_writes_to_hostile_paths_end_inside_or_are_invalid(daemon: Daemon, given: str) -> None:
    """write_page and delete_page with a hostile path: refused in words, or a file inside the wiki's project; never more."""
    where = Place(project="confined")
    written = asked(daemon, WritePage(path=given, body="# Text\n\nbody", place=where))
    if written is not None:
        assert isinstance(written, PageWritten)
        assert Path(written.file).resolve().is_relative_to(daemon.paths.wiki.resolve() / "confined")
    asked(daemon, DeletePage(path=given, place=where))
    asked(daemon, ReadPage(path=given, place=where))


@pytest.mark.process
@pytest.mark.parametrize(
    "name", ["../../evil", "/etc", "..", ".git", "a/b", "x" * 400, "\x00", "con\ntrol", "\u202eevil"]
)
def test_hostile_project_names_make_plain_folders(daemon: Daemon, name: str) -> None:
    """A project named like a way out becomes a folder of the wiki, or is refused."""
    written = asked(daemon, WritePage(path="notes/x.md", body="# X", place=Place(project=name)))
    if written is not None:
        assert isinstance(written, PageWritten)
        inner = Path(written.file).resolve().relative_to(daemon.paths.wiki.resolve())
        assert len(inner.parts) == 3
        assert all(part.isprintable() and not part.startswith(".") for part in inner.parts)


@pytest.mark.process
def test_a_folder_planted_in_the_wiki_is_not_written_through(daemon: Daemon) -> None:
    """A link in the place of a project's folder: write, read and delete are refused, with what to do about it."""
    outside = daemon.folder / "elsewhere"
    outside.mkdir()
    (outside / "victim.md").write_text("precious")
    daemon.paths.wiki.mkdir(exist_ok=True)
    (daemon.paths.wiki / "planted").symlink_to(outside)
    where = Place(project="planted")
    for message in (
        WritePage(path="notes/x.md", body="# X", place=where),
        WritePage(path="victim.md", body="# X", place=where),
        DeletePage(path="victim.md", place=where),
    ):
        with pytest.raises(Invalid, match="symbolic link"):
            daemon.ask("writer", message)
    assert "precious" not in repr(asked(daemon, ReadPage(path="victim.md", place=where)))
    assert sorted(path.name for path in outside.iterdir()) == ["victim.md"]
    assert (outside / "victim.md").read_text() == "precious"


@pytest.mark.process
def test_an_export_brings_nothing_from_outside_of_the_wiki(daemon: Daemon, tmp_path: Path) -> None:
    """Links to files and folders that were planted in the wiki are left out of an export."""
    daemon.ask("writer", WritePage(path="notes/mine.md", body="# Mine", place=Place(project="kept")))
    outside = daemon.folder / "outside"
    (daemon.paths.wiki / "kept" / "leak.md").symlink_to(outside / "secret.md")
    (daemon.paths.wiki / "kept" / "leak").symlink_to(outside)
    daemon.cli("export", str(tmp_path / "out"))
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any("# Mine" in text for text in texts)
    assert not any(SECRET in text for text in texts)
