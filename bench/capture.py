"""
How fast events become durable, and how fast sessions end.

    python bench/capture.py [--json OUT] [--seconds 4] [--producers 1,8,32,128] [--pages 100,1000,10000] [--fsync-ms X]

Runs the real writer actor as its own process on a folder of this disk. Each producer sends one event over ``events.sock``
and waits for its acknowledgement before the next, as hooks do; it makes the next one while it waits. Redaction and journal
are included. In the same run: a raw write + fsync per record, and one SQLite commit (FULL) per event, on the same disk.
Session ends per minute are counted from the first end to the moment the last page stands in the wiki's git history.

For one producer, ``of_raw`` is its rate as a share of the raw fsync rate, and ``overhead_us`` by how much the median round
trip is longer than the median raw fsync: sending, both wake-ups, and what the writer does before it acknowledges. The share
depends on the disk as much as on the program: an fsync of 70 us (a virtual disk that flushes nothing) leaves less room than
one of 350 us (a good SSD). ``--fsync-ms X`` lets each fsync take at least X ms, in the raw loops and in the writer alike, to
see the share on such a disk: a library built with ``cc`` and preloaded into both sleeps for what is missing. Of the program
nothing is changed for it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from recalld.actors.base import Birth
from recalld.protocol import sockets
from recalld.protocol.client import ask_sync
from recalld.protocol.messages.index import Settle
from recalld.protocol.runtime import Paths

OUTPUT = "\n".join(f"test_gear_{n} ... ok" for n in range(12)) + "\n41 passed, 1 failed: test_gear_ratio"
RAW_RECORD = b"x" * 700
"""About the size of a journal line of the events sent here."""
SLOW_FSYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

static int slowly(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += FSYNC_NS;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    int result = real(fd), why = errno;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0) == EINTR) {}
    errno = why;
    return result;
}

int fsync(int fd) { return slowly("fsync", fd); }
int fdatasync(int fd) { return slowly("fdatasync", fd); }
"""


def make_checkout(cwd: str) -> None:
    Path(cwd, ".git").mkdir(parents=True)
    Path(cwd, ".git", "HEAD").write_text("ref: refs/heads/main\n")


def line(producer: int, number: int, cwd: str) -> bytes:
    """A tool event as Claude Code sends it, with a secret in every 16th command."""
    command = f"ninja -C build test_{number}" + (" --token ghp_" + "a1B2c3D4e5" * 4 if number % 16 == 0 else "")
    payload = {
        "session_id": f"bench-{producer}",
        "transcript_path": f"{cwd}/t.jsonl",
        "cwd": cwd,
        "prompt_id": "p-1",
        "permission_mode": "default",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command, "description": "Run unit tests"},
        "tool_use_id": f"toolu_{producer}_{number}",
        "tool_response": {"stdout": OUTPUT, "stderr": "", "interrupted": False, "isImage": False},
        "duration_ms": 812,
    }
    return wire("PostToolUse", payload, cwd)


