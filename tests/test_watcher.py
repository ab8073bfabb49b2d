"""The watcher actor against a writer that only remembers: real files, real events."""

import hashlib
import os
import shutil
import subprocess
import sys

import anyio
import pytest
from recalld.actors.watcher.batches import MAX_NOTES
from recalld.memory.notes.parse import parse
from recalld.protocol.envelope import Internal, Unavailable
from recalld.protocol.messages.index import DropNotes, MoveNotes, PackedNotes, SweepDone, TouchNotes, UpsertNotes
from watching import FakeWriter, config_of, watching

BACKENDS = ["inotify", "watchfiles"] if sys.platform == "linux" else ["watchfiles"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


async def test_the_first_sweep_indexes_what_is_there(tmp_path):
    """Notes with either suffix in any case are indexed; other files and ignored folders are not."""
    for path in ("a.md", "b/C.MD", "d.markdown", "x.txt", ".obsidian/e.md", ".git/f.md", "n.sync-conflict-1.md"):
        target = tmp_path / "vault" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path)
    async with watching(tmp_path) as place:
        assert place.writer.texts() == {"a.md": "a.md", "b/C.MD": "b/C.MD", "d.markdown": "d.markdown"}
        (done,) = place.writer.sweeps
        assert (done.files, done.unreadable, done.suspended) == (3, (), "")
        vitals = place.actor.vitals()
        assert vitals.figures["files"] == 3
        assert vitals.facts["watch_mode"] == "vault: native"


async def test_edits_are_seen(tmp_path, backend):
    """Append, replace by rename, create in a new folder, remove: each is in the index without a sweep."""
    async with watching(tmp_path, backend=backend) as place:
        writer = place.writer
        note = place.write("a.md", "one")
        await writer.until(lambda: writer.texts() == {"a.md": "one"})
        with note.open("a") as file:
            file.write(" two")
        await writer.until(lambda: writer.texts() == {"a.md": "one two"})

        swap = note.with_name("a.md.swp")  # as vim does: the old file away, a new one in its place
        os.rename(note, swap)
        note.write_text("three")
        os.unlink(swap)
        await writer.until(lambda: writer.texts() == {"a.md": "three"})

        temporary = note.with_name("a.tmp.md")
        temporary.write_text("four")
        os.replace(temporary, note)
        await writer.until(lambda: writer.texts() == {"a.md": "four"})

        place.write("deep/er/b.md", "b")
        await writer.until(lambda: "deep/er/b.md" in writer.held())
        place.write("deep/er/c.md", "c")
        await writer.until(lambda: "deep/er/c.md" in writer.held())
        note.unlink()
        await writer.until(lambda: "a.md" not in writer.held())
        shutil.rmtree(place.vault / "deep")
        await writer.until(lambda: writer.held() == {})
        if backend == "inotify":
            assert len(writer.sweeps) == 1


async def test_a_save_by_rename_drops_nothing(tmp_path):
    """A note that is away for a moment while it is saved is never removed from the index."""
    async with watching(tmp_path) as place:
        note = place.write("a.md", "one")
        await place.writer.until(lambda: place.writer.held())
        for text in ("two", "three", "four"):
            os.rename(note, note.with_suffix(".bak"))
            await anyio.sleep(0.03)  # longer than the gathering step: the pass sees the hole
            note.write_text(text)
            await place.writer.until(lambda text=text: place.writer.texts() == {"a.md": text})
        assert not [body for body in place.writer.log if isinstance(body, DropNotes)]


async def test_renames_are_moves(tmp_path, backend):
    """A renamed file and a renamed folder are moved in the index, not read again."""
    async with watching(tmp_path, backend=backend) as place:
        writer = place.writer
        place.write("a.md", "a")
        for n in range(30):
            place.write(f"folder/{n}.md", f"text {n}")
        await writer.until(lambda: len(writer.held()) == 31)
        read = place.actor.vitals().figures["notes_read_total"]
        os.rename(place.vault / "a.md", place.vault / "b.md")
        await writer.until(lambda: "b.md" in writer.held() and "a.md" not in writer.held())
        os.rename(place.vault / "folder", place.vault / "other")
        await writer.until(lambda: "other/29.md" in writer.held() and "folder/29.md" not in writer.held())
        assert len(writer.held()) == 31
        assert place.actor.vitals().figures["notes_read_total"] == read
        assert not [body for body in writer.log if isinstance(body, DropNotes)]
        place.write("other/new.md", "new")
        await writer.until(lambda: "other/new.md" in writer.held())


