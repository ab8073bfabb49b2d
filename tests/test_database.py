"""The one read-write connection: group commit, acks after commit, and every state its file can be in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from recalld.actors.sqlite import sqlite3
from recalld.actors.writer import database as database_module
from recalld.actors.writer.database import Database
from recalld.actors.writer.opening import open_database
from recalld.actors.writer.schema import SCHEMA, TABLES, VERSION, Schema, Step
from recalld.protocol.envelope import Conflict, Overloaded, Unavailable

OLD_SCHEMAS = Path(__file__).parent / "schemas"
Conn = sqlite3.Connection


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Database]:
    db = Database(path, **options)
    await db.open()
    try:
        yield db
    finally:
        await db.aclose()


def put(conn: Conn, key: str, value: object = 1) -> None:
    conn.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))


def keys(conn: Conn) -> list[str]:
    return [key for (key,) in conn.execute("SELECT key FROM meta WHERE key NOT IN ('probe', 'birth') ORDER BY key")]


def outside(path: Path, sql: str) -> list[Any]:
    """What another connection sees."""
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return conn.execute(sql).fetchall()
    finally:
        conn.close()


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def held(db: Database) -> AsyncIterator[None]:
    """The database's thread, busy until the block ends."""
    gate, entered = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(conn: Conn) -> None:
        loop.call_soon_threadsafe(entered.set)
        gate.wait(20)

    holding = asyncio.ensure_future(db.read(hold))
    await entered.wait()
    try:
        yield
    finally:
        gate.set()
        await holding


async def test_answers_follow_the_commit(tmp_path: Path) -> None:
    """What run() has answered is seen by every other connection, and the file is nobody else's to read."""
    async with opened(tmp_path / "data" / "r.sqlite") as db:
        await db.run(put, "a")
        assert outside(db.path, "SELECT key FROM meta WHERE key <> 'birth'") == [("a",)]
        assert db.path.stat().st_mode & 0o777 == 0o600
        assert db.last_write_ms > 0


async def test_what_waits_is_one_transaction(tmp_path: Path) -> None:
    """Functions that wait share a commit; one that raises undoes itself alone and its caller gets the exception."""

    def clash(conn: Conn) -> None:
        put(conn, "undone")
        raise Conflict("somebody was faster")

    async with opened(tmp_path / "r.sqlite") as db:
        before = db.transactions_total
        async with held(db):
            waiting = [asyncio.ensure_future(db.run(put, f"k{n}")) for n in range(20)]
            failing = asyncio.ensure_future(db.run(clash))
            twin = asyncio.ensure_future(db.run(put, "k0"))
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)
        with pytest.raises(Conflict):
            await failing
        with pytest.raises(sqlite3.IntegrityError):
            await twin
        assert db.transactions_total - before == 1
        assert len(await db.read(keys)) == 20


async def test_a_cancelled_caller_does_not_stop_its_function(tmp_path: Path) -> None:
    """Cancelled is not stopped: the transaction ends by itself, and the next caller gets its own answer."""
    async with opened(tmp_path / "r.sqlite") as db:
        async with held(db):
            waiting = asyncio.ensure_future(db.run(put, "a"))
            await asyncio.sleep(0)
            waiting.cancel()
        assert await db.read(keys) == ["a"]


