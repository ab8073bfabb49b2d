"""A steady load on a daemon, as its users make it, and what a daemon occupies; counts what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Bridge, Daemon, alive
from recalld.clients import hook

BRIDGES = 4
RECALLS_S, EDITS_S, EVENTS_S, HOOKS_S = 5.0, 1.0, 10.0, 2.0
SESSION = "bench-faults"
WORDS = ("harbour", "crane", "ledger", "signal", "archive", "turbine", "orchard", "compass", "lantern", "meadow")
ANSWER_S = 15.0
"""A recall that takes longer has failed."""
ROOM_BYTES = 1_000_000
LATE_MAX_S = 1.0
"""What was missed before that, while the daemon was away, is not made up for: it would be a burst, not a load."""
PARTS = 12


class Load:
    """
    Keeps asking, editing and sending until it is stopped; counts what came of it.

    ``events_s``: events sent to the socket each second, beside those through the hook client. ``notes``: so many notes are
    written again and again, so that the index stays as large as it is; 0 = every edit is a new note. ``edits`` has the token
    that each note should hold in the end.
    """

    def __init__(self, daemon: Daemon, *, events_s: float = EVENTS_S, notes: int = 0) -> None:
        self.daemon = daemon
        self._events_s, self._notes = events_s, notes
        self.asked = self.answered = self.degraded = self.failed = 0
        self.failures: list[str] = []
        self.latencies_ms: list[float] = []
        self.acknowledged: set[str] = set()
        self.edited = 0
        self.edits: dict[str, str] = {}
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

    def _turns(self, per_s: float) -> Iterator[None]:
        """So many turns a second, unevenly, until it is stopped; one that comes late is made up for by the next."""
        due = time.monotonic()
        while True:
            due += random.uniform(0.5, 1.5) / per_s
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            due = max(due, time.monotonic() - LATE_MAX_S)
            yield

    def _recall(self, bridge: Bridge) -> None:
        for _ in self._turns(RECALLS_S / BRIDGES):
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
        for _ in self._turns(EDITS_S):
            token = f"edit{self.edited}x{random.randrange(10**9)}"
            path = f"edits/{self.edited % self._notes if self._notes else token}.md"
            with contextlib.suppress(OSError):
                self.daemon.write(path, f"# Edit\n\nThe token is {token}.\n")
                self.edits[path] = token
                self.edited += 1

    def _send(self) -> None:
        for number, _ in enumerate(self._turns(self._events_s), 1):
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
        for number, _ in enumerate(self._turns(HOOKS_S), 1):
            token = f"client{number}x{random.randrange(10**9)}"
            command = [sys.executable, "-I", "-S", str(hook.__file__), "claude", "UserPromptSubmit"]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                text = json.dumps(payload(self, token)).encode()
                could = self._can_spool()
                done = subprocess.run(command, input=text, env=self.daemon.environ, timeout=10, check=False)
                # The client ends with 0 whatever happens; on a full or read-only disk it can neither deliver nor spool.
                if done.returncode == 0 and could and self._can_spool():
                    self.acknowledged.add(token)

    def _can_spool(self) -> bool:
        data = self.daemon.paths.data
        return os.access(data, os.W_OK) and shutil.disk_usage(data).free > ROOM_BYTES


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


class Slopes:
    """How the memory of each process goes while it lasts, sampled every ``every_s`` seconds."""

    def __init__(self, daemon: Daemon, every_s: float = 5.0) -> None:
        self._daemon, self._every_s = daemon, every_s
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._next = 0.0

    def sample(self) -> None:
        """Take one where it is time for it."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every_s
        for name, memory_mb in Footprint(self._daemon).memory_mb.items():
            self._samples.setdefault(name, []).append((now, memory_mb))

    def mb_per_h(self) -> dict[str, float]:
        """Least squares over the second half: the first has caches that fill."""
        found = {}
        for name, samples in self._samples.items():
            times, sizes = zip(*samples[len(samples) // 2 :], strict=True)
            if len(times) > 2:
                found[name] = round(statistics.linear_regression(times, sizes).slope * 3600, 2)
        return found

    def medians_mb(self) -> dict[str, list[float]]:
        """The median of each twelfth of the time: whether what grows is still growing at the end."""
        return {
            name: [
                round(
                    statistics.median(
                        size for _, size in samples[len(samples) * i // PARTS : len(samples) * (i + 1) // PARTS]
                    ),
                    1,
                )
                for i in range(PARTS)
            ]
            for name, samples in self._samples.items()
            if len(samples) >= PARTS
        }


class Footprint:
    """Processes, descriptors and memory of a daemon now."""

    def __init__(self, daemon: Daemon) -> None:
        pids = {"supervisor": daemon.process.pid if daemon.process else 0, **daemon.pids()}
        self.processes = len([pid for pid in pids.values() if pid and alive(pid)])
        self.descriptors = {name: count(f"/proc/{pid}/fd") for name, pid in pids.items()}
        self.memory_mb = {name: _rss_mb(pid) for name, pid in pids.items()}
        self.peak_mb = {name: _peak_mb(pid) for name, pid in pids.items()}


def count(folder: str) -> int:
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


def _peak_mb(pid: int) -> float:
    """The most that a process has had since it began."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next(round(int(line.split()[1]) / 1e3, 1) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return -1.0
