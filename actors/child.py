"""
One child of the supervisor: ``tend`` is the only code that spawns or kills it.

A loop with one thread of control per child leaves no two places that may both start a process, and no exit that belongs to
an older generation: each generation is awaited to its end before the next decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from ..protocol.envelope import ProtocolError, encode
from ..protocol.framing import pack_bytes, read_body
from ..protocol.messages import decode_from_child
from ..protocol.messages.control import ActorStatus, Beat, Ready, State, Stop, ToChild, Vitals
from ..protocol.runtime import Paths
from ..protocol.sockets import bind
from .base import Birth
from .lifecycle import ChildSpec, Cool, Crash, Restart, decide

ABORT_GRACE_S = 0.3
"""Between SIGABRT (the child writes its stacks) and SIGKILL. A stopped process takes neither."""
TERM_GRACE_S = 1.0
OVERSLEPT_S = 0.5
"""A deadline that is noticed this late means that the supervisor itself was stopped: the child gets its time again."""
START_PATIENCE = 10
"""A child that beats and is not ready is given this many times its start timeout: it may be migrating a large index."""
MAX_ERR_BYTES = 1_000_000
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Our own threads are the parallelism; glibc would keep what each of them once needed in a heap of its own."""

Want = Literal["run", "restart", "stop"]

log = logging.getLogger("recalld.supervisor")


class Exit(msgspec.Struct, frozen=True):
    """How one generation ended. ``asked``: by a stop or restart that somebody wanted."""

    code: int
    asked: bool
    lived_s: float
    how: str


