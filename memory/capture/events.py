"""
One thing that an agent did, in the same shape for every host: what is journalled, indexed and made into pages.

``accept`` turns a hook client's line into an Event or says why there is none. Every text passes ``redact`` before it is
cut, so that no cut leaves half a secret; what is not named here (file contents, raw tool input, personal fields) is not
kept. Shapes of payloads are in ``hosts``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from .. import redact
from . import hosts, tools

Kind = Literal[
    "session-start", "user-prompt", "pre-tool-use", "post-tool-use", "pre-compact", "post-compaction", "notification",
    "stop", "session-end", "subagent-start", "subagent-stop", "other",
]  # fmt: skip
Family = Literal["", "file", "search", "shell", "web", "mcp", "agent", "unknown"]
Outcome = Literal["", "success", "error", "unknown"]
KINDS: tuple[str, ...] = get_args(Kind)

TEXT_BYTES = 16 * 1024
"""Prompts and compaction summaries."""
NOTE_BYTES = 2000
"""Notifications, errors and everything else that is only looked at."""
COMMAND_BYTES = 4000
HEAD_BYTES = 1500
TAIL_BYTES = 2500
"""Of a tool's output the start says what ran and the end what came of it: the end gets more."""
WINDOW_CHARS = 128 * 1024
"""Longer texts are looked at through a window at each end."""
MARGIN_CHARS = 4096
"""Thrown away at a window's inner edge: longer than any secret whose half could stand there unrecognised."""
NEAR_MS = 2000
"""One event that reaches us through two configurations does so within this time."""
FUTURE_MS = 300_000
"""A client's clock may be this far ahead."""
MAX_ID_BYTES = 128


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One captured event. All text is redacted and bounded."""

    id: str
    """Equal for one event however often and by whichever way it arrives; see ``near_ids``."""
    kind: Kind
    host: str
    """The agent that ran: claude, codex, gemini, cursor, vscode, copilot, opencode, or the name a generic client gave."""
    session: str
    at_ms: int
    """When it happened, by the host's or the client's clock."""
    name: str = ""
    """The host's own name of the event."""
    cwd: str = ""
    project: str = ""
    """Name of the project, set by ``settle``."""
    tool: str = ""
    family: Family = ""
    call_id: str = ""
    command: str = ""
    paths: tuple[str, ...] = ()
    """Touched files: relative to the project's root after ``settle``; outside of it absolute, or below ``~``."""
    wrote: bool = False
    """The tool changes the files it names."""
    outcome: Outcome = ""
    exit_code: int | None = None
    duration_ms: int = 0
    output_head: str = ""
    output_tail: str = ""
    """'' when the whole output is in ``output_head``."""
    output_bytes: int = 0
    """Size of the whole output before anything was cut."""
    text: str = ""
    """The prompt, the compaction summary, the notification, the error."""
    assistant: str = ""
    """The agent's last message of a turn; only where the user opted in."""
    model: str = ""
    source: str = ""
    """Of a session's start: startup, resume, clear, compact, fork. Of a compaction: auto, manual."""
    reason: str = ""
    """Of an end: clear, logout, prompt_input_exit, … Of a stop: status."""
    title: str = ""
    """The host's own title of the session."""
    agent_id: str = ""
    """Set when a subagent did it."""
    agent_type: str = ""
    turn: str = ""
    """The host's id of the prompt or turn."""
    branch: str = ""
    head: str = ""
    interactive: bool = True
    """False for background agents and headless runs: they never swallow a handoff."""
    metadata_only: bool = False
    """The folder's policy let only the fact through, or could not be read."""
    blobs: int = 0
    """Images and other base64 blobs that were dropped."""
    redacted: dict[str, int] = {}
    """Removed secrets by kind."""


class Dropped(msgspec.Struct, frozen=True):
    """No event, and why: shown by ``recalld hook check`` and counted."""

    reason: str


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """How to take events in; from the configuration."""

    extra: tuple[Any, ...] = ()
    """Compiled patterns of the user (``redact.compile_extra``)."""
    allow: tuple[str, ...] = ()
    assistant_messages: bool = False
    home: str = ""


