"""From the journal into the index: who waits for it, and what is gathered."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from recalld.actors.writer.records import capture as records
from recalld.memory.capture import ledger

from .capturing import prompt, running


async def test_what_nobody_waits_for_is_gathered(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that come while a transaction runs do not get one of their own behind it: they wait for company, or a reader."""
    monkeypatch.setattr("recalld.actors.writer.recorder.LINGER_S", 3600.0)
    applying, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []
    apply = records.apply

    def gated(conn: Any, entries: Any, *rest: Any) -> records.Applied:
        sizes.append(len(entries))
        applying.set()
        go_on.wait(30)
        return apply(conn, entries, *rest)

    async with running(short_tmp) as rig:
        monkeypatch.setattr(records, "apply", gated)
        root = rig.checkout()
        with anyio.fail_after(30):
            put = asyncio.ensure_future(
                rig.ingest.recorder.put(ledger.HandedOff(op="expire", at_ms=1, id="handoff-none"))
            )
            await asyncio.to_thread(applying.wait, 30)
            answers = await rig.send(*(prompt("s1", root, f"Request {number}") for number in range(5)))
            go_on.set()
            await put
            await rig.db.read(lambda conn: None)  # whatever was handed to the database before is done
            assert sizes == [1]
            await rig.ingest.recorder.settle()
        assert sizes == [1, 5]
        assert rig.rows("SELECT seq FROM events ORDER BY seq") == [(answer["seq"],) for answer in answers]
