"""
A power cut at every point: the system calls of a real writer are recorded, and replayed as far as a disk would have them.

    python bench/power.py [--seconds 60] [--seed 1]

Recorded by strace, so that what Python, SQLite and libgit2 do to the data folder is seen alike: each open, write, truncate,
rename, unlink and fsync of the writer's process in its order, and, in the same order, the acknowledgements that its clients
got. Of a run cut after any of these calls, a disk has for certain only what was synced by then, and anything of the rest.
Four such disks are made for a cut: nothing of the rest; all of it; of each file a beginning, torn inside a write; any writes
in any order. A real writer is then started on that folder. It must have every acknowledged event once and every acknowledged
page as written or newer, and the database must be sound.

Limits: names are taken to be durable with an fsync of their folder and not before, which is stricter than most file systems;
a write is torn at a byte, and the bytes that were never written are absent, not noise; blocks that were synced stay as they
are (no failing disk); memory maps are not seen, which matters to the wal-index alone, and that is never durable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from recalld.actors.sqlite import sqlite3
from recalld.protocol.messages.capture import EventPage, PageWritten, Place, SessionEvents, WritePage
from syscalls import CALLS, MARK, Op, Parser
from writer_stand import Stand, writer_at

SESSION = "power"
ROUNDS = 12
EVERY = 4
"""A page is written each so many rounds."""
POLICIES = ("nothing", "everything", "torn", "any")


class Unrecordable(Exception):
    """Raised where system calls cannot be recorded; the text says why."""


# -- the run that is recorded -----------------------------------------------------------------------------------------


async def work(folder: Path) -> None:
    """Events and pages, some of them at once; every acknowledgement is written to stderr as a mark."""
    root = folder / "project"
    (root / ".git").mkdir(parents=True)
    async with writer_at(folder) as stand:
        for number in range(ROUNDS):
            await asyncio.gather(*(_event(stand, root, f"token{number}x{part}") for part in range(3)))
            if number % EVERY == 0:
                await _page(stand, f"notes/page{number % 2}.md", f"version{number}")
            if number == ROUNDS // 2:
                await stand.writer.db.read(lambda conn: conn.execute("SELECT 1").fetchone())


async def _event(stand: Stand, root: Path, token: str) -> None:
    payload = {"session_id": SESSION, "cwd": str(root), "hook_event_name": "UserPromptSubmit", "prompt": f"see {token}"}
    line = {"recalld": 1, "role": "hook", "host": "claude", "event": "UserPromptSubmit", "payload": payload}
    reader, writer = await asyncio.open_unix_connection(os.fspath(stand.paths.socket("events")))
    writer.write(json.dumps(line).encode() + b"\n")
    if json.loads(await reader.readline()).get("ok"):
        os.write(2, MARK + f"event {token}\n".encode())
    writer.close()


async def _page(stand: Stand, path: str, version: str) -> None:
    body = f"# Page\n\n{version} " + "words that fill a page. " * 400
    written = await stand.ask(WritePage(path=path, body=body, title=path, place=Place(project="power")))
    assert isinstance(written, PageWritten)
    os.write(2, MARK + f"page {Path(written.file).relative_to(stand.paths.data)} {version}\n".encode())


# -- the record -------------------------------------------------------------------------------------------------------


def record(folder: Path) -> list[Op]:
    """Run ``work`` in a process of its own and return what it did to ``folder``/data. Raises Unrecordable."""
    strace = shutil.which("strace")
    if strace is None:
        raise Unrecordable("there is no strace here")
    log = folder / "calls"
    command = [strace, "-f", "--seccomp-bpf", "-y", "-xx", "-s", "100000000", "-o", str(log), "-e", f"trace={CALLS}"]
    command += [sys.executable, os.fspath(Path(__file__).resolve()), "--work", str(folder)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    if MARK not in done.stderr:
        raise Unrecordable(f"strace cannot trace here: {done.stderr.decode(errors='replace')[-300:]}")
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    return list(Parser(os.fspath((folder / "data").resolve())).parse(log))


# -- the disk that is left --------------------------------------------------------------------------------------------


class File:
    """An inode: what is on the disk for certain, and the steps that are not."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.pending: list[tuple[int, Op]] = []


