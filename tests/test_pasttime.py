"""`as_of` by commit time: a real daemon on folders that are git repositories."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from recalld.protocol.messages.common import Ok
from recalld.protocol.messages.index import Maintain, Reindex

from .gitvault import GitVault, ms
from .harness import Daemon, alive, running, until

JAN, MAR, MAY, JUL = "2025-01-10", "2025-03-10", "2025-05-10", "2025-07-10"
LAUNCH = "# Launch\n\nThe rocket launches in {}.\n"


def queue_decision(supersedes: str = "", choice: str = "RabbitMQ") -> str:
    links = f"supersedes: '[[{supersedes}]]'\n" if supersedes else ""
    return f"---\nkind: decision\n{links}---\n# Job queue on {choice}\n\nBackground jobs run through {choice}.\n"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Started on a vault whose history was over before; the vault is a folder inside the repository."""
    with running(start=False) as made:
        made.vault.rmdir()
        vault = GitVault(made.vault, made.folder)
        vault.git("config", "core.excludesFile", "/dev/null")
        (made.folder / ".gitignore").write_text("/d/\n/r/\n/stderr\n")
        vault.commit(JAN, {
            "launch.md": LAUNCH.format("April"),
            "mascot.md": "# Mascot\n\nThe walrus is our mascot.\n",
            "decisions/rabbit.md": queue_decision(),
        })  # fmt: skip
        vault.commit(MAR, {"launch.md": "Moved up by a line.\n\n" + LAUNCH.format("June"), "mascot.md": None})
        vault.commit(MAY, {
            "launch.md": LAUNCH.format("August"),
            "decisions/postgres.md": queue_decision("rabbit", "Postgres"),
        })  # fmt: skip
        vault.write({"launch.md": LAUNCH.format("autumn")})  # not committed
        made.start().settle(vectors=True)
        yield made


STREAMS = pytest.mark.parametrize(
    "streams", [("text",), ("vector",), ("text", "entity", "graph", "vector")], ids=",".join
)


@STREAMS
@pytest.mark.parametrize(("day", "month"), [("2025-02-01", "April"), ("2025-04-01", "June"), ("2025-06-01", "August")])
def test_each_stream_answers_with_the_version_of_that_day(daemon: Daemon, streams, day: str, month: str) -> None:
    """One question, three days, three texts that no file holds any more."""
    hit = daemon.recall("when does the rocket launch", as_of=day, streams=streams).hits[0]
    assert hit.path == "launch.md"
    assert month in hit.passage
    assert daemon.recall("when does the rocket launch", streams=streams).hits[0].passage.count("autumn") == 1


def test_a_hit_says_when_it_stood(daemon: Daemon) -> None:
    """From commit to commit; its passage and lines are those of that version, whatever the file says now."""
    hit = daemon.recall("when does the rocket launch", as_of="2025-04-01", explain=True).hits[0]
    assert hit.valid == (f"{MAR}T00:00:00Z", f"{MAY}T00:00:00Z")
    text = "Moved up by a line.\n\n" + LAUNCH.format("June")
    first, last = hit.lines
    assert "\n".join(text.splitlines()[first - 1 : last]) == hit.passage.rstrip("\n")
    now = daemon.recall("when does the rocket launch").hits[0]
    assert now.valid == ("", "")
    shown = daemon.cli("ask", "when does the rocket launch", "--as-of", "2025-04-01").stdout
    assert f"from {MAR}T00:00:00Z to {MAY}T00:00:00Z" in shown


@STREAMS
def test_a_deleted_note_is_found_before_its_deletion_alone(daemon: Daemon, streams) -> None:
    """No file tells of it, and no question about now finds it."""
    assert daemon.finds("walrus mascot", "mascot.md", as_of="2025-02-01", streams=streams)
    assert not daemon.finds("walrus mascot", "mascot.md", as_of="2025-04-01", streams=streams)
    assert not daemon.finds("walrus mascot", "mascot.md", streams=streams)


@STREAMS
def test_a_note_that_was_not_written_yet(daemon: Daemon, streams) -> None:
    """It is not found as of a day before its first commit, though its file is there now."""
    assert not daemon.finds("jobs on Postgres", "decisions/postgres.md", as_of="2025-04-01", streams=streams)
    assert daemon.finds("jobs on Postgres", "decisions/postgres.md", as_of="2025-06-01", streams=streams)