@pytest.mark.process
def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    """After SIGKILL in the middle of many writers' transactions every answered write is there, and the file is sound."""
    path = tmp_path / "r.sqlite"
    with subprocess.Popen([sys.executable, "-c", VICTIM, str(path)], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        answered = [int(victim.stdout.readline()) for _ in range(300)]
        victim.kill()
        answered += [int(line) for line in victim.stdout.read().split("\n")[:-1]]
    conn = open_database(path).conn
    assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    there = {key for (key,) in conn.execute("SELECT key FROM meta")}
    conn.close()
    assert {f"k{n}" for n in answered} <= there


VICTIM = """
import asyncio, sys
from pathlib import Path
from recalld.actors.writer.database import Database

def put(conn, n):
    conn.execute("INSERT INTO meta (key, value) VALUES (?, 1)", (f"k{n}",))

async def main():
    db = Database(Path(sys.argv[1]))
    await db.open()
    async def many(start):
        for n in range(start, 10**9, 16):
            await db.run(put, n)
            print(n, flush=True)
    await asyncio.gather(*(many(n) for n in range(16)))

asyncio.run(main())
"""


async def test_bounds(tmp_path: Path) -> None:
    """A full queue refuses at once with a time to retry; a closed database is unavailable, after finishing what waits."""
    db = Database(tmp_path / "r.sqlite", limit=2)
    await db.open()
    async with held(db):
        waiting = [asyncio.ensure_future(db.run(put, f"k{n}")) for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as caught:
            await db.run(put, "k9")
        assert caught.value.retry_after_ms > 0
        closing = asyncio.ensure_future(db.aclose())
        await asyncio.sleep(0)
        with pytest.raises(Unavailable):
            await db.run(put, "k9")
    await closing
    await asyncio.gather(*waiting)
    assert os.listdir(tmp_path) == ["r.sqlite"]
    assert outside(db.path, "SELECT count(*) FROM meta WHERE key <> 'birth'") == [(2,)]
    assert db.stats()["database"].refused == 1


@pytest.mark.parametrize("damage", ["noise", "start", "middle", "cut", "foreign", "empty"])
async def test_damage_at_open_is_set_aside(tmp_path: Path, damage: str) -> None:
    """Noise, a cut file, another program's database: moved aside with its log, a fresh one opened, and it is said."""
    path = tmp_path / "r.sqlite"
    async with opened(path) as db:
        await db.run(lambda conn: [put(conn, f"key {n}", "x" * 500) for n in range(2000)])
    size = path.stat().st_size
    if damage == "foreign":
        path.unlink()
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE cookies (a)")
        other.close()
    else:
        data = bytearray(path.read_bytes())
        noise = os.urandom(8192)
        changed = {
            "noise": os.urandom(size),
            "start": noise + data[8192:],
            "middle": data[: size // 2] + noise + data[size // 2 + 8192 :],
            "cut": data[: size // 2],
            "empty": b"",
        }[damage]
        path.write_bytes(changed)
    async with opened(path) as db:
        assert await db.read(keys) == []
        await db.run(put, "new")
        assert bool(db.set_aside) == (damage != "empty")
    aside = [name for name in os.listdir(tmp_path) if ".corrupt-" in name]
    assert len(aside) == (damage != "empty")


async def test_damage_while_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that turns to noise under us fails the call that meets it, is replaced, and `reborn` tells why."""
    monkeypatch.setattr(database_module, "WATCH_S", 60.0)  # what is done in idle time would meet it too
    path = tmp_path / "r.sqlite"
    async with opened(path) as db:
        reborn: list[str] = []
        db.reborn = reborn.append
        await db.run(lambda conn: [put(conn, f"key {n}", "x" * 500) for n in range(60_000)])
        await db.alone(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        with path.open("r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(path.stat().st_size - 4096))

        def scan(conn: Conn) -> int:
            return len(conn.execute("SELECT * FROM meta WHERE key LIKE 'key %'").fetchall())

        with pytest.raises(Unavailable, match="index"):
            await db.run(scan)
        assert await db.run(scan) == 0
        assert len(reborn) == 1
        assert db.problem == ""


async def test_noise_under_an_idle_connection_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that the page cache hides from the connection itself is found all the same, without any call."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    path = tmp_path / "r.sqlite"
    async with opened(path) as db:
        reborn: list[str] = []
        db.reborn = reborn.append
        await db.run(lambda conn: [put(conn, f"key {n}", "x" * 500) for n in range(500)])
        await db.alone(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        await until(lambda: db.file_bytes > 100_000)
        await asyncio.to_thread(outside, path, "SELECT 1")
        for _ in range(3):
            await db.read(keys)
        with path.open("r+b") as stream:
            stream.seek(path.stat().st_size // 2)
            stream.write(os.urandom(16384))
        await until(lambda: bool(reborn))
        assert await db.read(keys) == []


async def test_full_text_is_merged_when_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction leaves a piece of full text that every question looks into: they become few, and hold the same."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    monkeypatch.setattr(database_module, "CHECKPOINT_IDLE_S", 0.05)

    def store(conn: Conn, number: int) -> None:
        words = " ".join(f"w{number}x{n}" for n in range(2000))
        conn.execute("INSERT INTO chunk_fts (rowid, title, heading, body) VALUES (?, '', '', ?)", (number, words))

    def pieces(conn: Conn) -> int:
        return int(conn.execute("SELECT count(DISTINCT segid) FROM chunk_fts_idx").fetchone()[0])

    async with opened(tmp_path / "r.sqlite") as db:
        for number in range(1, 8):
            await db.run(store, number)
        left = [7]

        async def few() -> None:
            while left[-1] > 3:
                left.append(await db.read(pieces))
                await asyncio.sleep(0.1)  # reads too are no idle time

        await asyncio.wait_for(few(), 20)
        for number in range(1, 8):
            found = await db.read(
                lambda conn, n=number: conn.execute(f"SELECT rowid FROM chunk_fts('w{n}x1999')").fetchall()
            )
            assert found == [(number,)]


@pytest.mark.parametrize("how", ["deleted", "replaced", "cut"])
async def test_the_file_vanishes_while_running(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted, replaced or truncated file is noticed without any call, and writes go into the file of that name."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    path = tmp_path / "r.sqlite"
    async with opened(path) as db:
        reborn: list[str] = []
        db.reborn = reborn.append
        await db.run(lambda conn: [put(conn, f"key {n}", "x" * 500) for n in range(500)])
        await db.alone(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        await until(lambda: db.file_bytes > 100_000)
        if how == "deleted":
            path.unlink()
        elif how == "replaced":
            open_database(tmp_path / "other.sqlite").conn.close()
            (tmp_path / "other.sqlite").rename(path)
        else:
            os.truncate(path, 0)
        await until(lambda: bool(reborn))
        assert await db.read(keys) == []
        await db.run(put, "new")
        assert outside(path, "SELECT key FROM meta WHERE key NOT IN ('probe', 'birth')") == [("new",)]
        assert db.generation == 2


async def test_vacuum_is_not_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that our own VACUUM made smaller stays in use."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    async with opened(tmp_path / "r.sqlite") as db:
        await db.run(lambda conn: [put(conn, f"key {n}", "x" * 500) for n in range(500)])
        await db.alone(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        await until(lambda: db.file_bytes > 300_000)
        full = db.file_bytes
        await db.run(lambda conn: conn.execute("DELETE FROM meta").rowcount)
        await db.alone(lambda conn: conn.execute("VACUUM").fetchall())
        await db.alone(lambda conn: conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        await until(lambda: db.file_bytes < full - 100_000)
        assert db.generation == 1


async def test_cached_pages_are_let_go_when_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once after each spell of work, reading included; what is asked afterwards is answered."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    monkeypatch.setattr(database_module, "CHECKPOINT_IDLE_S", 0.1)
    ran: list[str] = []
    async with opened(tmp_path / "index.sqlite") as db:
        await db.alone(lambda conn: conn.set_trace_callback(ran.append))
        for spell in (1, 2):
            await db.read(keys)
            await until(lambda spell=spell: ran.count("PRAGMA shrink_memory") == spell)  # type: ignore[misc]
        await db.run(put, "a")
        assert await db.read(keys) == ["a"]


async def test_a_full_disk_fails_calls_and_heals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk loses the whole group, says so with a time to retry, keeps reading, and is forgotten when it passes."""
    monkeypatch.setattr(database_module, "WATCH_S", 0.02)
    async with opened(tmp_path / "r.sqlite") as db:
        await db.run(put, "before")
        pages = await db.alone(lambda conn: conn.execute("PRAGMA page_count").fetchone()[0])
        await db.alone(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        async with held(db):
            small = asyncio.ensure_future(db.run(put, "small"))
            large = asyncio.ensure_future(db.run(put, "large", "x" * 100_000))
            await asyncio.sleep(0)
        for waiting in (small, large):
            with pytest.raises(Unavailable, match="disk is full") as caught:
                await waiting
            assert caught.value.retry_after_ms > 0
        assert await db.read(keys) == ["before"]
        await db.alone(lambda conn: conn.execute("PRAGMA max_page_count = 100000").fetchone())
        await until(lambda: db.problem == "")
        await db.run(put, "after", "x" * 100_000)


async def test_a_folder_that_cannot_be_used_is_tried_again(tmp_path: Path) -> None:
    """With no place for the file, calls are unavailable and say why; they work as soon as there is a place."""
    (tmp_path / "data").write_text("in the way")
    async with opened(tmp_path / "data" / "r.sqlite") as db:
        with pytest.raises(Unavailable):
            await db.run(put, "a")
        assert db.problem
        (tmp_path / "data").unlink()
        await until(lambda: db.problem == "")
        await db.run(put, "a")


async def test_a_lock_held_by_others_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write waits for another program's lock, and past the wait says what holds it up."""
    monkeypatch.setattr("recalld.actors.writer.opening.BUSY_TIMEOUT_MS", 50)
    async with opened(tmp_path / "r.sqlite") as db:
        other = sqlite3.connect(db.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await db.run(put, "a")
        other.execute("ROLLBACK")
        other.close()
        await db.run(put, "b")


async def test_a_newer_schema_is_only_read(tmp_path: Path) -> None:
    """A database of a newer version answers reads, refuses writes with one clear line, and stays byte for byte."""
    path = tmp_path / "r.sqlite"
    async with opened(path) as db:
        await db.run(put, "a")
        await db.alone(lambda conn: conn.execute(f"PRAGMA user_version = {VERSION + 1}").fetchall())
    before = path.read_bytes()
    async with opened(path) as db:
        assert await db.read(keys) == ["a"]
        with pytest.raises(Unavailable, match=f"read_only: .*schema {VERSION + 1}.*Upgrade") as caught:
            await db.run(put, "b")
        assert caught.value.retry_after_ms > 0
        assert not db.writable
    assert path.read_bytes() == before


def test_every_historic_schema_becomes_this_one(tmp_path: Path) -> None:
    """A database of each version ends up with exactly the tables that a fresh one has."""

    def shape(conn: Conn) -> set[tuple[str, str]]:
        return {
            (name, " ".join(sql.split())) for name, sql in conn.execute("SELECT name, sql FROM sqlite_schema") if sql
        }

    fresh = open_database(tmp_path / "fresh.sqlite").conn
    for version in range(1, VERSION + 1):
        path = tmp_path / f"v{version}.sqlite"
        old = Schema(version, (OLD_SCHEMAS / f"v{version}.sql").read_text(), {})
        open_database(path, old).conn.close()
        conn = open_database(path).conn
        assert shape(conn) == shape(fresh)
        assert conn.execute("PRAGMA user_version").fetchone()[0] == VERSION
        conn.close()
    fresh.close()
    assert (OLD_SCHEMAS / f"v{VERSION}.sql").read_text().strip() == TABLES.strip()


def test_a_step_that_fails_leaves_the_version_before(tmp_path: Path) -> None:
    """Steps run in order, each whole or not at all, and one that asks for it has every file read again."""
    path = tmp_path / "r.sqlite"
    conn = open_database(path).conn
    conn.execute("INSERT INTO vaults (id, root, name) VALUES (1, '/v', 'v')")
    conn.execute(
        "INSERT INTO notes (vault_id, path, title, parsed, hash, dev, inode, size, mtime_ns, valid_from, revision)"
        " VALUES (1, 'a.md', 'a', x'', x'01', 1, 1, 1, 1, 1, 1)"
    )
    conn.close()

    def fine(conn: Conn) -> None:
        conn.execute("ALTER TABLE notes ADD COLUMN extra TEXT NOT NULL DEFAULT ''")

    def broken(conn: Conn) -> None:
        conn.execute("DROP TABLE replays")
        raise sqlite3.OperationalError("no")

    steps = {VERSION + 1: Step(fine, reindex=True), VERSION + 2: Step(broken)}
    with pytest.raises(sqlite3.OperationalError):
        open_database(path, SCHEMA._replace(version=VERSION + 2, steps=steps))
    conn = sqlite3.connect(path)
    assert conn.execute("PRAGMA user_version").fetchone()[0] == VERSION + 1
    assert conn.execute("SELECT hash, size, extra FROM notes").fetchone() == (b"", -1, "")
    assert conn.execute("SELECT count(*) FROM replays").fetchone() == (0,)
    conn.close()
