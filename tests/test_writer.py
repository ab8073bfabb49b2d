"""The writer as its peers meet it: over its socket, with real files."""

from __future__ import annotations

import asyncio
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import anyio
import pytest
from recalld.actors.sqlite import sqlite3
from recalld.actors.writer import disk
from recalld.actors.writer.disk import OnlyOne
from recalld.protocol.config import Config, Embedder
from recalld.protocol.envelope import Conflict, Invalid, Unavailable
from recalld.protocol.messages import WriterRequest
from recalld.protocol.messages.common import Ok
from recalld.protocol.messages.index import (
    AwaitIndex,
    Backup,
    ClaimChunks,
    Claimed,
    CloseVault,
    DropNotes,
    FailChunks,
    Maintain,
    Settle,
    StoreVectors,
    SweepDone,
    UseModel,
)

from .writer_stand import Stand, embedded, writer_at


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def rows(stand: Stand, sql: str) -> list[tuple[object, ...]]:
    conn = sqlite3.connect(f"file:{stand.paths.database}?mode=ro", uri=True)
    try:
        return conn.execute(sql).fetchall()
    finally:
        conn.close()


async def test_handlers_are_the_union(short_tmp: Path) -> None:
    """Every message that may be sent to the writer has exactly one handler."""
    async with writer_at(short_tmp) as stand:
        assert set(stand.writer.handlers) == set(get_args(WriterRequest))


async def test_from_a_file_to_vectors(short_tmp: Path) -> None:
    """A note is indexed and answered with what waits; its chunks are claimed, embedded, and settled."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        indexed = await stand.put(vault, one="# One\n\nalpha beta", two="# Two\n\ngamma")
        assert (indexed.changed, indexed.pending) == (2, 2)
        assert rows(stand, "SELECT count(*) FROM chunk_fts WHERE chunk_fts MATCH 'alpha'") == [(1,)]
        claimed = await stand.ask(ClaimChunks(model_id=model))
        assert {chunk.context for chunk in claimed.chunks} == {"One", "Two"}
        stored = await stand.store(model, claimed)
        assert stored.revision > indexed.revision
        settled = await stand.ask(Settle())
        assert (settled.revision, settled.pending_vectors) == (stored.revision, 0)
        await until(lambda: stand.writer.vitals().figures["vectors"] == 2)
        figures = stand.writer.vitals().figures
        assert (figures["notes"], figures["chunks"], figures["vaults"]) == (2, 2, 1)
        assert stand.writer.vitals().facts["database"] == "ok"


async def test_a_claim_waits_for_chunks(short_tmp: Path) -> None:
    """A long poll ends when a note brings chunks, and with nothing when its time is over."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        assert await stand.ask(ClaimChunks(model_id=model, wait_ms=20)) == Claimed(chunks=())
        waiting = asyncio.ensure_future(stand.ask(ClaimChunks(model_id=model, wait_ms=10_000)))
        await until(lambda: stand.writer.claims.waiting == 1)
        await stand.put(vault, one="hello world")
        assert len((await waiting).chunks) == 1


async def test_a_chunk_that_kills_is_set_aside(short_tmp: Path) -> None:
    """The texts on which the embedder died come in ever smaller batches; the guilty one ends alone and is set aside."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, **{f"n{n}": f"text {n}" for n in range(20)}, poison="deadly")
        deaths = 0
        while True:
            model = await stand.use_model()
            claimed = await stand.ask(ClaimChunks(model_id=model, wait_ms=1))
            if not claimed.chunks:
                break
            if any("deadly" in chunk.text for chunk in claimed.chunks):
                deaths += 1
            else:
                await stand.store(model, claimed)
        assert deaths == 3
        settled = await stand.ask(Settle())
        assert (settled.pending_vectors, settled.failed_vectors) == (0, 1)


async def test_a_chunk_that_fails_is_tried_three_times(short_tmp: Path) -> None:
    """A chunk whose embedding fails is offered three times in all, and again after its note changed."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        await stand.put(vault, a="bad text")
        for _ in range(3):
            claimed = await stand.ask(ClaimChunks(model_id=model, wait_ms=1))
            await stand.ask(FailChunks(hashes=tuple(c.hash for c in claimed.chunks), error="NaN"))
        assert not (await stand.ask(ClaimChunks(model_id=model, wait_ms=1))).chunks
        await stand.put(vault, a="good text")
        assert len((await stand.ask(ClaimChunks(model_id=model, wait_ms=1))).chunks) == 1
        assert (await stand.ask(Settle())).failed_vectors == 0


