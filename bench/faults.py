"""
The fault matrix: the real daemon under a steady load, while things are done to it.

    python bench/faults.py [--json OUT] [--only NAME,…] [--seconds 20] [--kills-seconds 300] [--soak-seconds 3600]

The load: recall through 4 open MCP bridges, edits of notes, hook events through events.sock and through the real hook
client. Each row counts recalls asked, answered, degraded and failed with their p99; acknowledged events that were lost or
stored twice; edits not found after settling; how long an actor was away; and what was left over. A fault that this machine
cannot make (mounting, for one, needs root) is reported as skipped, with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness import ACTORS, Bridge, Daemon, alive, until
from recalld.clients import hook
from recalld.protocol.envelope import ProtocolError
from recalld.protocol.messages.capture import EventPage, SessionEvents

BRIDGES = 4
RECALLS_S, EDITS_S, EVENTS_S, HOOKS_S = 5.0, 1.0, 10.0, 2.0
SESSION = "bench-faults"
CONFIG = "[supervisor]\nbeat_timeout_s = 5.0\n[watcher]\nsweep_s = 5.0\n"
WORDS = ("harbour", "crane", "ledger", "signal", "archive", "turbine", "orchard", "compass", "lantern", "meadow")
ANSWER_S = 15.0
ROOM_BYTES = 1_000_000


class Load:
    """Keeps asking, editing and sending until it is stopped; counts what came of it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.asked = self.answered = self.degraded = self.failed = 0
        self.failures: list[str] = []
        self.latencies_ms: list[float] = []
        self.acknowledged: set[str] = set()
        self.edits: list[str] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._bridges = [Bridge(daemon, modern=bool(number % 2)) for number in range(BRIDGES)]

    def __enter__(self) -> Load:
        work: list[Callable[[], None]] = [self._edit, self._send, self._hook]
        work += [lambda bridge=bridge: self._recall(bridge) for bridge in self._bridges]  # type: ignore[misc]  # default binds
        self._threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_S * 2)
        for bridge in self._bridges:
            bridge.close()

    def _pace(self, per_s: float) -> bool:
        return not self._stop.wait(random.uniform(0.5, 1.5) / per_s)

    def _recall(self, bridge: Bridge) -> None:
        while self._pace(RECALLS_S / BRIDGES):
            word = random.choice(WORDS)
            started = time.monotonic()
            try:
                result = bridge.recall(f"Where is the {word} kept?")
                content = result.get("structuredContent") or {}
                why = "isError" if result.get("isError") else ""
                if not why and not content.get("degraded") and not content.get("hits"):
                    why = f"no hit for {word}"
            except (AssertionError, OSError, ValueError) as error:
                content, why = {}, f"{type(error).__name__}: {error}"
            took_ms = (time.monotonic() - started) * 1000
            with self._lock:
                self.asked += 1
                self.latencies_ms.append(took_ms)
                if why or took_ms > ANSWER_S * 1000:
                    self.failed += 1
                    self.failures.append(why or f"{took_ms:.0f} ms")
                else:
                    self.answered += 1
                    self.degraded += bool(content.get("degraded"))

    def _edit(self) -> None:
        while self._pace(EDITS_S):
            token = f"edit{len(self.edits)}x{random.randrange(10**9)}"
            with contextlib.suppress(OSError):
                self.daemon.write(f"edits/{token}.md", f"# Edit\n\nThe token is {token}.\n")
                self.edits.append(token)

    def _send(self) -> None:
        number = 0
        while self._pace(EVENTS_S):
            number += 1
            token = f"direct{number}x{random.randrange(10**9)}"
            line = {
                "recalld": 1,
                "role": "hook",
                "host": "claude",
                "event": "UserPromptSubmit",
                "payload": payload(self, token),
            }
            with contextlib.suppress(OSError, ValueError):
                if talk(self.daemon.paths.socket("events"), line).get("ok"):
                    self.acknowledged.add(token)

    def _hook(self) -> None:
        """The real client: what it cannot deliver it spools, so whatever it took must be there in the end."""
        number = 0
        while self._pace(HOOKS_S):
            number += 1
            token = f"client{number}x{random.randrange(10**9)}"
            command = [sys.executable, "-I", "-S", str(hook.__file__), "claude", "UserPromptSubmit"]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                text = json.dumps(payload(self, token)).encode()
                done = subprocess.run(command, input=text, env=self.daemon.environ, timeout=10, check=False)
                # The client ends with 0 whatever happens; on a full disk it can neither deliver nor spool.
                if done.returncode == 0 and shutil.disk_usage(self.daemon.paths.data).free > ROOM_BYTES:
                    self.acknowledged.add(token)


