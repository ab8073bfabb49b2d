"""
Power cuts, replayed: the system calls of a real writer, cut after any of them, and what a disk may have of it then.

How the disks are made and what that leaves out stands in ``bench/power.py``: in short, only what was synced is there for
certain, names too; of the rest nothing, all, a torn beginning, or any writes in any order. This looks at as many cuts as fit
in a quarter of a minute, those right behind an acknowledgement first; ``python bench/faults.py --only power_cut`` takes more.
"""

from __future__ import annotations

from pathlib import Path

import power
import pytest
from syscalls import Op

SECONDS = 15.0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("default::ResourceWarning")
def test_acknowledged_events_and_pages_survive_a_power_cut_anywhere(short_tmp: Path) -> None:
    """After a restart each acknowledged event is there once, each page as written or newer, and the database is sound."""
    found = power.cut_everywhere(short_tmp, SECONDS)
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert found["events"] == 3 * power.ROUNDS
    assert found["pages"] == power.ROUNDS // power.EVERY
    assert found["looked_at"] > 3
    assert found["wrong"] == []


def replayed(ops: list[Op], policy: str, folder: Path) -> dict[str, bytes]:
    disk = power.Disk()
    for op in ops:
        disk.do(op)
    disk.left(folder, policy, power.random.Random(1))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_replay_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """The judge itself: bytes need a sync of their file, names one of their folder, and a sync covers what came before it."""
    ops = [
        Op("name", "a", begun=0), Op("write", "a", 0, b"one", begun=1), Op("sync", "a", begun=2), Op("sync", "", begun=3),
        Op("write", "a", 3, b"two", begun=4), Op("name", "b", begun=5), Op("write", "b", 0, b"lost", begun=6),
        Op("sync", "b", begun=7), Op("name", "d", other="/", begun=8), Op("name", "d/c", begun=9), Op("sync", "d", begun=10),
    ]  # fmt: skip
    (tmp_path / "nothing").mkdir()
    (tmp_path / "everything").mkdir()
    assert replayed(ops, "nothing", tmp_path / "nothing") == {"a": b"one"}
    assert replayed(ops, "everything", tmp_path / "everything") == {"a": b"onetwo", "b": b"lost", "d/c": b""}