async def test_ids_of_another_database_conflict(short_tmp: Path) -> None:
    """Whoever comes with a vault or model of a database that is gone is told to name it again."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        generation = stand.writer.db.generation
        birth = (await stand.ask(AwaitIndex())).birth
        assert (await stand.ask(AwaitIndex(birth=birth, wait_ms=10))).birth == birth
        stand.paths.database.unlink()
        await until(lambda: stand.writer.db.generation > generation)
        with pytest.raises(Conflict):
            await stand.put(vault, a="a")
        with pytest.raises(Conflict):
            await stand.ask(SweepDone(vault_id=vault, at_ms=1, files=0))
        with pytest.raises(Conflict):
            await stand.ask(ClaimChunks(model_id=model))
        assert await stand.open_vault() != vault
        assert (await stand.ask(AwaitIndex(birth=birth))).birth not in (0, birth)
        assert "deleted" in stand.writer.vitals().facts["set_aside"]


async def test_without_a_model_nothing_waits(short_tmp: Path) -> None:
    """With `embedder.model = none` notes are settled at once; with a model named later they wait for it."""
    async with writer_at(short_tmp, Config(embedder=Embedder(model="none"))) as stand:
        vault = await stand.open_vault()
        assert (await stand.put(vault, a="text")).pending == 0
        stand.writer.env.config = Config()
        await stand.writer.configure(Config())
        model = await stand.use_model()
        assert len((await stand.ask(ClaimChunks(model_id=model))).chunks) == 1
        stand.writer.env.config = Config(embedder=Embedder(model="none"))
        await stand.writer.configure(stand.writer.env.config)
        assert (await stand.ask(Settle())).pending_vectors == 0


async def test_another_model_embeds_again(short_tmp: Path) -> None:
    """Another SHA-256 queues every current chunk; the same one after a restart queues nothing."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model("first")
        await stand.put(vault, a="text", b="more text")
        await stand.store(model, await stand.ask(ClaimChunks(model_id=model)))
        assert await stand.use_model("first") == model
        assert (await stand.ask(Settle())).pending_vectors == 0
        other = await stand.use_model("second")
        assert (await stand.ask(Settle())).pending_vectors == 2
        with pytest.raises(Conflict):
            await stand.store(model, Claimed(chunks=()))
        await stand.store(other, await stand.ask(ClaimChunks(model_id=other)))
        assert rows(stand, "SELECT count(*), count(DISTINCT model_id) FROM vectors") == [(2, 1)]


async def test_vectors_must_fit_the_model(short_tmp: Path) -> None:
    """A vector of another size is refused before it can be served."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        await stand.put(vault, a="text")
        claimed = await stand.ask(ClaimChunks(model_id=model))
        with pytest.raises(Invalid, match="4 float16"):
            await stand.ask(StoreVectors(model_id=model, chunks=embedded(claimed, b"12")))


@pytest.mark.parametrize("dim", [0, -1, 10**11])
async def test_a_model_of_an_impossible_width_is_refused(short_tmp: Path, dim: int) -> None:
    """Readers make tables of a model's width: one that no memory holds must not get into the index."""
    async with writer_at(short_tmp) as stand:
        with pytest.raises(Invalid, match="dimensions"):
            await stand.ask(UseModel(name="wide", sha256="0" * 64, dim=dim))


