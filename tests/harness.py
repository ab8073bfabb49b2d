"""A real daemon in a temporary folder, for tests that need whole processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from recalld.clients import mcp_bridge
from recalld.protocol.client import ask_sync
from recalld.protocol.envelope import ProtocolError
from recalld.protocol.messages import AnyReply
from recalld.protocol.messages.common import Message
from recalld.protocol.messages.control import GetStatus, Reload, Status
from recalld.protocol.messages.index import Settle, Settled
from recalld.protocol.messages.recall import Answer, Recall, WaitFor
from recalld.protocol.runtime import Paths

T = TypeVar("T")
LIMIT_S = 30.0
"""How long anything may take before a test calls it broken: generous, because the machine is shared."""

BRIDGE = Path(mcp_bridge.__file__)
ACTORS = ("writer", "query", "embedder", "watcher")


def until(what: str, probe: Callable[[], T | None], limit_s: float = LIMIT_S) -> T:
    """The first value of ``probe`` that is neither None nor False; fails the test, saying what was waited for."""
    deadline = time.monotonic() + limit_s
    while True:
        value = probe()
        if value is not None and value is not False:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {limit_s:.0f} s"
        time.sleep(0.02)


class Daemon:
    """One daemon and the folder it lives in. ``vault`` is watched; it may be filled before or after the start."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.paths = Paths(folder / "d", folder / "r")
        self.vault = folder / "vault"
        self.vault.mkdir(exist_ok=True)
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RECALLD_")},
            "RECALLD_DATA": str(self.paths.data),
            "RECALLD_RUNTIME": str(self.paths.runtime),
            **(environ or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self, *, config: str = "") -> Daemon:
        """Start it and wait until it serves. ``config`` is appended to config.toml at the first start."""
        if not self.paths.config.exists():
            self.paths.data.mkdir(mode=0o700, exist_ok=True)
            text = f'{config}\n[[vaults]]\npath = "{self.vault}"\nname = "vault"\n'
            self.paths.config.write_text(text)
        self.spawn()
        until("the daemon serves", lambda: self.serves("writer") and self.serves("query"))
        return self

    def spawn(self) -> None:
        """Start the supervisor, as a service manager would, and wait for nothing."""
        with open(self.folder / "stderr", "ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "recalld.supervisor"], env=self.environ, stderr=errors, cwd="/"
            )

    def serves(self, actor: str) -> bool:
        """Whether an actor runs; fails the test when the supervisor has ended."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "stderr").read_text()
        status = self.try_status()
        return status is not None and status.actors[actor].state == "RUNNING"

    def stop(self) -> int:
        """Ask it to stop; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def close(self) -> None:
        """End it whatever its state is."""
        pids = self.pids() if self.process is not None and self.process.poll() is None else {}
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- asking -------------------------------------------------------------------------------------------------------

    def ask(self, actor: str, message: Message, budget_ms: int = 20_000) -> AnyReply:
        return ask_sync(self.paths.socket(actor), message, budget_ms=budget_ms, role="test")

    def try_status(self) -> Status | None:
        try:
            reply = self.ask("control", GetStatus(), 5000)
        except ProtocolError:
            return None
        assert isinstance(reply, Status)
        return reply

    def status(self) -> Status:
        return until("the supervisor answers", self.try_status)

    def pids(self) -> dict[str, int]:
        status = self.try_status()
        return {} if status is None else {name: actor.pid for name, actor in status.actors.items() if actor.pid}

    def recall(self, query: str, k: int = 5, **more: object) -> Answer:
        reply = self.ask("query", Recall(query=query, k=k, **more))  # type: ignore[arg-type]  # fields by name
        assert isinstance(reply, Answer)
        return reply

    def finds(self, query: str, path: str, **more: object) -> bool:
        """Whether ``path`` is among the hits, without caring about order. False while nobody answers."""
        try:
            return path in [hit.path for hit in self.recall(query, 10, **more).hits]
        except ProtocolError:
            return False

    def settle(self, *, vectors: bool = False, limit_s: float = LIMIT_S) -> Settled:
        """Wait until everything on disk is in the index (and embedded), and the query actor has seen it."""
        asked_ms = int(time.time() * 1000)
        self.ask("control", Reload())
        until("a sweep of all vaults", lambda: self.figure("watcher", "all_swept_ms") >= asked_ms, limit_s)

        def settled() -> Settled | None:
            reply = self.ask("writer", Settle())
            assert isinstance(reply, Settled)
            return reply if not vectors or reply.pending_vectors == 0 else None

        found = until("vectors", settled, max(limit_s, 120.0) if vectors else limit_s)
        self.ask("query", WaitFor(revision=found.revision))
        return found

    def figure(self, actor: str, name: str) -> float:
        status = self.try_status()
        return -1.0 if status is None else status.actors[actor].vitals.figures.get(name, -1.0)

    def cli(self, *arguments: str, check: bool = True, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The real command, with this daemon's folders."""
        command = [sys.executable, "-P", "-m", "recalld.clients.cli", *arguments]
        done = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=120, check=False, cwd=cwd
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def write(self, path: str, text: str) -> Path:
        target = self.vault / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target


@contextlib.contextmanager
def running(config: str = "", environ: Mapping[str, str] | None = None, *, start: bool = True) -> Iterator[Daemon]:
    """A daemon for the time of the block."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    daemon = Daemon(folder, environ)
    try:
        yield daemon.start(config=config) if start else daemon
    finally:
        daemon.close()
        shutil.rmtree(folder, ignore_errors=True)


def talk(daemon: Daemon, *lines: dict[str, Any]) -> None:
    """Hook events over one connection, each acknowledged before the next."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(str(daemon.paths.socket("events")))
        answers = client.makefile("rb")
        for line in lines:
            client.sendall(json.dumps(line).encode() + b"\n")
            assert json.loads(answers.readline())["ok"]


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not os.path.isdir("/proc/1")


class Bridge:
    """An MCP client's view: the real bridge as a child process, JSON-RPC lines over its stdio."""

    def __init__(self, daemon: Daemon, *, modern: bool = False) -> None:
        self._modern = modern
        self._next = 1
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(BRIDGE)],
            env=daemon.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=daemon.vault,
        )
        if not modern:
            version = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
            self.request("initialize", version)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request and its answer; the whole JSON-RPC response."""
        number, self._next = self._next, self._next + 1
        params = dict(params or {})
        if self._modern:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, "the bridge ended"
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == number:
                return answer

    def recall(self, query: str, **more: Any) -> dict[str, Any]:
        """The tool's whole result, with ``structuredContent``."""
        answer = self.request("tools/call", {"name": "recall", "arguments": {"query": query, **more}})
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
