"""One child of the supervisor: what ends it, what does not, and what is left when it cannot be started."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from harness import running, until
from recalld.actors import child as children
from recalld.actors.child import Child
from recalld.actors.lifecycle import ChildSpec
from recalld.protocol.envelope import encode
from recalld.protocol.framing import pack_bytes
from recalld.protocol.messages.control import Beat, Ready, State, Vitals
from recalld.protocol.runtime import Paths

QUIET = "[embedder]\nmodel = 'none'\n"


@pytest.fixture
def paths(short_tmp: Path) -> Paths:
    (short_tmp / "logs").mkdir()
    return Paths(short_tmp, short_tmp)


def nothing(_: Child, __: State, ___: str) -> None:
    """Nobody listens."""


async def test_beats_alone_do_not_make_a_start(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that lives and never becomes ready is given up at last, however often it beats."""
    monkeypatch.setattr(children, "START_PATIENCE", 3)
    child = Child(ChildSpec(name="watcher", start_timeout_s=0.1), paths, 1.0, nothing)
    reader = asyncio.StreamReader()

    async def beat() -> None:
        while True:
            reader.feed_data(pack_bytes(encode(Beat(vitals=Vitals()))))
            await asyncio.sleep(0.02)

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        with anyio.fail_after(10):
            assert "not ready" in await child._hear(reader)
        group.cancel_scope.cancel()


async def test_a_child_that_is_ready_may_beat_as_long_as_it_likes(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on a start ends with it."""
    monkeypatch.setattr(children, "START_PATIENCE", 1)
    child = Child(ChildSpec(name="watcher", start_timeout_s=0.05, beat_timeout_s=5.0), paths, 1.0, nothing)
    reader = asyncio.StreamReader()
    reader.feed_data(pack_bytes(encode(Ready(generation=1, pid=1))))
    with anyio.move_on_after(0.3) as scope:
        await child._hear(reader)
    assert scope.cancelled_caught


async def test_a_system_without_descriptors_delays_a_start_and_ends_nothing(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that cannot be started is tried again; the loop that keeps it goes on."""
    child = Child(ChildSpec(name="watcher"), paths, 60.0, nothing)
    tries: list[int] = []

    def none_left(*_: object) -> tuple[socket.socket, socket.socket]:
        tries.append(1)
        if len(tries) == 3:
            child.want("stop")
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(children.socket, "socketpair", none_left)
    with anyio.fail_after(10):
        await child.tend()
    assert len(tries) == 3
    assert "Too many open files" in child.last_exit


def test_every_signal_has_words() -> None:
    """A process can be killed by a signal without a name."""
    assert "SIGKILL" in children._how(-signal.SIGKILL, 1.0)
    assert str(signal.SIGRTMIN + 5) in children._how(-(signal.SIGRTMIN + 5), 1.0)


def test_a_light_actor_starts_without_what_it_does_not_use() -> None:
    """What is loaded before an actor serves is time without it, at each restart."""
    heavy = ("Stemmer", "numpy", "onnxruntime", "mcp", "textual", "rich", "pygit2")
    code = f"import sys, recalld.actors.watcher.__main__; print(*({set(heavy)} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


ORPHAN = """
import anyio, sys, threading
from recalld.actors import base
from recalld.protocol.messages.control import Vitals

base._die_with_parent = lambda pid: None  # as where no kernel does it
base.ORPHAN_GRACE_S = 0.2

class Stubborn:
    def __init__(self, env): pass
    async def run(self, ready):
        ready()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
    def vitals(self):
        return Vitals(facts={"file": "caf\\udce9"})
    async def configure(self, config): pass
    async def pause(self, paused): pass

base.main("watcher", Stubborn)
"""


def test_an_actor_whose_clean_up_hangs_does_not_outlive_its_supervisor(short_tmp: Path) -> None:
    """Without the kernel's help it ends by itself; a fact that is not UTF-8 does not end it before."""
    (short_tmp / "logs").mkdir()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        birth = (
            f'{{"name": "watcher", "generation": 1, "parent_pid": {os.getpid()}, "control_fd": {theirs.fileno()}, '
            f'"listeners": {{}}, "data": "{short_tmp}", "runtime": "{short_tmp}", "beat_s": 0.05}}'
        )
        process = subprocess.Popen([sys.executable, "-c", ORPHAN, birth], pass_fds=[theirs.fileno()])
        theirs.close()
        ours.settimeout(30)
        heard = b""
        while heard.count(b"udce9") < 3:
            data = ours.recv(4096)
            assert data, "it ended"
            heard += data
    try:
        assert process.wait(30) == 71
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
def test_a_configuration_that_cannot_be_read_is_no_reason_to_try_again(short_tmp: Path) -> None:
    """An actor that meets it cools down with its words, and the others go on."""
    with running(QUIET) as daemon:
        daemon.paths.config.write_bytes(b"# caf\xe9\n")
        daemon.cli("restart", "watcher", check=False)
        actor = until("it cools", lambda: (a := daemon.status().actors["watcher"]).state == "COOLING" and a)
        assert "UTF-8" in actor.vitals.facts["last_error"]
        assert actor.generation == 2
        assert daemon.status().actors["writer"].state == "RUNNING"
