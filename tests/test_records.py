"""Versions of notes and their full text, as functions of a connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from recalld.actors.sqlite import sqlite3
from recalld.actors.writer.records import maintenance, notes, vaults, vectors
from recalld.actors.writer.records.common import DAY_MS, Rules
from recalld.memory.notes.moves import moved
from recalld.memory.notes.parse import parse
from recalld.protocol.envelope import Conflict
from recalld.protocol.messages.common import FileStat, ParsedNote
from recalld.protocol.messages.index import (
    ClaimChunks,
    MoveNotes,
    NoteImage,
    OpenVault,
    SweepDone,
    TouchNotes,
    UpsertNotes,
    Vault,
)

from .indexing import Index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    made = Index(tmp_path)
    yield made
    made.close()


def found(index: Index, table: str, words: str) -> set[str]:
    """Paths whose passages in ``table`` contain ``words``."""
    sql = (
        f"SELECT n.path FROM {table} AS f JOIN chunks AS c ON c.id = f.rowid JOIN notes AS n ON n.id = c.note_id"
        f" WHERE {table} MATCH ?"
    )
    return {path for (path,) in index.conn.execute(sql, (words,))}


def sound(index: Index) -> None:
    report = maintenance.check(index.conn)
    assert set(report.values()) == {"ok"}, report


def test_a_changed_note_is_a_new_version(index: Index) -> None:
    """The new words are in recall, the old ones in the past with the interval in which they were current."""
    index.write("a.md", "# A\n\nred apples")
    begun = index.now_ms
    changed = index.later(1)
    index.write("a.md", "# A\n\ngreen pears")
    assert found(index, "chunk_fts", "pears") == {"a.md"}
    assert found(index, "chunk_fts", "apples") == set()
    assert found(index, "past_fts", "apples") == {"a.md"}
    intervals = index.conn.execute("SELECT valid_from, valid_to FROM notes ORDER BY id").fetchall()
    assert intervals == [(begun, changed), (changed, None)]
    sound(index)


def test_the_same_hash_changes_nothing_but_the_stat(index: Index) -> None:
    """An image that is known already makes no version and no revision."""
    index.write("a.md", "text")
    before = index.revision
    index.later(1)
    index.write("a.md", "text")
    assert index.revision == before
    assert index.conn.execute("SELECT count(*), max(mtime_ns) FROM notes").fetchone() == (1, index.now_ms * 1_000_000)


def test_unchanged_text_keeps_its_vector(index: Index) -> None:
    """Only the passage that changed waits for a vector after an edit."""
    first = "# A\n\n## One\n\n" + "alpha " * 150 + "\n\n## Two\n\n" + "beta " * 150
    index.write("a.md", first)
    index.embed()
    index.write("a.md", first.replace("beta", "gamma"))
    claimed = index.run(vectors.claim_chunks, ClaimChunks(model_id=index.model_id, limit=50), index.now_ms)
    assert [chunk.text.split()[-1] for chunk in claimed.chunks] == ["gamma"]


def test_two_notes_with_one_text(index: Index) -> None:
    """Equal passages share a vector; it stays wanted while one of the notes has it, or a past version that is kept."""
    index.write_all({"a.md": "# Same\n\nwords", "b.md": "# Same\n\nwords"})
    assert vectors.waiting(index.conn) == 1
    index.drop("a.md")
    assert vectors.waiting(index.conn) == 1
    index.drop("b.md")
    assert vectors.waiting(index.conn) == 1
    index.run(maintenance.forget_gone, index.now_ms, index.rules, 10)
    assert vectors.waiting(index.conn) == 0


def test_dropped_and_back(index: Index) -> None:
    """A file that comes back is current from then on, with a gap in between."""
    index.write("a.md", "here")
    gone = index.later(1)
    index.drop("a.md")
    assert found(index, "chunk_fts", "here") == set()
    back = index.later(1)
    index.write("a.md", "here")
    assert index.conn.execute("SELECT valid_to FROM notes ORDER BY id").fetchall() == [(gone,), (None,)]
    assert index.conn.execute("SELECT max(valid_from) FROM notes").fetchone() == (back,)
    sound(index)


def test_move_keeps_chunks_and_follows_the_name(index: Index) -> None:
    """A renamed file keeps rows and vectors; its name-given title, and the words of its path, are found anew."""
    index.write("old name.md", "some words")
    index.embed()
    ids = index.conn.execute("SELECT id, note_id FROM chunks").fetchall()
    index.move("old name.md", "decisions/2024-05-06 fresh.md")
    row = index.conn.execute("SELECT path, title, kind, date FROM notes").fetchone()
    assert row == ("decisions/2024-05-06 fresh.md", "2024-05-06 fresh", "decision", "2024-05-06")
    assert index.conn.execute("SELECT id, note_id FROM chunks").fetchall() == ids
    assert found(index, "chunk_fts", "title: fresh") == {row[0]}
    assert found(index, "chunk_fts", "title: old") == set()
    assert vectors.waiting(index.conn) == 0
    sound(index)


def test_files_that_swap_names(index: Index) -> None:
    """Two files may exchange their names in one message; a file moved onto another ends that one."""
    index.write_all({"a.md": "alpha", "b.md": "beta", "c.md": "gamma"})
    stat = FileStat(1, 1, 1, 1)
    swap = MoveNotes(vault_id=index.vault_id, moves=(("a.md", "b.md", stat), ("b.md", "a.md", stat)))
    assert index.run(notes.move_notes, swap, index.now_ms, index.rules).changed == 2
    assert found(index, "chunk_fts", "alpha") == {"b.md"}
    onto = MoveNotes(vault_id=index.vault_id, moves=(("c.md", "b.md", stat), ("gone.md", "x.md", stat)))
    assert index.run(notes.move_notes, onto, index.now_ms, index.rules).changed == 1
    assert found(index, "chunk_fts", "alpha") == set()
    assert found(index, "past_fts", "alpha") == {"b.md"}
    assert found(index, "chunk_fts", "gamma") == {"b.md"}
    sound(index)


def test_names_find_a_note_through_its_first_chunk(index: Index) -> None:
    """Title, aliases, tags and path words are in the full text once, whatever the number of chunks."""
    text = "---\naliases: [Kubernetes]\ntags: [infra]\n---\n# Cluster\n\n" + ("word " * 300 + "\n\n") * 3
    index.write("ops/köln_setup.md", text)
    for word in ("kubernetes", "infra", "cluster", "koln", "ops", "setup"):
        assert index.conn.execute("SELECT count(*) FROM chunk_fts WHERE title MATCH ?", (word,)).fetchone() == (1,)


def test_history_is_bounded(index: Index) -> None:
    """No more versions than configured are kept, and none that ended too long ago."""
    index.rules = Rules(keep_versions=3, keep_days=10)
    for n in range(8):
        index.later(1)
        index.write("a.md", f"version{n}")
    assert index.conn.execute("SELECT count(*) FROM notes").fetchone() == (4,)
    assert found(index, "past_fts", "version3") == set()
    index.later(20)
    index.write("a.md", "last")
    assert index.conn.execute("SELECT count(*) FROM notes").fetchone() == (2,)
    sound(index)


def test_a_new_note_is_current_since_its_file_was_written(index: Index) -> None:
    """The first version that is seen of a file is as old as the file; never from the future."""
    for stem, mtime in (("old", index.now_ms - 5 * DAY_MS), ("future", index.now_ms + DAY_MS)):
        raw = stem.encode()
        note, chunks = parse(f"{stem}.md", raw)
        one = NoteImage(
            path=f"{stem}.md", stat=FileStat(1, 1, 1, mtime * 1_000_000), hash=raw, note=note, chunks=chunks
        )
        index.run(notes.upsert_notes, UpsertNotes(vault_id=index.vault_id, notes=(one,)), index.now_ms, index.rules)
    since = dict(index.conn.execute("SELECT path, valid_from FROM notes").fetchall())
    assert since == {"old.md": index.now_ms - 5 * DAY_MS, "future.md": index.now_ms}


def test_a_clock_that_goes_back_keeps_intervals_in_order(index: Index) -> None:
    """No version ends before it began."""
    index.write("a.md", "one")
    index.later(-3)
    index.write("a.md", "two")
    index.drop("a.md")
    assert index.conn.execute("SELECT count(*) FROM notes WHERE valid_to <= valid_from").fetchone() == (0,)


def test_known_files_come_back_as_they_were_told(index: Index) -> None:
    """Stats survive the database, inode numbers of 64 bits too; a touched stat is what counts next time."""
    index.write("a.md", "text")
    stat = FileStat(2**63 + 5, 2**64 - 1, 4, 123)
    index.run(notes.touch_notes, TouchNotes(vault_id=index.vault_id, files=(("a.md", stat),)))
    state = index.run(vaults.open_vault, OpenVault(vault=Vault(root=str(index.vault), name="renamed")))
    assert [file.stat for file in state.files] == [stat]
    assert vaults.roots(index.conn)[0][2] == "renamed"


def test_sweeps_are_told(index: Index) -> None:
    """What could not be read, and why deletions wait, is counted for status."""
    done = SweepDone(vault_id=index.vault_id, at_ms=7, files=3, unreadable=(("x", "denied"),), suspended="root is gone")
    index.run(vaults.sweep_done, done)
    counts = maintenance.counts(index.conn)
    assert (counts.swept_ms, counts.unreadable, counts.suspended) == (7, 1, "lab: root is gone")
    with pytest.raises(Conflict):
        index.run(vaults.sweep_done, SweepDone(vault_id=index.vault_id + 1, at_ms=7, files=3))


def test_a_note_that_cannot_be_parsed_is_counted(index: Index) -> None:
    """A problem in a file is a figure of status until the file is mended."""
    index.write("a.md", "---\n: [\n---\ntext")
    assert maintenance.counts(index.conn).problems == 1
    index.write("a.md", "text")
    assert maintenance.counts(index.conn).problems == 0


def test_leases(index: Index) -> None:
    """A leased chunk is not given twice; after the lease, or a start of the machine, it is; newest texts come first."""
    index.use_model()
    index.write("a.md", "older")
    index.later(1)
    index.write("b.md", "newer")
    claim = ClaimChunks(model_id=index.model_id, limit=1, lease_ms=1000)

    def texts(elapsed_ms: int) -> list[str]:
        return [chunk.text for chunk in index.run(vectors.claim_chunks, claim, elapsed_ms).chunks]

    now = 20 * DAY_MS
    assert texts(now) == ["newer"]
    assert texts(now) == ["older"]
    assert texts(now + 500) == []
    assert texts(now + 1000) == ["newer"]
    assert texts(now - 10 * DAY_MS) != []


def test_compact_keeps_what_is_current(index: Index) -> None:
    """Compaction step by step: versions of gone files, vectors of gone texts; recall is the same before and after."""
    index.write_all({f"n{n}.md": f"# N{n}\n\nword{n} common" for n in range(30)})
    index.embed()
    index.later(1)
    index.drop(*(f"n{n}.md" for n in range(10)))
    for step in maintenance.FORGETTING.values():
        while index.run(step, index.now_ms, index.rules, 4):
            pass
    first = True
    while index.run(maintenance.merge_words, "chunk_fts", first):
        first = False
    maintenance.vacuum(index.conn)
    assert len(found(index, "chunk_fts", "common")) == 20
    assert found(index, "past_fts", "common") == set()
    stray = "SELECT count(*) FROM vectors WHERE hash NOT IN (SELECT hash FROM chunks)"
    assert index.conn.execute(stray).fetchone() == (0,)
    assert index.conn.execute("SELECT count(DISTINCT hash) FROM vectors").fetchone() == (20,)
    sound(index)


def test_moved_leaves_what_the_note_says_itself() -> None:
    """Only what the place gave follows the place."""
    note = ParsedNote(title="Own", title_from="heading", kind="rule", date="2020-01-01")
    assert moved(note, "decisions/a.md", "people/2024-01-01.md") == note


def test_foreign_rows_are_refused(index: Index) -> None:
    """References are enforced: a chunk without a note cannot be stored."""
    with pytest.raises(sqlite3.IntegrityError):
        index.conn.execute(
            "INSERT INTO chunks (note_id, ordinal, hash, context, text, line_from, line_to)"
            " VALUES (9, 0, x'', '', '', 1, 1)"
        )


def test_only_texts_without_a_vector_are_queued(index: Index) -> None:
    """A text that the model has embedded is not queued again, in whatever note it stands; more texts than one question names."""
    index.write_all({f"{n}.md": f"text {n}" for n in range(vectors.BIND_MAX + 20)}, on_disk=False)
    index.embed()
    files = {f"again/{n}.md": f"text {n}" for n in range(vectors.BIND_MAX + 20)}
    index.write_all({**files, "new.md": "another text"}, on_disk=False)
    assert vectors.waiting(index.conn) == 1


def test_a_text_of_the_past_moves_up_when_it_is_current_again(index: Index) -> None:
    index.write("a.md", "one")
    index.write("a.md", "two")
    queued = "SELECT queued_ms FROM pending WHERE hash = (SELECT hash FROM chunks WHERE text = 'one' LIMIT 1)"
    assert index.conn.execute(queued).fetchone() == (vectors.LAST,)
    index.write("b.md", "one")
    assert index.conn.execute(queued).fetchone() == (index.now_ms,)


def test_answers_count_a_long_queue_up_to_a_bound(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "SOME", 3)
    index.write_all({f"{n}.md": f"text {n}" for n in range(5)}, on_disk=False)
    assert (vectors.some_waiting(index.conn), vectors.waiting(index.conn)) == (3, 5)
