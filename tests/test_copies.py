"""Copies of one event: journalled once, and none acknowledged before the disk has it."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from .capturing import FIRST_MS, Rig, prompt, running


@pytest.mark.parametrize("later_ms", [0, 900])
@pytest.mark.parametrize("refused", [True, False])
async def test_a_copy_shares_the_fate_of_the_first(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, refused: bool, later_ms: int
) -> None:
    """A copy that comes while the first is not on the disk yet waits for it: both are durable, or both are to come again."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        first = prompt("s1", root, "Fix the gear")
        copy = prompt("s1", root, "Fix the gear", FIRST_MS + later_ms)
        at_the_disk, go_on = threading.Event(), threading.Event()
        fsync = os.fsync

        def slow(fd: int) -> None:
            at_the_disk.set()
            go_on.wait(30)
            if refused:
                raise OSError(28, "No space left on device")
            fsync(fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", slow)
            answers = _taken(rig, first)
            await asyncio.to_thread(at_the_disk.wait, 30)
            copies = [_taken(rig, copy), _taken(rig, copy)]
            early = [queue.qsize() for queue in (answers, *copies)]
            go_on.set()
            with anyio.fail_after(30):
                told = [await queue.get() for queue in (answers, *copies)]
        assert early == [0, 0, 0]
        if refused:
            assert [answer["error"] for answer in told] == ["unavailable"] * 3
            assert all(answer["retry_after_ms"] > 0 for answer in told)
            assert list(rig.ingest.journal.read()) == []
        else:
            assert [answer["ok"] for answer in told] == [True] * 3
            assert [answer.get("duplicate", False) for answer in told] == [False, True, True]
        # Nothing waits any more; what was refused is taken when it comes again, what is durable is known.
        assert rig.ingest.stats()["events"].depth == 0
        [again] = await rig.send(copy)
        assert again["ok"]
        assert again.get("duplicate", False) is not refused
        assert len(list(rig.ingest.journal.read())) == 1


async def test_copies_that_wait_count_as_events_in_flight(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are bounded as everything else that waits for the disk."""
    monkeypatch.setattr("recalld.actors.writer.reception.IN_FLIGHT", 2)
    async with running(short_tmp) as rig:
        line = prompt("s1", rig.checkout(), "Fix the gear")
        queues = [_taken(rig, line) for _ in range(3)]
        with anyio.fail_after(30):
            told = [await queue.get() for queue in queues]
        assert [answer.get("error", "") for answer in told] == ["", "", "overloaded"]


def _taken(rig: Rig, line: dict[str, Any]) -> asyncio.Queue[dict[str, Any]]:
    """Hand a line to the door's other side; where its acknowledgement comes."""
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    rig.ingest.reception.take(json.dumps(line).encode(), lambda text: answers.put_nowait(json.loads(text)))
    return answers
