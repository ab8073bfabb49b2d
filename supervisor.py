"""
The process tree: one lock, every listening socket, one coroutine per child, and an orderly end.

``python -m recalld.supervisor`` runs it in the foreground; `recalld up` is that. It decides nothing about children
(``actors.lifecycle`` does) and knows nothing of notes.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import errno
import fcntl
import logging
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from .actors import logs, startcode
from .actors.child import Child
from .actors.health import degraded_now
from .actors.lifecycle import CHILDREN, spec_of
from .actors.sdnotify import ServiceManager, inherited_sockets
from .protocol import config as configuration
from .protocol.config import Config, ConfigError
from .protocol.envelope import Invalid
from .protocol.messages import decode_control
from .protocol.messages.common import Ok
from .protocol.messages.control import (
    ConfigChanged,
    GetStatus,
    Pause,
    PeersUp,
    Reload,
    RestartActor,
    SetPaused,
    State,
    Status,
    StopAll,
    Transition,
)
from .protocol.runtime import Paths, RuntimeFolderError, locate, make_private, open_standard_streams
from .protocol.server import Server
from .protocol.sockets import bind
from .protocol.version import VERSION

KEPT_TRANSITIONS = 50
TICK_S = 1.0
TOUCH_S = 3600.0
"""Cleaners of /tmp and /run remove what looks unused: sockets are touched this often."""

log = logging.getLogger("recalld.supervisor")


class AlreadyRunning(Exception):
    """Raised when another daemon holds the lock of this data or runtime folder."""


class NoSockets(Exception):
    """Raised when a listening socket cannot be made."""


class Supervisor:
    """The daemon. ``run`` returns when it was stopped."""

    def __init__(self, paths: Paths, config: Config, *, while_stdin: bool = False) -> None:
        self._paths = paths
        self._while_stdin = while_stdin
        self._config = config
        self._started = time.monotonic()
        self._service = ServiceManager()
        self._stopping = asyncio.Event()
        self._paused = False
        self._was_ready = False
        self._problem = logs.configure("supervisor", paths.logs, config.log)
        self._transitions: collections.deque[Transition] = collections.deque(maxlen=KEPT_TRANSITIONS)
        settings = config.supervisor
        self._children = {
            spec.name: Child(
                msgspec.structs.replace(
                    spec,
                    beat_timeout_s=settings.beat_timeout_s,
                    intensity=settings.intensity,
                    period_s=settings.period_s,
                ),
                paths,
                settings.cooling_probe_s,
                self._changed,
            )
            for spec in CHILDREN
        }

    async def run(self) -> None:
        """Start every child, keep them, and stop them in reverse order when asked."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        # A terminal that closes says so with SIGHUP; a service manager means: look at the configuration again.
        loop.add_signal_handler(signal.SIGHUP, self._stop if _in_terminal() else self._heard_hangup)
        if self._while_stdin:
            loop.add_reader(0, self._heard_stdin)
        inherited = inherited_sockets()
        control = self._bind(inherited)
        server = Server(
            control,
            decode_control,
            {
                GetStatus: self._status,
                StopAll: self._stop_all,
                RestartActor: self._restart,
                Reload: self._reload,
                SetPaused: self._pause,
            },
            name="control",
        )
        serving = asyncio.create_task(server.run())
        ticking = asyncio.create_task(self._tick())
        startcode.drop_later()
        tending = {name: asyncio.create_task(child.tend()) for name, child in self._children.items()}
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({stopping, serving, ticking, *tending.values()}, return_when=asyncio.FIRST_COMPLETED)
            for endless in (serving, ticking):
                if endless.done():
                    endless.result()
            failed = [task for task in tending.values() if task.done()]
        finally:
            self._service.stopping()
            await self._stop_children(tending)
            for task in (serving, ticking, stopping):
                task.cancel()
            await asyncio.wait({serving, ticking, stopping})
            if "control" not in inherited:
                control.close()
                with contextlib.suppress(OSError):
                    self._paths.socket("control").unlink()
        for task in failed:
            task.result()  # nobody wanted this end: a service manager must see a failure

    def _bind(self, inherited: dict[str, socket.socket]) -> socket.socket:
        """Every listening socket; returns that of control."""
        try:
            control = inherited.get("control") or bind(self._paths.socket("control"))
            for child in self._children.values():
                child.adopt(inherited)
                child.bind()
        except OSError as error:
            raise NoSockets(f"no sockets can be made in {self._paths.runtime}: {error}: try --runtime FOLDER") from None
        return control

    async def _stop_children(self, tending: dict[str, asyncio.Task[None]]) -> None:
        for name in reversed(list(self._children)):
            self._children[name].want("stop")
            await asyncio.wait({tending[name]})
            if (error := tending[name].exception()) is not None:
                log.error("%s: its tending failed", name, exc_info=error)

    def _stop(self) -> None:
        self._stopping.set()

    def _heard_stdin(self) -> None:
        """Whoever started us for the time of one command is gone when its pipe ends."""
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._stop()

    def _changed(self, child: Child, before: State, why: str) -> None:
        arrow = f"{before} -> {child.state}: {why}"
        level = logging.WARNING if child.state in ("BACKOFF", "COOLING") else logging.INFO
        log.log(level, "%s: %s", child.spec.name, arrow)
        self._transitions.append(Transition(at_ms=int(time.time() * 1000), actor=child.spec.name, arrow=arrow))
        up = self._up()
        restarts = {name: other.restarts for name, other in self._children.items()}
        for other in self._children.values():
            other.tell(PeersUp(up=up, restarts=restarts))
        if child.state == "RUNNING":
            if self._paused:
                child.tell(Pause(paused=True))
            self._maybe_ready()
        if self._was_ready:
            self._service.status(self._line())

    def _maybe_ready(self) -> None:
        critical = all(child.state == "RUNNING" for child in self._children.values() if child.spec.critical)
        if critical and not self._was_ready:
            self._was_ready = True
            self._service.ready(self._line())
            log.info("ready after %.2f s", time.monotonic() - self._started)

    def _up(self) -> tuple[str, ...]:
        return tuple(name for name, child in self._children.items() if child.state == "RUNNING")

    def _degraded(self) -> tuple[str, ...]:
        read_only = bool(self._children["writer"].vitals.figures.get("read_only"))
        return degraded_now(self._up(), read_only=read_only)

    def _line(self) -> str:
        missing = self._degraded()
        return f"degraded: {', '.join(missing)}" if missing else "all well"

    async def _tick(self) -> None:
        touched = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            if self._service.watchdog_s:
                self._service.alive()
            if time.monotonic() - touched > TOUCH_S:
                touched = time.monotonic()
                for path in self._paths.runtime.glob("*"):
                    with contextlib.suppress(OSError):
                        os.utime(path)

    # -- control.sock -------------------------------------------------------------------------------------------------

    async def _status(self, _: GetStatus) -> Status:
        return Status(
            version=VERSION,
            pid=os.getpid(),
            uptime_s=round(time.monotonic() - self._started, 1),
            data=str(self._paths.data),
            runtime=str(self._paths.runtime),
            actors={name: child.status() for name, child in self._children.items()},
            degraded=self._degraded(),
            paused=self._paused,
            transitions=tuple(self._transitions),
            last_error=self._problem.text,
            last_error_age_s=self._problem.age_s if self._problem.text else 0.0,
        )

    async def _stop_all(self, _: StopAll) -> Ok:
        asyncio.get_running_loop().call_later(0.02, self._stop)  # after the answer has left
        return Ok()

    async def _restart(self, request: RestartActor) -> Ok:
        try:
            self._children[spec_of(request.name).name].want("restart")
        except KeyError as error:
            raise Invalid(error.args[0]) from None
        return Ok()

    async def _reload(self, _: Reload) -> Ok:
        try:
            self._config = configuration.load(self._paths.config)
        except ConfigError as error:
            raise Invalid(str(error)) from None
        self._tell_config()
        return Ok()

    def _heard_hangup(self) -> None:
        try:
            self._config = configuration.load(self._paths.config)
        except ConfigError as error:
            log.error("the changed configuration is not taken up: %s", error)
        self._tell_config()

    def _tell_config(self) -> None:
        logs.take_up(self._config.log)
        for child in self._children.values():
            child.tell(ConfigChanged())

    async def _pause(self, request: SetPaused) -> Ok:
        self._paused = request.paused
        for child in self._children.values():
            child.tell(Pause(paused=request.paused))
        return Ok()