async def test_a_copy_that_replaces_the_original_is_a_move(tmp_path):
    """A file that was copied and removed (another inode) keeps its row by its bytes."""
    async with watching(tmp_path, mode="off") as place:
        place.write("a.md", "the text")
        await place.settled()
        place.write("sub/b.md", "the text")
        (place.vault / "a.md").unlink()
        await place.settled()
        assert set(place.writer.held()) == {"sub/b.md"}
        assert [body.moves[0][:2] for body in place.writer.log if isinstance(body, MoveNotes)] == [("a.md", "sub/b.md")]


async def test_a_thousand_files_at_once(tmp_path):
    """A burst arrives whole, in batches."""
    async with watching(tmp_path) as place:
        for n in range(1000):
            place.write(f"d{n % 10}/{n}.md", f"note {n}")
        await place.writer.until(lambda: len(place.writer.held()) == 1000)
        batches = [body for body in place.writer.log if isinstance(body, UpsertNotes)]
        assert all(len(body.notes) <= MAX_NOTES for body in batches)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_git_checkout(tmp_path):
    """Switching a branch brings the index to that branch; git's own files are never looked at."""
    vault = tmp_path / "vault"
    vault.mkdir()

    def git(*arguments):
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
        subprocess.run(command, cwd=vault, check=True, capture_output=True)

    git("init", "-b", "main")
    for n in range(30):
        (vault / f"{n}.md").write_text(f"main {n}")
    git("add", ".")
    git("commit", "-m", "m")
    git("checkout", "-b", "other")
    for n in range(5):
        (vault / f"{n}.md").write_text(f"other {n}")
    (vault / "29.md").unlink()
    (vault / "new").mkdir()
    (vault / "new" / "x.md").write_text("x")
    git("add", ".")
    git("commit", "-m", "o")
    async with watching(tmp_path) as place:
        assert "29.md" not in place.writer.held()
        await anyio.to_thread.run_sync(git, "checkout", "main")
        expected = {f"{n}.md": f"main {n}" for n in range(30)}
        await place.writer.until(lambda: place.writer.texts() == expected)
        await anyio.to_thread.run_sync(git, "checkout", "other")
        await place.writer.until(lambda: place.writer.texts().get("new/x.md") == "x")
        await place.writer.until(lambda: len(place.writer.held()) == 30)


@pytest.mark.parametrize("mode", ["off", "poll"])
async def test_without_events_a_sweep_sees_it(tmp_path, mode):
    """With the native watcher switched off, changes are in the index within one sweep."""
    async with watching(tmp_path, mode=mode, sweep_s=0.1, poll_ms=50) as place:
        note = place.write("a.md", "one")
        await place.writer.until(lambda: place.writer.texts() == {"a.md": "one"})
        note.write_text("two")
        await place.writer.until(lambda: place.writer.texts() == {"a.md": "two"})
        note.unlink()
        await place.writer.until(lambda: place.writer.held() == {})
        assert place.actor.vitals().facts["watch_mode"] == f"vault: {mode}"


async def test_touching_is_no_change(tmp_path):
    """New times without new bytes store the stat and nothing else."""
    async with watching(tmp_path, mode="off") as place:
        note = place.write("a.md", "one")
        await place.settled()
        for n in range(3):
            os.utime(note, (1000 + n, 1000 + n))
            await place.settled()
        kinds = [type(body) for body in place.writer.log]
        assert kinds.count(UpsertNotes) == 1
        assert kinds.count(TouchNotes) >= 3


async def test_an_idle_watcher_asks_nothing(tmp_path):
    """A sweep of unchanged files sends its end and nothing else, and reading files sets off no events."""
    async with watching(tmp_path) as place:
        place.write("a.md", "one")
        await place.writer.until(lambda: place.writer.held())
        await place.settled()
        await place.settled()
        events = place.actor.vitals().figures["events_total"]
        del place.writer.log[:]
        await place.settled()
        assert [type(body) for body in place.writer.log] == [SweepDone]
        assert place.actor.vitals().figures["events_total"] == events


