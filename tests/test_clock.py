"""A wall clock that is wrong, or is set: nothing is removed by it for good, and what was left meanwhile is not lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from recalld.actors.writer import spool as spools
from recalld.memory.capture import clock
from recalld.memory.capture.clock import GAP_MS, STEADY_MS
from recalld.protocol.messages.capture import HandoffList, Place, SessionList, WritePage
from recalld.protocol.messages.index import ClaimChunks

from .capturing import Rig, ended, prompt, running, started
from .watching import watching
from .writer_stand import writer_at

DAY_S = 86_400
TEN_YEARS_S = 3653 * DAY_S
DAY_MS = DAY_S * 1000
WALL, UP = 1_790_000_000_000, 5_000_000


class Jump:
    """The clocks of this process: ``wall_s`` is added to the wall clock, ``later_s`` to both."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s = self.later_s = 0.0
        wall, steady, monotonic = time.time_ns, time.clock_gettime_ns, time.monotonic
        monkeypatch.setattr(time, "time_ns", lambda: wall() + int((self.wall_s + self.later_s) * 1e9))
        monkeypatch.setattr(time, "clock_gettime_ns", lambda which: steady(which) + int(self.later_s * 1e9))
        monkeypatch.setattr(spools.time, "monotonic", lambda: monotonic() + self.later_s)

    @property
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Jump:
    return Jump(monkeypatch)


def test_a_jump_is_believed_after_an_hour_and_its_undoing_at_once() -> None:
    """What goes on evenly is believed, through slow corrections too."""
    now = clock.begin(WALL, UP, WALL - DAY_MS)
    assert clock.is_believed(now)
    for minute in range(120):  # a second too fast each minute: never a jump
        now = clock.look(now, WALL + minute * 61_000, UP + minute * 60_000)
        assert clock.is_believed(now)
    at = UP + 120 * 60_000
    right = WALL + 120 * 61_000
    now = clock.look(now, right + 2 * DAY_MS, at)
    assert not clock.is_believed(now)
    assert clock.is_believed(clock.look(now, right + 1, at + 1))
    now = clock.look(now, right + 2 * DAY_MS + STEADY_MS - 1, at + STEADY_MS - 1)
    assert not clock.is_believed(now)
    assert clock.is_believed(clock.look(now, right + 2 * DAY_MS + STEADY_MS, at + STEADY_MS))


def test_a_start_long_after_or_before_everything_known_is_doubtful() -> None:
    """A machine that comes up with a wrong clock shows it by what the index knows; a new index knows nothing."""
    assert clock.is_believed(clock.begin(WALL, UP, 0))
    assert not clock.is_believed(clock.begin(WALL, UP, WALL - GAP_MS - 1))
    doubtful = clock.begin(600_000, UP, WALL)
    assert not clock.is_believed(doubtful)
    assert clock.is_believed(clock.look(doubtful, 600_000 + STEADY_MS, UP + STEADY_MS))


def test_a_steady_clock_is_believed_against_what_was_recorded_ahead() -> None:
    """It must go on from where it was steady: neither one that is behind it nor one far ahead is believed for that."""
    ahead = WALL + 3653 * DAY_MS
    assert not clock.is_believed(clock.begin(WALL, UP, ahead))
    for wall_ms, believed in ((WALL + DAY_MS, True), (WALL - DAY_MS, False), (WALL + GAP_MS + 1, False)):
        assert clock.is_believed(clock.begin(wall_ms, UP, ahead, WALL)) == believed
    begun = clock.begin(WALL, UP, WALL)
    assert not clock.is_steady(clock.look(begun, WALL + STEADY_MS - 1, UP + STEADY_MS - 1), UP + STEADY_MS - 1)
    assert clock.is_steady(clock.look(begun, WALL + STEADY_MS, UP + STEADY_MS), UP + STEADY_MS)


async def live(rig: Rig) -> set[str]:
    found = await rig.ingest.handlers[SessionList](SessionList())
    return {each.id for each in found.items if not each.ended_ms}


async def test_a_jump_ends_no_session_and_expires_no_handoff(short_tmp: Path, jump: Jump) -> None:
    """Ten years ahead they all seem over. What really is over goes when the clock is right, or has stayed as it is."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(
            prompt("over", root, "Fix the gear", jump.now_ms),
            ended("over", root, jump.now_ms),
            prompt("runs", root, "Oil the gear", jump.now_ms),
        )
        await rig.ingest.settle()

        async def handoffs() -> list[str]:
            await rig.ingest.ends.end_overdue(rig.env.config.capture)
            await rig.ingest.settle()
            found = await rig.ingest.handlers[HandoffList](HandoffList(all_projects=True))
            return [each.state for each in found.items if each.from_session == "over"]

        for wall_s in (DAY_S, TEN_YEARS_S, -TEN_YEARS_S, 0):
            jump.wall_s = wall_s
            assert await handoffs() == ["open"]
            assert await live(rig) == {"runs"}
        jump.wall_s = TEN_YEARS_S
        assert await handoffs() == ["open"]
        jump.later_s = STEADY_MS / 1000 + 1
        assert await handoffs() == ["expired"]
        assert await live(rig) == set()


async def test_a_page_outlives_a_wrong_clock(short_tmp: Path, jump: Jump) -> None:
    """Its file is not removed by a clock that was just set; by one that stays as it is, it is."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        soon = time.strftime("%Y-%m-%d", time.gmtime(jump.now_ms / 1000 + DAY_S))
        await rig.ingest.handlers[WritePage](WritePage(path="a", body="Gear.", place=place, expires=soon))
        jump.wall_s = TEN_YEARS_S
        await rig.ingest.ends.remove_expired()
        assert list(rig.pages()) == ["acme-widgets/notes/a.md"]
        jump.later_s = STEADY_MS / 1000 + 1
        await rig.ingest.ends.remove_expired()
        assert list(rig.pages()) == []


