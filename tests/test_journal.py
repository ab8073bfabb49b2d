"""The journal: durable before it answers, ordered, mended after a crash."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from recalld.actors.writer.journal import QUICK_RUN, Journal
from recalld.actors.writer.journal_lines import decode_line, encode_line
from recalld.protocol.envelope import Invalid, Overloaded, Unavailable


@asynccontextmanager
async def opened(folder: Path, **options: Any) -> AsyncIterator[Journal]:
    journal = Journal(folder, **options)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def at_once(journal: Journal, record: bytes) -> int:
    """``append_now`` as soon as the journal's thread has nothing more to do."""
    for _ in range(100_000):
        if (seq := journal.append_now(record)) is not None:
            return seq
        await asyncio.sleep(0)
    raise AssertionError("the thread never came to rest")


async def test_append_and_read_back(tmp_path: Path) -> None:
    """Records come back in order with growing seqs, also after a reopen, and `after` leaves out the earlier ones."""
    async with opened(tmp_path / "journal") as journal:
        assert await journal.append([b'{"a":1}', b'{"a":2}']) == [1, 2]
        assert await journal.append([b'"x"']) == [3]
    async with opened(tmp_path / "journal") as journal:
        assert journal.last_seq == 3
        assert await journal.append([b"4"]) == [4]
        assert list(journal.read(2)) == [(3, b'"x"'), (4, b"4")]
    assert [path.stat().st_mode & 0o777 for path in journal.files()] == [0o600]


async def test_one_fsync_for_all_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of many callers share an fsync, and every caller gets the seqs of its own records."""
    syncs: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (syncs.append(fd), real(fd)))
    async with opened(tmp_path) as journal:
        answers = await asyncio.gather(*(journal.append([b"%d" % n, b"0"]) for n in range(100)))
        assert sorted(seq for answer in answers for seq in answer) == list(range(1, 201))
        stored = dict(journal.read())
        assert all(stored[answer[0]] == b"%d" % n for n, answer in enumerate(answers))
    assert len(syncs) < 50


async def test_torn_at_every_byte(tmp_path: Path) -> None:
    """Whatever part of the last record a crash left, the earlier ones stay, and the next record follows whole."""
    lines = encode_line(1, b'{"keep":1}')
    last = encode_line(2, b'{"lost":"\xc3\xa9"}')
    for cut in range(len(last)):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "20260101-000001.jsonl").write_bytes(lines + last[:cut])
        async with opened(folder) as journal:
            assert await journal.append([b'"next"']) == [2]
            assert list(journal.read()) == [(1, b'{"keep":1}'), (2, b'"next"')]
        torn = [path.read_bytes() for path in folder.glob("*.torn")]
        assert torn == ([last[:cut]] if cut else [])
        assert len(journal.repaired) == bool(cut)


async def test_zeros_at_the_end_are_torn_and_damage_before_is_skipped(tmp_path: Path) -> None:
    """A block of zeros after a power cut is cut off; a damaged line in the middle costs that line alone."""
    damaged = encode_line(2, b'{"b":2}').replace(b"2}}", b"3}}")
    good = encode_line(1, b"1") + damaged + encode_line(3, b"3")
    (tmp_path / "20260101-000001.jsonl").write_bytes(good + bytes(4096))
    async with opened(tmp_path) as journal:
        assert journal.last_seq == 3
        assert list(journal.read()) == [(1, b"1"), (3, b"3")]
        assert journal.damaged_total == 1
        assert journal.files()[0].read_bytes() == good


async def test_rotation_orders_by_number_not_by_date(tmp_path: Path) -> None:
    """Files rotate by size, and one that an earlier clock dated comes last all the same."""
    (tmp_path / "20990101-000007.jsonl").write_bytes(encode_line(5, b"5"))
    async with opened(tmp_path, rotate_bytes=60) as journal:
        assert await journal.append([b'"%s"' % (b"x" * 60)]) == [6]
        assert await journal.append([b"7"]) == [7]
        assert [path.name.split("-")[1] for path in journal.files()] == ["000007.jsonl", "000008.jsonl"]
        assert [seq for seq, _ in journal.read()] == [5, 6, 7]


@pytest.mark.parametrize("failing", ["write", "fsync"])
async def test_a_full_disk_takes_nothing_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A write that the disk refuses half-way raises Unavailable, leaves no half line, and the next one works."""
    async with opened(tmp_path) as journal:
        await journal.append([b"1"])
        with monkeypatch.context() as patch:
            real = os.write

            def no_space(fd: int, data: bytes = b"") -> int:
                if failing == "write" and len(data) > 10:
                    return real(fd, data[:10])
                raise OSError(28, "No space left on device")

            patch.setattr(os, failing, no_space)
            with pytest.raises(Unavailable, match="disk is full") as caught:
                await journal.append([b'"lost"'])
            assert caught.value.retry_after_ms > 0
            assert "disk is full" in journal.problem
        assert await journal.append([b"3"]) == [3]
        assert journal.problem == ""
        assert list(journal.read()) == [(1, b"1"), (3, b"3")]


