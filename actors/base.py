"""
What every actor process does: tie itself to its supervisor, tell that it lives, stop when asked.

One socketpair to the supervisor carries Ready, Beat and Stop; its end-of-file means that the supervisor is gone, and so is
the reason to run. On Linux the kernel makes sure of that too (PDEATHSIG), also for a process that is stopped or wedged.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

import anyio
import msgspec

from ..protocol import config as configuration
from ..protocol.client import Peer
from ..protocol.config import Config, ConfigError
from ..protocol.envelope import ProtocolError, encode
from ..protocol.framing import pack_bytes, read_body
from ..protocol.messages import decode_to_child
from ..protocol.messages.control import Beat, ConfigChanged, FromChild, Pause, PeersUp, Ready, Stop, Vitals
from ..protocol.runtime import Paths
from ..protocol.sockets import streams
from . import startcode
from .lifecycle import ASKS, BOOT_FAILURE
from .logs import LastProblem, configure, sendable, take_up

BEAT_S = 1.0
TICK_S = 0.25
ORPHANED = 71
ORPHAN_GRACE_S = 2.0
"""How long a transaction may go on when the supervisor is gone, where the kernel does not end us with it."""
PR_SET_PDEATHSIG = 1

log = logging.getLogger("recalld.actor")


class BootFailure(Exception):
    """Raised when an actor cannot start and a restart would not help; the text tells a person what to do."""


class Birth(msgspec.Struct, frozen=True):
    """What the supervisor hands to a child, as JSON in its arguments."""

    name: str
    generation: int
    parent_pid: int
    control_fd: int
    listeners: dict[str, int]
    data: str
    runtime: str
    beat_s: float = BEAT_S


class Env:
    """What an actor is given: its place in the tree, configuration, listening sockets, and peers along the ask graph."""

    def __init__(
        self,
        name: str,
        config: Config,
        paths: Paths,
        listeners: dict[str, socket.socket] | None = None,
        generation: int = 1,
        up: set[str] | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.paths = paths
        self.listeners = listeners or {}
        self.generation = generation
        self.up: set[str] = set(ASKS) if up is None else up
        """Actors that run now, kept current by the supervisor's PeersUp."""
        self.tell: Callable[[], None] = lambda: None
        """Sends the actor's vitals now, ahead of the next beat: for what somebody waits to read there."""
        self._peers: dict[str, Peer] = {}

    def peer(self, name: str) -> Peer:
        """The connection to another actor. Raises ValueError for one that this actor must not ask."""
        if name not in ASKS[self.name]:
            raise ValueError(f"{self.name} does not ask {name}: the ask graph would not stay acyclic")
        if name not in self._peers:
            self._peers[name] = Peer(self.paths.socket(name), self.name)
        return self._peers[name]

    async def aclose(self) -> None:
        for peer in self._peers.values():
            await peer.aclose()


class Actor(Protocol):
    """One process's work. ``run`` opens things, calls ``ready`` once and serves until cancelled."""

    async def run(self, ready: Callable[[], None]) -> None: ...

    def vitals(self) -> Vitals:
        """Called for each beat, on the loop: cheap and without I/O."""
        ...

    async def configure(self, config: Config) -> None: ...

    async def pause(self, paused: bool) -> None: ...


def main(name: str, factory: Callable[[Env], Actor]) -> NoReturn:
    """Entry point of an actor process. Exit codes: 0 asked to stop, 1 crashed, 3 cannot start, 71 the supervisor is gone."""
    birth = msgspec.json.decode(sys.argv[1].encode(), type=Birth)
    _die_with_parent(birth.parent_pid)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    # The supervisor decides when we go: a Ctrl-C in its terminal must not end children out of order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    try:
        code = anyio.run(_live, birth, name, factory, backend_options={"use_uvloop": True})
    except BaseException:
        log.exception("%s crashed", name)
        code = 1
    logging.shutdown()
    # Threads in native calls must not delay an exit that was decided.
    os._exit(code)