DEFAULT = Intake()


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A hook client's line: one JSON object on ``events.sock`` or in a spool file. Unknown fields are ignored."""

    recalld: int
    payload: dict[str, Any]
    role: str = "hook"
    host: str = ""
    event: str = ""
    cwd: str = ""
    sent_ms: int = 0
    branch: str = ""
    head: str = ""
    interactive: bool | None = None
    disposition: Literal["", "keep", "metadata"] = ""
    """What the client's policy check said; ``metadata`` payloads carry no content."""


def accept(wire: Wire, received_ms: int, intake: Intake = DEFAULT) -> Event | Dropped:
    """The event in a hook client's line. Its time is the client's, when that is believable, else ``received_ms``."""
    at_ms = wire.sent_ms if 0 < wire.sent_ms <= received_ms + FUTURE_MS else received_ms
    payload = wire.payload
    if wire.cwd and not hosts.has_cwd(payload):
        payload = {**payload, "cwd": wire.cwd}
    event = adapt(wire.host, wire.event, payload, at_ms, intake, wire.sent_ms)
    if isinstance(event, Dropped):
        return event
    changes: dict[str, Any] = {}
    if wire.branch:
        changes["branch"] = _short(wire.branch)
    if wire.head:
        changes["head"] = wire.head[:40]
    if wire.interactive is False:
        changes["interactive"] = False
    if wire.disposition == "metadata":
        event, changes["metadata_only"] = bare(event), True
    return msgspec.structs.replace(event, **changes) if changes else event


def adapt(
    host_hint: str,
    event_hint: str,
    payload: Mapping[str, Any],
    received_ms: int,
    intake: Intake = DEFAULT,
    sent_ms: int = 0,
) -> Event | Dropped:
    """
    The event that ``payload`` describes. ``host_hint`` and ``event_hint`` come from the hook's command line; the payload's
    shape wins over them, since one host runs another's hook files. Never raises on strange payloads: what is not
    understood is kept as ``other``. ``sent_ms``: the client's time, whether it is believed or not.
    """
    seen = hosts.read(host_hint, event_hint, payload)
    if isinstance(seen, str):
        return Dropped(seen)
    counts: dict[str, int] = {}
    blobs = seen.blobs

    def clean(text: str) -> str:
        nonlocal blobs
        text, found = redact.drop_blobs(text)
        blobs += found
        text, kinds = redact.redact(text, intake.extra, intake.allow)
        for kind, number in kinds.items():
            counts[kind] = counts.get(kind, 0) + number
        return text

    at_ms = seen.at_ms if 0 < seen.at_ms <= received_ms + FUTURE_MS else received_ms
    family = tools.family(seen.tool) if seen.tool else ""
    output = "" if seen.output is None else seen.output
    wash = _unchanged if _is_clean((output, seen.command, seen.text, seen.title, seen.assistant), intake) else clean
    # What recalld itself answered is in the notes: a copy here would be found again, as if somebody had said it.
    head, tail = ("", "") if _is_ours(seen.tool) else both_ends(output, HEAD_BYTES, TAIL_BYTES, wash)
    text_limit = TEXT_BYTES if seen.kind in ("user-prompt", "post-compaction") else NOTE_BYTES
    session = seen.session or "anon-" + _digest(seen.host, seen.cwd)
    event = Event(
        id="",
        kind=seen.kind if seen.kind in KINDS else "other",  # type: ignore[arg-type]
        host=_short(seen.host),
        session=session if len(session.encode()) <= MAX_ID_BYTES else _digest(session),
        at_ms=at_ms,
        name=_short(seen.name),
        cwd=seen.cwd[: tools.MAX_PATH_CHARS],
        tool=_short(seen.tool if seen.tool.isalpha() else clean(seen.tool)),
        family=family,  # type: ignore[arg-type]
        call_id=_short(seen.call_id),
        command=cut(seen.command, COMMAND_BYTES, wash),
        paths=_cleaned_paths(seen, intake.home, clean) if seen.paths else (),
        wrote=family == tools.FILE and tools.writes(seen.tool),
        outcome=seen.outcome,  # type: ignore[arg-type]
        exit_code=seen.exit_code,
        duration_ms=max(0, seen.duration_ms),
        output_head=head,
        output_tail=tail,
        output_bytes=len(output) if output.isascii() else len(output.encode("utf-8", "replace")),
        text=cut(seen.text, text_limit, wash),
        assistant=cut(seen.assistant, TEXT_BYTES, wash) if intake.assistant_messages else "",
        model=_short(seen.model),
        source=_short(seen.source),
        reason=_short(seen.reason),
        title=cut(seen.title, 300, wash),
        agent_id=_short(seen.agent_id),
        agent_type=_short(seen.agent_type),
        turn=_short(seen.turn),
        interactive=seen.interactive,
        blobs=blobs,
        redacted=counts,
    )
    # Nobody else has it yet: a copy of forty fields would cost as much as the rest.
    # By the sender's clock: whether its time is believed may change between two copies, one of which lay in the spool.
    said_ms = max(seen.at_ms, 0) or max(sent_ms, 0) or at_ms
    msgspec.structs.force_setattr(event, "id", _identity(event, seen.text or output, said_ms))
    return event


