"""The process tree: real processes, started and killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ACTORS, Daemon, alive, running, until
from recalld.protocol.client import ask_sync
from recalld.protocol.envelope import Invalid, Unavailable
from recalld.protocol.messages.control import GetStatus, RestartActor, Status
from recalld.protocol.runtime import SOCKETS

pytestmark = pytest.mark.process

FAST = "[supervisor]\nbeat_timeout_s = 2.0\n[embedder]\nmodel = 'none'\n"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running(FAST) as one:
        yield one


def runs_again(daemon: Daemon, name: str, generation: int) -> bool:
    actor = daemon.status().actors[name]
    return actor.state == "RUNNING" and actor.generation > generation


@pytest.mark.parametrize("name", ACTORS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_a_killed_or_hung_actor_is_replaced_and_the_others_go_on(daemon: Daemon, name: str, number: int) -> None:
    """Whatever ends or stops one actor, a new generation serves, and no other process changes."""
    until("all run", lambda: len(daemon.pids()) == 4 and not daemon.status().degraded)
    before = daemon.status().actors
    os.kill(before[name].pid, number)
    until(f"{name} runs again", lambda: runs_again(daemon, name, before[name].generation))
    after = daemon.status().actors
    assert not alive(before[name].pid)
    assert {other: before[other].pid for other in ACTORS if other != name} == {
        other: after[other].pid for other in ACTORS if other != name
    }


@pytest.mark.parametrize("name", ACTORS)
def test_restart_on_request_is_not_a_crash(daemon: Daemon, name: str) -> None:
    """A wanted exit is followed by a new generation at once and leaves no trace of a failure."""
    before = daemon.status().actors[name]
    daemon.ask("control", RestartActor(name=name))
    until(f"{name} runs again", lambda: runs_again(daemon, name, before.generation))
    arrows = [t.arrow for t in daemon.status().transitions if t.actor == name][-3:]
    assert not any("BACKOFF" in arrow for arrow in arrows)


def test_an_unknown_actor_is_named_as_such(daemon: Daemon) -> None:
    """A typing mistake is told with what there is."""
    with pytest.raises(Invalid, match="watcher"):
        daemon.ask("control", RestartActor(name="wathcer"))


def test_a_second_daemon_on_the_same_data_is_refused(daemon: Daemon) -> None:
    """One clear line, exit code 4, and the first one is not disturbed."""
    second = subprocess.run(
        [sys.executable, "-P", "-m", "recalld.supervisor"],
        env=daemon.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 4
    assert len(second.stderr.strip().splitlines()) == 1
    assert str(daemon.process.pid) in second.stderr if daemon.process else False
    assert daemon.try_status() is not None


def test_sockets_and_folders_are_private(daemon: Daemon) -> None:
    """Sockets are 0600, folders 0700, whatever the umask was."""
    assert all(daemon.paths.socket(name).stat().st_mode & 0o777 == 0o600 for name in SOCKETS)
    for folder in (daemon.paths.data, daemon.paths.runtime, daemon.paths.logs, daemon.paths.spool):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_descriptors_do_not_leak_over_generations(daemon: Daemon) -> None:
    """Restarting an actor many times leaves the supervisor with as many descriptors as before."""
    assert daemon.process is not None
    fds = Path(f"/proc/{daemon.process.pid}/fd")
    if not fds.is_dir():
        pytest.skip("no /proc here")

    def restart() -> None:
        generation = daemon.status().actors["watcher"].generation
        daemon.ask("control", RestartActor(name="watcher"))
        until("watcher runs again", lambda: runs_again(daemon, "watcher", generation))

    restart()
    before = len(list(fds.iterdir()))
    for _ in range(3):
        restart()
    until("no descriptor is left over", lambda: len(list(fds.iterdir())) <= before)


def test_stop_is_clean_and_leaves_nothing() -> None:
    """SIGTERM ends every process in order, exit code 0, no socket file left."""
    with running(FAST) as daemon:
        pids = daemon.pids()
        assert daemon.stop() == 0
        assert not any(alive(pid) for pid in pids.values())
        assert list(daemon.paths.runtime.glob("*.sock")) == []


def test_no_orphan_survives_its_supervisor() -> None:
    """kill -9 of the supervisor takes every child with it, also one that is stopped; a new daemon can start at once."""
    with running(FAST) as daemon:
        assert daemon.process is not None
        pids = daemon.pids()
        os.kill(pids["query"], signal.SIGSTOP)
        daemon.process.kill()
        daemon.process.wait()
        until("all children are gone", lambda: not any(alive(pid) for pid in pids.values()))
        daemon.start()
        assert daemon.status().actors["query"].state == "RUNNING"


def test_a_boot_failure_cools_down_instead_of_looping(short_tmp: Path) -> None:
    """An actor that cannot start is tried once; its callers learn at once; the others serve."""
    with running(FAST) as daemon:
        text = daemon.paths.config.read_text()
        generation = daemon.status().actors["watcher"].generation
        daemon.paths.config.write_text(text + "\n[wathcer]\n")
        daemon.ask("control", RestartActor(name="embedder"))
        until("it cools", lambda: daemon.status().actors["embedder"].state == "COOLING")
        assert "wathcer" in daemon.status().actors["embedder"].vitals.facts["last_error"]
        with pytest.raises(Unavailable):
            ask_sync(daemon.paths.socket("embedder"), GetStatus(), budget_ms=20_000)
        assert generation == daemon.status().actors["watcher"].generation
        daemon.paths.config.write_text(text)
        daemon.ask("control", RestartActor(name="embedder"))
        until("it runs when the cause is gone", lambda: daemon.status().actors["embedder"].state == "RUNNING")


def test_a_caller_waits_in_the_backlog_while_an_actor_restarts() -> None:
    """No connection is refused during a restart: the next generation answers."""
    with running(FAST) as daemon:
        old = daemon.status().actors["query"]
        os.kill(old.pid, signal.SIGKILL)
        answer = daemon.recall("anything")  # sent while nobody is there
        assert answer.hits == ()
        assert runs_again(daemon, "query", old.generation)


def test_the_service_manager_is_told(short_tmp: Path) -> None:
    """READY when writer and query serve, WATCHDOG while the loop turns, STOPPING first thing at the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(short_tmp / "notify"))
        manager.settimeout(30)
        told: list[str] = []
        environ = {"NOTIFY_SOCKET": str(short_tmp / "notify"), "WATCHDOG_USEC": "3000000"}
        with running(FAST, environ) as daemon:
            while not {"READY=1", "WATCHDOG=1"} <= {line.partition("\n")[0] for line in told}:
                told.append(manager.recv(4096).decode())
            daemon.stop()
            while "STOPPING=1" not in told:
                told.append(manager.recv(4096).decode())


def test_status_reports_generations_and_restarts() -> None:
    """What scripts rely on is there from the first moment."""
    with running(FAST) as daemon:
        status: Status = daemon.status()
        assert set(ACTORS) == set(status.actors)
        for actor in status.actors.values():
            assert (actor.generation, actor.restarts) == (1, 0)


def test_a_terminal_that_closes_ends_a_foreground_daemon() -> None:
    """SIGHUP stops what was started in a terminal; without one it means a changed configuration."""
    with running(FAST) as daemon:
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.status().actors["writer"].state == "RUNNING"
        daemon.stop()
        master, slave = os.openpty()
        command = [sys.executable, "-P", "-m", "recalld.supervisor"]
        daemon.process = subprocess.Popen(command, env=daemon.environ, stdin=slave, stderr=subprocess.DEVNULL)
        os.close(slave)
        until("it serves", lambda: (status := daemon.try_status()) is not None and status.actors["query"].pid > 0)
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.process.wait(30) == 0
        os.close(master)
