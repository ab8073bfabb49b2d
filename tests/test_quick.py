"""The model gets a session of two threads, once questions come while nothing is being indexed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest
from embedding import fake_embedding
from recalld.actors.embedder.desk import Desk, load_by_name

QUESTIONS = (
    "which database holds the invoices?",
    "x",
    "Where does the owner of the decision about retries in the payment gateway work from, and who was asked before it?",
)


class Slow:
    """An embedding whose quick sessions are counted."""

    def __init__(self, fails: bool = False) -> None:
        self._whole = fake_embedding()
        self.model = self._whole.model
        self.fails = fails
        self.loads = 0
        self.loaded = threading.Event()

    def quicken(self) -> None:
        self.loads += 1
        self.loaded.set()
        if self.fails:
            raise RuntimeError("no threads to be had")


@pytest.mark.model
def test_the_vectors_are_the_same_to_the_bit(tmp_path: Path) -> None:
    embedding = load_by_name("minilm", tmp_path, 8)
    assert embedding is not None
    before = [embedding.embed([text], query=True).vectors for text in QUESTIONS]
    embedding.quicken()
    for text, expected in zip(QUESTIONS, before, strict=True):
        assert np.array_equal(embedding.embed([text], query=True).vectors, expected)
        assert np.array_equal(embedding.embed([text]).vectors, expected)


@pytest.mark.parametrize("fails", [False, True])
async def test_it_is_loaded_once_and_not_while_something_is_indexed(fails: bool, tmp_path: Path) -> None:
    """Loading it is not tried again where it failed, until another model answers."""
    made: list[Slow] = []

    def loader(name: str, folder: Path, batch: int) -> Any:
        made.append(Slow(fails))
        return made[-1]

    desk = Desk(tmp_path, loader=loader)
    idle = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(desk.run)
        group.start_soon(desk.quicken, idle.is_set)
        for name in ("first", "second"):
            idle.clear()  # before there is another model: the last question may be looked at as late as now
            desk.insist(name)
            with anyio.fail_after(10):
                await desk.settled()
            desk.questioned()
            await anyio.wait_all_tasks_blocked()
            assert made[-1].loads == 0
            idle.set()
            desk.questioned()
            assert await anyio.to_thread.run_sync(made[-1].loaded.wait, 10)
            await anyio.wait_all_tasks_blocked()
            desk.questioned()
            await anyio.wait_all_tasks_blocked()
            assert made[-1].loads == 1
        group.cancel_scope.cancel()