async def test_a_session_that_ran_while_the_clock_was_ahead_ends_when_it_is_idle(short_tmp: Path, jump: Jump) -> None:
    """By its own time that would be in ten years."""
    async with running(short_tmp) as rig:
        jump.wall_s = TEN_YEARS_S
        await rig.send(prompt("s1", rig.checkout(), "Fix the gear", jump.now_ms))
        await rig.ingest.settle()
        jump.wall_s = 0
        await rig.ingest.ends.end_overdue(rig.env.config.capture)
        assert await live(rig) == {"s1"}
        jump.later_s = 121 * 60
        await rig.ingest.ends.end_overdue(rig.env.config.capture)
        await rig.ingest.settle()
        assert await live(rig) == set()


@pytest.mark.parametrize("way", ["socket", "spool"])
async def test_a_session_that_ended_while_the_clock_was_ahead_is_resumed(short_tmp: Path, jump: Jump, way: str) -> None:
    """
    Its end lies ten years ahead, and yet it lives again, gives back what it handed over, and ends again with a handoff that
    holds. A new index makes the same of the journal.
    """

    async def handoffs() -> list[str]:
        await rig.ingest.settle()
        return [row[0] for row in rig.rows("SELECT state FROM handoffs ORDER BY state")]

    async with running(short_tmp) as rig:
        root = rig.checkout()
        jump.wall_s = TEN_YEARS_S
        await rig.send(prompt("s1", root, "Fix the gear", jump.now_ms), ended("s1", root, jump.now_ms))
        assert await handoffs() == ["open"]
        late = prompt("s1", root, "Before the end", jump.now_ms - 1000)
        jump.wall_s = 0
        # A prompt that the client had spooled while the clock was ahead comes late, as it would have then.
        rig.paths.spool.mkdir(exist_ok=True)
        (rig.paths.spool / "1-1-1.json").write_bytes(spools.msgspec.json.encode(late))
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert await live(rig) == set()
        again = prompt("s1", root, "And the axle", jump.now_ms)
        if way == "socket":
            await rig.send(again)
        else:
            (rig.paths.spool / "2-1-1.json").write_bytes(spools.msgspec.json.encode(again))
            await rig.ingest.spool.drain()
        assert await handoffs() == ["expired"]
        assert await live(rig) == {"s1"}
        await rig.send(ended("s1", root, jump.now_ms))
        assert await handoffs() == ["expired", "open"]
        assert await live(rig) == set()
        before = rig.rows("SELECT id, started_ms, last_ms, ended_ms, events FROM sessions")
    for file in rig.paths.data.glob("recalld.sqlite*"):
        file.unlink()
    async with running(short_tmp) as rig:
        await rig.ingest.settle()
        assert rig.rows("SELECT id, started_ms, last_ms, ended_ms, events FROM sessions") == before
        assert await handoffs() == ["expired", "open"]


async def test_a_start_after_a_jump_replaces_nobody(short_tmp: Path, jump: Jump) -> None:
    """Another window in the folder of a session that was heard of a moment ago leaves it alone, whatever the clock says."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(started("s1", root, jump.now_ms), prompt("s1", root, "Fix the gear", jump.now_ms))
        jump.wall_s = DAY_S
        await rig.send(started("s2", root, jump.now_ms))
        await rig.ingest.settle()
        assert await live(rig) == {"s1", "s2"}
        jump.later_s = 11 * 60
        await rig.send(started("s3", root, jump.now_ms))
        await rig.ingest.settle()
        assert await live(rig) == {"s3"}


async def test_a_writer_that_starts_with_a_wrong_clock_keeps_what_there_is(short_tmp: Path, jump: Jump) -> None:
    """It compares its clock with the newest thing that it knows."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(prompt("over", root, "Fix the gear", jump.now_ms), ended("over", root, jump.now_ms))
        await rig.ingest.settle()
    jump.wall_s = TEN_YEARS_S
    async with running(short_tmp) as rig:
        await rig.ingest.ends.end_overdue(rig.env.config.capture)
        await rig.ingest.settle()
        assert rig.rows("SELECT state FROM handoffs") == [("open",)]


