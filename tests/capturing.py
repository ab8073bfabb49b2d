"""The capture half of a writer, alive in a test: real socket, journal, database and wiki in a temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from recalld.actors.base import Env
from recalld.actors.writer.database import Database
from recalld.actors.writer.ingest import Ingest
from recalld.protocol import sockets
from recalld.protocol.config import Capture, Config
from recalld.protocol.runtime import Paths

FIRST_MS = 1_796_029_200_000
"""2026-11-30T09:00:00Z: when the sample sessions begin."""


class Rig:
    """One writer's capture. ``folder`` may be used again by another one: that is a restart."""

    def __init__(self, folder: Path, capture: Capture | None = None) -> None:
        self.folder = folder
        self.paths = Paths(folder / "d", folder / "r")
        for each in (self.paths.data, self.paths.runtime):
            each.mkdir(mode=0o700, exist_ok=True)
        self.listener = sockets.bind(self.paths.socket("events"))
        self.env = Env("writer", Config(capture=capture or Capture()), self.paths, {"events": self.listener})
        self.db = Database(self.paths.database)
        self.ingest = Ingest(self.env, self.db)

    def checkout(self, name: str = "acme-widgets", branch: str = "main") -> Path:
        """A git checkout in the folder, as far as capture looks at one."""
        root = self.folder / name
        (root / ".git").mkdir(parents=True, exist_ok=True)
        (root / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
        return root

    async def send(self, *lines: dict[str, Any] | bytes) -> list[dict[str, Any]]:
        """Send lines over one connection, each after the acknowledgement of the one before; the acknowledgements."""
        reader, writer = await asyncio.open_unix_connection(str(self.paths.socket("events")))
        answers = []
        try:
            for each in lines:
                writer.write(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n")
                with anyio.fail_after(20):
                    answers.append(json.loads(await reader.readline()))
        finally:
            writer.close()
            await writer.wait_closed()
        return answers

    def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of the index, read on a connection of our own."""
        from recalld.actors.sqlite import sqlite3

        conn = sqlite3.connect(self.paths.database)
        try:
            return list(conn.execute(query, arguments).fetchall())
        finally:
            conn.close()

    def git(self, *arguments: str) -> str:
        """What git itself says about the wiki."""
        done = subprocess.run(
            ["git", "-C", str(self.paths.wiki), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def pages(self) -> dict[str, str]:
        """Every page of the wiki by its path."""
        return {
            str(path.relative_to(self.paths.wiki)): path.read_text()
            for path in sorted(self.paths.wiki.rglob("*.md"))
            if ".git" not in path.parts
        }


@contextlib.asynccontextmanager
async def running(folder: Path, capture: Capture | None = None) -> AsyncIterator[Rig]:
    """A Rig that serves; stopped in order at the end."""
    rig = Rig(folder, capture)
    await rig.db.open()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(rig.ingest.run, rig.listener)
            with anyio.fail_after(20):
                await rig.ingest.started.wait()
            yield rig
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await rig.db.aclose()
        rig.listener.close()


def wire(
    payload: dict[str, Any], host: str = "claude", event: str = "", at_ms: int = FIRST_MS, **more: Any
) -> dict[str, Any]:
    """A hook client's line."""
    return {"recalld": 1, "role": "hook", "host": host, "event": event, "sent_ms": at_ms, "payload": payload, **more}


def prompt(
    session: str, cwd: Path | str, text: str, at_ms: int = FIRST_MS, host: str = "claude", **more: Any
) -> dict[str, Any]:
    """A prompt as Claude Code's hook sends it."""
    payload = {"session_id": session, "cwd": str(cwd), "hook_event_name": "UserPromptSubmit", "prompt": text}
    return wire(payload, host, at_ms=at_ms, **more)


def started(
    session: str, cwd: Path | str, at_ms: int = FIRST_MS, source: str = "startup", host: str = "claude"
) -> dict[str, Any]:
    payload = {"session_id": session, "cwd": str(cwd), "hook_event_name": "SessionStart", "source": source}
    return wire(payload, host, at_ms=at_ms)


def ended(
    session: str, cwd: Path | str, at_ms: int = FIRST_MS, reason: str = "other", host: str = "claude"
) -> dict[str, Any]:
    payload = {"session_id": session, "cwd": str(cwd), "hook_event_name": "SessionEnd", "reason": reason}
    return wire(payload, host, at_ms=at_ms)


def ran(
    session: str,
    cwd: Path | str,
    command: str,
    output: str = "ok",
    at_ms: int = FIRST_MS,
    call: str = "",
    failed: bool = False,
) -> dict[str, Any]:
    """A shell command and what came of it."""
    payload = {
        "session_id": session, "cwd": str(cwd), "tool_name": "Bash", "tool_input": {"command": command},
        "tool_use_id": call or f"call-{command}-{at_ms}",
        "hook_event_name": "PostToolUseFailure" if failed else "PostToolUse",
    }  # fmt: skip
    payload |= {"error": output} if failed else {"tool_response": {"stdout": output, "stderr": ""}}
    return wire(payload, at_ms=at_ms)


def edited(session: str, cwd: Path | str, file: str, at_ms: int = FIRST_MS) -> dict[str, Any]:
    """A file that was changed."""
    payload = {
        "session_id": session, "cwd": str(cwd), "tool_name": "Edit", "tool_use_id": f"edit-{file}-{at_ms}",
        "tool_input": {"file_path": f"{cwd}/{file}", "old_string": "a", "new_string": "b"},
        "hook_event_name": "PostToolUse", "tool_response": {"filePath": f"{cwd}/{file}"},
    }  # fmt: skip
    return wire(payload, at_ms=at_ms)
