"""What the fault matrix does to a daemon: one function per fault, each under the load of ``load.Load``."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness import ACTORS, Daemon, until
from load import Footprint, Slopes, count
from recalld.protocol.envelope import Hello
from recalld.protocol.framing import pack
from recalld.protocol.messages.control import Reload
from recalld.protocol.version import WIRE

MAX_GROWTH_MB = 250.0
"""Of one process under a thousand clients: 64 MB for large frames, as much for large lines, and what is read ahead."""


class Skipped(Exception):
    """Raised where this machine cannot make the fault; the text says why."""


class Run:
    """One row: a daemon, its load, and the times for which actors were away."""

    def __init__(self, daemon: Daemon, seconds: float, files: int = 10_000) -> None:
        self.daemon = daemon
        self.seconds = seconds
        self.files = files
        self.recoveries_ms: dict[str, list[float]] = {}
        self.slopes_mb_h: dict[str, float] = {}
        self.medians_mb: dict[str, list[float]] = {}
        self.note = ""
        self.wrong: list[str] = []
        """What was found that must not be, in words."""

    def until_end(self) -> Iterator[float]:
        """Seconds left, until the row's time is over."""
        end = time.monotonic() + self.seconds
        while (left := end - time.monotonic()) > 0:
            yield left

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Hit one process, and measure how long it was away. The supervisor is restarted as its service would."""
        daemon = self.daemon
        if name == "supervisor":
            assert daemon.process is not None
            started = time.monotonic()
            daemon.process.send_signal(signal.SIGKILL)
            daemon.process.wait()
            daemon.start()
        else:
            before = daemon.status().actors[name]
            if not before.pid:
                return
            started = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(before.pid, number)
            until(f"{name} runs again", lambda: self._again(name, before.generation), 60.0)
        self.recoveries_ms.setdefault(name, []).append((time.monotonic() - started) * 1000)

    def _again(self, name: str, generation: int) -> bool:
        status = self.daemon.try_status()
        return (
            status is not None
            and status.actors[name].generation > generation
            and status.actors[name].state == "RUNNING"
        )


def kill_each(run: Run) -> None:
    """SIGKILL of each actor and of the supervisor, one every 2 s."""
    names = [*ACTORS, "supervisor"]
    for turn, _ in enumerate(run.until_end()):
        began = time.monotonic()
        run.kill(names[turn % len(names)])
        time.sleep(max(0.0, 2.0 - (time.monotonic() - began)))


def stop_each(run: Run) -> None:
    """SIGSTOP of each actor in turn, left for as long as it takes until it is replaced."""
    for name in ACTORS:
        run.kill(name, signal.SIGSTOP)


def stop_supervisor(run: Run) -> None:
    """SIGSTOP of the supervisor for 15 s: nobody is killed for beats that it could not hear."""
    before = run.daemon.pids()
    assert run.daemon.process is not None
    run.daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    run.daemon.process.send_signal(signal.SIGCONT)
    time.sleep(3)
    if run.daemon.pids() != before:
        run.wrong.append("children were replaced")


def database_deleted(run: Run) -> None:
    """The database file is removed while running."""
    for path in run.daemon.paths.data.glob("recalld.sqlite*"):
        path.unlink()
    time.sleep(min(10.0, run.seconds))


def database_noise(run: Run) -> None:
    """4 kB of noise at the start and in the middle of the database while running."""
    path = run.daemon.paths.database
    with path.open("r+b") as file:
        for offset in (0, path.stat().st_size // 2):
            file.seek(offset)
            file.write(random.randbytes(4096))
    time.sleep(min(10.0, run.seconds))


def database_truncated_while_stopped(run: Run) -> None:
    """The daemon stops, the database is cut in half, the daemon starts."""
    run.daemon.stop()
    os.truncate(run.daemon.paths.database, run.daemon.paths.database.stat().st_size // 2)
    run.daemon.start()
    time.sleep(min(10.0, run.seconds))


def journal_torn(run: Run) -> None:
    """kill -9 of everything, and the journal's last record is cut in the middle."""
    assert run.daemon.process is not None
    run.daemon.process.kill()
    run.daemon.process.wait()
    time.sleep(0.2)
    newest = max(run.daemon.paths.journal.glob("*.jsonl"), key=lambda path: path.name, default=None)
    if newest is not None:
        with newest.open("ab") as journal:
            journal.write(b'{"seq": 99999999, "torn')
    run.daemon.start()
    time.sleep(min(5.0, run.seconds))


def wiki_damaged(run: Run) -> None:
    """The wiki's git objects are overwritten."""
    for path in list((run.daemon.paths.wiki / ".git" / "objects").rglob("*"))[:50]:
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"noise")
    run.kill("writer")
    time.sleep(min(5.0, run.seconds))