async def test_symbolic_links(tmp_path):
    """Links to notes inside are indexed; links that leave the root, and links to folders, are not followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    vault = tmp_path / "vault"
    (vault / "sub").mkdir(parents=True)
    (vault / "real.md").write_text("real")
    os.symlink("real.md", vault / "link.md")
    os.symlink(outside / "secret.md", vault / "leak.md")
    os.symlink("../../outside/secret.md", vault / "sub" / "leak.md")
    os.symlink(outside, vault / "folder")
    os.symlink(vault / "sub", vault / "again")
    os.symlink("loop.md", vault / "loop.md")
    os.symlink("nowhere.md", vault / "broken.md")
    async with watching(tmp_path) as place:
        assert set(place.writer.held()) == {"real.md", "link.md"}
        os.unlink(vault / "link.md")
        os.symlink(outside / "secret.md", vault / "link.md")
        await place.writer.until(lambda: "link.md" not in place.writer.held())
        (outside / "new.md").write_text("more")
        await place.settled()
        assert set(place.writer.held()) == {"real.md"}


async def test_what_is_no_file_does_not_stop_the_sweep(tmp_path):
    """A pipe, a folder and an unreadable file with the name of a note: named, the others indexed."""
    vault = tmp_path / "vault"
    (vault / "folder.md").mkdir(parents=True)
    (vault / "folder.md" / "in.md").write_text("in")
    os.mkfifo(vault / "pipe.md")
    (vault / "a.md").write_text("a")
    (vault / "big.md").write_text("x" * 2000)
    async with watching(tmp_path, max_bytes=1000) as place:
        assert set(place.writer.held()) == {"a.md", "folder.md/in.md"}
        assert {path: why.split()[0] for path, why in place.writer.sweeps[-1].unreadable} == {
            "pipe.md": "not", "big.md": "larger",
        }  # fmt: skip
        assert "not read: " in place.actor.vitals().facts["vault:vault"]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
async def test_unreadable_is_not_absent(tmp_path):
    """Taking away the right to read removes nothing from the index, and is reported."""
    async with watching(tmp_path, mode="off") as place:
        place.write("d/a.md", "a")
        note = place.write("b.md", "b")
        await place.settled()
        (place.vault / "d").chmod(0)
        note.chmod(0)
        try:
            await place.settled()
            assert set(place.writer.held()) == {"d/a.md", "b.md"}
            assert "d/" in dict(place.writer.sweeps[-1].unreadable)
        finally:
            (place.vault / "d").chmod(0o700)


async def test_a_folder_that_cannot_be_listed_keeps_its_notes(tmp_path, monkeypatch):
    """A passing failure to list one folder removes nothing."""
    real = os.scandir

    def failing(path):
        if str(path).endswith("/d"):
            raise OSError(5, "Input/output error")
        return real(path)

    async with watching(tmp_path, mode="off") as place:
        place.write("d/e/a.md", "a")
        place.write("b.md", "b")
        await place.settled()
        monkeypatch.setattr(os, "scandir", failing)
        (place.vault / "b.md").unlink()
        await place.settled()
        assert set(place.writer.held()) == {"d/e/a.md"}
        assert place.writer.sweeps[-1].unreadable == (("d/", "Input/output error"),)


async def test_a_vanished_root_keeps_its_notes(tmp_path):
    """A root that is away removes nothing, says so, and is found again when it is back."""
    async with watching(tmp_path, sweep_s=0.05) as place:
        for n in range(3):
            place.write(f"{n}.md", f"{n}")
        await place.writer.until(lambda: len(place.writer.held()) == 3)
        os.rename(place.vault, tmp_path / "away")
        await place.writer.until(lambda: "gone" in place.writer.sweeps[-1].suspended)
        assert len(place.writer.held()) == 3
        os.rename(tmp_path / "away", place.vault)
        place.write("back.md", "back")
        await place.writer.until(lambda: len(place.writer.held()) == 4)
        await place.writer.until(lambda: place.writer.sweeps[-1].suspended == "")


async def test_mass_disappearance_is_confirmed(tmp_path, monkeypatch):
    """More than half of many files gone: held back, said, and believed at a second sweep that is not the same moment."""
    from recalld.actors.watcher import vault

    async with watching(tmp_path, mode="off", vanish_min=5) as place:
        for n in range(20):
            place.write(f"d/{n}.md", f"{n}")
        place.write("keep.md", "keep")
        await place.settled()
        shutil.rmtree(place.vault / "d")
        await place.settled()
        assert len(place.writer.held()) == 21
        assert "20 of 21 files vanished" in place.writer.sweeps[-1].suspended
        await place.settled()
        assert len(place.writer.held()) == 21
        monkeypatch.setattr(vault, "CONFIRM_S", 0.0)
        await place.settled()
        assert set(place.writer.held()) == {"keep.md"}
        assert place.writer.sweeps[-1].suspended == ""


async def test_ignore_files(tmp_path):
    """.gitignore and .recalldignore count, in any folder, and a change of them is taken up at once."""
    async with watching(tmp_path) as place:
        place.write("a.md", "a")
        place.write("private/b.md", "b")
        place.write("sub/c.md", "c")
        await place.writer.until(lambda: len(place.writer.held()) == 3)
        place.write(".recalldignore", "private/\n")
        await place.writer.until(lambda: set(place.writer.held()) == {"a.md", "sub/c.md"})
        place.write("sub/.gitignore", "c.md\n")
        await place.writer.until(lambda: set(place.writer.held()) == {"a.md"})
        (place.vault / ".recalldignore").unlink()
        await place.writer.until(lambda: set(place.writer.held()) == {"a.md", "private/b.md"})


async def test_odd_names(tmp_path):
    """Any name that the system allows is a note, one that is not UTF-8 under a readable spelling."""
    vault = tmp_path / "vault"
    vault.mkdir()
    names = ["{.md", "[.md", "Зоны и проекты.md", "🚀.md", "a\nb.md", "'\".md", "%20.md", "#.md", " .md"]
    for name in names:
        (vault / name).write_text(name)
    raw = os.fsencode(vault) + b"/caf\xe9.md"
    try:
        os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
        names.append("caf\\xe9.md")
    except OSError:  # file systems that want UTF-8
        pass
    async with watching(tmp_path) as place:
        assert set(place.writer.held()) == set(names)


async def test_a_writer_that_is_away_is_waited_for(tmp_path):
    """Nothing is lost while the writer is down: what changed meanwhile is sent when it answers."""
    writer = FakeWriter()
    writer.error = Unavailable("the writer went away")
    async with watching(tmp_path, writer=writer, settle=False) as place:
        place.write("a.md", "a")
        await writer.until(lambda: writer.asked >= 3)
        assert "waiting for the writer" in place.actor.vitals().facts["vault:vault"]
        writer.error = None
        await writer.until(lambda: writer.texts() == {"a.md": "a"})
        writer.error = Unavailable("again")
        before = writer.asked
        place.write("b.md", "b")
        await writer.until(lambda: writer.asked >= before + 2)
        writer.vaults.clear()  # it comes back with an empty index
        writer.error = None
        await writer.until(lambda: writer.texts() == {"a.md": "a", "b.md": "b"})


async def test_another_index_is_filled_at_once(tmp_path):
    """When the writer opens another database, everything is sent again without waiting for a sweep's turn."""
    async with watching(tmp_path) as place:
        place.write("a.md", "a")
        await place.writer.until(lambda: place.writer.held())
        place.writer.replace_index()
        await place.writer.until(lambda: place.writer.texts() == {"a.md": "a"})


