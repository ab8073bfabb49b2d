"""
From a payload to what leaves this process: the line that the daemon takes or, where nobody takes it, a file in the spool.

The hook client and the MCP bridge share it, so that an event is the same whichever way the host tells it.
"""

from __future__ import annotations

import os

from recalld.clients.hooking import plainjson
from recalld.protocol import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from recalld.clients.hooking.gate import Gate

    Json = dict[str, Any]

SPOOL_MB = 256
TORN_CHARS = 4096
"""Not kept of the end of a payload that broke off: half a secret might stand there, which no rule recognises."""


class Letter:
    """One event after the folder's policy was asked. ``disposition``: keep, metadata or drop."""

    def __init__(
        self, payload: Json, text: str, *, host: str, event: str, sent_ms: int, data: str, environ: Mapping[str, str]
    ) -> None:
        """``text`` is ``payload`` as JSON; the event happened ``sent_ms`` after the epoch, by the client's clock."""
        self.data = data
        self.cwd = cwd_of(payload)
        home = environ.get("HOME") or os.path.expanduser("~")
        facts = place.look(self.cwd, home)
        place.read_head(facts)
        from recalld.clients.hooking import gate

        self.door: Gate | None
        try:
            self.door = gate.Gate(facts, data, environ)
            self.disposition, _ = self.door.decide(payload)
        except Exception:
            # What cannot be decided is treated as an unreadable policy: the fact alone may pass.
            self.door, self.disposition = None, "metadata"
        self.wire: Json = {
            "recalld": 1, "role": "hook", "host": host, "event": event, "cwd": self.cwd, "sent_ms": sent_ms,
            "branch": facts.branch, "head": facts.head,
        }  # fmt: skip
        if environ.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk"):
            self.wire["interactive"] = False
        self.payload, self._text = payload, text
        if self.disposition == "metadata":
            self.wire["disposition"] = "metadata"
            self.payload = gate.bare(payload)
            self._text = flat_object({key: value for key, value in self.payload.items() if isinstance(value, str)})

    def line(self) -> bytes:
        """For ``events.sock``."""
        text = self._text.replace("\n", " ").replace("\r", " ")
        return f'{flat_object(self.wire)[:-1]},"payload":{text}}}\n'.encode("utf-8", "surrogatepass")

    def spool(self) -> bool:
        """Redact it and leave it for the daemon; False when the spool is full. Raises OSError when it cannot be written."""
        from recalld.clients.hooking import spooling

        capture = self.door.capture if self.door else {}
        wire = {**self.wire, "payload": self.payload}
        return bool(
            spooling.spool(f"{self.data}/spool", wire, capture, sent_ms=self.wire["sent_ms"], max_mb=room(capture))
        )


def bury(
    text: str, why: str, *, host: str, event: str, sent_ms: int, data: str, environ: Mapping[str, str], torn: bool
) -> None:
    """
    Leave a trace of a payload that is no event, with the reason: a dead letter, which ``recalld spool`` shows.

    ``torn``: it broke off somewhere. What it says of files cannot be asked, so that below a marker only the fact is kept.
    Raises OSError when it cannot be written.
    """
    from recalld.clients.hooking import gate, spooling

    where = cwd_of({})
    door = gate.Gate(place.look(where, environ.get("HOME") or os.path.expanduser("~")), data, environ)
    if door.decide({})[0] == "drop":
        return
    wire = {"recalld": 1, "host": host, "event": event, "sent_ms": sent_ms, "cwd": where}
    wire["payload"] = unescaped(text) if door.policy is None and door.mode == "all" else ""
    os.makedirs(f"{data}/spool", mode=0o700, exist_ok=True)
    folder, max_mb = f"{data}/spool/dead", room(door.capture)
    path = spooling.spool(
        folder, wire, door.capture, sent_ms=sent_ms, max_mb=max_mb, cut_chars=TORN_CHARS if torn else 0
    )
    if path:
        with open(f"{path}.reason", "x", encoding="utf-8") as file:
            file.write(why + "\n")


def unescaped(text: str) -> str:
    """
    JSON that nobody could parse, with the printable ASCII in it that its encoder wrote as escapes: what a secret is known by may
    be among it. Quotes and backslashes stay as they are.
    """
    import re

    def plain(found: re.Match[str]) -> str:
        char = chr(int(found[1], 16)) if found[1] else "/"
        return found[0] if char in '"\\' else char

    return re.sub(r"\\(?:u00([2-7][0-9a-fA-F])|/)", plain, text)


def room(capture: Mapping[str, Any]) -> int:
    """How large the spool may become, in megabytes; from config.toml's capture table."""
    wanted = capture.get("spool_max_mb")
    return wanted if isinstance(wanted, int) and wanted > 0 else SPOOL_MB


def cwd_of(payload: Json) -> str:
    """Where it happened: what the payload says, else where we run."""
    for key in ("cwd", "current_dir", "working_dir", "directory"):
        if isinstance(payload.get(key), str) and payload[key]:
            return str(payload[key])
    for key in ("workspace_roots", "workspacePaths"):
        roots = payload.get(key)
        if isinstance(roots, list) and roots and isinstance(roots[0], str):
            return str(roots[0]).removeprefix("file://")
    try:
        return os.getcwd()
    except OSError:
        return ""


def flat_object(fields: Json) -> str:
    """A flat JSON object of texts, numbers and truth values."""
    parts = []
    for key, value in fields.items():
        if isinstance(value, bool):
            shown = "true" if value else "false"
        else:
            shown = str(value) if isinstance(value, int) else plainjson.quoted(value)
        parts.append(f"{plainjson.quoted(key)}:{shown}")
    return "{" + ",".join(parts) + "}"
