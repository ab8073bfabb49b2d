"""A stage for tests of the bridge: a client that speaks lines, and the listening socket that outlives the servers on it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from recalld.clients import mcp_bridge
from recalld.protocol.sockets import bind

BRIDGE = [sys.executable, "-I", "-S", str(mcp_bridge.__file__)]
STAND = Path(__file__).with_name("mcp_stand.py")
DEADLINE_S = 20.0
PATIENT_MS = "15000"
"""A grace that a server's start does not outlast, however busy the machine is."""
MODERN = "2026-07-28"


class Client:
    """An MCP client that speaks lines. ``era`` decides what its requests look like."""

    def __init__(self, era: str, runtime: Path, command: list[str] | None = None, **environ: str) -> None:
        self.era = era
        env = {"HOME": str(runtime), "PATH": os.environ["PATH"], "RECALLD_RUNTIME": str(runtime), **environ}
        self.process = subprocess.Popen(
            command or BRIDGE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=runtime,
        )
        self._buffer = b""
        self._next_id = 0
        self.lines: list[dict[str, Any]] = []

    def send(self, method: str, params: dict[str, Any] | None = None, *, modern: bool | None = None) -> int:
        self._next_id += 1
        params = dict(params or {})
        if self.era == "modern" if modern is None else modern:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"},
            }
        self.write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id

    def write(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, left))
            assert ready, f"no line within {DEADLINE_S} s"
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            assert data, "the bridge has gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        self.lines.append(message)
        return message

    def answer(self, request_id: int) -> dict[str, Any]:
        while (message := self.read()).get("id") != request_id:
            pass
        return message

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        message = self.answer(self.send(method, params))
        assert "result" in message, message
        result: dict[str, Any] = message["result"]
        return result

    def start(self) -> dict[str, Any]:
        if self.era == "modern":
            return self.ask("server/discover")
        opened = self.ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "codex-mcp-client", "version": "1"},
            },
        )
        self.notify("notifications/initialized", {})
        return opened

    def call(self, tool: str, **arguments: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def recall(self, query: str) -> dict[str, Any]:
        message = self.answer(self.call("recall", query=query))
        structured: dict[str, Any] = message["result"]["structuredContent"]
        return structured

    def until_served_by(self, pid: int) -> None:
        """Ask until this process answers."""
        deadline = time.monotonic() + DEADLINE_S
        while self.recall("again").get("note") != f"pid {pid}":
            assert time.monotonic() < deadline, "the server does not answer"

    def nothing_more(self) -> None:
        """A later question is answered and nothing else has come in between."""
        assert self.answer(self.send("tools/list"))["result"]
        ids = [line["id"] for line in self.lines if line.get("id") is not None]
        assert len(ids) == len(set(ids)), "a request was answered twice"

    def close(self) -> tuple[int, bytes]:
        """(exit code, stderr) after stdin is closed."""
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


class Stage:
    """A runtime folder, the listening socket that a supervisor would hold, and what was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "asked.jsonl"
        self.listener: socket.socket | None = None
        self.clients: list[Client] = []
        self.servers: list[subprocess.Popen[bytes]] = []

    def server(self, toolset: str = "default", *, ready: bool = False) -> subprocess.Popen[bytes]:
        """A server process; ``ready``: that has answered a client already."""
        fd = self.listen().fileno()
        command = [sys.executable, str(STAND), "--fd", str(fd), "--log", str(self.log), "--toolset", toolset]
        process = subprocess.Popen(command, pass_fds=(fd,), stdout=subprocess.DEVNULL)
        self.servers.append(process)
        if ready:
            warm = Client("modern", self.folder, RECALLD_GRACE_MS=PATIENT_MS)
            assert warm.recall("warm")["hits"]
            warm.close()
            self.log.unlink()
        return process

    def listen(self) -> socket.socket:
        if self.listener is None:
            self.listener = bind(self.folder / "mcp.sock")
        return self.listener

    def client(self, era: str = "modern", command: list[str] | None = None, **environ: str) -> Client:
        client = Client(era, self.folder, command, **{"RECALLD_GRACE_MS": PATIENT_MS, **environ})
        self.clients.append(client)
        return client

    def logged(self, what: str = "asked") -> list[dict[str, Any]]:
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line[what] | {"pid": line["pid"]} for line in lines if what in line]

    def wait_logged(self, what: str, count: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + DEADLINE_S
        while len(found := self.logged(what)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} were {what}"
            time.sleep(0.01)
        return found

    def close(self) -> None:
        for client in self.clients:
            client.process.kill()
            client.process.communicate()
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGCONT)
                server.kill()
            server.wait()
        if self.listener is not None:
            self.listener.close()