async def test_a_note_that_the_writer_refuses(tmp_path):
    """One refused note is named; the others of its batch are stored."""
    writer = FakeWriter()
    writer.refuse = {"bad.md"}
    (tmp_path / "vault").mkdir()
    for name in ("a", "bad", "c"):
        (tmp_path / "vault" / f"{name}.md").write_text(name)
    async with watching(tmp_path, writer=writer):
        assert set(writer.held()) == {"a.md", "c.md"}
        assert dict(writer.sweeps[-1].unreadable)["bad.md"] == "the index refused it: cannot take this"


async def test_a_failing_writer_does_not_end_the_watcher(tmp_path):
    """An error that the writer did not foresee is tried again with a fresh look."""
    writer = FakeWriter()
    writer.error = Internal("no idea")
    async with watching(tmp_path, writer=writer, settle=False) as place:
        place.write("a.md", "a")
        await writer.until(lambda: writer.asked >= 1)
        writer.error = None
        await writer.until(lambda: "a.md" in writer.held())


async def test_a_read_that_never_ends(tmp_path, monkeypatch):
    """A file whose read hangs is set aside and named; the sweep goes on."""
    import threading

    from recalld.actors.watcher import vault
    from recalld.actors.watcher.scan import Scanner

    hang = threading.Event()
    real = Scanner.read
    monkeypatch.setattr(vault, "READ_DEADLINE_S", 0.3)
    monkeypatch.setattr(
        Scanner, "read", lambda self, path: ((hang.wait() if path == "hung.md" else 0) and 0) or real(self, path)
    )
    (tmp_path / "vault").mkdir()
    for name in ("a", "hung", "z"):
        (tmp_path / "vault" / f"{name}.md").write_text(name)
    try:
        async with watching(tmp_path) as place:
            assert set(place.writer.held()) == {"a.md", "z.md"}
            assert "longer" in dict(place.writer.sweeps[-1].unreadable)["hung.md"]
    finally:
        hang.set()


