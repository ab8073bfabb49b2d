"""
From a tool call to the message that answers it: pure, one small function per tool.

``Caller`` is who stands at the other end of the connection, as its first line said; a tool's ``project`` argument wins
over the caller's folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from ....protocol.messages import capture, recall
from ....protocol.messages.capture import Place
from ....protocol.messages.common import Message
from . import arguments
from .arguments import BadArguments
from .schemas import TOOLS
from .toolkit import Tool

Arguments = dict[str, Any]

CLIENT_NAMES = {
    "claude-code": "claude", "claude-ai": "claude-desktop", "codex-mcp-client": "codex", "gemini-cli-mcp-client": "gemini",
    "cursor-vscode": "cursor", "visual studio code": "vscode", "github-copilot-developer": "copilot",
}  # fmt: skip
"""MCP's clientInfo.name -> the host's name in hooks, so that one agent has one name."""


@dataclass(frozen=True)
class Caller:
    """The client of one connection. ``key`` is the bridge's own random id and lives as long as the bridge does."""

    key: str = ""
    cwd: str = ""
    host: str = ""
    session: str = ""
    home: str = ""

    def place(self, project: str = "") -> Place:
        return Place(cwd=self.cwd, host=self.host, session=self.session, project=project)

    def replay_key(self, request_id: int | str) -> str:
        """Equal for a call and its replay after a reconnect; '' when the client has no key."""
        return f"{self.key}:{json.dumps(request_id)}" if self.key else ""


@dataclass(frozen=True)
class Call:
    """One accepted tool call: its tool, its arguments and the message that answers it."""

    tool: Tool
    arguments: Arguments
    message: Message


def host_of(client_name: str) -> str:
    """The agent's name from what the MCP client calls itself."""
    name = client_name.strip().lower()
    return CLIENT_NAMES.get(name, name.removesuffix("-mcp-client"))[:64]


def call(name: str, given: Mapping[str, Any] | None, caller: Caller, request_id: int | str, now_ms: int) -> Call:
    """Raises BadArguments (the text is for the model) and KeyError for a tool that does not exist."""
    tool = TOOLS[name]
    checked = arguments.check(name, tool.input_schema(), given)
    if tool.writes and tool.name != "feedback":
        _refuse_nowhere(checked, caller)
    return Call(tool, checked, _BUILD[name](checked, caller, caller.replay_key(request_id), now_ms))


def _refuse_nowhere(args: Arguments, caller: Caller) -> None:
    """A write needs a project. The writer refuses those it can only guess; from nowhere there is not even a guess."""
    named = args.get("project") or args.get("scope") == "global" or args.get("id")
    if not named and caller.cwd in ("", "/", caller.home):
        where = f"the folder {caller.cwd}" if caller.cwd else "no folder"
        raise BadArguments(
            f"Nothing was written: this client runs in {where}, which belongs to no project. Pass project=<name>, or start "
            "the agent in the project's folder (a .recalld.toml with a project name there settles it for good)."
        )


def _filters(args: Arguments) -> recall.Filters:
    return recall.Filters(
        folder=args.get("folder", ""),
        tags=tuple(tag.lstrip("#").casefold() for tag in args.get("tags", ())),
        since=args.get("since", ""),
        until=args.get("until", ""),
        vaults=(args["vault"],) if args.get("vault") else (),
        kinds=args.get("kinds", ()),
        expired=args.get("include_expired", False),
    )