class Disk:
    """Replays steps; ``left`` makes the folder that a power cut leaves after the steps so far."""

    def __init__(self) -> None:
        self.now: dict[str, File | None] = {"": None}
        self.durable: dict[str, File | None] = {"": None}
        self.names: list[tuple[int, Op, File | None]] = []
        self.events: set[str] = set()
        self.pages: dict[str, str] = {}
        self.tried: dict[str, set[str]] = {}
        self.steps = 0

    def do(self, op: Op) -> None:
        number, self.steps = self.steps, self.steps + 1
        match op.kind:
            case "mark":
                self._mark(op.path)
            case "write" | "cut":
                file = self.now.get(op.path)
                if file is not None:
                    file.pending.append((number, op))
            case "name":
                file = self.now.pop(op.other, None) if op.other not in ("", "/") else None if op.other else File()
                self.now[op.path] = file
                self.names.append((number, op, file))
            case "link":
                self.now[op.path] = self.now.get(op.other)
                self.names.append((number, op, self.now[op.path]))
            case "unname":
                self.now.pop(op.path, None)
                self.names.append((number, op, None))
            case "sync":
                self._sync(op)

    def _mark(self, text: str) -> None:
        kind, first, *rest = text.split()
        if kind == "event":
            self.events.add(first)
        else:
            self.pages[first] = rest[0]

    def _sync(self, op: Op) -> None:
        file = self.now.get(op.path)
        if file is not None:
            for number, each in file.pending:
                if number < op.begun:
                    apply(file.data, each)
            file.pending = [(number, each) for number, each in file.pending if number >= op.begun]
            return
        still = []
        for number, each, named in self.names:
            folder = each.path.rpartition("/")[0]
            if folder == op.path and number < op.begun:
                _rename(self.durable, each, named)
            else:
                still.append((number, each, named))
        self.names = still

    def left(self, folder: Path, policy: str, chance: random.Random) -> None:
        """Write the folder out. -shm files are left out: no system keeps them over a power cut in a usable state."""
        names = dict(self.durable)
        keep = {"nothing": 0, "everything": len(self.names)}.get(policy, chance.randint(0, len(self.names)))
        for _, op, file in self.names[:keep]:
            _rename(names, op, file)
        made = {""}
        for path in sorted(names):
            file = names[path]
            if path in made or path.rpartition("/")[0] not in made or path.endswith("-shm"):
                continue
            if file is None:
                (folder / path).mkdir(mode=0o700)
                made.add(path)
            else:
                (folder / path).write_bytes(_content(file, policy, chance))


def apply(data: bytearray, op: Op) -> None:
    if op.kind == "cut":
        del data[op.at :]
        data.extend(bytes(max(0, op.at - len(data))))
    else:
        if len(data) < op.at:
            data.extend(bytes(op.at - len(data)))
        data[op.at : op.at + len(op.data)] = op.data


def _rename(names: dict[str, File | None], op: Op, file: File | None) -> None:
    if op.kind == "unname":
        names.pop(op.path, None)
    else:
        if op.kind == "name":
            names.pop(op.other, None)
        names[op.path] = file


def _content(file: File, policy: str, chance: random.Random) -> bytes:
    data = bytearray(file.data)
    pending = [op for _, op in file.pending]
    if policy == "everything":
        for op in pending:
            apply(data, op)
    elif policy == "torn" and pending:
        whole = chance.randint(0, len(pending) - 1)
        for op in pending[:whole]:
            apply(data, op)
        torn = pending[whole]
        if torn.kind == "write":
            apply(data, torn._replace(data=torn.data[: chance.randint(0, len(torn.data))]))
    elif policy == "any":
        chosen = [op for op in pending if chance.random() < 0.5]
        chance.shuffle(chosen)
        for op in chosen:
            apply(data, op)
    return bytes(data)