def _in_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


def lock(folder: Path, name: str) -> int:
    """
    Take the lock file ``folder/name`` and keep it until this process ends; the descriptor is not inherited.

    Raises AlreadyRunning with the pid that holds it.
    """
    try:
        descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        writable = True
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        # A disk that was mounted read-only can still be asked; a lock needs no right to write.
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        writable = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise AlreadyRunning(f"recalld already runs for {folder} (pid {holder}): `recalld status` shows it") from None
    if writable:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def start(paths: Paths, *, while_stdin: bool = False) -> int:
    """
    Run the daemon until it is stopped, or with ``while_stdin`` until the other end of descriptor 0 is closed.

    Returns the exit code; one line on stderr says why it did not start.
    """
    try:
        make_private(paths.data)
        make_private(paths.runtime)
        for folder in (paths.logs, paths.spool, paths.journal, paths.models):
            make_private(folder)
        config = configuration.load(paths.config)
        held = [lock(folder, "lock") for folder in dict.fromkeys((paths.data.resolve(), paths.runtime.resolve()))]
    except AlreadyRunning as error:
        print(f"recalld: {error}", file=sys.stderr)  # noqa: T201 - the one line that a person sees
        return 4
    except (ConfigError, RuntimeFolderError, OSError) as error:
        print(f"recalld: {error}", file=sys.stderr)  # noqa: T201 - as above
        return 3
    random.seed()
    os.umask(0o077)
    try:
        asyncio.run(Supervisor(paths, config, while_stdin=while_stdin).run())
    except NoSockets as error:
        print(f"recalld: {error}", file=sys.stderr)  # noqa: T201 - as above
        return 3
    finally:
        for descriptor in held:
            os.close(descriptor)
    return 0


def main() -> int:
    """Entry point of ``python -m recalld.supervisor``."""
    parser = argparse.ArgumentParser(prog="recalld up", description="Run the recalld daemon in the foreground.")
    parser.add_argument("--data")
    parser.add_argument("--runtime")
    parser.add_argument("--while-stdin", action="store_true", help="end when standard input does")
    arguments = parser.parse_args()
    open_standard_streams()
    try:
        paths = locate(arguments.data, arguments.runtime)
    except RuntimeFolderError as error:
        print(f"recalld: {error}", file=sys.stderr)  # noqa: T201 - as above
        return 3
    return start(paths, while_stdin=arguments.while_stdin)


if __name__ == "__main__":
    sys.exit(main())