def wire(event: str, payload: dict[str, Any], cwd: str) -> bytes:
    return json.dumps(
        {"recalld": 1, "role": "hook", "host": "claude", "event": event, "cwd": cwd, "payload": payload,
         "sent_ms": time.time_ns() // 1_000_000}
    ).encode() + b"\n"  # fmt: skip


def produce(path: str, first: int, count: int, seconds: float, cwd: str, out: Any) -> None:
    """``count`` producers of one process: each waits for an acknowledgement before its next event."""
    selector = selectors.DefaultSelector()
    numbers = [0] * count
    started = [0.0] * count
    made = [line(first + index, 1, cwd) for index in range(count)]
    took: list[float] = []
    until = time.perf_counter() + seconds
    for index in range(count):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        selector.register(client, selectors.EVENT_READ, index)
        started[index] = time.perf_counter()
        client.sendall(line(first + index, 0, cwd))
    waiting = count
    while waiting:
        for key, _ in selector.select(30):
            client, index = key.fileobj, key.data
            assert isinstance(client, socket.socket)
            answer = client.recv(4096)
            now = time.perf_counter()
            took.append(now - started[index])
            if not answer.startswith(b'{"ok":true,"seq":'):
                raise SystemExit(f"refused: {answer!r}")
            if now >= until:
                selector.unregister(client)
                waiting -= 1
                continue
            started[index] = time.perf_counter()
            client.sendall(made[index])
            numbers[index] += 1
            made[index] = line(first + index, numbers[index] + 1, cwd)
    out.put(took)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slow_fsync(folder: Path, fsync_ms: float) -> dict[str, str]:
    """The environment in which each fsync takes at least ``fsync_ms``."""
    source, library = folder / "slow_fsync.c", folder / "slow_fsync.so"
    source.write_text(SLOW_FSYNC)
    ns = f"-DFSYNC_NS={round(fsync_ms * 1e6)}L"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", ns, "-o", str(library), str(source), "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


@contextmanager
def writer(folder: Path, environment: dict[str, str] | None = None) -> Iterator[tuple[Paths, int]]:
    """The writer actor, as the supervisor starts it."""
    paths = Paths(folder / "data", folder / "run")
    paths.data.mkdir(mode=0o700, exist_ok=True)
    paths.runtime.mkdir(mode=0o700, exist_ok=True)
    ours, theirs = socket.socketpair()
    listeners = {name: sockets.bind(paths.socket(name)) for name in ("writer", "events")}
    for each in (theirs, *listeners.values()):
        each.set_inheritable(True)
    birth = Birth(
        name="writer", generation=1, parent_pid=os.getpid(), control_fd=theirs.fileno(),
        listeners={name: each.fileno() for name, each in listeners.items()}, data=str(paths.data),
        runtime=str(paths.runtime),
    )  # fmt: skip
    import msgspec

    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "recalld.actors.writer", msgspec.json.encode(birth).decode()],
        pass_fds=[birth.control_fd, *birth.listeners.values()],
        cwd="/",
        env=environment,
    )
    try:
        for each in (theirs, *listeners.values()):
            each.close()
        ask_sync(paths.socket("writer"), Settle(), budget_ms=60_000)
        yield paths, process.pid
    finally:
        process.terminate()
        ours.close()
        process.wait(20)


