"""Recall degrades rather than fails: whatever dies, an open MCP session and the command line go on answering."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from harness import ACTORS, Bridge, Daemon, alive, running, until
from recalld.protocol.messages.control import RestartActor

pytestmark = [pytest.mark.process, pytest.mark.model]

CONFIG = "[supervisor]\nbeat_timeout_s = 1.5\ncooling_probe_s = 3600.0\n[watcher]\nsweep_s = 2.0\n"
NOTE = "harbour.md"
QUESTION = "Which crane lifts the containers?"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(CONFIG, start=False) as one:
        one.write(NOTE, "# Harbour\n\nThe blue crane lifts the containers. Its driver is [[people/mika]].\n")
        one.write("people/mika.md", "# Mika\n\nMika drives the crane and sings.\n")
        one.start()
        one.settle(vectors=True)
        yield one


@pytest.fixture(scope="module")
def bridge(daemon: Daemon) -> Iterator[Bridge]:
    one = Bridge(daemon)
    yield one
    one.close()


def asked(daemon: Daemon) -> dict[str, Any]:
    """The answer that a person gets from the shell, whatever runs."""
    done = daemon.cli("ask", "--json", QUESTION)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def paths(answer: dict[str, Any]) -> list[str]:
    return [hit["path"] for hit in answer["hits"]]


def whole(daemon: Daemon) -> bool:
    status = daemon.try_status()
    return status is not None and not status.degraded


@pytest.mark.parametrize("name", ACTORS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_recall_goes_on_while_an_actor_is_replaced(
    daemon: Daemon, bridge: Bridge, name: str, number: signal.Signals
) -> None:
    """
    The open bridge and the shell answer at once after the fault; when the actor is back the answer is whole again, nothing
    is pending, and no process is left over.
    """
    until("all is well", lambda: whole(daemon))
    pid = daemon.pids()[name]
    os.kill(pid, number)
    for _ in range(3):
        result = bridge.recall(QUESTION)
        assert not result.get("isError")
        content = result["structuredContent"]
        assert NOTE in paths(content) or "query" in content["degraded"]
    assert NOTE in paths(asked(daemon))
    until("it is replaced", lambda: daemon.pids().get(name) not in (None, pid))
    until("all is well again", lambda: whole(daemon))

    def complete() -> bool:
        content = bridge.recall(QUESTION)["structuredContent"]
        return NOTE in paths(content) and not content["degraded"]

    until("the answer is whole again", complete)
    until("nothing is pending", lambda: daemon.figure("writer", "pending_vectors") == 0)
    assert not alive(pid)


@pytest.mark.parametrize(
    ("name", "told"), [("embedder", "vector"), ("writer", "read_only"), ("watcher", None), ("query", "query")]
)
def test_recall_goes_on_without_an_actor_that_cannot_start(
    daemon: Daemon, bridge: Bridge, name: str, told: str | None
) -> None:
    """An actor that is given up on costs what the table says; everything else is answered, and says what is missing."""
    until("all is well", lambda: whole(daemon))
    text = daemon.paths.config.read_text()
    try:
        daemon.paths.config.write_text(f"{text}\n[nonsense]\n")
        daemon.ask("control", RestartActor(name=name))
        until("it cools down", lambda: daemon.status().actors[name].state == "COOLING")
        content = bridge.recall(QUESTION)["structuredContent"]
        if name == "query":
            assert content["hits"] == []
            assert "query" in content["degraded"]
        else:
            assert NOTE in paths(content)
            assert told is None or told in content["degraded"] or content.get(told)
        daemon.paths.config.write_text(text)
        assert NOTE in paths(asked(daemon))
    finally:
        daemon.paths.config.write_text(text)
        daemon.ask("control", RestartActor(name=name))
        until("all is well again", lambda: whole(daemon))
        until("the bridge is whole again", lambda: paths(bridge.recall(QUESTION)["structuredContent"]))


def test_without_any_daemon_the_shell_answers_and_the_bridge_says_so() -> None:
    """The supervisor is gone for good: the database alone answers the shell; the open bridge answers degraded, then recovers."""
    with running(CONFIG, start=False) as daemon:
        daemon.write(NOTE, "# Harbour\n\nThe blue crane lifts the containers.\n")
        daemon.start()
        daemon.settle()
        bridge = Bridge(daemon)
        try:
            assert NOTE in paths(bridge.recall(QUESTION)["structuredContent"])
            assert daemon.process is not None
            daemon.process.kill()
            daemon.process.wait()
            result = bridge.recall(QUESTION)
            assert not result.get("isError")
            assert "query" in result["structuredContent"]["degraded"]
            answer = asked(daemon)
            assert NOTE in paths(answer)
            assert "daemon" in answer["degraded"]
            daemon.start()
            until("the bridge finds the new daemon", lambda: paths(bridge.recall(QUESTION)["structuredContent"]))
        finally:
            bridge.close()


def test_the_bridge_ends_with_its_client(daemon: Daemon) -> None:
    """End of input ends it; no bridge outlives the agent that started it."""
    bridge = Bridge(daemon)
    bridge.close()
    assert bridge.process.returncode is not None
    wrapper = subprocess.Popen(
        ["/bin/sh", "-c", f"sleep 60 | {bridge.process.args[0]} -I -S {bridge.process.args[3]} & echo $!; kill -9 $$"],  # type: ignore[index]  # a list, above
        env=daemon.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wrapper.stdout is not None
    pid = int(wrapper.stdout.readline())
    wrapper.wait()
    wrapper.stdout.close()
    until("the orphaned bridge is gone", lambda: not alive(pid))