def _is_clean(texts: tuple[str, ...], intake: Intake) -> bool:
    """Whether none of ``texts`` has anything to remove: one look at all of them, for most events have nothing."""
    if intake.extra or sum(map(len, texts)) > WINDOW_CHARS:
        return False
    return redact.is_clean("\n".join([text for text in texts if text]))


def _unchanged(text: str) -> str:
    return text


def _is_ours(tool: str) -> bool:
    """Whether a tool is one of recalld's own, as hosts name it: mcp__recalld__recall, mcp_recalld_recall, recalld_recall."""
    return "recalld" in tool and tool.removeprefix("mcp").lstrip("_:.").startswith("recalld")


def _cleaned_paths(seen: hosts.Seen, home: str, clean: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(clean(absolute(path, seen.cwd, home)) for path in seen.paths))


def settle(event: Event, *, project: str, root: str, home: str = "", branch: str = "", head: str = "") -> Event:
    """
    ``event`` with its project's name, paths relative to the project's ``root`` ('' = unknown: left as they are), and the
    branch and commit unless the client already told them.
    """
    return msgspec.structs.replace(
        event,
        project=project,
        paths=tuple(dict.fromkeys([relative(path, root, home) for path in event.paths])) if event.paths else (),
        branch=event.branch or branch,
        head=event.head or head,
    )


def bare(event: Event) -> Event:
    """Only the fact that something happened: what a policy that cannot be read, or says so, lets through of a tool call."""
    return Event(
        id=event.id, kind=event.kind, host=event.host, session=event.session, at_ms=event.at_ms, name=event.name,
        cwd=event.cwd, project=event.project, tool=event.tool, family=event.family, call_id=event.call_id,
        outcome=event.outcome, agent_id=event.agent_id, agent_type=event.agent_type, turn=event.turn,
        branch=event.branch, head=event.head, interactive=event.interactive, metadata_only=True,
    )  # fmt: skip


def near_ids(event: Event) -> tuple[str, ...]:
    """
    Further ids under which the same event may already be stored: of an event without an id of its host's, those of the
    neighbouring time buckets. Empty for the others.
    """
    digest, _, bucket = event.id.partition(":")
    # The id of an end that recalld wrote has its session's in it, and that one may have a colon.
    return (f"{digest}:{int(bucket) - 1}", f"{digest}:{int(bucket) + 1}") if bucket.isdecimal() else ()