def measure_producers(paths: Paths, pid: int, producers: int, seconds: float, cwd: str, base: int) -> dict[str, float]:
    out: Any = multiprocessing.Queue()
    processes = 1 if producers < 32 else 2
    share = producers // processes
    started, used = time.perf_counter(), cpu_s(pid)
    workers = [
        multiprocessing.Process(
            target=produce, args=(str(paths.socket("events")), base + n * share, share, seconds, cwd, out)
        )
        for n in range(processes)
    ]
    for each in workers:
        each.start()
    took: list[float] = []
    for _ in workers:
        took += out.get(timeout=seconds + 60)
    for each in workers:
        each.join()
    took.sort()
    settle_started = time.perf_counter()
    ask_sync(paths.socket("writer"), Settle(), budget_ms=600_000)
    return {
        "events_s": round(len(took) / seconds),
        "p50_ms": round(took[len(took) // 2] * 1000, 3),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 2),
        "events": len(took),
        "writer_cpu_us_per_event": round((cpu_s(pid) - used) / len(took) * 1e6),
        "behind_s": round(time.perf_counter() - settle_started, 2),
        "wall_s": round(time.perf_counter() - started, 2),
    }


def measure_raw_fsync(folder: Path, seconds: float) -> dict[str, float]:
    fd = os.open(folder / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    took: list[float] = []
    started = time.perf_counter()
    while (before := time.perf_counter()) - started < seconds:
        os.write(fd, RAW_RECORD)
        os.fsync(fd)
        took.append(time.perf_counter() - before)
    os.close(fd)
    return {"raw_fsync_s": round(len(took) / (before - started)), "raw_fsync_p50_us": round(median(took) * 1e6)}


def measure_commit_each(folder: Path, seconds: float) -> float:
    conn = sqlite3.connect(folder / "each.sqlite", isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, session TEXT, event BLOB)")
    conn.execute("CREATE INDEX by_session ON events (session, id)")
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        conn.execute("INSERT INTO events (session, event) VALUES (?, ?)", (f"s{count % 128}", RAW_RECORD))
        count += 1
    took = time.perf_counter() - started
    conn.close()
    return round(count / took)


def measure_disk(folder: Path, seconds: float, environment: dict[str, str] | None) -> dict[str, float]:
    """Both measurements of the disk, in a process of their own: what is preloaded there must not slow this one."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--raw", str(folder), "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def fill_wiki(paths: Paths, pages: int) -> None:
    """A wiki with ``pages`` pages in its history, as a person would have it after years."""
    folder = paths.wiki / "acme" / "notes"
    for number in range(pages):
        sub = folder / f"{number // 100:03}"
        sub.mkdir(parents=True, exist_ok=True)
        (sub / f"note-{number}.md").write_text(f"# Note {number}\n\nGears of kind {number % 97} turn slowly.\n")
    git = ["git", "-C", str(paths.wiki), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(paths.wiki)], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "fill"], check=True)


def measure_ends(pages: int, ends: int, where: Path) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(dir=where))
    try:
        cwd = str(folder / "acme")
        make_checkout(cwd)
        fill_wiki(Paths(folder / "data", folder / "run"), pages)
        with writer(folder) as (paths, _):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(paths.socket("events")))
                answers = client.makefile("rb")
                started = time.perf_counter()
                for number in range(ends):
                    base = {"session_id": f"end-{number:06}", "cwd": cwd, "prompt_id": f"p{number}"}
                    prompt = {**base, "hook_event_name": "UserPromptSubmit", "prompt": f"Why does gear {number} stick?"}
                    tool = {**base, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_use_id": f"t{number}",
                            "tool_input": {"command": "ninja test"}, "tool_response": {"stdout": OUTPUT}}  # fmt: skip
                    end = {**base, "hook_event_name": "SessionEnd", "reason": "other"}
                    for name, payload in (("UserPromptSubmit", prompt), ("PostToolUse", tool), ("SessionEnd", end)):
                        client.sendall(wire(name, payload, cwd))
                        answers.readline()
                ask_sync(paths.socket("writer"), Settle(), budget_ms=600_000)
                took = time.perf_counter() - started
            written = sum(1 for _ in paths.wiki.glob("acme/sessions/**/*.md"))
            assert written == ends, f"{written} pages of {ends} sessions"
        return {"ends_per_min": round(ends / took * 60), "ms_per_end": round(took / ends * 1000, 2)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="OUT", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--producers", default="1,8,32,128")
    parser.add_argument("--pages", default="100,1000,10000", help="sizes of the wiki; '' = leave out")
    parser.add_argument("--ends", type=int, default=300, help="sessions to end in each wiki")
    parser.add_argument("--dir", default=None, help="measure on the disk of this folder")
    parser.add_argument("--fsync-ms", type=float, default=0.0, help="let each fsync take at least this long; needs cc")
    parser.add_argument("--raw", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.raw:
        raw, share = Path(options.raw), options.seconds / 2
        print(json.dumps({**measure_raw_fsync(raw, share), "commit_each_s": measure_commit_each(raw, share)}))
        return
    folder = Path(tempfile.mkdtemp(prefix="recalld-bench-", dir=options.dir))
    report: dict[str, Any] = {"producers": {}}
    try:
        cwd = str(folder / "acme")
        make_checkout(cwd)
        environment = slow_fsync(folder, options.fsync_ms) if options.fsync_ms else None
        if options.fsync_ms:
            report["fsync_ms_at_least"] = options.fsync_ms
        report |= measure_disk(folder, options.seconds, environment)
        with writer(folder, environment) as (paths, pid):
            for base, producers in enumerate(int(each) for each in options.producers.split(",") if each):
                figures = measure_producers(paths, pid, producers, options.seconds, cwd, base * 1000)
                if producers == 1:
                    # A disk that others use too is not the same a second later: measured before and behind.
                    again = measure_disk(folder / "again", options.seconds, environment)
                    for key in ("raw_fsync_s", "raw_fsync_p50_us"):
                        report[key] = round((report[key] + again[key]) / 2)
                    figures["of_raw"] = round(figures["events_s"] / report["raw_fsync_s"], 2)
                    figures["overhead_us"] = round(figures["p50_ms"] * 1000 - report["raw_fsync_p50_us"])
                report["producers"][str(producers)] = figures
                print(f"{producers:4} producers: {figures}", flush=True)
        if options.pages:
            report["session_ends"] = {
                pages: measure_ends(int(pages), options.ends, folder) for pages in options.pages.split(",")
            }
        print(json.dumps(report, indent=2))
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
