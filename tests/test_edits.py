"""Whatever changes a note, the answer follows: seen by events, and with events switched off by the next sweep."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from harness import Daemon, running, until

pytestmark = pytest.mark.process

CONFIG = "[embedder]\nmodel = 'none'\n"


@pytest.fixture(scope="module", params=["native", "off"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    sweep = "3600.0" if request.param == "native" else "0.5"
    with running(f"{CONFIG}[watcher]\nmode = '{request.param}'\nsweep_s = {sweep}\n") as one:
        yield one


def found(daemon: Daemon, word: str, path: str) -> None:
    until(f"'{word}' is found in {path}", lambda: daemon.finds(word, path, streams=("text",)))


def gone(daemon: Daemon, word: str, path: str) -> None:
    until(f"'{word}' is not found in {path} any more", lambda: not daemon.finds(word, path, streams=("text",)))


def test_append(daemon: Daemon) -> None:
    """echo >> note."""
    note = daemon.write("append.md", "# Append\n\nfirst\n")
    found(daemon, "append", "append.md")
    with note.open("a") as out:
        out.write("quokka\n")
    found(daemon, "quokka", "append.md")


def test_replace_as_vim_does(daemon: Daemon) -> None:
    """Write beside, rename over: the note stays, with its new text."""
    daemon.write("vim.md", "# Vim\n\nnumbat\n")
    found(daemon, "numbat", "vim.md")
    temporary = daemon.write("4913.md~", "# Vim\n\nbilby\n")
    os.replace(temporary, daemon.vault / "vim.md")
    found(daemon, "bilby", "vim.md")
    gone(daemon, "numbat", "vim.md")


def test_checkout_of_a_branch(daemon: Daemon) -> None:
    """git checkout changes, adds and removes files at once."""

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=daemon.vault / "repo", check=True, capture_output=True)

    daemon.write("repo/both.md", "# Both\n\nwombat\n")
    daemon.write("repo/main.md", "# Main\n\nkoala\n")
    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "main")
    found(daemon, "koala", "repo/main.md")
    git("checkout", "-b", "other")
    git("rm", "main.md")
    daemon.write("repo/both.md", "# Both\n\npossum\n")
    daemon.write("repo/other.md", "# Other\n\ndingo\n")
    git("add", ".")
    git("commit", "-m", "other")
    git("checkout", "main")
    found(daemon, "wombat", "repo/both.md")
    found(daemon, "koala", "repo/main.md")
    gone(daemon, "dingo", "repo/other.md")
    git("checkout", "other")
    found(daemon, "possum", "repo/both.md")
    found(daemon, "dingo", "repo/other.md")
    gone(daemon, "koala", "repo/main.md")


def test_move_of_a_note_and_of_a_folder(daemon: Daemon) -> None:
    """mv: the note is found under its new path and not under the old one."""
    daemon.write("a/one.md", "# One\n\nechidna\n")
    daemon.write("a/two.md", "# Two\n\nplatypus\n")
    found(daemon, "platypus", "a/two.md")
    os.rename(daemon.vault / "a/one.md", daemon.vault / "a/uno.md")
    found(daemon, "echidna", "a/uno.md")
    gone(daemon, "echidna", "a/one.md")
    os.rename(daemon.vault / "a", daemon.vault / "b")
    found(daemon, "platypus", "b/two.md")
    found(daemon, "echidna", "b/uno.md")
    gone(daemon, "platypus", "a/two.md")


def test_removal(daemon: Daemon) -> None:
    """rm, and rm -r."""
    daemon.write("gone.md", "# Gone\n\nkookaburra\n")
    daemon.write("dir/gone.md", "# Gone\n\ncassowary\n")
    found(daemon, "kookaburra", "gone.md")
    found(daemon, "cassowary", "dir/gone.md")
    (daemon.vault / "gone.md").unlink()
    shutil.rmtree(daemon.vault / "dir")
    gone(daemon, "kookaburra", "gone.md")
    gone(daemon, "cassowary", "dir/gone.md")


def test_a_thousand_files_at_once(daemon: Daemon) -> None:
    """None is missed."""
    for number in range(1000):
        daemon.write(f"many/{number}.md", f"# Note {number}\n\nlorikeet number{number}x\n")
    for number in (0, 499, 999):
        found(daemon, f"number{number}x", f"many/{number}.md")
    until("all are there", lambda: daemon.figure("writer", "notes") >= 1000)


def test_new_folders_of_notes_are_taken_up_while_running(daemon: Daemon) -> None:
    """`recalld add` and `remove` need no restart."""
    other = daemon.folder / "other"
    other.mkdir(exist_ok=True)
    (other / "added.md").write_text("# Added\n\nbandicoot\n")
    daemon.cli("add", str(other))
    found(daemon, "bandicoot", "added.md")
    daemon.cli("remove", str(other))
    gone(daemon, "bandicoot", "added.md")
    assert (other / "added.md").exists()


def test_a_vault_that_vanishes_deletes_nothing(daemon: Daemon) -> None:
    """An unmounted disk is not an empty folder: answers stay, and the vault comes back."""
    daemon.write("kept.md", "# Kept\n\nwallaroo\n")
    found(daemon, "wallaroo", "kept.md")
    away = daemon.folder / "away"
    os.rename(daemon.vault, away)
    try:
        sweeps = daemon.figure("watcher", "sweeps_total")
        daemon.cli("add", str(away), check=False)  # has the watcher look again
        until("two more looks", lambda: daemon.figure("watcher", "sweeps_total") >= sweeps + 2)
        assert daemon.finds("wallaroo", "kept.md", streams=("text",))
        daemon.cli("remove", str(away), check=False)
    finally:
        os.rename(away, daemon.vault)
    daemon.write("back.md", "# Back\n\npademelon\n")
    found(daemon, "pademelon", "back.md")


def test_a_folder_removed_while_no_daemon_ran_is_forgotten() -> None:
    """config.toml is the truth at the next start, too: what it no longer names is not answered."""
    with running(CONFIG, start=False) as daemon:
        other = daemon.folder / "other"
        other.mkdir()
        (other / "left.md").write_text("# Left\n\nbettong\n")
        daemon.write("stays.md", "# Stays\n\npotoroo\n")
        daemon.start(config=CONFIG)
        daemon.cli("add", str(other))
        found(daemon, "bettong", "left.md")
        daemon.stop()
        daemon.cli("remove", str(other))
        daemon.start()
        gone(daemon, "bettong", "left.md")
        found(daemon, "potoroo", "stays.md")