async def test_vaults_come_and_go(tmp_path):
    """A changed configuration starts and ends vaults, forgets those that were removed, and sweeps all."""
    second = tmp_path / "second"
    second.mkdir()
    (second / "s.md").write_text("s")
    async with watching(tmp_path) as place:
        place.write("a.md", "a")
        await place.writer.until(lambda: place.writer.held())
        swept = place.actor.vitals().figures["all_swept_ms"]
        await place.actor.configure(config_of([place.vault, second], sweep_s=3600.0))
        await place.writer.until(lambda: "s.md" in place.writer.held("second"))
        await place.writer.until(lambda: place.actor.vitals().figures["all_swept_ms"] > swept)
        await place.actor.configure(config_of([second], sweep_s=3600.0))
        await place.writer.until(lambda: len(place.writer.vaults) == 1)
        await place.actor.configure(config_of([second], sweep_s=3600.0, mode="off"))
        await place.writer.until(lambda: place.actor.vitals().facts["watch_mode"] == "second: off")
        assert set(place.writer.held("second")) == {"s.md"}


async def test_the_wiki_is_watched_once_it_exists(tmp_path, monkeypatch):
    """The wiki's folder is a vault of its own kind from the moment that it is there."""
    from recalld.actors.watcher import actor

    monkeypatch.setattr(actor, "WIKI_CHECK_S", 0.02)
    async with watching(tmp_path) as place:
        page = place.paths.wiki / "apollo" / "decisions" / "p.md"
        page.parent.mkdir(parents=True)
        page.write_text("# P")
        await place.writer.until(lambda: "apollo/decisions/p.md" in place.writer.held("wiki"))
        opened = [body.vault for body in place.writer.log if type(body).__name__ == "OpenVault"]
        assert [(vault.name, vault.kind) for vault in opened] == [("vault", "vault"), ("wiki", "wiki")]


async def test_pause(tmp_path):
    """While paused nothing is sent; afterwards what happened meanwhile is."""
    async with watching(tmp_path) as place:
        await place.actor.pause(True)
        place.write("a.md", "a")
        await place.writer.until(lambda: place.actor.vitals().figures["events_total"] > 0)
        assert place.writer.held() == {}
        await place.actor.pause(False)
        await place.writer.until(lambda: "a.md" in place.writer.held())


async def test_lost_events_cost_a_sweep(tmp_path):
    """When the system says that it lost events, everything is looked at."""
    async with watching(tmp_path, mode="off") as place:
        place.write("a.md", "a")
        (watch, _) = next(iter(place.actor._running.values()))
        watch._hint("")
        await place.writer.until(lambda: "a.md" in place.writer.held())