async def test_deleted_text_is_not_in_the_file_after_compact(short_tmp: Path) -> None:
    """A dropped note leaves recall at once and stays for `as_of`; after `compact` no byte of it is left."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        model = await stand.use_model()
        await stand.put(vault, secret="# Zanzibar\n\nxylophonic quagmire", kept="# Kept\n\nplain words")
        await stand.store(model, await stand.ask(ClaimChunks(model_id=model)))
        await stand.ask(DropNotes(vault_id=vault, paths=("secret.md",)))
        assert rows(stand, "SELECT count(*) FROM chunk_fts WHERE chunk_fts MATCH 'xylophonic'") == [(0,)]
        assert rows(stand, "SELECT count(*) FROM past_fts WHERE past_fts MATCH 'xylophonic'") == [(1,)]
        (stand.paths.data / "recalld.sqlite.corrupt-20260101-000000").write_text("xylophonic")
        report = (await stand.ask(Maintain(what="compact"))).report
        assert report["damaged copies"] == "1"
        assert report["versions of deleted files"] == "1"
        assert report["vectors"] == "1"
        assert (await stand.ask(Maintain(what="checkpoint"))).report["checkpoint"] == "done"
        assert rows(stand, "SELECT count(*) FROM chunk_fts WHERE chunk_fts MATCH 'plain'") == [(1,)]
        everything = b"".join(path.read_bytes() for path in stand.paths.data.glob("recalld.sqlite*"))
        for word in (b"xylophon", b"quagmir", b"Zanzibar", b"zanzibar"):
            assert word not in everything
        assert b"plain" in everything


async def test_a_closed_vault_is_forgotten(short_tmp: Path) -> None:
    """A vault that was removed is gone from every table that answers, readers can see it, and it can come back."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="apple", b="banana")
        await stand.put(vault, a="apricot")
        before = (await stand.ask(Settle())).revision
        assert await stand.ask(CloseVault(root=str(stand.vault))) == Ok()
        assert rows(stand, "SELECT count(*) FROM chunks") == [(0,)]
        assert rows(stand, "SELECT count(*) FROM notes WHERE valid_to > valid_from OR valid_to IS NULL") == [(0,)]
        assert rows(stand, f"SELECT count(*) FROM notes WHERE revision > {before}") == [(3,)]
        with pytest.raises(Conflict):
            await stand.put(vault, c="cherry")
        assert await stand.open_vault() == vault
        assert (await stand.put(vault, a="apple")).changed == 1
        await stand.ask(CloseVault(root=str(stand.vault)))
        await stand.ask(Maintain(what="compact"))
        assert rows(stand, "SELECT (SELECT count(*) FROM vaults), (SELECT count(*) FROM notes)") == [(0, 0)]


async def test_check_finds_a_sound_index_sound(short_tmp: Path) -> None:
    """The check covers the file, references and every full-text index."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="apple", b="banana")
        await stand.put(vault, a="apricot")
        report = (await stand.ask(Maintain(what="check"))).report
        assert set(report.values()) == {"ok"}
        assert {"database", "references", "chunk_fts", "past_fts", "event_fts", "full text"} == set(report)


async def test_what_a_killed_rebuild_left_is_removed(short_tmp: Path) -> None:
    """Half-made databases and backup folders of a writer that was killed do not stay."""
    data = short_tmp / "data"
    (data / ".backup-abc").mkdir(parents=True)
    for name in ("recalld.sqlite.building", "recalld.sqlite.building-wal", ".backup-abc/recalld.sqlite"):
        (data / name).write_text("half")
    async with writer_at(short_tmp):
        assert not [name for name in os.listdir(data) if "building" in name or "backup" in name]


async def test_only_one_writer(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer on the same data waits for the first, then gives up with its reason."""
    monkeypatch.setattr(OnlyOne, "WAIT_S", 0.1)
    async with writer_at(short_tmp) as stand:
        second = disk.OnlyOne(stand.paths.data)
        with pytest.raises(Unavailable, match="another writer"):
            await second.acquire()
    await second.acquire()
    second.release()