def payload(load: Load, token: str) -> dict[str, Any]:
    cwd = str(load.daemon.vault)
    return {
        "session_id": SESSION,
        "cwd": cwd,
        "hook_event_name": "UserPromptSubmit",
        "prompt": f"please look at {token}",
    }


def talk(path: Path, line: dict[str, Any]) -> dict[str, Any]:
    """One line to events.sock and its acknowledgement. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(os.fspath(path))
        connection.sendall(json.dumps(line).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            piece = connection.recv(4096)
            if not piece:
                raise ConnectionResetError
            data += piece
    answer: dict[str, Any] = json.loads(data)
    return answer


class Footprint:
    """Processes, descriptors and memory of a daemon now."""

    def __init__(self, daemon: Daemon) -> None:
        pids = {"supervisor": daemon.process.pid if daemon.process else 0, **daemon.pids()}
        self.processes = len([pid for pid in pids.values() if pid and alive(pid)])
        self.descriptors = {name: _count(f"/proc/{pid}/fd") for name, pid in pids.items()}
        self.memory_mb = {name: _rss_mb(pid) for name, pid in pids.items()}


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return -1


def _rss_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return round(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)
    except OSError:
        return -1.0


# -- what is done to it -----------------------------------------------------------------------------------------------


class Run:
    """One row: a daemon, its load, and the times for which actors were away."""

    def __init__(self, daemon: Daemon, seconds: float) -> None:
        self.daemon = daemon
        self.seconds = seconds
        self.recoveries_ms: dict[str, list[float]] = {}
        self.note = ""

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
    run.note = "same processes" if run.daemon.pids() == before else "children were replaced"


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
    """The vault is renamed away (an unmounted disk) for two sweeps, and comes back."""
    away = run.daemon.folder / "away"
    os.rename(run.daemon.vault, away)
    time.sleep(12)
    if run.daemon.vault.exists():  # the load's edits make the folder anew
        shutil.copytree(run.daemon.vault, away, dirs_exist_ok=True)
        shutil.rmtree(run.daemon.vault)
    os.rename(away, run.daemon.vault)
    time.sleep(6)


def many_files(run: Run) -> None:
    """10,000 files appear at once, and a pipe named like a note that never opens."""
    os.mkfifo(run.daemon.vault / "never-opens.md")
    for number in range(10_000):
        run.daemon.write(f"flood/{number % 100}/{number}.md", f"# {number}\n\nflood{number}x\n")
    until("the flood is in", lambda: run.daemon.figure("writer", "notes") >= 10_000, 300.0)


def many_clients(run: Run) -> None:
    """1,000 connections: half-open, random bytes, frames of 16 MiB announced, readers that never read."""
    sockets = []
    try:
        for number in range(1000):
            name = ("control", "writer", "query", "mcp", "events", "embedder")[number % 6]
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(2)
            with contextlib.suppress(OSError):
                one.connect(os.fspath(run.daemon.paths.socket(name)))
                noise = (b"", random.randbytes(512), b"\x00\xff\xff\xff" + b"x" * 4096, b"[" * 2000 + b"\n")[number % 4]
                one.sendall(noise)
            sockets.append(one)
        time.sleep(run.seconds / 2)
    finally:
        for one in sockets:
            one.close()
    time.sleep(run.seconds / 2)


def memory_limit(run: Run) -> None:
    """The embedder may not have more memory than it has now."""
    pid = run.daemon.pids()["embedder"]
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        run.note = "skipped: no prlimit here"
        return
    subprocess.run([prlimit, "--pid", str(pid), f"--as={used + 8_000_000}"], check=True)
    for number in range(50):
        run.daemon.write(f"big/{number}.md", f"# Big {number}\n\n" + "many words of many kinds stand here. " * 400)
    time.sleep(run.seconds)


def too_many_open_files(run: Run) -> None:
    """The writer may open no further file."""
    pid = run.daemon.pids()["writer"]
    prlimit = shutil.which("prlimit")
    if prlimit is None:
        run.note = "skipped: no prlimit here"
        return
    subprocess.run([prlimit, "--pid", str(pid), f"--nofile={_count(f'/proc/{pid}/fd')}:4096"], check=True)
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
    """Nothing but the load."""
    for _ in run.until_end():
        time.sleep(0.5)


FAULTS: dict[str, Callable[[Run], None]] = {
    function.__name__: function
    for function in (
        kill_each, stop_each, stop_supervisor, database_deleted, database_noise, database_truncated_while_stopped,
        journal_torn, wiki_damaged, vault_away, many_files, many_clients, memory_limit, too_many_open_files, disk_full, soak,
    )
}  # fmt: skip


# -- rows -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(daemon: Daemon) -> Iterator[None]:
    """A tmpfs of 64 MB under the data folder. Raises OSError where it cannot be mounted."""
    daemon.paths.data.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", str(daemon.paths.data)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise OSError(f"cannot mount a small disk: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        daemon.close()
        subprocess.run(["umount", "-l", str(daemon.paths.data)], check=False)


def row(name: str, seconds: float) -> dict[str, Any]:
    """Run one fault on a fresh daemon and count."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    daemon = Daemon(folder)
    try:
        with contextlib.ExitStack() as stack:
            if name == "disk_full":
                try:
                    stack.enter_context(small_disk(daemon))
                except OSError as error:
                    return {"fault": name, "skipped": str(error)}
            for word in WORDS:
                daemon.write(f"{word}.md", f"# The {word}\n\nThe {word} is kept in the {random.choice(WORDS)} room.\n")
            daemon.start(config=CONFIG)
            daemon.settle(vectors=True)
            return measure(name, daemon, seconds)
    finally:
        daemon.close()
        shutil.rmtree(folder, ignore_errors=True)


