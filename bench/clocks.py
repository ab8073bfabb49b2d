"""
Jumps of the wall clock for the processes of one daemon and their clients, without the right to set the machine's.

A library of a few lines of C, compiled when it is needed and loaded before libc, adds an offset to the wall clock; the
offset is read from a mapped file, so that a change takes effect at once and everywhere. The monotonic clock stays. What
cannot be moved are times that the kernel writes: those of files that the daemon makes keep the machine's time.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from fault_kinds import Run, Skipped
from harness import Daemon, talk, until
from recalld.protocol.messages.capture import (
    HandoffList,
    Handoffs,
    PageWritten,
    Place,
    SessionInfo,
    SessionList,
    Sessions,
    WritePage,
)

DAY_S = 86_400
TEN_YEARS_S = 3653 * DAY_S
SWING_S = 2.0
LOOK_S = 22.0
"""The writer looks for what is over every 20 s."""
WATCHED = "CLOCK_OFFSET_FILE"

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *offset_s;
static const long long none = 0;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, fd, 0);
    offset_s = at == MAP_FAILED ? &none : at;
    if (fd >= 0) close(fd);
}

static long long offset(void) { return offset_s ? *offset_s : 0; }

int clock_gettime(clockid_t id, struct timespec *to)
{
    int failed = (int)syscall(SYS_clock_gettime, id, to);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) to->tv_sec += offset();
    return failed;
}

int gettimeofday(struct timeval *to, void *zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *to, int base)
{
    return base == TIME_UTC && !clock_gettime(CLOCK_REALTIME, to) ? base : 0;
}
"""

CHECK = """
import datetime, sys, time
from recalld.actors.sqlite import sqlite3
day = lambda seconds: round(seconds / 86400)
conn = sqlite3.connect(":memory:")
print(day(time.time()), day(time.time_ns() / 1e9), day(datetime.datetime.now(datetime.UTC).timestamp()),
      day(conn.execute("SELECT strftime('%s')").fetchone()[0] and float(conn.execute("SELECT strftime('%s')").fetchone()[0])),
      time.monotonic())
"""


class WallClock:
    """The wall clock of all processes that are started with ``environ``. Raises Skipped where that cannot be made."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            raise Skipped("there is no C compiler here" if compiler is None else "the clock is moved on Linux alone")
        source, library, self._offset = folder / "clock.c", folder / "clock.so", folder / "clock.offset"
        source.write_text(SHIM)
        self._offset.write_bytes(struct.pack("=q", 0))
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise Skipped(f"the library that moves the clock cannot be made: {made.stderr.strip()[:200]}")
        self.environ = {"LD_PRELOAD": str(library), WATCHED: str(self._offset)}

    def move(self, seconds: int) -> None:
        """Let the clock be ``seconds`` off the machine's."""
        with self._offset.open("r+b") as file:
            file.write(struct.pack("=q", seconds))

    def days(self) -> list[float]:
        """Days since 1970 as a new process sees them: of Python's three clocks and SQLite's; then its monotonic clock."""
        command = [sys.executable, "-P", "-c", CHECK]
        done = subprocess.run(command, env={**os.environ, **self.environ}, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]


def prepare(daemon: Daemon) -> None:
    """Give ``daemon`` and all its clients a wall clock of their own, and see that it moves. Raises Skipped."""
    clock = WallClock(daemon.folder)
    clock.move(100 * DAY_S)
    *days, monotonic = clock.days()
    now = time.time() / DAY_S
    if any(abs(day - now - 100) > 2 for day in days) or abs(monotonic - time.monotonic()) > DAY_S:
        raise Skipped(f"the clock does not move as it should: {days}")
    clock.move(0)
    daemon.environ.update(clock.environ)
    CLOCKS[daemon.folder] = clock


CLOCKS: dict[Path, WallClock] = {}
"""Of the daemons that have one, by their folder."""


