"""Starting a daemon from a client: in the background for good, or for the time of one command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from ..protocol.client import ask_sync
from ..protocol.envelope import ProtocolError
from ..protocol.messages.control import GetStatus, Status
from ..protocol.runtime import Paths

READY_S = 60.0
POLL_S = 0.05
STOP_S = 30.0


class NotStarted(ProtocolError):
    """Raised when a daemon was started and did not become ready; the text has its last words."""

    code = "unavailable"


def start_detached(paths: Paths) -> Status:
    """Start a daemon that outlives this process. Returns when writer and query serve. Raises NotStarted."""
    process = _spawn(paths)
    try:
        return _wait_ready(paths, process)
    except BaseException:  # not ready, or Ctrl-C: nothing is left running that nobody was told of
        process.terminate()
        raise


@contextlib.contextmanager
def temporary(paths: Paths) -> Iterator[Status]:
    """
    A daemon for the time of the block; stopped in order afterwards, also when this process is killed. Raises NotStarted.
    """
    process = _spawn(paths, "--while-stdin", stdin=subprocess.PIPE)
    try:
        yield _wait_ready(paths, process)
    finally:
        process.terminate()  # a signal, not a message: it may be at its start, or without a socket
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stderr):
            if pipe is not None:
                pipe.close()


def _spawn(paths: Paths, *options: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "recalld.supervisor", *options]
    command += ["--data", os.fspath(paths.data), "--runtime", os.fspath(paths.runtime)]
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Not the terminal's session: closing the terminal must not end it.
        start_new_session=True,
    )


def _wait_ready(paths: Paths, process: subprocess.Popen[bytes]) -> Status:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            words = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
            raise NotStarted(words.removeprefix("recalld: ") or f"the daemon ended with {process.returncode}")
        status = _status(paths)
        if status is not None and status.pid != process.pid:
            status = None  # another one was quicker; ours is about to say so
        needed = () if status is None else [(name, status.actors[name]) for name in ("writer", "query")]
        for name, actor in needed:
            if actor.state == "COOLING":
                raise NotStarted(f"the {name} does not start: {actor.vitals.facts.get('last_error') or actor.why}")
        if status is not None and all(actor.state == "RUNNING" for _, actor in needed):
            if process.stderr is not None:
                process.stderr.close()
            return status
        time.sleep(POLL_S)
    raise NotStarted(f"the daemon is not ready after {READY_S:.0f} s: see {paths.logs}")


def _status(paths: Paths) -> Status | None:
    try:
        reply = ask_sync(paths.socket("control"), GetStatus(), budget_ms=2000)
    except ProtocolError:
        return None
    return reply if isinstance(reply, Status) else None
