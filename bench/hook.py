"""
What one hook costs an agent: wall time from spawn to exit, for each host, with the daemon up, busy, stopped and gone.

    python bench/hook.py [--runs 30] [--hosts claude,codex] [--json OUT] [--check]

``bridge`` is the other way to tell a tool event: a call of ``hook_event`` on a bridge that is open, from its line to the
answer. Runs a real daemon in a temporary folder. "busy": eight producers send events as fast as they are acknowledged. "stopped":
every process of it gets SIGSTOP. Each figure is of single processes, one after the other; ``floor`` is an interpreter that
does nothing. ``--check`` fails when a median is above its bar (see BARS), or any run above the hard limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from recalld.clients import hook as hook_module
from recalld.clients import install
from recalld.clients.install import wrapper
from recalld.protocol.client import ask_sync
from recalld.protocol.envelope import ProtocolError
from recalld.protocol.messages.control import GetStatus, Status
from recalld.protocol.runtime import Paths

BARS = {"up": 30.0, "brief": 35.0, "gone": 60.0}
"""Median ms: an acknowledged event, a session's start with its briefing, an event that is redacted and spooled."""
LIMIT_MS = 200.0
BRIEF_LIMIT_MS = 250.0
PRODUCERS = 8
OUTPUT = "41 passed, 1 failed: test_gear_ratio\n" * 40
PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def payloads(cwd: str) -> dict[str, dict[str, dict[str, Any]]]:
    """For each host a tool event of about 2 kB and a session's start, in its own shape."""
    shell = {"command": "ninja -C build test", "description": "Run unit tests"}
    plain = {"session_id": "bench", "cwd": cwd}
    claude = {**plain, "prompt_id": "p", "transcript_path": "/x/y.jsonl", "permission_mode": "default"}
    cursor = {
        "conversation_id": "bench",
        "generation_id": "g",
        "workspace_roots": [cwd],
        "cursor_version": "9",
        "model": "m",
    }
    camel = {"sessionId": "bench", "cwd": cwd}
    return {
        "claude": {
            "event": {**claude, "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": shell,
                      "tool_use_id": "ID", "tool_response": {"stdout": OUTPUT, "stderr": "", "interrupted": False}},
            "brief": {**claude, "hook_event_name": "SessionStart", "source": "startup"},
        },
        "codex": {
            "event": {**plain, "turn_id": "t", "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": shell,
                      "tool_use_id": "ID", "tool_response": OUTPUT},
            "brief": {**plain, "hook_event_name": "SessionStart", "source": "startup", "model": "m"},
        },
        "gemini": {
            "event": {**plain, "hook_event_name": "AfterTool", "tool_name": "run_shell_command", "tool_input": shell,
                      "tool_use_id": "ID", "tool_response": {"llmContent": OUTPUT, "returnDisplay": OUTPUT}},
            "brief": {**plain, "hook_event_name": "SessionStart", "source": "startup"},
        },
        "cursor": {
            "event": {**cursor, "hook_event_name": "postToolUse", "tool_name": "Shell", "tool_input": shell,
                      "tool_use_id": "ID", "tool_output": json.dumps({"exitCode": 1, "stdout": OUTPUT}), "cwd": cwd},
            "brief": {**cursor, "hook_event_name": "sessionStart", "session_id": "bench"},
        },
        "vscode": {
            "event": {**camel, "hookEventName": "PostToolUse", "tool_name": "runInTerminal", "tool_input": shell,
                      "tool_use_id": "ID", "tool_response": OUTPUT},
            "brief": {**camel, "hookEventName": "SessionStart", "source": "new"},
        },
        "copilot": {
            "event": {**camel, "toolName": "bash", "toolArgs": json.dumps(shell), "toolCallId": "ID",
                      "toolResult": {"resultType": "success", "textResultForLlm": OUTPUT}},
        },
        "opencode": {
            "event": {"cwd": cwd, "plugin_hook": "tool.execute.after", "input": {"tool": "bash", "sessionID": "bench",
                      "callID": "ID", "args": shell}, "output": {"output": OUTPUT, "metadata": {"exit": 1}}},
        },
    }  # fmt: skip


