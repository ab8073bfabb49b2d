"""Files in the spool that the system lets be neither read nor removed: they hold up nobody, and are said to be there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from recalld.actors.writer import spool as spool_module
from recalld.clients.doctor import Patient, _spool
from recalld.protocol.messages.capture import PurgeSession

from .capturing import FIRST_MS, Rig, ended, prompt, ran, running, wire

STUCK = "2-1-1.json"


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What is forbidden to everybody, by the name of the method ("read_bytes", "unlink") for the file STUCK."""
    wrong: set[str] = set()
    monkeypatch.setattr(spool_module, "AGAIN_S", 0.0)

    def unless_forbidden(name: str) -> Callable[..., object]:
        method = getattr(Path, name)

        def call(path: Path, *arguments: object, **more: object) -> object:
            if path.name == STUCK and name in wrong:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path, *arguments, **more)

        return call

    for name in ("read_bytes", "unlink"):
        monkeypatch.setattr(Path, name, unless_forbidden(name))
    return wrong


def fill(rig: Rig) -> list[dict[str, object]]:
    """A session in the spool whose tool call is the file STUCK."""
    root = rig.checkout()
    lines = [
        prompt("session-1", root, "Fix the gear"),
        ran("session-1", root, "make", at_ms=FIRST_MS + 1000),
        ended("session-1", root, FIRST_MS + 2000),
    ]
    rig.paths.spool.mkdir(exist_ok=True)
    for number, line in enumerate(lines, 1):
        (rig.paths.spool / f"{number}-1-1.json").write_text(json.dumps(line))
    return lines


async def drained(rig: Rig) -> int:
    """Look through the spool; how many were taken in until then. It is also looked through every two seconds."""
    await rig.ingest.spool.drain()
    return rig.ingest.spool.delivered_total


def waiting(rig: Rig) -> list[str]:
    return sorted(path.name for path in rig.paths.spool.glob("*.json"))


async def test_an_unreadable_file_is_passed_over_until_it_can_be_read(
    short_tmp: Path, forbidden: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """
    What follows is taken in, also of its session. The file is named, once in the log and for as long as it lies there in
    status; once it can be read it is taken in, and makes the session's page whole.
    """
    async with running(short_tmp) as rig:
        fill(rig)
        forbidden.add("read_bytes")
        assert await drained(rig) == 2
        assert await drained(rig) == 2
        await rig.ingest.settle()
        assert rig.rows("SELECT kind FROM events ORDER BY seq") == [("user-prompt",), ("session-end",)]
        assert waiting(rig) == [STUCK]
        assert rig.ingest.figures()["spool_waiting"] == 1
        facts = rig.ingest.facts()
        assert "spool" not in facts
        for word in (STUCK, "Permission denied", "chmod", "delete"):
            assert word in facts["spool_held"]
        assert caplog.text.count(STUCK) == 1
        forbidden.clear()
        assert await drained(rig) == 3
        await rig.ingest.settle()
        assert "make" in "".join(rig.pages().values())
        assert waiting(rig) == []
        assert "spool_held" not in rig.ingest.facts()


async def test_its_copy_by_another_way_is_stored_once(short_tmp: Path, forbidden: set[str]) -> None:
    """Its client may have left the file after the daemon had taken the event."""
    async with running(short_tmp) as rig:
        lines = fill(rig)
        forbidden.add("read_bytes")
        await rig.ingest.spool.drain()
        await rig.send(lines[1])
        forbidden.clear()
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert len(rig.rows("SELECT seq FROM events")) == 3


async def test_a_file_that_cannot_be_removed_is_taken_in_once(short_tmp: Path, forbidden: set[str]) -> None:
    """Nor does it keep those behind it from being removed. It is removed when that can be done."""
    async with running(short_tmp) as rig:
        fill(rig)
        forbidden.add("unlink")
        assert await drained(rig) == 3
        assert await drained(rig) == 3
        await rig.ingest.settle()
        assert len(list(rig.ingest.journal.read())) == len(rig.rows("SELECT seq FROM events")) + 1  # the page's entry
        assert waiting(rig) == [STUCK]
        assert rig.ingest.figures()["spool_waiting"] == 0
        assert STUCK in rig.ingest.facts()["spool_held"]
        forbidden.clear()
        await rig.ingest.spool.drain()
        assert waiting(rig) == []


async def test_what_cannot_be_set_aside_holds_up_nobody(short_tmp: Path) -> None:
    """Something stands where the folder of dead letters should be."""
    async with running(short_tmp) as rig:
        fill(rig)
        (rig.paths.spool / "0-1-1.json").write_text("{not json")
        (rig.paths.spool / "1-1-0.json").symlink_to("/nowhere")
        (rig.paths.spool / "dead").write_text("no folder")
        assert await drained(rig) == 3
        assert waiting(rig) == ["0-1-1.json", "1-1-0.json"]
        assert (rig.ingest.spool.waiting, rig.ingest.spool.dead_letters) == (2, 0)


def test_the_files_that_are_held_are_bounded_in_words(short_tmp: Path) -> None:
    """A few are named."""
    held = {f"{number}.json": spool_module.Held("Permission denied", False, 0.0) for number in range(9)}
    assert "2.json (Permission denied) and 6 more" in spool_module.in_words(short_tmp, held)


async def test_a_purge_says_what_it_could_not_look_into(short_tmp: Path, forbidden: set[str]) -> None:
    """The file may hold what is to be purged."""
    async with running(short_tmp) as rig:
        fill(rig)
        forbidden.add("read_bytes")
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        done = await rig.ingest.handlers[PurgeSession](PurgeSession(session="session-1"))
        assert done.report["spool"].startswith("0 files; 1 could not be read")


def test_doctor_names_what_cannot_be_read_without_a_daemon(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one, it says what the daemon says."""
    rig = Rig(short_tmp)
    rig.listener.close()
    rig.paths.spool.mkdir()
    (rig.paths.spool / STUCK).write_text(json.dumps(wire({})))
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != STUCK)
    [finding, _] = _spool(Patient(rig.paths, short_tmp))
    assert (finding.level, STUCK in finding.text, "chmod" in finding.do) == ("warn", True, True)