class Child:
    """A child, its listening sockets, and what is known of it."""

    def __init__(
        self, spec: ChildSpec, paths: Paths, probe_s: float, announce: Callable[[Child, State, str], None]
    ) -> None:
        self.spec = spec
        self._paths = paths
        self._probe_s = probe_s
        self._announce = announce
        self._want: Want = "run"
        self._wanted = asyncio.Event()
        self._crashes: list[Crash] = []
        self._listeners: dict[str, socket.socket] = {}
        self._inherited: dict[str, socket.socket] = {}
        self._writer: asyncio.StreamWriter | None = None
        self.state: State = "STOPPED"
        self.generation = 0
        self.restarts = 0
        self.pid = 0
        self.vitals = Vitals()
        self.last_exit = ""
        self.why = ""
        self._started = 0.0
        self._beat_at = 0.0
        self._told = 0.0
        """When ``vitals`` came."""

    # -- what others may do -------------------------------------------------------------------------------------------

    def want(self, want: Want) -> None:
        """Ask for a state; ``tend`` gets there. The last wish wins, and a stop is never taken back."""
        if self._want != "stop":
            self._want = want
            self._wanted.set()

    def adopt(self, listeners: dict[str, socket.socket]) -> None:
        """Use these listening sockets (from a service manager) instead of binding own ones."""
        self._inherited = {name: listeners[name] for name in self.spec.listens if name in listeners}
        self._listeners.update(self._inherited)

    def bind(self) -> None:
        """Bind what is not bound. Raises OSError."""
        for name in self.spec.listens:
            if name not in self._listeners:
                self._listeners[name] = bind(self._paths.socket(name))

    def tell(self, message: ToChild) -> None:
        """Send to the child, if there is one."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack_bytes(encode(message)))

    def status(self) -> ActorStatus:
        now = time.monotonic()
        alive = self.state in ("STARTING", "RUNNING", "STOPPING")
        logged_s = self.vitals.figures.get("last_error_age_s")
        return ActorStatus(
            pid=self.pid if alive else 0,
            state=self.state,
            generation=self.generation,
            restarts=self.restarts,
            uptime_s=round(now - self._started, 1) if alive else 0.0,
            vitals=self.vitals,
            beat_age_ms=int((now - self._beat_at) * 1000) if self.state == "RUNNING" else 0,
            last_error_age_s=0.0 if logged_s is None else round(logged_s + now - self._told, 1),
            last_exit=self.last_exit,
            why=self.why,
        )

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Keep the child as it is wanted, until it is stopped for good."""
        try:
            while self._want != "stop":
                self._want = "run"
                self._wanted.clear()
                exit_ = await self._one_generation()
                self.last_exit = exit_.how
                if exit_.asked:
                    continue
                now = time.monotonic()
                self._crashes = [*self._crashes[-100:], Crash(now, exit_.lived_s)]
                match decide(self.spec, self._crashes, exit_.code, now, random.random()):
                    case Restart(delay_s):
                        self._to("BACKOFF", exit_.how)  # RUNNING or STARTING -> BACKOFF
                        await self._wait_for_wish(delay_s)
                    case Cool(why):
                        self._unbind()
                        self._to("COOLING", f"{exit_.how}: {why}")  # RUNNING or STARTING -> COOLING
                        await self._cool(f"{self.spec.name} was given up on for now: {self.why}")
                        self._crashes.clear()
        finally:
            self._unbind()
            self._to("STOPPED", "asked to stop" if self._want == "stop" else "the supervisor ends")

    async def _cool(self, why: str) -> None:
        """Wait for the next probe or a wish; meanwhile callers on sockets that stay open are told ``why`` at once."""
        from ..protocol.standin import stand_in  # most supervisors never need it

        retry_after_ms = int(self._probe_s * 1000)
        standing = [
            asyncio.create_task(stand_in(listener, name, why, retry_after_ms))
            for name, listener in self._inherited.items()
        ]
        try:
            await self._wait_for_wish(self._probe_s)
        finally:
            for task in standing:
                task.cancel()
            for result in await asyncio.gather(*standing, return_exceptions=True):
                if isinstance(result, Exception):
                    log.warning("%s: nobody could stand in for it: %s", self.spec.name, result)

    async def _wait_for_wish(self, timeout_s: float) -> None:
        # The wish is looked at before waiting: one that came while something else was awaited is not slept through.
        if self._want != "run":
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wanted.wait()

    async def _one_generation(self) -> Exit:
        self.generation += 1
        self.restarts = self.generation - 1
        self._started = time.monotonic()
        self.vitals = Vitals()
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            return Exit(1, False, 0.0, f"could not be started: {error}")
        try:
            self.bind()
            process = await self._spawn(theirs)
        except (OSError, RuntimeError) as error:  # no descriptor, no memory, no thread to wait for it
            ours.close()
            return Exit(1, False, 0.0, f"could not be started: {error}")
        finally:
            theirs.close()
        self.pid = process.pid
        self._to("STARTING", f"pid {process.pid}")  # BACKOFF, COOLING or STOPPED -> STARTING
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        exited = asyncio.ensure_future(process.wait())
        hearing = asyncio.ensure_future(self._hear(reader))
        wished = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({exited, hearing, wished}, return_when=asyncio.FIRST_COMPLETED)
            asked = self._want != "run"
            stale = hearing.result() if hearing.done() and not hearing.cancelled() else ""
            if not exited.done():
                await self._end(process.pid, exited, asked=asked, stale=stale)
            code = exited.result()
        finally:
            for task in (hearing, wished):
                task.cancel()
            if not exited.done():
                _kill_group(process.pid, signal.SIGKILL)
            self._writer.close()
            self._writer = None
            await asyncio.wait({hearing, wished, exited})
        lived_s = time.monotonic() - self._started
        how = stale or _how(code, lived_s)
        if code == 1 and (words := self._last_words()):
            how = f"{how}: {words}"
        return Exit(code, asked, lived_s, how)

    async def _spawn(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        fds = {name: listener.fileno() for name, listener in self._listeners.items()}
        birth = Birth(
            name=self.spec.name,
            generation=self.generation,
            parent_pid=os.getpid(),
            control_fd=theirs.fileno(),
            listeners=fds,
            data=os.fspath(self._paths.data),
            runtime=os.fspath(self._paths.runtime),
            beat_s=min(1.0, self.spec.beat_timeout_s / 4),
        )
        environment = {**os.environ, **ENVIRONMENT}
        errors = self._errors_file()
        try:
            # Shielded: a cancelled spawn could leave a process that nobody knows.
            return await asyncio.shield(
                asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", f"recalld.actors.{self.spec.name}", msgspec.json.encode(birth).decode(),
                    stdin=asyncio.subprocess.DEVNULL, stdout=errors, stderr=errors,
                    pass_fds=(theirs.fileno(), *fds.values()), env=environment, start_new_session=True,
                )
            )  # fmt: skip
        finally:
            os.close(errors)

    def _errors_file(self) -> int:
        """Where tracebacks of the interpreter itself and native libraries' words go: a file, bounded, never a pipe."""
        path = self._paths.logs / f"{self.spec.name}.err"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if os.fstat(descriptor).st_size > MAX_ERR_BYTES:
                os.ftruncate(descriptor, 0)
            return descriptor
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def _last_words(self) -> str:
        """What a child that crashed said last: its own report, else the end of its traceback."""
        if told := self.vitals.facts.get("last_error", ""):
            return told
        try:
            with open(self._paths.logs / f"{self.spec.name}.err", "rb") as errors:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
                return errors.read().decode(errors="replace").strip().rpartition("\n")[2][:300]
        except OSError:
            return ""

    async def _hear(self, reader: asyncio.StreamReader) -> str:
        """Take the child's messages in. Returns why it must go: '' at its end of file, else 'stale beat …'."""
        ready_by = time.monotonic() + START_PATIENCE * self.spec.start_timeout_s
        limit_s = self.spec.start_timeout_s
        while True:
            before = time.monotonic()
            if self.state != "RUNNING":
                limit_s = max(0.0, min(self.spec.start_timeout_s, ready_by - before))
            try:
                async with asyncio.timeout(limit_s):
                    body = await read_body(reader)
                    message = None if body is None else decode_from_child(body)
            except TimeoutError:
                if time.monotonic() - before > limit_s + OVERSLEPT_S:
                    continue
                waited_s = time.monotonic() - self._started
                return (
                    f"no beat for {limit_s:.1f} s" if self.state == "RUNNING" else f"not ready after {waited_s:.0f} s"
                )
            except ConnectionError:
                return ""
            except (OSError, ProtocolError, msgspec.MsgspecError) as error:
                log.warning("%s: its control line broke: %s", self.spec.name, error)
                return ""
            match message:
                case None:
                    return ""
                case Ready():
                    limit_s = self.spec.beat_timeout_s
                    self._beat_at = time.monotonic()
                    self._to("RUNNING", f"ready after {time.monotonic() - self._started:.2f} s")  # STARTING -> RUNNING
                case Beat():
                    self._beat_at = self._told = time.monotonic()
                    self.vitals = message.vitals

    async def _end(self, pid: int, exited: asyncio.Future[int], *, asked: bool, stale: str) -> None:
        """Bring the running process to its end: politely when asked, at once when it does not live any more."""
        if stale:
            self._to("STOPPING", stale)  # RUNNING or STARTING -> STOPPING
            ladder: tuple[tuple[int, float], ...] = ((signal.SIGABRT, ABORT_GRACE_S),)
        elif asked:
            self._to("STOPPING", "asked to")  # RUNNING or STARTING -> STOPPING
            self.tell(Stop(grace_ms=int(self.spec.stop_grace_s * 1000)))
            await asyncio.wait({exited}, timeout=self.spec.stop_grace_s)
            ladder = ((signal.SIGTERM, TERM_GRACE_S),)
        else:
            # Its line is closed: it is ending by itself, or so broken that it must be ended.
            await asyncio.wait({exited}, timeout=self.spec.stop_grace_s)
            ladder = ((signal.SIGTERM, TERM_GRACE_S),)
        for number, grace_s in ladder:
            if not exited.done():
                _kill_group(pid, number)
                await asyncio.wait({exited}, timeout=grace_s)
        if not exited.done():
            _kill_group(pid, signal.SIGKILL)
            await exited

    def _unbind(self) -> None:
        """Close the listeners, so that callers learn at once instead of waiting for nobody. Inherited ones stay."""
        for name, listener in self._listeners.items():
            if name not in self._inherited:
                listener.close()
                with contextlib.suppress(OSError):
                    self._paths.socket(name).unlink()
        self._listeners = dict(self._inherited)

    def _to(self, state: State, why: str) -> None:
        self.why = why
        before, self.state = self.state, state
        self._announce(self, before, why)


def _kill_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _how(code: int, lived_s: float) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:  # most real-time signals have no name
            name = f"signal {-code}"
        return f"killed by {name} after {lived_s:.1f} s"
    return f"exit {code} after {lived_s:.1f} s"