def measure(name: str, daemon: Daemon, seconds: float) -> dict[str, Any]:
    """The fault under load, then the count after everything has settled."""
    run = Run(daemon, seconds)
    with Load(daemon) as load:
        time.sleep(2)
        before = Footprint(daemon)
        FAULTS[name](run)
        time.sleep(2)
    whole = lambda: (status := daemon.try_status()) is not None and not status.degraded  # noqa: E731 - one use
    until("all is well again", whole, 120.0)
    until("the spool is empty", lambda: not list(daemon.paths.spool.glob("*.json")), 120.0)
    daemon.settle()
    after = Footprint(daemon)
    lost, doubled = events_of(daemon, load)
    missing = [token for token in load.edits if not daemon.finds(token, f"edits/{token}.md", streams=("text",))]
    latencies = sorted(load.latencies_ms)
    recoveries = {actor: sorted(times) for actor, times in run.recoveries_ms.items()}
    return {
        "fault": name,
        "recalls": {
            "asked": load.asked, "answered": load.answered, "degraded": load.degraded, "failed": load.failed,
            "p50_ms": at(latencies, 0.5), "p99_ms": at(latencies, 0.99), "failures": sorted(set(load.failures))[:5],
        },
        "events": {"acknowledged": len(load.acknowledged), "lost": len(lost), "doubled": len(doubled)},
        "edits": {"made": len(load.edits), "missing": len(missing)},
        "recovery_ms": {actor: {"n": len(t), "p50": at(t, 0.5), "p99": at(t, 0.99)} for actor, t in recoveries.items()},
        "leaks": {
            "processes": after.processes - before.processes,
            "descriptors": {n: after.descriptors[n] - before.descriptors.get(n, 0) for n in after.descriptors},
            "memory_mb": {n: round(after.memory_mb[n] - before.memory_mb.get(n, 0), 1) for n in after.memory_mb},
        },
        "note": run.note,
    }  # fmt: skip


def events_of(daemon: Daemon, load: Load) -> tuple[list[str], list[str]]:
    """Acknowledged events that are not stored, and those that are stored more than once."""
    texts: list[str] = []
    while True:
        try:
            page = daemon.ask("writer", SessionEvents(session=SESSION, limit=500, offset=len(texts)))
        except ProtocolError as error:
            raise SystemExit(f"the events cannot be read: {error.text}") from None
        assert isinstance(page, EventPage)
        texts += [event.text for event in page.items]
        if len(page.items) < 500:
            break
    stored = [word for text in texts for word in text.split() if word.startswith(("direct", "client"))]
    counts = {token: stored.count(token) for token in load.acknowledged}
    return [t for t, n in counts.items() if n == 0], [t for t, n in counts.items() if n > 1]


def at(values: list[float], share: float) -> float:
    """A quantile of sorted values, 0 of none."""
    return round(values[min(len(values) - 1, int(share * len(values)))], 1) if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="OUT", help="write the rows to this file")
    parser.add_argument("--only", default="", help=f"comma-separated, of: {', '.join(FAULTS)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a row")
    parser.add_argument("--kills-seconds", type=float, default=300.0, help="length of kill_each")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="length of soak")
    arguments = parser.parse_args()
    lengths = {"kill_each": arguments.kills_seconds, "soak": arguments.soak_seconds}
    names = [name for name in arguments.only.split(",") if name] or list(FAULTS)
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "rows": [],
    }
    for name in names:
        found = row(name, lengths.get(name, arguments.seconds))
        report["rows"].append(found)
        print(json.dumps(found), flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