def _recall(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    return recall.Recall(
        query=args["query"],
        k=args.get("k", 5),
        filters=_filters(args),
        scope=args.get("scope", "all"),
        cwd=caller.cwd,
        as_of=args.get("as_of", ""),
        explain=args.get("explain", False),
        sentence_only=args.get("sentence_only", False),
    )


def _read_note(args: Arguments, _caller: Caller, _key: str, _now: int) -> Message:
    first, *rest = args.get("lines") or (1,)
    last = rest[0] if rest else 0
    if first < 1 or (last and last < first):
        raise BadArguments("read_note: 'lines' is [from, to] with 1 <= from <= to; [from] reads to the end.")
    return recall.ReadNote(
        ref=args["path"],
        vault=args.get("vault", ""),
        line_from=first,
        line_to=last,
        max_chars=args.get("max_chars", 20_000),
    )


def _related(args: Arguments, _caller: Caller, _key: str, _now: int) -> Message:
    return recall.Related(ref=args["path"], vault=args.get("vault", ""), k=args.get("k", 10))


def _recent(args: Arguments, _caller: Caller, _key: str, _now: int) -> Message:
    return recall.Recent(k=args.get("k", 10), filters=_filters(args))


def _status(_args: Arguments, _caller: Caller, _key: str, _now: int) -> Message:
    return recall.DescribeIndex()


def _write_page(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    relations = {
        kind: arguments.strings(f"write_page: 'relations.{kind}'", targets)
        for kind, targets in args.get("relations", {}).items()
    }
    return capture.WritePage(
        path=args["path"],
        body=args["body"],
        place=caller.place(args.get("project", "")),
        title=args.get("title", ""),
        kind=args.get("kind", ""),
        tags=args.get("tags", ()),
        relations=relations,
        pinned=args.get("pinned", False),
        expires=args.get("expires", ""),
        supersedes=args.get("supersedes", ""),
        expect_hash=args.get("expect_hash", ""),
        create_only=args.get("create_only", False),
        scope=args.get("scope", "project"),
        replay_key=key,
    )


def _delete_page(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    place = caller.place(args.get("project", ""))
    return capture.DeletePage(path=args["path"], place=place, expect_hash=args.get("expect_hash", ""), replay_key=key)


def _handoff_begin(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    return capture.HandoffBegin(
        summary=args["summary"],
        place=caller.place(args.get("project", "")),
        to_agent=args.get("to_agent", ""),
        open_questions=args.get("open_questions", ()),
        next_steps=args.get("next_steps", ()),
        files_touched=args.get("files_touched", ()),
        replay_key=key,
    )


def _handoff_accept(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    return capture.HandoffAccept(place=caller.place(args.get("project", "")), id=args.get("id", ""), replay_key=key)


def _handoff_list(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    return capture.HandoffList(
        place=caller.place(args.get("project", "")),
        all_projects=args.get("all_projects", False),
        limit=args.get("limit", 50),
    )


def _handoff_cancel(args: Arguments, _caller: Caller, key: str, _now: int) -> Message:
    return capture.HandoffCancel(id=args["id"], replay_key=key)


def _briefing(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    return capture.Brief(place=caller.place(args.get("project", "")), max_chars=args.get("max_chars", 4000))


def _session_events(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    return capture.SessionEvents(
        session=args.get("session", ""),
        place=caller.place(args.get("project", "")),
        query=args.get("query", ""),
        kinds=args.get("kinds", ()),
        after_seq=args.get("after_seq", -1),
        limit=args.get("limit", 50),
        offset=args.get("offset", 0),
        max_chars=args.get("max_chars", 4000),
    )


def _feedback(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    return capture.Feedback(
        path=args["path"],
        signal=args["signal"],
        vault=args.get("vault", ""),
        reason=args.get("reason", ""),
        place=caller.place(),
    )


def _lint(args: Arguments, _caller: Caller, _key: str, _now: int) -> Message:
    known = get_args(recall.FindingKind)
    kinds = tuple(args.get("kinds", ()))
    if wrong := [kind for kind in kinds if kind not in known]:
        raise BadArguments(f"lint: there is no kind '{wrong[0]}'. There are {', '.join(known)}.")
    return recall.Lint(
        vault=args.get("vault", ""),
        project=args.get("project", ""),
        kinds=kinds,
        cold=args.get("cold", False),
        limit=args.get("limit", 50),
    )


def _message_send(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    return capture.MessageSend(
        to_project=args["to_project"],
        body=args["body"],
        subject=args.get("subject", ""),
        place=caller.place(args.get("project", "")),
        replay_key=key,
    )


def _message_list(args: Arguments, caller: Caller, _key: str, _now: int) -> Message:
    place = caller.place(args.get("project", ""))
    return capture.MessageList(place=place, box=args.get("box", "inbox"), limit=args.get("limit", 50))


def _message_pop(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    return capture.MessagePop(place=caller.place(args.get("project", "")), id=args.get("id", ""), replay_key=key)


def _message_cancel(args: Arguments, caller: Caller, key: str, _now: int) -> Message:
    return capture.MessageCancel(place=caller.place(args.get("project", "")), id=args.get("id", ""), replay_key=key)


_BUILD: dict[str, Callable[[Arguments, Caller, str, int], Message]] = {
    "recall": _recall,
    "read_note": _read_note,
    "related": _related,
    "recent": _recent,
    "status": _status,
    "write_page": _write_page,
    "handoff_begin": _handoff_begin,
    "handoff_accept": _handoff_accept,
    "briefing": _briefing,
    "handoff_list": _handoff_list,
    "handoff_cancel": _handoff_cancel,
    "delete_page": _delete_page,
    "session_events": _session_events,
    "feedback": _feedback,
    "message_send": _message_send,
    "message_list": _message_list,
    "message_pop": _message_pop,
    "message_cancel": _message_cancel,
    "lint": _lint,
}
