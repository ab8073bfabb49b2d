"""A storm of events while processes of the daemon are killed: what was acknowledged is there, once, and the spool empties."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest
from harness import ACTORS, Daemon, until
from recalld.actors.sqlite import sqlite3
from recalld.clients.hooking.spooling import spool

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

EVENTS = 10_000
PRODUCERS = 40
KILL_EVERY_S = 0.1
RARELY = 0.1
ACK_S = 0.15
"""How long a producer waits for an acknowledgement before it spools: about what the hook client does."""
QUIET = {
    "RECALLD_EMBEDDER__MODEL": "none",
    # Every child dies again and again: none of them is to be given up on.
    "RECALLD_SUPERVISOR__INTENSITY": "100000",
}


class Producer(threading.Thread):
    """Sends its share over one connection after another; what is not acknowledged goes to the spool, once."""

    def __init__(self, daemon: Daemon, root: Path, number: int) -> None:
        super().__init__(daemon=True)
        self.daemon_ = daemon
        self.root, self.number = root, number
        self.acknowledged: list[str] = []
        self.spooled: list[str] = []
        self._connection: socket.socket | None = None

    def run(self) -> None:
        for number in range(EVENTS // PRODUCERS):
            call = f"call-{self.number}-{number}"
            event = self._event(call, number)
            if self._send(event):
                self.acknowledged.append(call)
            else:
                spool(str(self.daemon_.paths.spool), event, {}, sent_ms=int(time.time() * 1000), max_mb=256)
                self.spooled.append(call)
        self._drop()

    def _event(self, call: str, number: int) -> dict[str, object]:
        payload = {
            "session_id": f"storm-{self.number}",
            "cwd": str(self.root),
            "hook_event_name": "PostToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": f"make target-{number}"},
            "tool_use_id": call,
            "tool_response": {"stdout": "ok", "stderr": "", "interrupted": False},
        }
        head = {"recalld": 1, "role": "hook", "host": "claude", "event": "PostToolUse", "cwd": str(self.root)}
        return {**head, "payload": payload, "sent_ms": time.time_ns() // 1_000_000}

    def _send(self, event: dict[str, object]) -> bool:
        """Whether the daemon acknowledged it."""
        try:
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX)
                self._connection.settimeout(ACK_S)
                self._connection.connect(str(self.daemon_.paths.socket("events")))
            self._connection.sendall(json.dumps(event).encode() + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                piece = self._connection.recv(4096)
                if not piece:
                    raise ConnectionResetError
                answer += piece
            return json.loads(answer).get("ok") is True
        except (OSError, ValueError):
            self._drop()
            return False

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Service:
    """What a service manager does: start the supervisor again whenever it has ended. And the hand that kills."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.kills: collections.Counter[str] = collections.Counter()

    def living(self) -> dict[str, int]:
        """The daemon's processes that live now, by name."""
        assert self.daemon.process is not None
        pids = {"supervisor": self.daemon.process.pid}
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pids['supervisor']}/task/{pids['supervisor']}/children").read_text().split()
            for pid in children:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                pids |= {name: int(pid) for name in ACTORS if f"recalld.actors.{name}".encode() in words}
        return pids

    def kill_one(self, chance: random.Random) -> None:
        """SIGKILL of one process of those that live."""
        assert self.daemon.process is not None
        living = self.living()
        # The supervisor's death is everybody's: as often as the others' it would leave the writer no time to start.
        victim = chance.choices(list(living), [RARELY if name == "supervisor" else 1 for name in living])[0]
        if len(living) == 1 and chance.random() > RARELY:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(living[victim], signal.SIGKILL)
        self.kills[victim] += 1
        if victim == "supervisor":
            self.daemon.process.wait()
            self.daemon.spawn()


def test_ten_thousand_events_under_fire(short_tmp: Path) -> None:
    """
    10,000 events from forty producers, a random process killed every 100 ms: each event is in the index once, whether it
    was acknowledged or went through the spool (or both), nothing stays in the spool, and nothing is a dead letter.
    """
    daemon = Daemon(short_tmp, QUIET)
    root = short_tmp / "acme"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    daemon.start()
    service, chance = Service(daemon), random.Random(10_000)
    producers = [Producer(daemon, root, number) for number in range(PRODUCERS)]
    try:
        for producer in producers:
            producer.start()
        while any(producer.is_alive() for producer in producers):
            service.kill_one(chance)
            time.sleep(KILL_EVERY_S)  # the storm's pace, not a wait for something
        until("the daemon serves again", lambda: daemon.serves("writer"), 60)
        acknowledged = [call for producer in producers for call in producer.acknowledged]
        spooled = [call for producer in producers for call in producer.spooled]
        assert len(acknowledged) + len(spooled) == EVENTS
        until("the spool is empty", lambda: not list(daemon.paths.spool.glob("*.json*")), 60)
        daemon.settle()
        stored = calls(daemon)
        assert set(acknowledged) <= set(stored), dict(service.kills)
        assert min(service.kills[name] for name in ACTORS) > 0
        assert sorted(stored) == sorted(acknowledged + spooled)
        assert not list((daemon.paths.spool / "dead").glob("*"))
    finally:
        daemon.close()


def calls(daemon: Daemon) -> list[str]:
    """The call id of every event in the index."""
    conn = sqlite3.connect(daemon.paths.database)
    try:
        return [msgspec.msgpack.decode(row[0])["call_id"] for row in conn.execute("SELECT event FROM events")]
    finally:
        conn.close()
