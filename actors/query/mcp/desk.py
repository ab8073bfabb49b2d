"""
Answers tool calls, resource reads and hook requests by asking the actors. Knows nothing of MCP's wire.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import anyio
import msgspec

from ....protocol.config import Config
from ....protocol.envelope import Internal, Overloaded, ProtocolError, TimedOut
from ....protocol.messages import capture, recall
from ....protocol.messages.common import Message
from ....protocol.version import VERSION
from . import resources, results, tools
from .arguments import BadArguments
from .results import Result
from .tools import Call, Caller

MAX_CALLS = 128
"""Calls in flight over all sessions; the next one is refused at once, with a retry."""
WRITE_BUDGET_MS = 5000
BRIEF_BUDGET_MS = 240
"""A hook client gives up at 250 ms."""
MARGIN_MS = 250
"""An asked actor ends its own budget first and says why; this ends the wait for one that does not."""

log = logging.getLogger("recalld.query.mcp")
T = TypeVar("T")


class Ask(Protocol):
    """How this package reaches the actors: recall messages to the query actor itself, those of capture to the writer."""

    async def __call__(self, body: Message, /, *, budget_ms: int, trace: str = "") -> Message:
        """The reply. Raises ProtocolError subclasses."""
        ...


class Facts(Protocol):
    """What is known here without asking; ``actors.base.Env`` is one."""

    config: Config
    up: set[str]
    """Names of the actors that run now."""


class Desk:
    """One for all sessions: bounds what is in flight, gives each call its budget, and turns every failure into an answer."""

    def __init__(self, ask: Ask, facts: Facts) -> None:
        self._ask = ask
        self.facts = facts
        self.calls_total = 0
        self.running = 0
        self.refused = 0

    @property
    def recall_budget_ms(self) -> int:
        return self.facts.config.recall.budget_ms

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None, caller: Caller, request_id: int | str
    ) -> Result:
        """A tool's answer, whatever happens. Raises KeyError for a tool that does not exist."""
        try:
            call = tools.call(name, arguments, caller, request_id, int(time.time() * 1000))
        except (BadArguments, msgspec.ValidationError) as error:
            return results.refused(str(error))
        try:
            return await self._answer(call, caller)
        except ProtocolError as error:
            return results.failed(name, error, call.message)
        except Exception:
            log.exception("tool %s failed", name)
            return results.failed(name, Internal("an unforeseen error"), call.message)

    async def read_resource(self, uri: str, caller: Caller) -> tuple[str, str]:
        """(mime type, text). Raises resources.NoResource and ProtocolError."""
        message = resources.wanted(uri)
        if message is None:
            status = await self._status(caller)
            return resources.STATUS["mimeType"], msgspec.json.encode(status.structured).decode()
        reply = await self.ask(message, self.recall_budget_ms)
        if not isinstance(reply, recall.NoteText | recall.NotFound | recall.Ambiguous):
            raise Internal(f"ReadNote was answered with {type(reply).__name__}")
        return resources.NOTE["mimeType"], resources.text_of(uri, reply)

    async def hook(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """One request of a hook client; an answer with ``error`` instead of an exception."""
        if request.get("op") != "brief":
            return {"error": f"unknown op '{request.get('op')}': there is 'brief'"}
        try:
            return await self._brief(request, caller)
        except (ProtocolError, BadArguments, msgspec.ValidationError) as error:
            return {"error": str(error)}

    async def ask(self, message: Message, budget_ms: int) -> Message:
        """Ask under a budget that ends here too. Raises ProtocolError."""
        if self.running >= MAX_CALLS:
            self.refused += 1
            raise Overloaded(f"{MAX_CALLS} calls are being answered", retry_after_ms=200)
        self.running += 1
        self.calls_total += 1
        try:
            with anyio.fail_after((budget_ms + MARGIN_MS) / 1000):
                return await self._ask(message, budget_ms=budget_ms)
        except TimeoutError:
            raise TimedOut(f"no answer within {budget_ms} ms") from None
        finally:
            self.running -= 1

    async def _answer(self, call: Call, caller: Caller) -> Result:
        if call.tool.name == "status":
            return await self._status(caller)
        budget_ms = WRITE_BUDGET_MS if call.tool.writes else self.recall_budget_ms
        return results.of(await self.ask(call.message, budget_ms))

    async def _status(self, caller: Caller) -> Result:
        report: recall.IndexReport | ProtocolError = Internal("not asked")
        handoffs: capture.Handoffs | ProtocolError = Internal("not asked")

        async def index() -> None:
            nonlocal report
            report = await self._or_error(recall.DescribeIndex(), recall.IndexReport)

        async def project() -> None:
            nonlocal handoffs
            handoffs = await self._or_error(capture.HandoffList(place=caller.place()), capture.Handoffs)

        async with anyio.create_task_group() as group:
            group.start_soon(index)
            group.start_soon(project)
        up = {name: name in self.facts.up for name in results.DEGRADED} | {"query": True}
        vaults = [{"path": vault.path, "name": vault.name} for vault in self.facts.config.vaults]
        return results.status(VERSION, report, handoffs, up, vaults)

    async def _or_error(self, message: Message, kind: type[T]) -> T | ProtocolError:
        try:
            reply = await self.ask(message, self.recall_budget_ms)
        except ProtocolError as error:
            return error
        return reply if isinstance(reply, kind) else Internal(f"answered with {type(reply).__name__}")

    async def _brief(self, request: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        place = capture.Place(
            cwd=str(request.get("cwd") or caller.cwd),
            host=str(request.get("host") or caller.host),
            session=str(request.get("session") or caller.session),
        )
        wanted = request.get("max_chars")
        limit = wanted if isinstance(wanted, int) and wanted > 0 else self.facts.config.capture.briefing_chars
        reply = await self.ask(capture.Brief(place=place, max_chars=limit), BRIEF_BUDGET_MS)
        if not isinstance(reply, capture.Briefing):
            raise Internal(f"Brief was answered with {type(reply).__name__}")
        return {"text": reply.text, "handoff": reply.handoff, "project": results.project(reply.project)}


def caller_of(first_line: Mapping[str, Any]) -> Caller:
    """Who a connection's first line says is there. Anything but strings in it is ignored."""

    def word(name: str, limit: int) -> str:
        value = first_line.get(name)
        return value[:limit] if isinstance(value, str) else ""

    return Caller(
        key=word("key", 64),
        cwd=word("cwd", 4096),
        host=word("host", 64),
        session=word("session", 128),
        home=os.path.expanduser("~"),
    )