def _die_with_parent(parent_pid: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the line above
        os._exit(ORPHANED)


def _exit_later(seconds: float) -> None:
    """End this process after ``seconds``, whatever its event loop does then."""
    timer = threading.Timer(seconds, os._exit, (ORPHANED,))
    timer.daemon = True
    timer.start()


async def _live(birth: Birth, name: str, factory: Callable[[Env], Actor]) -> int:
    paths = Paths(Path(birth.data), Path(birth.runtime))
    control = Control(*await streams(socket.socket(fileno=birth.control_fd)))
    try:
        config = configuration.load(paths.config)
    except (ConfigError, OSError) as error:
        await control.failed(str(error))
        return BOOT_FAILURE
    problem = configure(name, paths.logs, config.log)
    listeners = {key: socket.socket(fileno=fd) for key, fd in birth.listeners.items()}
    env = Env(name, config, paths, listeners, birth.generation)
    actor = factory(env)
    lag = Lag()
    life = Life(birth, env, actor, control, lag, problem)
    code = await life.run()
    with anyio.move_on_after(1, shield=True):
        await env.aclose()
    return code


class Control:
    """The child's end of the socketpair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: FromChild) -> None:
        """Queue a message; a supervisor that is gone is noticed by the reader."""
        if not self._writer.is_closing():
            self._writer.write(pack_bytes(encode(message)))

    async def failed(self, text: str) -> None:
        """Tell why this process cannot start."""
        self.send(Beat(vitals=Vitals(facts={"last_error": sendable(text)})))
        with anyio.move_on_after(1):
            await self._writer.drain()

    async def receive(self) -> object | None:
        """The supervisor's next message, None when it is gone."""
        try:
            body = await read_body(self._reader)
        except (OSError, ProtocolError):  # whatever it is, the line to the supervisor is lost
            return None
        return None if body is None else decode_to_child(body)


class Lag:
    """How late the event loop runs, in ms: the largest delay since it was last read."""

    def __init__(self) -> None:
        self._worst_ms = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.monotonic()
            await anyio.sleep(TICK_S)
            self._worst_ms = max(self._worst_ms, (time.monotonic() - before - TICK_S) * 1000)

    def take_ms(self) -> float:
        worst, self._worst_ms = self._worst_ms, 0.0
        return round(worst, 1)


class Life:
    """One actor from Ready to Stop."""

    def __init__(self, birth: Birth, env: Env, actor: Actor, control: Control, lag: Lag, problem: LastProblem) -> None:
        self._birth = birth
        self._env = env
        self._actor = actor
        self._control = control
        self._lag = lag
        self._problem = problem
        self._code = 0
        env.tell = self._tell

    async def run(self) -> int:
        """The exit code."""
        async with anyio.create_task_group() as group:
            work = anyio.CancelScope()
            group.start_soon(self._lag.run)
            group.start_soon(self._beat)
            group.start_soon(self._listen, work)
            startcode.drop_later()
            try:
                with work:
                    await self._actor.run(self._ready)
                if not work.cancel_called:
                    log.error("%s ended by itself", self._env.name)
                    self._code = 1
            except BootFailure as error:
                log.error("%s cannot start: %s", self._env.name, error)
                await self._control.failed(str(error))
                self._code = BOOT_FAILURE
            except Exception as error:
                cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                if isinstance(cause, BootFailure):
                    log.error("%s cannot start: %s", self._env.name, cause)
                    self._code = BOOT_FAILURE
                else:
                    log.exception("%s crashed", self._env.name)
                    self._code = 1
                await self._control.failed(f"{type(cause).__name__}: {cause}")
            group.cancel_scope.cancel()
        return self._code

    def _ready(self) -> None:
        self._control.send(Ready(generation=self._birth.generation, pid=os.getpid()))
        self._tell()

    async def _beat(self) -> None:
        while True:
            await anyio.sleep(self._birth.beat_s)
            self._tell()

    def _tell(self) -> None:
        self._control.send(Beat(vitals=self._vitals()))

    def _vitals(self) -> Vitals:
        own = self._actor.vitals()
        facts, figures = own.facts, own.figures
        # What an actor tells itself is so now; what was logged was so then.
        if "last_error" not in facts and self._problem.text:
            facts = {**facts, "last_error": self._problem.text}
            figures = {**figures, "last_error_age_s": self._problem.age_s}
        facts = {name: sendable(text) for name, text in facts.items()}
        return msgspec.structs.replace(
            own, lag_ms=self._lag.take_ms(), rss_bytes=rss_bytes(), facts=facts, figures=figures
        )

    async def _listen(self, work: anyio.CancelScope) -> None:
        while True:
            message = await self._control.receive()
            match message:
                case None:
                    log.warning("the supervisor is gone")
                    self._code = ORPHANED
                    _exit_later(ORPHAN_GRACE_S)
                    work.cancel()
                    return
                case Stop():
                    work.cancel()
                    return
                case PeersUp():
                    self._env.up.clear()
                    self._env.up.update(message.up)
                case Pause():
                    await self._actor.pause(message.paused)
                case ConfigChanged():
                    await self._reconfigure()

    async def _reconfigure(self) -> None:
        try:
            self._env.config = configuration.load(self._env.paths.config)
        except (ConfigError, OSError) as error:
            log.error("the changed configuration is not taken up: %s", error)
            return
        take_up(self._env.config.log)
        await self._actor.configure(self._env.config)


def rss_bytes() -> int:
    """Resident memory of this process."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:  # macOS: the peak is what can be had
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
