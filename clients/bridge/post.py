"""
Lifecycle events that a host tells by calling the tool ``hook_event`` instead of starting a hook.

They go the hook client's road and not the MCP session's: the folder's policy is asked here, the line goes to
``events.sock``, and where nobody takes it in time it is redacted and spooled. The host is answered once the event is on
disk, so that a daemon that is away costs neither an event nor a wait.

What is not needed before the first such call is imported with it: the bridge's own start is waited for.
"""

from __future__ import annotations

import json
import select
import time
from _socket import AF_UNIX, SOCK_STREAM, socket

from .daemon import CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from recalld.clients.hooking.letter import Letter

    from .wire import Request

    Json = dict[str, Any]

TOOL = "hook_event"
ACK_S = 0.15
"""For the daemon's acknowledgement, as in the hook client: the agent waits for us."""
MAX_ERRANDS = 64
MAX_BYTES = 32 * 1024 * 1024
"""Lines under way together; more go to the spool."""
MAX_DIGITS = 16
"""Of a time in milliseconds."""
OWN = ("host", "event")
"""Arguments that are ours; all others are the payload's fields under their own names."""


class Errand:
    """One event on its way to the daemon."""

    __slots__ = ("answer", "deadline", "letter", "outbox", "request", "socket")

    def __init__(self, request: Request, letter: Letter, connection: socket, deadline: float) -> None:
        self.request = request
        self.letter = letter
        self.socket = connection
        self.outbox = bytearray(letter.line())
        self.answer = b""
        self.deadline = deadline


class Post:
    """
    Takes events in and settles each of them, in the daemon's journal or in the spool, without holding up the bridge's loop.

    ``watch`` registers a descriptor for poll events, None for none; ``settled`` is called with the request and '' or why its
    event was lost.
    """

    def __init__(self, path: str, data: str, environ: Mapping[str, str], first_line: Json) -> None:
        self._path = path
        self._data = data
        self._environ = environ
        self._host, self._session = first_line["host"], first_line["session"]
        patience = environ.get("RECALLD_TEST_PATIENCE", "1")
        self._ack_s = ACK_S * (int(patience) if patience.isdecimal() else 1)
        self.errands: dict[int, Errand] = {}
        self.watch: Callable[[int, int | None], None] = lambda descriptor, events: None
        self.settled: Callable[[Request, str], None] = lambda request, problem: None

    def take(self, request: Request) -> None:
        """One call of the tool. What goes wrong is told to the host: the bridge has other calls to carry."""
        try:
            self._take(request)
        except Exception as error:
            self.settled(request, f"the event cannot be read: {type(error).__name__}: {error}")

    def _take(self, request: Request) -> None:
        arguments = request.params.get("arguments")
        if not isinstance(arguments, dict) or not isinstance(arguments.get("event"), str):
            self.settled(request, "hook_event needs the argument 'event': the host's name of what happened")
            return
        meta = request.params.get("_meta")
        thread = meta.get("threadId") if isinstance(meta, dict) else None
        letter = self._letter(arguments, thread if isinstance(thread, str) else "")
        if letter.disposition == "drop":
            self.settled(request, "")
            return
        errand = self._send(request, letter)
        if errand is None:
            self.settled(request, _spool(letter))
            return
        self.errands[errand.socket.fileno()] = errand
        self._flush(errand)

    def serve(self, descriptor: int, events: int) -> None:
        """Act on one poll event of an errand's."""
        errand = self.errands[descriptor]
        if errand.outbox and events & select.POLLOUT:
            self._flush(errand)
        elif events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            try:
                part = errand.socket.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            errand.answer += part
            if not part or b"\n" in part:
                self._done(errand)

    def expire(self, now: float) -> None:
        """Spool what the daemon has not taken in time."""
        for errand in [errand for errand in self.errands.values() if now >= errand.deadline]:
            self._done(errand)

    def close(self) -> None:
        """The bridge ends: whatever is under way goes to the spool. The daemon may have it too, and keeps it once."""
        for errand in list(self.errands.values()):
            self._done(errand)

    def _letter(self, arguments: Json, thread: str) -> Letter:
        from recalld.clients.hooking import letter

        payload = payload_of(arguments, thread)
        if self._session:
            payload.setdefault("session_id", self._session)
        host = arguments.get("host")
        return letter.Letter(
            payload, json.dumps(payload), host=host if isinstance(host, str) and host else self._host,
            event=arguments["event"], sent_ms=int(time.time() * 1000), data=self._data, environ=self._environ,
        )  # fmt: skip

    def _send(self, request: Request, letter: Letter) -> Errand | None:
        under_way = sum(len(errand.outbox) for errand in self.errands.values())
        if len(self.errands) >= MAX_ERRANDS or under_way > MAX_BYTES:
            return None
        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            return None
        return Errand(request, letter, connection, time.monotonic() + self._ack_s)

    def _flush(self, errand: Errand) -> None:
        try:
            while errand.outbox:
                del errand.outbox[: errand.socket.send(errand.outbox[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self._done(errand)
            return
        self.watch(errand.socket.fileno(), select.POLLOUT if errand.outbox else select.POLLIN)

    def _done(self, errand: Errand) -> None:
        descriptor = errand.socket.fileno()
        del self.errands[descriptor]
        self.watch(descriptor, None)
        errand.socket.close()
        self.settled(errand.request, "" if b'"ok":true' in errand.answer else _spool(errand.letter))


def payload_of(arguments: Json, thread: str) -> Json:
    """
    The payload that the host would have given a hook, from what it filled into the arguments of ``install.hosts``.

    Claude Code writes objects and numbers as text, and nothing for a field that is not there. Codex keeps types and refuses
    fields that are not there; so the subagent is not among them, but its own ``thread`` calls us.
    """
    payload = {name: value for name, value in arguments.items() if name not in OWN and value != ""}
    if arguments.get("host") == "claude":
        payload = {name: _typed(name, value) for name, value in payload.items()}
    payload.setdefault("hook_event_name", arguments["event"])
    if thread and thread != payload.get("session_id", thread):
        payload.setdefault("agent_id", thread)
    return payload


def _typed(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name.endswith("_ms") and value.isdecimal() and len(value) < MAX_DIGITS:
        return int(value)
    if name in ("tool_input", "tool_response") and value[0] in "{[":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass  # a text that begins like that
    return value


def _spool(letter: Letter) -> str:
    """'' once it lies in the spool, else why not."""
    try:
        return "" if letter.spool() else f"the spool at {letter.data}/spool is full and the daemon away"
    except Exception as error:
        return f"the daemon is away and the spool cannot be written: {error}"