def vault_away(run: Run) -> None:
    """The vault is gone (an unmounted disk) for two sweeps, and comes back. Nothing can be edited meanwhile."""
    vault, away = run.daemon.vault, run.daemon.folder / "away"
    os.rename(vault, away)
    while True:
        try:
            vault.touch(exist_ok=False)  # where a file is, the load's edits cannot make the folder anew
            break
        except FileExistsError:
            shutil.copytree(vault, away, dirs_exist_ok=True)
            shutil.rmtree(vault, ignore_errors=True)
    time.sleep(12)
    vault.unlink()
    os.rename(away, vault)
    time.sleep(6)


def many_files(run: Run) -> None:
    """``files`` files appear at once, and a pipe named like a note that never opens."""
    os.mkfifo(run.daemon.vault / "never-opens.md")
    for number in range(run.files):
        run.daemon.write(f"flood/{number % 1000}/{number}.md", f"# {number}\n\nflood{number}x\n")
    until("the flood is in", lambda: run.daemon.figure("writer", "notes") >= run.files, 60.0 + run.files / 100)


def many_clients(run: Run) -> None:
    """
    1,000 connections: half-open, random bytes, frames of 16 MiB announced, readers that never read, and two hundred that
    send nearly all of the largest frame or line.
    """
    sockets = []
    hello = pack(Hello(WIRE, "bench", os.getpid()))
    before = Footprint(run.daemon)
    try:
        for number in range(1000):
            name = ("control", "writer", "query", "mcp", "events", "embedder")[number % 6]
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(2)
            with contextlib.suppress(OSError):
                one.connect(os.fspath(run.daemon.paths.socket(name)))
                if number % 5 == 4:
                    _push(one, (b"" if name in ("mcp", "events") else hello) + b"\x00\xff\xff\xff" + bytes(15_000_000))
                else:
                    noise = (b"", random.randbytes(512), b"\x00\xff\xff\xff" + b"x" * 4096, b"[" * 2000 + b"\n")
                    one.sendall(noise[number % 5])
            sockets.append(one)
        time.sleep(run.seconds / 2)
    finally:
        for one in sockets:
            one.close()
    time.sleep(run.seconds / 2)
    grown = {name: peak - before.peak_mb[name] for name, peak in Footprint(run.daemon).peak_mb.items()}
    run.wrong += [f"{name} grew by {by:.0f} MB" for name, by in grown.items() if by > MAX_GROWTH_MB]


def _push(connection: socket.socket, data: bytes) -> None:
    """Send what is taken of ``data`` without waiting for more than a moment."""
    view = memoryview(data)
    connection.settimeout(0.02)
    with contextlib.suppress(TimeoutError):
        while view:
            view = view[connection.send(view) :]


def memory_limit(run: Run) -> None:
    """The embedder may not have more memory than it has now."""
    pid = run.daemon.pids()["embedder"]
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise Skipped("there is no prlimit here")
    subprocess.run([prlimit, "--pid", str(pid), f"--as={used + 8_000_000}"], check=True)
    for number in range(50):
        run.daemon.write(f"big/{number}.md", f"# Big {number}\n\n" + "many words of many kinds stand here. " * 400)
    time.sleep(run.seconds)


def too_many_open_files(run: Run) -> None:
    """The writer may open no further file."""
    pid = run.daemon.pids()["writer"]
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        raise Skipped("there is no prlimit here")
    subprocess.run([prlimit, "--pid", str(pid), f"--nofile={count(f'/proc/{pid}/fd')}:4096"], check=True)
    time.sleep(run.seconds / 2)
    with contextlib.suppress(subprocess.CalledProcessError):
        subprocess.run([prlimit, "--pid", str(pid), "--nofile=1024:4096"], check=True)
    time.sleep(run.seconds / 2)


def disk_full(run: Run) -> None:
    """The disk of the data folder is full for a while."""
    filler = run.daemon.paths.data / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
    except OSError:
        pass
    time.sleep(run.seconds / 2)
    filler.unlink()
    time.sleep(run.seconds / 2)


def soak(run: Run) -> None:
    """Nothing but the load, on notes that do not grow in number; the slope of each process's memory."""
    slopes = Slopes(run.daemon)
    for _ in run.until_end():
        slopes.sample()
        time.sleep(0.5)
    run.slopes_mb_h, run.medians_mb = slopes.mb_per_h(), slopes.medians_mb()


def read_only_data(run: Run) -> None:
    """The daemon starts on a data folder whose file system is read-only; later it can be written again."""
    run.daemon.stop()  # nothing may be open for writing when the kernel is asked for it
    _mount("-o", "remount,ro", os.fspath(run.daemon.paths.data))
    run.daemon.start()
    time.sleep(run.seconds / 2)
    status = run.daemon.try_status()
    run.note = "said: " + ", ".join(status.degraded) if status is not None and status.degraded else "not said in status"
    _mount("-o", "remount,rw", os.fspath(run.daemon.paths.data))
    time.sleep(run.seconds / 2)