class Kept:
    """What a person has when the clock begins to jump, and expects to have when it is right again."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._work = daemon.folder / "work"
        (self._work / ".git").mkdir(parents=True)
        (self._work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        place = Place(cwd=str(self._work), host="claude")
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=12)
        page = daemon.ask("writer", WritePage(path="soon-over", body="Kept until soon-over.", place=place,
                                              title="Soon over", expires=soon.isoformat(timespec="seconds")))  # fmt: skip
        assert isinstance(page, PageWritten)
        self._page = Path(page.file)
        self._hand_over("kept", "The kept gear")
        self._talk("quiet", "UserPromptSubmit", prompt="Look at the quiet gear")
        until("the handoff is there", lambda: self._handoffs().get("kept") == "open")

    def _talk(self, session: str, event: str, **more: str) -> None:
        folder = self._work / session.partition("-")[0]
        folder.mkdir(exist_ok=True)
        payload = {"session_id": session, "cwd": str(folder), "hook_event_name": event, **more}
        talk(self._daemon, {"recalld": 1, "role": "hook", "host": "claude", "event": event, "payload": payload})

    def _hand_over(self, session: str, text: str) -> None:
        self._talk(session, "UserPromptSubmit", prompt=text)
        self._talk(session, "SessionEnd", reason="other")

    def _handoffs(self) -> dict[str, str]:
        reply = self._daemon.ask("writer", HandoffList(all_projects=True))
        assert isinstance(reply, Handoffs)
        return {each.from_session: each.state for each in reply.items}

    def _sessions(self) -> dict[str, SessionInfo]:
        reply = self._daemon.ask("writer", SessionList())
        assert isinstance(reply, Sessions)
        return {each.id: each for each in reply.items}

    def meanwhile(self) -> None:
        """Work that is done while the clock is wrong, in a session that ends then."""
        self._hand_over("bench-meanwhile", "The gear of the wrong time")

    def wrong(self) -> list[str]:
        """What is not as it was, and whether work that ends now is handed over."""
        found = []
        if not self._page.exists():
            found.append("a page that holds for 12 hours more was removed")
        if not self._daemon.finds("soon-over", self._page.relative_to(self._daemon.paths.wiki).as_posix()):
            found.append("a page that holds for 12 hours more is not found")
        handoffs = self._handoffs()
        states = {session: handoffs.get(session, "not there") for session in ("kept", "bench-meanwhile")}
        found += [f"the handoff of '{session}' is {state}" for session, state in states.items() if state != "open"]
        self._hand_over("bench-after", "The gear of the right time")
        after = until("the handoff after the jumps", lambda: self._handoffs().get("bench-after"))
        if after != "open":
            found.append(f"what is handed over after the jumps is {after}")
        if self._sessions()["quiet"].ended_ms:
            found.append("a session that was quiet for a minute was ended")
        return found


def _jumping(run: Run, jumps: Iterable[tuple[int, float]]) -> None:
    """
    Let the clock be off by each of ``jumps`` (seconds, for how long), then right. An edit after each jump has
    to be found, whatever time its file is of; nothing may be missing or expired in the end, and no process replaced.
    """
    daemon, clock = run.daemon, CLOCKS[run.daemon.folder]
    kept = Kept(daemon)
    before = daemon.pids()
    for number, (offset, hold_s) in enumerate(jumps):
        clock.move(offset)
        note = daemon.write(f"jumps/{number}.md", f"# Jump {number}\n\njump{number}token\n")
        at = max(0.0, time.time() + offset)
        os.utime(note, (at, at))
        until(
            "an edit after a jump is found",
            lambda number=number: daemon.finds(f"jump{number}token", f"jumps/{number}.md"),
        )  # type: ignore[misc]  # default binds
        if number == 0:
            kept.meanwhile()
        time.sleep(hold_s)
    clock.move(0)
    daemon.write("jumps/right.md", "# Right\n\nrighttoken\n")
    until("an edit after the last jump is found", lambda: daemon.finds("righttoken", "jumps/right.md"))
    time.sleep(LOOK_S)
    run.wrong += kept.wrong()
    run.wrong += [] if daemon.pids() == before else ["processes were replaced"]
    run.wrong += _journal_problems(daemon)
    # The last sweep's time may be of the wrong clock: a Settle that compares it would not wait.
    until(
        "a sweep under the right clock",
        lambda: 0 < daemon.figure("watcher", "all_swept_ms") <= time.time() * 1000 + 1000,
    )


def _journal_problems(daemon: Daemon) -> list[str]:
    last, wrong = 0, []
    for path in sorted(daemon.paths.journal.glob("*.jsonl"), key=lambda path: path.stem.rpartition("-")[2]):
        for line in path.read_bytes().splitlines():
            seq = int(json.loads(line)["seq"])
            if seq <= last:
                wrong.append(f"{path.name}: {seq} follows {last}")
            last = seq
    return wrong[:3]


def clock_day_ahead(run: Run) -> None:
    """The wall clock goes a day ahead, and back."""
    _jumping(run, [(DAY_S, run.seconds)])


def clock_day_back(run: Run) -> None:
    """The wall clock goes a day back, and is right again."""
    _jumping(run, [(-DAY_S, run.seconds)])


def clock_ten_years(run: Run) -> None:
    """The wall clock goes ten years ahead, and back."""
    _jumping(run, [(TEN_YEARS_S, run.seconds)])


def clock_1970(run: Run) -> None:
    """The wall clock goes back to the first hour of 1970, as on a machine whose battery is empty, and is right again."""
    _jumping(run, [(int(600 - time.time()), run.seconds)])


def clock_swings(run: Run) -> None:
    """The wall clock jumps every two seconds: hours, a day, years, back and forth."""
    swings = itertools.cycle((3600, -3600, DAY_S, 0, -DAY_S, TEN_YEARS_S, int(600 - time.time())))
    _jumping(run, [(offset, SWING_S) for offset in itertools.islice(swings, max(1, int(run.seconds / SWING_S)))])


CLOCK_FAULTS = {
    each.__name__: each for each in (clock_day_ahead, clock_day_back, clock_ten_years, clock_1970, clock_swings)
}