# -- what must be there -----------------------------------------------------------------------------------------------


async def look(folder: Path, disk: Disk, versions: list[str]) -> list[str]:
    """Start a writer on ``folder`` and say what is wrong with what it has; [] = nothing."""
    wrong: list[str] = []
    async with writer_at(folder) as stand:
        page = await stand.ask(SessionEvents(session=SESSION, limit=1000))
        assert isinstance(page, EventPage)
        stored = [word for event in page.items for word in event.text.split() if word.startswith("token")]
        wrong += [f"event {token} is lost" for token in sorted(disk.events - set(stored))]
        wrong += [f"event {token} is there twice" for token in sorted(set(stored)) if stored.count(token) > 1]
        for path, version in disk.pages.items():
            file = stand.paths.data / path
            text = file.read_text() if file.exists() else ""
            newer = versions[versions.index(version) :]
            if not any(f"\n{each} words" in text for each in newer) or not text.rstrip().endswith("page."):
                wrong.append(f"page {path} at {version} is lost")
    conn = sqlite3.connect(folder / "data" / "recalld.sqlite")
    answer = conn.execute("PRAGMA integrity_check").fetchone()[0]
    conn.close()
    return wrong if answer == "ok" else [*wrong, f"integrity_check: {answer}"]


def cut_everywhere(folder: Path, seconds: float, seed: int = 1) -> dict[str, Any]:
    """
    Record one run and look at what cuts leave, in an order that spreads over the run, for ``seconds``.

    ``cuts`` is how many points there are, ``looked_at`` how many disks were started from; ``wrong`` must be empty. On a
    machine that cannot record, {"skipped": why}.
    """
    try:
        ops = record(folder)
    except Unrecordable as why:
        return {"skipped": str(why)}
    versions = [op.path.split()[2] for op in ops if op.kind == "mark" and op.path.startswith("page")]
    chance = random.Random(seed)
    points = list(range(1, len(ops) + 1))
    # Right after an acknowledgement is where a loss would show first; then everywhere else.
    first = [point for point in points if ops[point - 1].kind == "mark"]
    chance.shuffle(first)
    rest = [point for point in points if ops[point - 1].kind != "mark"]
    chance.shuffle(rest)
    order = [point for pair in zip(first, rest, strict=False) for point in pair] + rest[len(first) :]
    wrong: list[str] = []
    looked = 0
    end = time.monotonic() + seconds
    for number, point in enumerate(order):
        if time.monotonic() > end:
            break
        disk = Disk()
        for op in ops[:point]:
            disk.do(op)
        policy = (
            POLICIES[number % len(POLICIES)]
            if ops[point - 1].kind != "mark"
            else ("nothing", "torn", "any")[number % 3]
        )
        here = Path(tempfile.mkdtemp(prefix="p-", dir=folder))
        (here / "data").mkdir(mode=0o700)
        disk.left(here / "data", policy, chance)
        try:
            found = asyncio.run(look(here, disk, versions))
        except Exception as error:
            found = [f"the writer does not start: {type(error).__name__}: {error}"]
        wrong += [f"cut after step {point} of {len(ops)} ({policy}): {each}" for each in found]
        looked += 1
        shutil.rmtree(here)
    events = len([op for op in ops if op.kind == "mark" and op.path.startswith("event")])
    return {"cuts": len(ops), "looked_at": looked, "events": events, "pages": len(versions), "wrong": wrong[:20]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        asyncio.run(work(Path(arguments.work)))
        return
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        print(json.dumps(cut_everywhere(Path(folder), arguments.seconds, arguments.seed), indent=1))


if __name__ == "__main__":
    main()