async def test_a_full_disk_is_shown_and_passes(short_tmp: Path) -> None:
    """While the disk is full writes are refused with a time to retry and status says so; then it goes on."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        db = stand.writer.db
        pages = await db.alone(lambda conn: conn.execute("PRAGMA page_count").fetchone()[0])
        await db.alone(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(Unavailable, match="disk is full") as caught:
            await stand.put(vault, a="word " * 50_000)
        assert caught.value.retry_after_ms > 0
        vitals = stand.writer.vitals()
        assert "disk is full" in vitals.facts["last_error"]
        assert vitals.figures["read_only"] == 1
        await db.alone(lambda conn: conn.execute("PRAGMA max_page_count = 1000000").fetchone())
        await stand.put(vault, a="word " * 50_000)
        assert stand.writer.vitals().figures["read_only"] == 0


async def test_a_newer_index_is_read_only(short_tmp: Path) -> None:
    """With an index of a newer version the writer stays up, answers writes with one clear line, and says so in status."""
    async with writer_at(short_tmp) as stand:
        await stand.open_vault()
        await stand.writer.db.alone(lambda conn: conn.execute("PRAGMA user_version = 999").fetchall())
    async with writer_at(short_tmp) as stand:
        with pytest.raises(Unavailable, match=r"read_only: .*newer recalld"):
            await stand.open_vault()
        assert (await stand.ask(Settle())).pending_vectors == 0
        assert "newer recalld" in stand.writer.vitals().facts["last_error"]


async def test_backup_is_whole_and_private(short_tmp: Path) -> None:
    """The archive has wiki, journal at whole lines, config and a sound index, is 0600, and leaves nothing half-made."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        await stand.put(vault, a="apple")
        await stand.writer.ingest.journal.append([b'{"x":1}'])
        (stand.paths.data / "config.toml").write_text("# mine\n")
        verdicts = stand.paths.data / "eval" / "ab.jsonl"
        verdicts.parent.mkdir()
        verdicts.write_text('{"query": "q"}')  # a person's editor may leave the last line without an end
        page = stand.paths.wiki / "p" / "page.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("a page")
        (stand.paths.wiki / "p" / "out.md").symlink_to("/etc/passwd")
        os.mkfifo(stand.paths.wiki / "p" / "pipe.md")
        journal = next(stand.paths.journal.glob("*.jsonl"))
        with journal.open("ab") as stream:
            stream.write(b'{"half')
        target = short_tmp / "out" / "b.tar.gz"
        target.parent.mkdir()
        report = (await stand.ask(Backup(target=str(target), with_index=True))).report
        assert report["bytes"] == str(target.stat().st_size)
        assert target.stat().st_mode & 0o777 == 0o600
        assert os.listdir(target.parent) == ["b.tar.gz"]
        with tarfile.open(target) as archive:
            names = archive.getnames()
            assert names[0] == "recalld-backup.json"
            mine = archive.extractfile("eval/ab.jsonl")
            assert mine is not None
            assert mine.read() == verdicts.read_bytes()
            assert {"config.toml", "wiki/p/page.md", f"journal/{journal.name}", "recalld.sqlite"} <= set(names)
            assert not {"wiki/p/out.md", "wiki/p/pipe.md"} & set(names)
            kept = archive.extractfile(f"journal/{journal.name}")
            assert kept is not None
            assert kept.read().endswith(b"}\n")
            archive.extract("recalld.sqlite", short_tmp, filter="data")
        conn = sqlite3.connect(short_tmp / "recalld.sqlite")
        assert conn.execute("SELECT count(*) FROM notes").fetchone() == (1,)
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        conn.close()
        for wrong in (
            "relative.tar.gz",
            str(short_tmp),
            str(short_tmp / "none" / "b.tar.gz"),
            str(page.parent / "b.gz"),
        ):
            with pytest.raises(Invalid):
                await stand.ask(Backup(target=wrong))
