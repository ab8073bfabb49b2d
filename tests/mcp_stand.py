"""
A query side for tests of MCP: real sessions over a real socket, with an ``ask`` that answers from a table.

Run as a program it is a process that can be killed: ``python mcp_stand.py --fd N --log FILE``. A question's first word says
what happens: ``sleep SECONDS``, ``big BYTES``, ``crash``, ``busy``, ``late``, ``surrogate``; anything else is answered at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import anyio
import msgspec
from recalld.actors.query.mcp.session import Sessions
from recalld.protocol.config import Config, VaultConfig
from recalld.protocol.envelope import Conflict, Overloaded, TimedOut, Unavailable
from recalld.protocol.messages import capture, recall
from recalld.protocol.messages.common import Message

PROJECT = capture.ProjectRef(name="widgets", found_by="git", root="/home/dev/widgets")
HANDOFF = capture.Handoff(
    id="h1",
    project="widgets",
    cwd="/home/dev/widgets",
    from_agent="codex",
    at_ms=1_790_000_000_000,
    summary="Half done",
)

LETTER = capture.Letter(
    id="m-1", to_project="widgets", from_project="gears", at_ms=1_790_000_000_000, body="It moved.", from_agent="codex"
)


def hit(passage: str = "Use ninja.", path: str = "tools/build.md") -> recall.Hit:
    return recall.Hit(
        path=path,
        title="Build",
        score=0.98765432,
        lines=(3, 5),
        passage=passage,
        streams={"text": recall.StreamScore(rank=1, score=7.123456, detail="ninja")},
        vault="notes",
        file=f"/home/dev/notes/{path}",
        date="2026-05-01",
        why="'ninja' in the text",
    )


def note(path: str) -> recall.NoteText:
    back = recall.Backlink(path="index.md", title="Index", line=4)
    return recall.NoteText(
        path=path, vault="notes", file=f"/home/dev/notes/{path}", title="Build", lines=(1, 2), total_lines=2,
        text="# Build\nUse ninja.\n", backlinks=(back,),
    )  # fmt: skip


class Table:
    """Answers by message type; ``asked`` keeps what came in, ``cancelled`` what was given up on."""

    def __init__(self, log: Path | None = None) -> None:
        self.asked: list[Message] = []
        self.cancelled: list[Message] = []
        self._log = log

    async def __call__(self, body: Message, /, *, budget_ms: int, trace: str = "") -> Message:
        self.asked.append(body)
        self._write("asked", body)
        try:
            return await self._answer(body)
        except asyncio.CancelledError:
            self.cancelled.append(body)
            self._write("cancelled", body)
            raise

    async def _answer(self, body: Message) -> Message:
        match body:
            case recall.Recall():
                return await self._recall(body)
            case recall.ReadNote(ref="missing"):
                return recall.NotFound(ref=body.ref, nearest=("tools/build.md",))
            case recall.ReadNote(ref="twice") | recall.Related(ref="twice"):
                return recall.Ambiguous(ref=body.ref, candidates=("a/twice.md", "b/twice.md"))
            case recall.ReadNote():
                return note(body.ref)
            case recall.Related():
                item = recall.Neighbour(path="a.md", title="A", why="linked from line 3", score=0.5, vault="notes")
                return recall.Neighbours(path=body.ref, title="Build", items=(item,))
            case recall.Recent():
                one = recall.RecentNote(path="a.md", title="A", modified="2026-05-01T10:00:00Z", vault="notes")
                return recall.RecentNotes(items=(one,))
            case recall.DescribeIndex():
                return recall.IndexReport(notes=40, chunks=120, vectors=118, links=77)
            case capture.WritePage(path="sleep"):
                await anyio.sleep(30)
            case capture.WritePage(path="taken"):
                raise Conflict("the page has another hash: abc")
            case capture.WritePage():
                file = f"/data/wiki/widgets/{body.path}"
                return capture.PageWritten(path=body.path, file=file, project=PROJECT, hash="h", created=True)
            case capture.DeletePage():
                return capture.PageDeleted(path=body.path, project=PROJECT, existed=True)
            case capture.HandoffAccept():
                taken = msgspec.structs.replace(HANDOFF, state="accepted", accepted_by="claude")
                return capture.HandoffDone(handoff=taken, project=PROJECT)
            case capture.HandoffBegin() | capture.HandoffCancel():
                return capture.HandoffDone(handoff=HANDOFF, project=PROJECT)
            case capture.HandoffList():
                return capture.Handoffs(items=(HANDOFF,), project=PROJECT)
            case capture.Brief():
                return capture.Briefing(text=f"Briefing for {body.place.cwd}", project=PROJECT, handoff="h1")
            case capture.SessionEvents():
                row = capture.EventRow(seq=1, session="s", host="codex", kind="user-prompt", at="2026-05-01T10:00:00Z")
                return capture.EventPage(items=(row,), total=1, session="s")
            case recall.Lint():
                one = recall.Finding(kind="flagged", severity="warning", pages=("a.md",), text="wrong", vault="notes")
                return recall.LintReport(findings=(one,), counts={"flagged": 2}, warnings=2, notes=40)
            case capture.Feedback():
                return capture.FeedbackNoted(path=body.path, vault="notes", signal=body.signal, tally={body.signal: 1})
            case capture.MessageSend():
                return capture.MessageDone(letter=LETTER, project=PROJECT)
            case capture.MessagePop():
                read = msgspec.structs.replace(LETTER, state="read", read_by="s", read_at_ms=1_790_000_000_001)
                return capture.MessageDone(letter=read, project=PROJECT)
            case capture.MessageList():
                return capture.Messages(items=(LETTER,), project=PROJECT, waiting=1)
            case capture.MessageCancel():
                return capture.MessagesCancelled(count=1, project=PROJECT)
            case capture.ImportEvents():
                return capture.Imported(stored=len(body.lines))
        raise Unavailable(f"nobody answers {type(body).__name__}")

    async def _recall(self, body: recall.Recall) -> recall.Answer:
        word, _, rest = body.query.partition(" ")
        passage = "Use ninja."
        match word:
            case "sleep":
                await anyio.sleep(float(rest))
            case "big":
                passage = "x" * int(rest)
            case "crash":
                raise RuntimeError("a bug")
            case "busy":
                raise Overloaded("256 calls wait", retry_after_ms=150)
            case "late":
                raise TimedOut("no answer within 5000 ms")
            case "surrogate":
                passage = "bad \udcff byte"
        return recall.Answer(
            hits=(hit(passage),), degraded=("vector",), took_ms=1.2345, confidence=0.9, project="widgets",
            project_from="git", note=f"pid {os.getpid()}",
        )  # fmt: skip

    def _write(self, what: str, body: Message) -> None:
        if self._log is not None:
            line = {what: msgspec.to_builtins(body), "pid": os.getpid()}
            with self._log.open("a") as file:
                file.write(json.dumps(line) + "\n")


class StandFacts:
    """What an actor's Env says."""

    def __init__(self, **recall_config: Any) -> None:
        self.config = msgspec.convert({"recall": recall_config}, Config)
        self.config = msgspec.structs.replace(self.config, vaults=(VaultConfig(path="/home/dev/notes", name="notes"),))
        self.up = {"writer", "embedder", "watcher"}


async def _main(listener: socket.socket, log: Path | None, toolset: str) -> None:
    sessions = Sessions(Table(log), StandFacts(toolset=toolset))
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(sessions.serve, listener)
            async for _ in signals:
                group.cancel_scope.cancel()
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--toolset", default="default")
    options = parser.parse_args()
    asyncio.run(_main(socket.socket(fileno=options.fd), options.log, options.toolset))