def unreadable_notes(run: Run) -> None:
    """Every read of some notes fails with an I/O error: a process's memory, bound over them, has nothing at its start."""
    mounted = []
    try:
        for number in range(3):
            note = run.daemon.write(f"broken/{number}.md", f"# Broken {number}\n")
            _mount("--bind", f"/proc/{os.getpid()}/mem", os.fspath(note))
            mounted.append(note)
        time.sleep(run.seconds / 2)
        run.note = f"{run.daemon.figure('watcher', 'unreadable'):.0f} notes are said to be unreadable"
    finally:
        for note in mounted:
            subprocess.run(["umount", "-l", str(note)], check=False)
    time.sleep(run.seconds / 2)


def newer_schema_while_stopped(run: Run) -> None:
    """The daemon stops, a newer recalld uses the data, and this one starts again; then that is undone."""
    for change in (1000, -1000):
        run.daemon.stop()
        conn = sqlite3.connect(run.daemon.paths.database)
        now = conn.execute("PRAGMA user_version").fetchone()[0]
        conn.execute(f"PRAGMA user_version = {now + change}")
        conn.close()
        run.daemon.start()
        time.sleep(min(5.0, run.seconds / 2))
        run.note = run.note or f"index: {run.daemon.status().actors['writer'].vitals.facts.get('database', '')}"


def model_damaged(run: Run) -> None:
    """The model's file is overwritten with noise and the embedder has to load it anew."""
    for model in (run.daemon.paths.data / "models").rglob("*.onnx"):
        model.write_bytes(random.randbytes(1_000_000))
    run.kill("embedder")
    time.sleep(run.seconds / 2)
    run.note = run.daemon.status().actors["embedder"].vitals.facts.get("problem", "")


def vault_renamed(run: Run) -> None:
    """The vault's folder gets another name, and the configuration follows: its notes are found there, and only there."""
    daemon = run.daemon
    old, new = daemon.vault, daemon.folder / "renamed"
    os.rename(old, new)
    daemon.vault = new
    daemon.paths.config.write_text(daemon.paths.config.read_text().replace(f'"{old}"', f'"{new}"'))
    daemon.ask("control", Reload())
    until("the notes are found in the new folder", lambda: daemon.finds("harbour", "harbour.md"), 60.0)
    time.sleep(run.seconds / 2)
    if old.exists():  # an edit of the load may just have made it anew
        shutil.copytree(old, new, dirs_exist_ok=True)


def suspended(run: Run) -> None:
    """All processes stand still for 15 s and go on at once, as over a suspend: nobody is replaced for it."""
    assert run.daemon.process is not None
    before = run.daemon.pids()
    pids = [run.daemon.process.pid, *before.values()]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            os.kill(pid, number)
        time.sleep(15 if number == signal.SIGSTOP else 3)
    if run.daemon.pids() != before:
        run.wrong.append("processes were replaced")


def odd_times(run: Run) -> None:
    """Files from 1970 and 2100, and one whose time goes back with its edit: what a clock that jumped leaves behind."""
    for number, at in enumerate((0, 1, 4_102_444_800, 2**33)):
        os.utime(run.daemon.write(f"times/{number}.md", f"# Time {number}\n\ntimes{number}x\n"), (at, at))
    time.sleep(run.seconds / 2)
    note = run.daemon.write("times/0.md", "# Time 0\n\nturnedback\n")
    os.utime(note, (0, 0))
    until("the edit is found", lambda: run.daemon.finds("turnedback", "times/0.md"), 60.0)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    if done.returncode:
        raise Skipped(f"cannot mount here: {done.stderr.decode().strip()}")


@contextlib.contextmanager
def prepared(name: str, daemon: Daemon) -> Iterator[None]:
    """What a fault needs of a daemon before it starts. Raises Skipped."""
    data = os.fspath(daemon.paths.data)
    if name not in ("disk_full", "read_only_data"):
        yield
        return
    daemon.paths.data.mkdir(mode=0o700)
    size = "64m" if name == "disk_full" else "512m"
    _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", data)
    try:
        yield
    finally:
        daemon.close()
        subprocess.run(["umount", "-l", data], check=False)


FAULTS: dict[str, Callable[[Run], None]] = {
    function.__name__: function
    for function in (
        kill_each, stop_each, stop_supervisor, suspended, database_deleted, database_noise, database_truncated_while_stopped,
        newer_schema_while_stopped, journal_torn, wiki_damaged, model_damaged, vault_away, vault_renamed, many_files,
        unreadable_notes, odd_times, many_clients, memory_limit, too_many_open_files, disk_full, read_only_data, soak,
    )
}  # fmt: skip