class Bench:
    """A daemon in ``folder``, and the client run against it."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder, self.runs = folder, runs
        self.paths = Paths(folder / "d", folder / "r")
        self.repo = folder / "home" / "repo"
        self.repo.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(self.repo)], check=True)
        self.environ = {
            "HOME": str(folder / "home"),
            "PATH": os.environ["PATH"],
            "RECALLD_DATA": str(self.paths.data),
            "RECALLD_RUNTIME": str(self.paths.runtime),
        }
        program = Path(hook_module.__file__).resolve()
        self.program = program
        self.count = 0
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.paths.data.mkdir(mode=0o700)
        self.paths.config.write_text('[embedder]\nmodel = "none"\n')
        with open(self.folder / "log", "wb") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "recalld.supervisor"],
                env={**os.environ, **self.environ},
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(ProtocolError, OSError):
                status = ask_sync(self.paths.socket("control"), GetStatus(), budget_ms=500)
                if isinstance(status, Status) and all(status.actors[n].state == "RUNNING" for n in ("writer", "query")):
                    return
            if time.monotonic() > deadline:
                raise SystemExit((self.folder / "log").read_text())
            time.sleep(0.1)

    def pids(self) -> list[int]:
        assert self.daemon is not None
        children = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        return [self.daemon.pid, *map(int, children)]

    def stop(self) -> None:
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait(30)
            self.daemon = None

    def once(self, command: list[str], payload: dict[str, Any] | None) -> float:
        """Wall ms of one process, spawn to exit. Raises SystemExit when it does not exit 0."""
        self.count += 1
        source = self.folder / "payload"
        source.write_text(
            json.dumps(payload, separators=(",", ":")).replace('"ID"', f'"call-{self.count}"') if payload else ""
        )
        stdin = os.open(source, os.O_RDONLY)
        nothing = os.open(os.devnull, os.O_WRONLY)
        actions = [
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, nothing, 1),
            (os.POSIX_SPAWN_DUP2, nothing, 2),
        ]
        begun = time.perf_counter()
        pid = os.posix_spawn(command[0], command, self.environ, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        wall = (time.perf_counter() - begun) * 1000
        os.close(stdin)
        os.close(nothing)
        if status:
            raise SystemExit(f"{command} ended with status {status}")
        return wall

    def script(self) -> str:
        """The ``/bin/sh`` script before the client, written here; '' where it cannot work."""
        if not wrapper.possible():
            return ""
        where = install.setting(self.folder / "home", {"HOME": str(self.folder / "home")}, self.paths)
        change = install.installing(install.script_target(where, self.paths))
        if change is not None:
            change.apply()
        return str(self.paths.data / "bin" / "recalld-hook")

    def measure(self, command: list[str], payload: dict[str, Any] | None) -> dict[str, float]:
        self.once(command, payload)
        return self.figures(self.once(command, payload) for _ in range(self.runs))

    def calls(self, payload: dict[str, Any]) -> dict[str, float]:
        """Wall ms of calls of ``hook_event``, one after the other, on one bridge."""
        command = [PYTHON, "-I", "-S", str(self.program.with_name("mcp_bridge.py"))]
        bridge = subprocess.Popen(command, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        answers = bridge.stdout

        def once(number: int) -> float:
            arguments = {
                **payload,
                "host": "claude",
                "event": "PostToolUse",
                "tool_use_id": f"bridge-{os.urandom(6).hex()}",
            }
            params = {"name": "hook_event", "arguments": arguments}
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + "\n"
            begun = time.perf_counter()
            os.write(bridge.stdin.fileno(), line.encode())  # type: ignore[union-attr]  # a pipe, see above
            while json.loads(answers.readline()).get("id") != number:
                pass
            return (time.perf_counter() - begun) * 1000

        try:
            once(0)
            return self.figures(once(number) for number in range(1, self.runs + 1))
        finally:
            bridge.stdin.close()
            bridge.wait(10)
            bridge.stdout.close()

    def figures(self, walls_ms: Iterable[float]) -> dict[str, float]:
        walls = sorted(walls_ms)
        return {
            "p50_ms": round(statistics.median(walls), 1),
            "p95_ms": round(walls[int(len(walls) * 0.95)], 1),
            "min_ms": round(walls[0], 1),
            "max_ms": round(walls[-1], 1),
        }

    def command(self, host: str, event: str = "") -> list[str]:
        return [PYTHON, "-I", "-S", str(self.program), host, *([event] if event else [])]

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Producers that send the next event when the last one is acknowledged."""
        done = threading.Event()
        template = {
            "recalld": 1,
            "role": "hook",
            "host": "claude",
            "payload": payloads(str(self.repo))["claude"]["event"],
        }
        text = json.dumps(template)

        def produce(number: int) -> None:
            with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
                sock.connect(str(self.paths.socket("events")))
                stream = sock.makefile("rb")
                turn = 0
                while not done.is_set():
                    turn += 1
                    sock.sendall(text.replace('"ID"', f'"busy-{number}-{turn}"').encode() + b"\n")
                    stream.readline()

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
            for thread in threads:
                thread.join()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        pids = self.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)