def test_what_was_superseded_then(daemon: Daemon) -> None:
    """A decision stands until the note that supersedes it was committed."""
    question = "what do background jobs run through"

    def of_rabbit(**more: object):
        return next(hit for hit in daemon.recall(question, **more).hits if hit.path == "decisions/rabbit.md")

    assert of_rabbit(as_of="2025-04-01").superseded_by is None
    assert of_rabbit(as_of="2025-06-01").superseded_by.path == "decisions/postgres.md"
    assert of_rabbit().superseded_by.path == "decisions/postgres.md"
    assert daemon.recall(question, as_of="2025-04-01").hits[0].path == "decisions/rabbit.md"
    assert daemon.recall(question, as_of="2025-06-01").hits[0].path == "decisions/postgres.md"


def test_before_the_first_commit(daemon: Daemon) -> None:
    """The answer is empty and says since when there are versions."""
    answer = daemon.recall("rocket", as_of="2024-12-01")
    assert answer.hits == ()
    assert f"oldest versions are of {JAN}" in answer.note


def test_status_tells_what_came_from_git(daemon: Daemon) -> None:
    """Versions and notes, for a person."""
    until("the figure", lambda: history(daemon).startswith("4 versions of 2 notes from git"))


def history(daemon: Daemon) -> str:
    return daemon.status().actors["writer"].vitals.facts.get("history", "")


def versions(daemon: Daemon) -> list[tuple[str, bytes, int, int | None]]:
    with sqlite3.connect(f"file:{daemon.paths.database}?mode=ro", uri=True) as conn:
        return conn.execute(
            "SELECT path, hash, valid_from, valid_to FROM notes WHERE valid_to IS NULL OR valid_to > valid_from"
            " ORDER BY path, valid_from"
        ).fetchall()


@pytest.fixture
def fresh() -> Iterator[tuple[Daemon, GitVault]]:
    with running(start=False) as made:
        yield made, GitVault(made.vault)


def test_commits_of_what_is_indexed_already_add_nothing(fresh) -> None:
    """An edit counts from when it was seen, its commit is no second version; restarts change nothing either."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one"})
    daemon.start().settle()
    vault.write({"a.md": "two"})
    until("the edit", lambda: daemon.finds("two", "a.md", streams=("text",)))
    before = versions(daemon)
    assert len(before) == 2
    vault.commit("2026-01-01", {})
    daemon.settle()
    daemon.stop()
    daemon.start().settle()
    assert versions(daemon) == before


def test_commits_made_while_no_daemon_ran(fresh) -> None:
    """What they say of that time counts: versions begin and end with them, not with the next start."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one", "b.md": "stays until deleted"})
    daemon.start().settle()
    daemon.stop()
    with sqlite3.connect(daemon.paths.database) as conn:  # as if it had last run in February
        conn.execute("UPDATE vaults SET swept_ms = ?", (ms("2025-02-01"),))
    conn.close()
    vault.commit(MAR, {"a.md": "two"})
    vault.commit(MAY, {"a.md": "three", "b.md": None})
    daemon.start().settle()
    assert [(path, since, until) for path, _, since, until in versions(daemon)] == [
        ("a.md", ms(JAN), ms(MAR)), ("a.md", ms(MAR), ms(MAY)), ("a.md", ms(MAY), None), ("b.md", ms(JAN), ms(MAY)),
    ]  # fmt: skip


@pytest.mark.parametrize("live", [True, False], ids=["while running", "before"])
def test_a_renamed_note_is_at_one_path_at_a_time(fresh, live: bool) -> None:
    """Under the old path until the commit that renamed it, under the new one since."""
    daemon, vault = fresh
    vault.commit(JAN, {"old.md": "the text"})
    if live:
        daemon.start().settle()
    (daemon.vault / "old.md").rename(daemon.vault / "new.md")
    if live:
        daemon.settle()
    vault.commit(MAR, {})
    if not live:
        daemon.start()
    daemon.settle()
    found = [(path, since, until) for path, _, since, until in versions(daemon)]
    for day, path in (("2025-02-01", "old.md"), ("2025-04-01", "new.md")):
        there = [row[0] for row in found if row[1] <= ms(day) and (row[2] is None or row[2] > ms(day))]
        # A move that was watched keeps the note's time: it may stand under its new path before the commit.
        assert there == [path] or (live and there == ["new.md"])


