"""Reindex: a new index from files and journal while the old one answers."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from recalld.actors.sqlite import sqlite3
from recalld.actors.writer import reindex
from recalld.protocol.envelope import Conflict
from recalld.protocol.messages.common import Ok
from recalld.protocol.messages.index import ClaimChunks, Maintain, Reindex, Settle

from .writer_stand import Stand, writer_at

EVENT = (
    b'{"recalld":1,"host":"claude-code","event":"UserPromptSubmit","cwd":"/tmp","sent_ms":%d,"payload":'
    b'{"session_id":"s1","hook_event_name":"UserPromptSubmit","prompt":"look at %b","cwd":"/tmp"}}\n'
)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def rows(stand: Stand, sql: str) -> list[tuple[object, ...]]:
    conn = sqlite3.connect(f"file:{stand.paths.database}?mode=ro", uri=True)
    try:
        return conn.execute(sql).fetchall()
    finally:
        conn.close()


async def rebuilt(stand: Stand) -> None:
    generation = stand.writer.db.generation
    assert await stand.ask(Reindex()) == Ok()
    await until(lambda: not stand.writer.upkeep.state)
    assert stand.writer.db.generation == generation + 1, stand.writer.upkeep.last


async def test_everything_is_there_again(short_tmp: Path) -> None:
    """Notes come from their files as they are now; vectors, past versions and their times are kept."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        await stand.put(vault, a="# A\n\nred", b="# B\n\nblue", gone="# Gone\n\ngrey")
        await stand.store(model, await stand.ask(ClaimChunks(model_id=model)))
        await stand.put(vault, a="# A\n\ngreen")
        (stand.vault / "gone.md").unlink()
        (stand.vault / "b.md").write_text("# B\n\nviolet")
        times = rows(stand, "SELECT valid_from, valid_to FROM notes WHERE path = 'a.md' ORDER BY valid_from")
        inode = stand.paths.database.stat().st_ino

        await rebuilt(stand)

        assert stand.paths.database.stat().st_ino != inode
        assert "reindexed 2 notes" in stand.writer.vitals().facts["last_upkeep"]
        words = "SELECT count(*) FROM {} WHERE {} MATCH '{}'"
        for table, word, count in (
            ("chunk_fts", "green", 1),
            ("chunk_fts", "violet", 1),
            ("chunk_fts", "grey", 0),
            ("past_fts", "red", 1),
        ):
            assert rows(stand, words.format(table, table, word)) == [(count,)], word
        assert rows(stand, "SELECT valid_from, valid_to FROM notes WHERE path = 'a.md' ORDER BY valid_from") == times
        assert (await stand.ask(Settle())).pending_vectors == 2
        assert rows(stand, "SELECT count(*) FROM vectors") == [(1,)]
        with pytest.raises(Conflict):
            await stand.put(vault, a="x")
        assert await stand.use_model() != model
        assert set((await stand.ask(Maintain(what="check"))).report.values()) == {"ok"}
        assert not [name for name in os.listdir(stand.paths.data) if "building" in name]