async def test_a_watch_that_ends_is_set_up_again(tmp_path, monkeypatch):
    """A watch that fails is replaced, said in the vitals meanwhile, and nothing is missed."""
    from recalld.actors.watcher import events

    fail = anyio.Event()
    real = events.InotifyWatch.run

    async def run(self):
        async with anyio.create_task_group() as group:
            group.start_soon(real, self)
            await fail.wait()
            raise RuntimeError("broken")

    monkeypatch.setattr(events, "REARM_MIN_S", 0.01)
    monkeypatch.setattr(events.InotifyWatch, "run", run)
    async with watching(tmp_path, backend="inotify") as place:
        monkeypatch.setattr(events.InotifyWatch, "run", real)
        fail.set()
        await place.writer.until(lambda: len(place.writer.sweeps) >= 2)
        place.write("a.md", "a")
        await place.writer.until(lambda: "a.md" in place.writer.held())


def test_silent_file_systems():
    """File systems of other machines are recognised by the longest mount point."""
    from recalld.actors.watcher.events import silent_file_system

    mounts = [
        "22 1 0:21 / / rw - ext4 /dev/sda1 rw",
        "30 22 0:40 / /mnt/my\\040share rw - nfs4 host:/x rw",
        "31 30 0:41 / /mnt/my\\040share/local rw - ext4 /dev/sdb rw",
    ]
    assert silent_file_system("/mnt/my share/notes", mounts) == "nfs4"
    assert silent_file_system("/mnt/my share/local/n", mounts) == ""
    assert silent_file_system("/mnt/my shared", mounts) == ""


async def test_who_asked_for_a_sweep_is_told_of_its_end(tmp_path):
    """The vitals that say that all was swept are sent at once, and not after sweeps that nobody waits for."""
    told: list[float] = []
    async with watching(tmp_path, sweep_s=0.2) as place:
        place.actor._env.tell = lambda: told.append(place.actor.vitals().figures["all_swept_ms"])
        second = tmp_path / "second"
        second.mkdir()
        before = place.actor.vitals().figures["all_swept_ms"]
        await place.actor.configure(config_of([second], sweep_s=0.2))
        await place.writer.until(lambda: told)
        assert told[0] > before
        sweeps = len(place.writer.sweeps)
        await place.writer.until(lambda: len(place.writer.sweeps) >= sweeps + 3)
        assert len(told) <= 2  # the first sweep, and the one that a new watch asks for


async def test_a_note_is_packed_as_the_writer_wants_it(tmp_path):
    """What is sent of a file decodes to what its parser said."""
    async with watching(tmp_path) as place:
        text = "---\ntags: [a]\n---\n# Title\n\nText with a [[link]].\n\n## More\n\nß 日本 #tag\n"
        place.write("a.md", text)
        await place.writer.until(lambda: "a.md" in place.writer.held())
        image = place.writer.held()["a.md"]
        assert (image.note, image.chunks) == parse("a.md", text.encode())
        assert image.hash == hashlib.blake2b(text.encode(), digest_size=16).digest()


async def test_reading_goes_on_while_the_writer_stands_still(tmp_path, monkeypatch):
    """Some batches are read ahead, and no more than that."""
    from recalld.actors.watcher import batches, vault

    monkeypatch.setattr(batches, "MAX_NOTES", 2)
    ahead: list[int] = []
    real = vault.read_batch
    monkeypatch.setattr(vault, "read_batch", lambda *about: ahead.append(1) or real(*about))
    free = anyio.Event()

    class Standing(FakeWriter):
        async def ask(self, body, *, budget_ms, trace=""):
            if isinstance(body, PackedNotes):
                self.notify()
                await free.wait()
            return await super().ask(body, budget_ms=budget_ms, trace=trace)

    (tmp_path / "vault").mkdir()
    for n in range(40):
        (tmp_path / "vault" / f"{n}.md").write_text(f"text {n}")
    async with watching(tmp_path, writer=Standing(), settle=False) as place:
        most = vault.IN_FLIGHT + vault.READ_AHEAD + 1  # the last one waits for a place
        await place.writer.until(lambda: len(ahead) == most)
        await anyio.sleep(0.1)
        assert len(ahead) == most
        free.set()
        await place.writer.until(lambda: len(place.writer.held()) == 40)