async def test_events_of_a_time_far_ahead_make_one_hour_doubtful(short_tmp: Path, jump: Jump) -> None:
    """Once the clock has gone on evenly for an hour, the next start believes it; one that stands far ahead it does not."""
    async with running(short_tmp) as rig:
        jump.wall_s = TEN_YEARS_S
        await rig.send(prompt("s1", rig.checkout(), "Fix the gear", jump.now_ms))
        await rig.ingest.settle()
        jump.wall_s = 0
        await rig.ingest.ends.remove_expired()
    for away_s, runs_s, believed in ((0, 0, False), (0, 3601, True), (60, 0, True), (400 * DAY_S, 0, False)):
        jump.later_s += away_s
        async with running(short_tmp) as rig:
            jump.later_s += runs_s
            await rig.ingest.ends.remove_expired()
            assert rig.ingest.ends.clock.is_believed == believed


async def test_old_versions_outlive_a_wrong_clock(short_tmp: Path, jump: Jump) -> None:
    """An edit prunes the versions of its note that are too old, but not by a clock that was just set."""
    async with writer_at(short_tmp) as stand:
        vault = await stand.open_vault()
        for text in ("first", "second"):
            await stand.put(vault, note=text)
        jump.wall_s = TEN_YEARS_S + 30 * DAY_S
        await stand.put(vault, note="third")
        assert stand.writer.rules.keep_days > TEN_YEARS_S / DAY_S + 30
        jump.wall_s = 0
        assert stand.writer.rules.keep_days == stand.writer.env.config.history.keep_days


async def test_old_versions_of_pages_do_too(short_tmp: Path, jump: Jump) -> None:
    """The wiki's pages come into the index by another way than the notes of watched folders."""
    async with running(short_tmp) as rig:
        write = rig.ingest.handlers[WritePage]
        place = Place(cwd=str(rig.checkout()))
        for text, jump.wall_s in (("first", 0), ("second", 0), ("third", TEN_YEARS_S + 30 * DAY_S)):
            await write(WritePage(path="gear", body=text, place=place))
        assert len(rig.rows("SELECT id FROM notes WHERE valid_to IS NOT NULL")) == 2


async def test_a_jump_is_no_death_of_the_embedder(short_tmp: Path, jump: Jump) -> None:
    """What it is working on is not given out again, nor counted as tried: three jumps would set it aside."""
    async with writer_at(short_tmp) as stand:
        model = await stand.use_model()
        await stand.put(await stand.open_vault(), note="text")
        claim = ClaimChunks(model_id=model, limit=8, lease_ms=60_000, wait_ms=1)
        claimed = await stand.ask(claim)
        assert len(claimed.chunks) == 1
        for jump.wall_s in (DAY_S, -DAY_S, 0, TEN_YEARS_S):
            assert (await stand.ask(claim)).chunks == ()
        assert (await stand.store(model, claimed)).changed == 1


async def test_the_time_of_a_sweep_follows_the_clock(tmp_path: Path, jump: Jump) -> None:
    """Whoever waits for a sweep that began after now is neither told of an older one nor left waiting for a day."""
    async with watching(tmp_path) as place:
        place.write("a.md", "a")
        await place.writer.until(lambda: place.actor.vitals().figures["all_swept_ms"])
        for jump.wall_s in (DAY_S, 0, -DAY_S, TEN_YEARS_S):
            age_ms = jump.now_ms - place.actor.vitals().figures["all_swept_ms"]
            assert 0 <= age_ms < DAY_MS / 2


async def test_two_copies_across_a_jump_are_one_event(short_tmp: Path, jump: Jump) -> None:
    """A client whose acknowledgement is late leaves the same event in the spool, which is read by another clock."""
    async with running(short_tmp) as rig:
        jump.wall_s = TEN_YEARS_S
        line = prompt("s1", rig.checkout(), "Fix the gear", jump.now_ms)
        await rig.send(line)
        jump.wall_s = 0
        await rig.send(line)
        await rig.ingest.settle()
        assert len(rig.rows("SELECT seq FROM events")) == 1


async def test_a_file_in_the_spool_that_never_got_its_name(short_tmp: Path, jump: Jump) -> None:
    """
    A client that was let go while its disk was busy leaves a whole event under the name of an unfinished one: it is taken
    in. Half of one is removed. Neither by a clock that jumps: the client may be writing at this moment.
    """
    folder = short_tmp / "d" / "spool"
    folder.mkdir(parents=True)
    async with running(short_tmp) as rig:
        line = spools.msgspec.json.encode(prompt("s1", rig.checkout(), "Fix the gear"))
        (folder / "1-1-1.json.tmp").write_bytes(line)
        (folder / "2-1-1.json.tmp").write_bytes(line[:-9])
        jump.wall_s = DAY_S
        await rig.ingest.spool.drain()
        await rig.ingest.spool.drain()
        assert len(list(folder.glob("*.tmp"))) == 2
        jump.later_s = spools.SETTLE_S + 1
        await rig.ingest.spool.drain()
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert rig.rows("SELECT session FROM events") == [("s1",)]
        assert [path for path in folder.iterdir() if path.is_file()] == []