async def test_events_that_arrive_meanwhile_are_not_lost(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was captured before, during and right after the swap is in the new index once."""
    async with writer_at(short_tmp) as stand:
        reader, writer = await asyncio.open_unix_connection(str(stand.paths.socket("events")))

        clock = itertools.count(1_760_000_000_000, 60_000)

        async def event(name: str) -> None:
            writer.write(EVENT % (next(clock), name.encode()))
            assert b'"ok":true' in await reader.readline()

        for n in range(5):
            await event(f"before{n}")
        await stand.ask(Settle())
        gate, reached = asyncio.Event(), asyncio.Event()
        real = reindex._carry

        async def held(*args: object) -> None:
            await real(*args)  # type: ignore[arg-type]
            reached.set()
            await gate.wait()

        monkeypatch.setattr(reindex, "_carry", held)
        waiting = asyncio.ensure_future(rebuilt(stand))
        await reached.wait()
        for n in range(5):
            await event(f"during{n}")
        await stand.ask(Settle())
        gate.set()
        await waiting
        await event("after")
        await stand.ask(Settle())
        writer.close()
        ids = [row[0] for row in rows(stand, "SELECT event_id FROM events WHERE kind LIKE '%prompt%' ORDER BY seq")]
        assert len(ids) == len(set(ids)) == 11
        last = stand.writer.ingest.journal.last_seq
        assert rows(stand, "SELECT value FROM meta WHERE key = 'applied_seq'") == [(last,)]


async def test_readers_keep_the_old_index_until_they_open_again(short_tmp: Path) -> None:
    """A reader in the middle of a transaction goes on reading what it saw; the name leads to the new index."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="# A\n\nred")
        reader = sqlite3.connect(f"file:{stand.paths.database}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM notes").fetchone() == (1,)
        (stand.vault / "a.md").unlink()
        await rebuilt(stand)
        await stand.open_vault()
        assert reader.execute("SELECT title FROM notes").fetchall() == [("A",)]
        reader.close()
        assert rows(stand, "SELECT count(*) FROM notes") == [(0,)]
        assert set((await stand.ask(Maintain(what="check"))).report.values()) == {"ok"}


async def test_a_swap_that_cannot_be_made_goes_back(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the rename fails the old index is in its place again, with its log, and serves."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="# A\n\nred")
        reader = sqlite3.connect(f"file:{stand.paths.database}?mode=ro", uri=True, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM notes").fetchone()
        real = os.rename

        def rename(source: object, target: object) -> None:
            if str(source).endswith(".building"):
                raise OSError(5, "Input/output error")
            real(source, target)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "rename", rename)
        await stand.ask(Reindex())
        await until(lambda: not stand.writer.upkeep.state)
        assert "reindex failed" in stand.writer.upkeep.last
        reader.close()
        await stand.put(vault, b="# B\n\nblue")
        assert rows(stand, "SELECT title FROM notes ORDER BY title") == [("A",), ("B",)]
        assert set((await stand.ask(Maintain(what="check"))).report.values()) == {"ok"}
        assert not [name for name in os.listdir(stand.paths.data) if ".old" in name or "building" in name]


async def test_one_at_a_time_and_a_failure_changes_nothing(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While upkeep runs more is refused; a rebuild that fails leaves the old index and no files."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="# A\n\nred")
        gate, reached = asyncio.Event(), asyncio.Event()

        async def failing(*args: object) -> None:
            reached.set()
            await gate.wait()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(reindex, "_carry", failing)
        await stand.ask(Reindex())
        await reached.wait()
        with pytest.raises(Conflict, match="is running"):
            await stand.ask(Maintain(what="compact"))
        with pytest.raises(Conflict, match="is running"):
            await stand.ask(Reindex())
        assert "reindex" in stand.writer.vitals().facts["upkeep"]
        gate.set()
        await until(lambda: not stand.writer.upkeep.state)
        assert "reindex failed" in stand.writer.vitals().facts["last_upkeep"]
        assert stand.writer.db.generation == 1
        assert rows(stand, "SELECT title FROM notes") == [("A",)]
        assert not [name for name in os.listdir(stand.paths.data) if "building" in name]


async def test_nothing_outside_of_the_vault_is_read(short_tmp: Path) -> None:
    """A known path that has become a link out of the vault, or a pipe, is left out and holds nothing up."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="# A\n\nred", b="# B\n\nblue", c="# C\n\ngreen")
        (short_tmp / "secret.md").write_text("# Secret")
        (stand.vault / "a.md").unlink()
        (stand.vault / "a.md").symlink_to(short_tmp / "secret.md")
        (stand.vault / "b.md").unlink()
        os.mkfifo(stand.vault / "b.md")
        await rebuilt(stand)
        assert rows(stand, "SELECT title FROM notes") == [("C",)]
