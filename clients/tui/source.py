"""Where the status screen gets its facts: the daemon's sockets and the log folder. Tests give it another source."""

from __future__ import annotations

import collections
import json
from typing import Protocol

import anyio
import anyio.to_thread

from ...protocol.client import ask_sync
from ...protocol.envelope import ProtocolError
from ...protocol.messages.control import GetStatus, RestartActor, SetPaused, Status
from ...protocol.messages.recall import Answer, NoteText, ReadNote, Recall
from ...protocol.runtime import Paths

STATUS_MS = 800
RECALL_MS = 5_000
TAIL_BYTES = 32_768


class Source(Protocol):
    """What the screen needs. Every method returns; none raises for a daemon that is away."""

    async def status(self) -> Status | None: ...

    async def recall(self, question: str) -> Answer | str: ...

    async def read(self, path: str, vault: str) -> str: ...

    async def restart(self, actor: str) -> str: ...

    async def pause(self, paused: bool) -> str: ...

    async def log_tail(self, lines: int) -> list[str]: ...


class Live:
    """The real daemon. Blocking calls run in threads, so that the screen never freezes."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def status(self) -> Status | None:
        def ask() -> Status | None:
            try:
                reply = ask_sync(self._paths.socket("control"), GetStatus(), budget_ms=STATUS_MS, role="top")
            except ProtocolError:
                return None
            return reply if isinstance(reply, Status) else None

        return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def recall(self, question: str) -> Answer | str:
        """The answer, or why there is none."""

        def ask() -> Answer | str:
            try:
                message = Recall(query=question, k=8, explain=True)
                reply = ask_sync(self._paths.socket("query"), message, budget_ms=RECALL_MS, role="top")
            except ProtocolError as error:
                return error.text
            return reply if isinstance(reply, Answer) else "the query actor gave no answer"

        return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def read(self, path: str, vault: str) -> str:
        """The text of a note, or why it cannot be read."""

        def ask() -> str:
            try:
                message = ReadNote(ref=path, vault=vault)
                reply = ask_sync(self._paths.socket("query"), message, budget_ms=RECALL_MS, role="top")
            except ProtocolError as error:
                return error.text
            return reply.text if isinstance(reply, NoteText) else f"{path} is not in the index any more"

        return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def restart(self, actor: str) -> str:
        return await self._control(RestartActor(name=actor))

    async def pause(self, paused: bool) -> str:
        return await self._control(SetPaused(paused=paused))

    async def _control(self, message: RestartActor | SetPaused) -> str:
        def ask() -> str:
            try:
                ask_sync(self._paths.socket("control"), message, budget_ms=STATUS_MS, role="top")
            except ProtocolError as error:
                return error.text
            return ""

        return await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)

    async def log_tail(self, lines: int) -> list[str]:
        """The newest lines of all logs, by time, for a person."""
        return await anyio.to_thread.run_sync(self._log_tail, lines, abandon_on_cancel=True)

    def _log_tail(self, lines: int) -> list[str]:
        newest: list[tuple[float, str]] = []
        for path in self._paths.logs.glob("*.jsonl"):
            try:
                with path.open("rb") as log:
                    log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
                    tail = collections.deque(log, maxlen=lines)
            except OSError:
                continue
            newest += [entry for line in tail if (entry := _entry(line)) is not None]
        return [text for _, text in sorted(newest)[-lines:]]


def _entry(line: bytes) -> tuple[float, str] | None:
    try:
        data = json.loads(line)
        return float(data["at"]), f"{data['level'][:4]} {data['actor']}: {data['text']}"
    except (ValueError, KeyError, TypeError):
        return None