async def test_a_folder_that_is_a_file_is_a_problem_until_it_is_not(tmp_path: Path) -> None:
    """An unusable folder is said, refuses appends, and is used as soon as it can be."""
    (tmp_path / "journal").write_text("in the way")
    async with opened(tmp_path / "journal") as journal:
        assert journal.problem
        with pytest.raises(Unavailable):
            await journal.append([b"1"])
        (tmp_path / "journal").unlink()
        assert await journal.append([b"2"]) == [2]


async def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    """Records do not go into a file that somebody deleted."""
    async with opened(tmp_path) as journal:
        await journal.append([b"1"])
        journal.files()[0].unlink()
        await journal.append([b"2"])
        assert list(journal.read()) == [(2, b"2")]


async def test_purge_keeps_seqs(tmp_path: Path) -> None:
    """Purged records leave no bytes behind, and their seqs are not given out again."""
    async with opened(tmp_path) as journal:
        await journal.append([b'"keep"', b'"secret one"', b'"secret two"'])
        assert await journal.purge(lambda seq, record: b"secret" in record) == 2
        assert list(journal.read()) == [(1, b'"keep"')]
        assert await journal.append([b"4"]) == [4]
    assert b"secret" not in bytes_of(tmp_path)
    async with opened(tmp_path) as journal:
        assert journal.last_seq == 4


async def test_reserve(tmp_path: Path) -> None:
    """Seqs start after what the index has applied, even when the journal's files are gone."""
    async with opened(tmp_path) as journal:
        await journal.reserve(41)
        assert await journal.append([b"1"]) == [42]


async def test_bounds(tmp_path: Path) -> None:
    """A full queue refuses; records that are not one line are invalid; a closed journal is unavailable."""
    journal = Journal(tmp_path, limit=2)
    await journal.open()
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    blocked = asyncio.ensure_future(journal.call(lambda: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()))
    waiting = asyncio.ensure_future(journal.append([b"1", b"2"]))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await journal.append([b"3"])
    gate.set()
    await blocked
    assert await waiting == [1, 2]
    with pytest.raises(Invalid):
        await journal.append([b"a\nb"])
    assert await journal.append([]) == []
    await journal.aclose()
    with pytest.raises(Unavailable):
        await journal.append([b"4"])
    assert journal.stats()["journal"].peak == 2


async def test_at_once_where_the_disk_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A lone record is written on the loop, fsynced and in order, once the disk has been quick for a while; never beside the
    thread's own writing, nor when the disk was slow or refused.
    """
    monkeypatch.setattr("recalld.actors.writer.journal.QUICK_S", 60.0)
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), fsync(fd)))
    async with opened(tmp_path / "journal") as journal:
        for number in range(QUICK_RUN):
            assert journal.append_now(b"0") is None
            await journal.append([b"%d" % number])
        await journal.call(lambda: None)  # the thread has put the last write behind it
        count = len(synced)
        assert await at_once(journal, b'"now"') == QUICK_RUN + 1
        assert len(synced) == count + 1
        assert await journal.append([b'"then"']) == [QUICK_RUN + 2]
        gate, running = threading.Event(), threading.Event()
        busy = asyncio.ensure_future(journal.call(lambda: (running.set(), gate.wait())))
        await asyncio.to_thread(running.wait, 30)
        assert journal.append_now(b'"beside"') is None
        gate.set()
        await busy
        monkeypatch.setattr("recalld.actors.writer.journal.QUICK_S", 0.0)
        await journal.append([b'"slow"'])
        assert journal.append_now(b'"after slow"') is None
        assert [record for _, record in journal.read(QUICK_RUN)] == [b'"now"', b'"then"', b'"slow"']


async def test_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses a record written on the loop is told to the caller, leaves no part of it, and works again later."""
    monkeypatch.setattr("recalld.actors.writer.journal.QUICK_S", 60.0)
    async with opened(tmp_path / "journal") as journal:
        for number in range(QUICK_RUN):
            await journal.append([b"%d" % number])

        def refuse(fd: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            with pytest.raises(Unavailable):
                await at_once(journal, b'"lost"')
        assert journal.problem
        assert journal.append_now(b'"later"') is None
        assert await journal.append([b'"later"']) == [QUICK_RUN + 2]
        assert not journal.problem
        assert b"lost" not in bytes_of(tmp_path / "journal")


def test_lines_are_checked() -> None:
    """A line is taken only with a matching checksum."""
    assert decode_line(encode_line(9, b'{"a": [1, "\\n"]}')) == (9, b'{"a": [1, "\\n"]}')
    with pytest.raises(ValueError, match="checksum"):
        decode_line(encode_line(9, b"12").replace(b"12}", b"13}"))
    with pytest.raises(ValueError, match="truncated"):
        decode_line(b'{"seq":1')
