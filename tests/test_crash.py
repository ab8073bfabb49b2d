"""The writer killed with SIGKILL, again and again, under producers: what was acknowledged is there, once."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest
from recalld.actors.sqlite import sqlite3

from .capturing import FIRST_MS, ran
from .harness import Daemon, until

pytestmark = [pytest.mark.process, pytest.mark.slow]

KILLS = 4
PRODUCERS = 4
EACH = 60


def produce(path: Path, root: Path, producer: int, acknowledged: list[str], stop: threading.Event) -> None:
    """Sends until all its events are acknowledged; an event without acknowledgement is sent again, as a spool would."""
    for number in range(EACH):
        call = f"call-{producer}-{number}"
        line = (
            json.dumps(ran(f"s{producer}", root, f"make {number}", at_ms=FIRST_MS + number * 10, call=call)).encode()
            + b"\n"
        )
        while not stop.is_set():
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(20)
                    client.connect(str(path))
                    client.sendall(line)
                    answer = client.makefile("rb").readline()
            except OSError:
                answer = b""
            if answer and json.loads(answer).get("ok"):
                acknowledged.append(call)
                break
            time.sleep(0.02)


def test_acknowledged_events_survive_kills(short_tmp: Path) -> None:
    """Four producers, a kill -9 of the writer after every so many acknowledgements: no event is lost or stored twice."""
    daemon = Daemon(short_tmp, {"RECALLD_EMBEDDER__MODEL": "none", "RECALLD_SUPERVISOR__INTENSITY": "50"})
    root = short_tmp / "acme"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    daemon.start()
    acknowledged: list[str] = []
    stop = threading.Event()
    workers = [
        threading.Thread(target=produce, args=(daemon.paths.socket("events"), root, number, acknowledged, stop))
        for number in range(PRODUCERS)
    ]
    try:
        for each in workers:
            each.start()
        for kill in range(1, KILLS + 1):
            wanted = kill * PRODUCERS * EACH // (KILLS + 1)
            until("acknowledgements", lambda wanted=wanted: len(acknowledged) >= wanted)  # type: ignore[misc]
            # So many may have come before the kill before this one: the writer may be on its way back.
            os.kill(until("a writer", lambda: daemon.pids().get("writer")), signal.SIGKILL)
        until("all are acknowledged", lambda: len(acknowledged) == PRODUCERS * EACH, 60)
        daemon.settle()
        conn = sqlite3.connect(daemon.paths.database)
        stored = [row[0] for row in conn.execute("SELECT event FROM events")]
        sessions = conn.execute("SELECT id, events FROM sessions ORDER BY id").fetchall()
        conn.close()
        assert sorted(msgspec.msgpack.decode(blob)["call_id"] for blob in stored) == sorted(acknowledged)
        assert sessions == [(f"s{number}", EACH) for number in range(PRODUCERS)]
    finally:
        stop.set()
        for each in workers:
            each.join()
        daemon.close()