def search_text(event: Event) -> str:
    """What full-text search over raw events looks at."""
    parts = (event.text, event.tool, event.command, *event.paths, event.output_head, event.output_tail, event.assistant)
    return "\n".join(part for part in parts if part)


def cut(text: str, limit_bytes: int, clean: Callable[[str], str]) -> str:
    """``text`` cleaned, then cut to ``limit_bytes`` of UTF-8 with head and tail kept and what is missing named."""
    if not text:
        return ""
    head, tail = both_ends(text, limit_bytes * 2 // 3, limit_bytes // 3, clean)
    return head if not tail else f"{head}\n[… cut …]\n{tail}"


def both_ends(text: str, head_bytes: int, tail_bytes: int, clean: Callable[[str], str]) -> tuple[str, str]:
    """
    Start and end of ``text``, cleaned first: (whole text, '') when it fits into both together.

    Of a text longer than two windows the middle is not read at all; the edge that faces it is discarded with a margin,
    because a secret that the window cut in two might stand there.
    """
    if not text:
        return "", ""
    if len(text) <= 2 * WINDOW_CHARS:
        whole = clean(text).encode("utf-8", "replace")
        if len(whole) <= head_bytes + tail_bytes:
            return whole.decode(), ""
        first, last = whole, whole
    else:
        first = clean(text[:WINDOW_CHARS])[:-MARGIN_CHARS].encode("utf-8", "replace")
        last = clean(text[-WINDOW_CHARS:])[MARGIN_CHARS:].encode("utf-8", "replace")
    return (
        first[: _around_marker(first, head_bytes)[0]].decode("utf-8", "ignore"),
        last[_around_marker(last, max(0, len(last) - tail_bytes))[1] :].decode("utf-8", "ignore"),
    )


def _around_marker(text: bytes, at: int) -> tuple[int, int]:
    """``at``, or start and end of the redaction marker that a cut there would go through."""
    start = text.rfind(redact.MARKER, max(0, at - redact.MARKER_MAX), at + len(redact.MARKER))
    end = text.find(b"]", start) + 1 if start >= 0 else 0
    return (start, end) if start < at < end else (at, at)


def absolute(path: str, cwd: str, home: str) -> str:
    """``path`` as an absolute one, lexically: ``~`` expanded, relative to ``cwd``, '.' and '..' resolved without looking."""
    if path.startswith("~/") and home:
        path = home + path[1:]
    if not path.startswith("/"):
        if not cwd.startswith("/") or path[1:3] == ":\\":
            return path
        path = f"{cwd}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def relative(path: str, root: str, home: str) -> str:
    """``path`` below ``root`` as a relative one, below ``home`` with ``~``, else as it is. On path boundaries."""
    for base, prefix in ((root, ""), (home, "~/")):
        base = base.rstrip("/")
        if base and path.startswith(base + "/"):
            return prefix + path[len(base) + 1 :]
        if base and path == base:
            return "." if not prefix else "~"
    return path


def _short(text: str) -> str:
    return text if len(text) <= MAX_ID_BYTES else text[:MAX_ID_BYTES]


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _identity(event: Event, content: str, said_ms: int) -> str:
    """
    Two configurations may send one event twice, and a spool may send it again: the id depends on what happened alone.

    A tool call and a turn have ids of their host's; how a call ended is not among them, since not every way to us tells it:
    Codex's hooks do not, its transcripts do. Everything else is the same when place, kind and text are, within
    ``NEAR_MS``: the id then ends in the time bucket, and ``near_ids`` names the neighbours.
    """
    if event.call_id:
        return _digest("call", event.session, event.kind, event.call_id)
    what = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    if event.turn and event.kind in ("user-prompt", "stop", "subagent-stop"):
        return _digest("turn", event.session, event.kind, event.turn, event.agent_id, what)
    name = event.name if event.kind == "other" else ""
    key = (event.cwd, event.kind, name, event.tool, event.command, *event.paths, event.agent_id, event.source, what)
    return f"{_digest(event.session, *key)}:{said_ms // NEAR_MS}"