def test_reindex_keeps_versions_and_compact_forgets_for_good(fresh) -> None:
    """A rebuilt index has the same versions; what `compact` forgot does not come back from git, then or later."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one", "gone.md": "secret"})
    vault.commit(MAR, {"a.md": "two", "gone.md": None})
    daemon.start().settle(vectors=True)
    before = versions(daemon)
    assert [row[0] for row in before] == ["a.md", "a.md", "gone.md"]
    born = daemon.figure("writer", "databases_opened")
    assert isinstance(daemon.ask("writer", Reindex()), Ok)
    until("the new index", lambda: daemon.figure("writer", "databases_opened") > born)
    daemon.settle(vectors=True)
    assert versions(daemon) == before
    # On a busy machine a question may have to do without its vector.
    old = until("a vector", lambda: daemon.recall("one", as_of="2025-02-01", streams=("vector",)).hits or None)
    assert "one" in old[0].passage
    daemon.ask("writer", Maintain(what="compact"))
    vault.commit(MAY, {"a.md": "three"})
    daemon.settle()
    assert "gone.md" not in [row[0] for row in versions(daemon)]


def test_a_vault_that_is_removed_and_added_again(fresh, tmp_path: Path) -> None:
    """Its history is read again."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one"})
    vault.commit(MAR, {"a.md": "two"})
    daemon.start().settle()
    before = versions(daemon)
    daemon.cli("remove", str(daemon.vault))
    until("the vault is forgotten", lambda: versions(daemon) == [])
    daemon.cli("add", str(daemon.vault))
    daemon.settle()
    assert versions(daemon) == before


def test_repositories_below_a_vault() -> None:
    """A folder of repositories: each tells of its own notes."""
    with running(start=False) as daemon:
        for name in ("one", "two"):
            vault = GitVault(daemon.vault / name)
            vault.commit(JAN, {"a.md": f"{name} before"})
            vault.commit(MAR, {"a.md": f"{name} after"})
        daemon.start().settle()
        for name in ("one", "two"):
            hits = daemon.recall(f"{name} before", as_of="2025-02-01", streams=("text",)).hits
            assert (hits[0].path, hits[0].passage) == (f"{name}/a.md", f"{name} before")


def test_switched_off(fresh) -> None:
    """With ``history.git = false`` versions count from when they were seen."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one"})
    vault.commit(MAR, {"a.md": "two"})
    daemon.start(config="[history]\ngit = false\n").settle()
    assert len(versions(daemon)) == 1
    assert history(daemon) == ""


def test_a_damaged_repository_costs_the_past_alone(fresh) -> None:
    """Notes are indexed all the same, and status says what is the matter."""
    daemon, vault = fresh
    vault.commit(JAN, {"a.md": "one"})
    for folder in (daemon.vault / ".git" / "objects").iterdir():
        for file in folder.iterdir():
            file.unlink()
    daemon.start().settle()
    assert daemon.finds("one", "a.md")
    until("status", lambda: "cannot be read" in history(daemon))
    assert "cannot be read" in daemon.cli("status").stdout
    assert "history" in daemon.cli("doctor", check=False).stdout


def long_history(vault: GitVault) -> None:
    notes = {f"n{number}.md": f"# Note {number}\n\n{{}} {'word ' * 60}" for number in range(60)}
    for month in range(1, 13):
        vault.commit(f"2024-{month:02d}-01", {path: text.format(month) for path, text in notes.items()})


def readers(daemon: Daemon) -> list[int]:
    """Processes that read a history for this daemon."""
    parent = daemon.pids()["writer"]
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
        except (OSError, IndexError):
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes by /proc")
@pytest.mark.parametrize("end", ["reader", "writer", "daemon"])
def test_what_was_cut_short_is_taken_up_again(fresh, end: str) -> None:
    """Whoever is killed in the middle: every version is there in the end, once, and no process stays behind."""
    daemon, vault = fresh
    long_history(vault)
    daemon.start(config="[watcher]\nsweep_s = 1\n[embedder]\nmodel = 'none'\n")
    pid = until("a reader", lambda: readers(daemon) or None)[0]
    until("some versions", lambda: len(versions(daemon)) > 60)
    match end:
        case "reader":
            os.kill(pid, signal.SIGKILL)
        case "writer":
            os.kill(daemon.pids()["writer"], signal.SIGKILL)
        case "daemon":
            daemon.stop()
            assert not alive(pid)
            daemon.start()
    until("all versions", lambda: len(versions(daemon)) == 720)
    daemon.settle()
    assert len(versions(daemon)) == 720
    until("no reader", lambda: not readers(daemon) and not alive(pid))
