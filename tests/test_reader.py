"""actors/query/reader.py: read-only connections with deadlines, over a file that may come, go and change."""

import os
import shutil
import time

import anyio
import pytest
from recalld.actors.query.reader import NoIndex, Reader
from recalld.actors.sqlite import sqlite3
from recalld.protocol.envelope import Overloaded, TimedOut

from .indexing import Index

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def titles(conn):
    return [row[0] for row in conn.execute("SELECT title FROM notes WHERE valid_to IS NULL ORDER BY title")]


@pytest.fixture
async def index(tmp_path):
    made = Index(tmp_path)
    made.write("a.md", "# A")
    yield made
    made.close()


@pytest.fixture
async def reader(index):
    made = Reader(index.paths.database, size=2)
    yield made
    await made.aclose()


async def test_a_query_is_stopped_when_its_budget_is_spent(reader):
    """SQLite is interrupted inside a statement, and the connection serves the next request."""
    with pytest.raises(TimedOut):
        await reader.run(lambda conn: conn.execute(FOREVER).fetchone(), 100)
    assert await reader.run(titles, 5000) == ["A"]


async def test_a_cancelled_query_ends_too(reader):
    """Cancelling the caller stops the statement; the thread is free again for others."""
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(reader.run, lambda conn: conn.execute(FOREVER).fetchone(), 60_000)
        with anyio.move_on_after(0.2):
            await reader.run(titles, 60_000)
        group.cancel_scope.cancel()
    assert await reader.run(titles, 5000) == ["A"]


async def test_no_transaction_outlives_its_request(index, reader):
    """Between two requests nothing is held: the writer can truncate the log, and the next request sees its changes."""
    assert await reader.run(titles, 5000) == ["A"]
    index.write("b.md", "# B")
    busy, _, _ = index.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0
    assert await reader.run(titles, 5000) == ["A", "B"]


async def test_one_request_sees_one_state(index, reader):
    """What is committed while a request runs is not seen by its later statements."""

    def twice(conn):
        before = titles(conn)
        other = sqlite3.connect(index.paths.database)
        other.execute("UPDATE notes SET title = 'changed'")
        other.commit()
        other.close()
        return before, titles(conn)

    before, after = await reader.run(twice, 5000)
    assert before == after == ["A"]


async def test_nothing_can_be_written(reader):
    """The connections refuse to write."""
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await reader.run(lambda conn: conn.execute("DELETE FROM notes"), 5000)


async def test_an_absent_index_is_said_to_be_absent_and_found_when_it_comes(tmp_path):
    """Without a database there is NoIndex and no file is created; once it is there it is read."""
    reader = Reader(tmp_path / "data" / "recalld.sqlite")
    with pytest.raises(NoIndex, match="no index yet"):
        await reader.run(titles, 5000)
    assert not (tmp_path / "data").exists()
    index = Index(tmp_path)
    index.write("a.md", "# A")
    assert await reader.run(titles, 5000) == ["A"]
    await reader.aclose()
    index.close()


async def test_a_replaced_database_is_opened_anew(index, reader, tmp_path):
    """Another file under the name is noticed at the next request, and counted as another generation."""
    assert await reader.run(titles, 5000) == ["A"]
    generation = reader.generation
    other = Index(tmp_path / "other")
    other.write("z.md", "# Z")
    other.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    index.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    index.close()
    for suffix in ("-wal", "-shm"):
        index.paths.database.with_name(index.paths.database.name + suffix).unlink(missing_ok=True)
    os.replace(other.paths.database, index.paths.database)
    assert await reader.run(titles, 5000) == ["Z"]
    assert reader.generation == generation + 1


async def test_a_removed_or_damaged_database_is_no_index(index, reader):
    """A file that vanishes or turns to noise is NoIndex, not an internal error; a sound one is read again."""
    assert await reader.run(titles, 5000) == ["A"]
    index.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    index.close()
    database = index.paths.database
    kept = database.with_suffix(".kept")
    shutil.copy(database, kept)
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    with pytest.raises(NoIndex):
        await reader.run(titles, 5000)
    database.write_bytes(b"noise" * 4000)
    with pytest.raises(NoIndex):
        await reader.run(titles, 5000)
    os.replace(kept, database)
    assert await reader.run(titles, 5000) == ["A"]


async def test_requests_wait_for_a_connection_within_their_budget(reader):
    """With every connection busy a request waits, and gives up when its budget is spent."""
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(reader.run, lambda conn: conn.execute(FOREVER).fetchone(), 60_000)
        await anyio.wait_all_tasks_blocked()
        started = time.monotonic()
        with pytest.raises(TimedOut):
            await reader.run(titles, 100)
        assert time.monotonic() - started < 30
        group.cancel_scope.cancel()


async def test_too_many_requests_are_refused(reader, monkeypatch):
    """What waits is bounded; the next one is refused at once with a time to try again."""
    monkeypatch.setattr("recalld.actors.query.reader.WAITING_MAX", 1)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(reader.run, lambda conn: conn.execute(FOREVER).fetchone(), 60_000)
            await anyio.wait_all_tasks_blocked()
        with pytest.raises(Overloaded) as caught:
            await reader.run(titles, 100)
        assert caught.value.retry_after_ms > 0
        group.cancel_scope.cancel()
