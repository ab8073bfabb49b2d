"""actors/watcher/scan.py and inotify.py: what is looked at and how files are read."""

import os
import sys

import pytest
from recalld.actors.watcher.scan import Scanner, Unreadable
from recalld.protocol.config import Watcher

IGNORE = Watcher().ignore


def scanner(root, max_bytes=1_000_000, enter=None):
    return Scanner(str(root), IGNORE, max_bytes, enter)


def test_a_partial_look_sees_what_a_full_look_sees(tmp_path):
    """``some`` of every path that exists gives the files of ``all``, whatever is ignored or linked."""
    for path in ("a.md", "d/b.md", "d/e/c.md", ".git/x.md", "node_modules/y.md", "d/skip/z.md"):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path)
    (tmp_path / "d" / ".gitignore").write_text("skip/\n")
    os.symlink("a.md", tmp_path / "l.md")
    os.symlink("d", tmp_path / "ld")
    look = scanner(tmp_path)
    every = [
        os.path.relpath(os.path.join(top, name), tmp_path)
        for top, dirs, files in os.walk(tmp_path)
        for name in dirs + files
    ]
    full = look.all()
    assert set(full.files) == {"a.md", "l.md", "d/b.md", "d/e/c.md"}
    assert look.some([*every, "ld/b.md", "gone/x.md", "a.md/x.md"]).files == full.files
    assert look.some([""]).files == full.files
    assert look.some(["d/skip/z.md", ".git/x.md", "ld/b.md"]).files == {}


def test_folders_are_announced_before_they_are_listed(tmp_path):
    """A watch that is set in ``enter`` misses nothing; ignored and linked folders are not entered."""
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    os.symlink("/usr", tmp_path / "usr")
    entered = []

    def enter(folder):
        entered.append(folder)
        (tmp_path / folder / "late.md").write_text("written as the watch was set")

    seen = scanner(tmp_path, enter=enter).all()
    assert sorted(entered) == ["", "d", "d/e"]
    assert set(seen.files) == {"late.md", "d/late.md", "d/e/late.md"}


@pytest.mark.skipif(sys.platform == "darwin", reason="told by a flag there")
def test_placeholders_without_content_are_not_read(tmp_path):
    """A file with a size and no blocks is a placeholder, where other files have blocks."""
    (tmp_path / "real.md").write_bytes(b"x" * 10_000)
    with open(tmp_path / "cloud.md", "wb") as file:
        file.truncate(10_000)
    if os.stat(tmp_path / "cloud.md").st_blocks or not os.stat(tmp_path / "real.md").st_blocks:
        pytest.skip("this file system does not tell")
    seen = scanner(tmp_path).all()
    assert set(seen.files) == {"real.md"}
    assert seen.unreadable == (("cloud.md", "its content is not on this disk"),)


def test_reading(tmp_path):
    """Bytes and stat belong together; what is no regular file, too large or outside is refused without waiting."""
    outside = tmp_path / "outside.md"
    outside.write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    note = root / "a.md"
    note.write_text("text")
    os.utime(note, (1, 1))
    look = scanner(root, max_bytes=10)
    content = look.read("a.md")
    assert (content.raw, content.stat.size, content.racy) == (b"text", 4, False)
    os.utime(note)
    assert look.read("a.md").racy
    os.mkfifo(root / "pipe.md")
    (root / "big.md").write_text("x" * 11)
    (root / "folder.md").mkdir()
    os.symlink(outside, root / "leak.md")
    for name in ("pipe.md", "big.md", "folder.md"):
        with pytest.raises(Unreadable):
            look.read(name)
    for name in ("leak.md", "gone.md", "a.md/x.md"):
        with pytest.raises(FileNotFoundError):
            look.read(name)


def test_a_root_that_is_no_folder(tmp_path):
    """A root that is gone, or a file, is said to be so and has no files."""
    (tmp_path / "file").write_text("")
    assert scanner(tmp_path / "none").all().root_gone == "the folder is gone"
    assert scanner(tmp_path / "file").all().root_gone == "the root is not a folder"


@pytest.mark.skipif(sys.platform != "linux", reason="inotify")
def test_inotify_paths_follow_renamed_folders(tmp_path):
    """After a folder is renamed and listed again, its events carry the new path."""
    from recalld.actors.watcher.inotify import Inotify

    (tmp_path / "d").mkdir()
    events = []
    inotify = Inotify(str(tmp_path), events.append)
    try:
        look = scanner(tmp_path, enter=lambda folder: inotify.add(folder, str(tmp_path / folder)))
        look.all()
        (tmp_path / "d" / "a.md").write_text("a")
        inotify.receive()
        assert set(events) == {"d/a.md"}
        os.rename(tmp_path / "d", tmp_path / "n")
        inotify.receive()
        look.some(["n"])
        events.clear()
        (tmp_path / "n" / "a.md").write_text("b")
        inotify.receive()
        assert set(events) == {"n/a.md"}
        inotify.receive()
        look.all()
        inotify.receive()
        assert set(events) == {"n/a.md"}
    finally:
        inotify.close()
