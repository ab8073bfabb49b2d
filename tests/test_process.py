"""Daemons that a command starts: ready or said why not, and gone when the command is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Daemon, alive, running, until
from recalld.clients import process
from recalld.clients.cli import index
from recalld.protocol.messages.control import ActorStatus, Status, Vitals

pytestmark = pytest.mark.process

QUIET = "[embedder]\nmodel = 'none'\n"
HOLD = """
import sys, time
from pathlib import Path
from recalld.clients.process import temporary
from recalld.protocol.runtime import Paths
with temporary(Paths(Path(sys.argv[1]), Path(sys.argv[2]))) as status:
    print(status.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def stopped() -> Iterator[Daemon]:
    """A place for a daemon, where none runs."""
    with running(start=False) as daemon:
        daemon.paths.data.mkdir(parents=True, exist_ok=True)
        daemon.paths.config.write_text(QUIET)
        yield daemon


def holding(daemon: Daemon) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", HOLD, str(daemon.paths.data), str(daemon.paths.runtime)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_temporary_daemon_ends_with_the_command_that_started_it(stopped: Daemon, number: int) -> None:
    """However the command ends: nothing goes on running that nobody knows of."""
    command = holding(stopped)
    with command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        children = stopped.pids()
        command.send_signal(number)
        command.wait(30)
    until("the daemon is gone", lambda: not any(alive(each) for each in (pid, *children.values())))


def test_an_interrupted_start_ends_at_once(stopped: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the daemon is not ready yet does not wait for what cannot come."""

    def interrupted(*_: object) -> Status:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "STOP_S", 10_000.0)
    monkeypatch.setattr(process, "_wait_ready", interrupted)
    with pytest.raises(KeyboardInterrupt), process.temporary(stopped.paths):
        pass
    assert stopped.try_status() is None


def test_a_daemon_that_cannot_be_ready_says_why(stopped: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is given up on is not waited for, and its own words are told."""

    def told(_: object) -> Status:
        vitals = Vitals(facts={"last_error": "its lock is held"})
        writer = ActorStatus(pid=0, state="COOLING", generation=1, restarts=0, uptime_s=0.0, vitals=vitals)
        return Status(
            version="", pid=os.getpid(), uptime_s=0.0, data="", runtime="", actors={"writer": writer, "query": writer}
        )

    class Started:
        pid = os.getpid()

        def poll(self) -> None:
            return None

    monkeypatch.setattr(process, "_status", told)
    with pytest.raises(process.NotStarted, match="its lock is held"):
        process._wait_ready(stopped.paths, Started())  # type: ignore[arg-type]  # what is asked of it


def test_restarting_what_cannot_start_says_why(stopped: Daemon) -> None:
    """The command does not wait for a process that was given up on."""
    stopped.start(config=QUIET)
    stopped.paths.config.write_text("[wathcer]\n")
    started = time.monotonic()
    done = stopped.cli("restart", "watcher", check=False)
    assert done.returncode == 1
    assert "wathcer" in done.stderr
    assert time.monotonic() - started < 25, "it waited for the whole time allowed"


def test_indexing_while_paused_is_refused(stopped: Daemon) -> None:
    """Notes that nobody reads are not waited for."""
    stopped.start(config=QUIET)
    stopped.cli("pause")
    done = stopped.cli("index", str(stopped.vault), "--timeout", "20", check=False)
    assert done.returncode == 1
    assert "recalld resume" in done.stderr
    stopped.cli("resume")
    assert stopped.cli("index").returncode == 0


def test_a_full_disk_is_waited_for_a_little() -> None:
    """`index` does not give up at a disk that has just been freed, nor wait for ever for one that is full."""
    vitals = Vitals(figures={"read_only": 1.0}, facts={"last_error": "the disk is full"})
    actor = ActorStatus(pid=1, state="RUNNING", generation=1, restarts=0, vitals=vitals)
    status = Status(
        version="", pid=1, uptime_s=0.0, data="", runtime="", actors={"writer": actor, "watcher": actor}
    )  # fmt: skip
    assert index._no_notes(status, 1.0) == ""
    assert "the disk is full" in index._no_notes(status, 60.0)


def test_an_end_that_nobody_wanted_is_a_failure(short_tmp: Path) -> None:
    """A service manager starts a daemon again that lost the loop of a child; it would not after exit code 0."""
    code = (
        "import sys\nfrom recalld import supervisor\nfrom recalld.actors.child import Child\n"
        "async def broken(self): raise ZeroDivisionError('oops')\n"
        "Child.tend = broken\n"
        "sys.argv[1:] = ['--data', sys.argv[1], '--runtime', sys.argv[1]]\nsys.exit(supervisor.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(short_tmp)], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"oops" in done.stderr


def test_stop_takes_an_exit_that_nobody_collects_for_an_exit(stopped: Daemon) -> None:
    """A daemon started by a process that does not wait for it (PID 1 of a container) is stopped, too."""
    stopped.start(config=QUIET)
    assert stopped.process is not None
    assert stopped.cli("stop").returncode == 0
    assert os.waitpid(stopped.process.pid, os.WNOHANG)[0] == stopped.process.pid


def test_a_daemon_that_does_not_answer_is_named_with_its_pid(stopped: Daemon) -> None:
    """A person can end what cannot be asked."""
    stopped.start(config=QUIET)
    assert stopped.process is not None
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        done = stopped.cli("stop", check=False)
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    assert done.returncode == 1
    assert f"kill -9 {stopped.process.pid}" in done.stderr


def test_one_folder_may_hold_data_and_sockets(short_tmp: Path) -> None:
    """The lock of one is the lock of the other."""
    words = [sys.executable, "-P", "-m", "recalld.supervisor", "--data", str(short_tmp), "--runtime", str(short_tmp)]
    with subprocess.Popen([*words, "--while-stdin"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as daemon:
        until("it runs", lambda: (short_tmp / "control.sock").exists() or daemon.poll() is not None)
        _, said = daemon.communicate(timeout=60)
    assert (daemon.returncode, said) == (0, b"")


def test_sockets_that_cannot_be_made_are_said_in_one_line(short_tmp: Path) -> None:
    """Not every file system holds sockets."""
    (short_tmp / "control.sock").mkdir()
    words = [sys.executable, "-P", "-m", "recalld.supervisor", "--data", str(short_tmp / "d"), "--runtime"]
    done = subprocess.run([*words, str(short_tmp)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "--runtime" in done.stderr
    assert len(done.stderr.splitlines()) == 1