def run(bench: Bench, hosts: list[str]) -> dict[str, Any]:
    """All figures: state -> host -> "event" and "brief" -> percentiles."""
    wanted = payloads(str(bench.repo))
    figures: dict[str, Any] = {}

    def by_script(state: str) -> None:
        script = bench.script()
        if not script:
            return
        plain = {name: value for name, value in bench.environ.items() if not name.startswith("RECALLD_")}
        bench.environ, kept = plain, bench.environ
        os.chdir(bench.repo)
        report("sh+nc", state, "event", bench.measure([script, "claude"], wanted["claude"]["event"]))
        bench.environ = kept

    def report(host: str, state: str, what: str, found: dict[str, float]) -> None:
        figures.setdefault(state, {}).setdefault(host, {})[what] = found
        print(f"{state:8} {host:9} {what:6} p50 {found['p50_ms']:6.1f}  p95 {found['p95_ms']:6.1f}  "
              f"max {found['max_ms']:6.1f} ms")  # fmt: skip

    def all_hosts(state: str) -> None:
        report("bridge", state, "event", bench.calls(wanted["claude"]["event"]))
        for host in hosts:
            for what, payload in wanted[host].items():
                name = "postToolUse" if host == "copilot" else ""
                report(host, state, what, bench.measure(bench.command(host, name), payload))

    floor = bench.measure([PYTHON, "-I", "-S", "-c", "pass"], None)
    print(f"floor    an interpreter that does nothing: p50 {floor['p50_ms']} ms")
    bench.start()
    try:
        all_hosts("up")
        by_script("up")
        with bench.busy():
            all_hosts("busy")
        with bench.stopped():
            all_hosts("stopped")
    finally:
        bench.stop()
    all_hosts("gone")
    by_script("gone")
    return {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
        "runs": bench.runs,
        "floor": floor,
        "states": figures,
    }


def problems(report: dict[str, Any]) -> list[str]:
    """Which bars are missed."""
    found = []
    for state, hosts in report["states"].items():
        for host, kinds in hosts.items():
            for what, figures in kinds.items():
                bar = BARS.get("brief" if state == "up" and what == "brief" else state)
                limit = BRIEF_LIMIT_MS if what == "brief" else LIMIT_MS
                if bar is not None and figures["p50_ms"] > bar:
                    found.append(f"{state} {host} {what}: p50 {figures['p50_ms']} ms > {bar}")
                if figures["max_ms"] > limit:
                    found.append(f"{state} {host} {what}: max {figures['max_ms']} ms > {limit}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--hosts", default="claude,codex,gemini,cursor,vscode,copilot,opencode")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="recalld-hook-"))
    try:
        report = run(Bench(folder, options.runs), options.hosts.split(","))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = problems(report)
    report["missed"] = missed
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    for line in missed:
        print("missed:", line)
    sys.exit(1 if missed and options.check else 0)


if __name__ == "__main__":
    main()
