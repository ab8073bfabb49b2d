"""Actors that were given up on, where the listening sockets are a service manager's: callers are told at once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness import Bridge, Daemon, running, until
from recalld.actors.sdnotify import ACTIVATED
from recalld.protocol.envelope import Unavailable
from recalld.protocol.messages.control import RestartActor
from recalld.protocol.messages.recall import Recall
from recalld.protocol.sockets import bind

pytestmark = pytest.mark.process

QUIET = "[embedder]\nmodel = 'none'\n"
LAUNCH = """
import os, sys
names = sys.argv[1].split(",")
for number, descriptor in enumerate(map(int, names)):
    os.dup2(descriptor, 3 + number)
os.environ.update(LISTEN_FDS=str(len(names)), LISTEN_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, "-P", "-m", "recalld.supervisor"])
"""


class Activated(Daemon):
    """A daemon whose sockets were made before it, as a service manager does."""

    def spawn(self) -> None:
        self.paths.runtime.mkdir(mode=0o700, exist_ok=True)
        self.listeners = [bind(self.paths.socket(name)) for name in ACTIVATED]
        # Above those that they become: no copy may overwrite another one's source.
        high = [socket.socket(fileno=_high(listener)) for listener in self.listeners]
        numbers = [each.fileno() for each in high]
        command = [sys.executable, "-P", "-c", LAUNCH, ",".join(map(str, numbers))]
        with open(self.folder / "stderr", "ab") as errors:
            self.process = subprocess.Popen(command, env=self.environ, stderr=errors, cwd="/", pass_fds=numbers)
        for each in high:
            each.close()


def _high(listener: socket.socket) -> int:
    import fcntl

    return fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD, 100)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running(QUIET, start=False) as plain:
        daemon = Activated(plain.folder)
        try:
            daemon.write("a.md", "The kite permit is 17.\n")
            yield daemon.start(config=QUIET)
        finally:
            daemon.close()
            for listener in daemon.listeners:
                listener.close()


def give_up_on(daemon: Daemon, name: str) -> str:
    """Make ``name`` cool down: it cannot start with such a configuration. The configuration as it was."""
    text = daemon.paths.config.read_text()
    daemon.paths.config.write_text(text + "\n[qurey]\n")
    daemon.ask("control", RestartActor(name=name))
    until("it cools", lambda: daemon.status().actors[name].state == "COOLING")
    daemon.paths.config.write_text(text)
    return text


def test_callers_of_an_actor_that_was_given_up_on_learn_it_at_once(daemon: Daemon) -> None:
    """
    Each in its own words, long before their budget is spent; one that waited in the backlog too. The socket stays, and
    the next generation answers on it.
    """
    daemon.settle()
    give_up_on(daemon, "query")
    with pytest.raises(Unavailable, match="given up on") as refused:
        daemon.ask("query", Recall(query="kite permit"))
    assert refused.value.retry_after_ms > 0
    bridge = Bridge(daemon)
    try:
        answer = bridge.recall("kite permit")["structuredContent"]
        assert "query" in answer["degraded"]
    finally:
        bridge.close()
    brief = {"recalld": 1, "role": "hook", "op": "brief", "cwd": str(daemon.vault), "host": "claude", "session": "s"}
    assert line(daemon, "mcp", brief)["error"] == "unavailable"
    assert "kite" in daemon.cli("ask", "kite permit", check=False).stdout  # from the files themselves
    daemon.ask("control", RestartActor(name="query"))
    until("it runs when the cause is gone", lambda: daemon.status().actors["query"].state == "RUNNING")
    assert [hit.path for hit in daemon.recall("kite permit").hits] == ["a.md"]


def test_hook_events_for_a_writer_that_was_given_up_on_go_to_the_spool(daemon: Daemon) -> None:
    """A hook client is refused in a line, spools, and what it spooled is taken in by the next generation."""
    give_up_on(daemon, "writer")
    payload = {"session_id": "s", "cwd": str(daemon.vault), "hook_event_name": "UserPromptSubmit", "prompt": "go"}
    event = {"recalld": 1, "role": "hook", "host": "claude", "event": "UserPromptSubmit", "payload": payload}
    refused = line(daemon, "events", event)
    assert refused["error"] == "unavailable"
    assert refused["retry_after_ms"] > 0
    daemon.ask("control", RestartActor(name="writer"))
    until("it runs again", lambda: daemon.status().actors["writer"].state == "RUNNING")
    assert line(daemon, "events", event)["ok"]


def line(daemon: Daemon, name: str, message: dict[str, object]) -> dict[str, object]:
    """One line to a socket and the answer to it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(os.fspath(daemon.paths.socket(name)))
        client.sendall(json.dumps(message).encode() + b"\n")
        answer: dict[str, object] = json.loads(client.makefile("rb").readline())
        return answer
