"""The bridge's one loop: what comes from the client, what comes from the daemon, and whose time is up."""

from __future__ import annotations

import json
import os
import select
import time

from .answers import Manifest, degraded, told
from .daemon import CHUNK_BYTES, MAX_BUFFER_BYTES, Daemon
from .post import TOOL, Post
from .wire import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    Lines,
    Request,
    cancellation,
    encode,
    error,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]

GRACE_MS = 2000
"""How long a call waits for a daemon that is away. Longer is a visible stall in the agent."""
BUDGET_MS = 5000
"""How long a daemon that is there may take, until its first line tells its own figure."""
HOLD_S = 0.06
"""How long a static question waits for the first line of a daemon that the kernel has connected us to: it may be starting,
and then the manifest answers."""
DRAIN_S = 2.0
"""After the client closed stdin: how long unanswered requests are waited for, so that `echo … | recalld mcp` works."""
PARENT_CHECK_S = 2.0
MAX_PENDING = 256
MAX_PENDING_BYTES = 64 * 1024 * 1024
PIPE_BUF = 4096
"""A pipe that polls writable takes this much without blocking; the flag that makes it non-blocking would hit its other end."""
PRIVATE_ID = "recalld-bridge/init"


class Bridge:
    """One client, one daemon that may come and go, one loop. ``on_away`` is called with the time at each attempt that finds
    the daemon away: the place to ask a service manager for it. It must not block."""

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        first_line: Json,
        post: Post,
        *,
        stdin: int,
        stdout: int,
        grace_ms: int = GRACE_MS,
        on_away: Callable[[float], None] | None = None,
    ) -> None:
        self._manifest = manifest
        self._daemon = Daemon(path)
        self._first_line = first_line
        self._post = post
        post.watch, post.settled = self._watch, self._told
        self._stdin, self._stdout = stdin, stdout
        self._grace_s = grace_ms / 1000
        self._budget_s = BUDGET_MS / 1000
        self._on_away = on_away
        self._input = Lines()
        self._output = bytearray()
        self._pending: dict[str, Request] = {}
        self._initialize: Request | None = None
        self._initialized: bytes | None = None
        self._told_lists = False
        self._drain_until: float | None = None
        self._parent = os.getppid()
        self._poll = select.poll()
        self._watched: dict[int, int] = {}

    def run(self) -> int:
        """Until the client has gone: stdin at its end, stdout closed, or the parent dead."""
        try:
            return self._run()
        finally:
            self._post.close()

    def _run(self) -> int:
        self._watch(self._stdout, 0)
        while True:
            now = time.monotonic()
            self._reconnect(now)
            self._probe(now)
            self._expire(now)
            self._post.expire(now)
            if self._is_done(now):
                return 0
            self._watch_what_is_wanted()
            for descriptor, events in self._poll.poll(self._timeout_ms(now)):
                if not self._serve(descriptor, events):
                    return 0

    # The client's side

    def _serve(self, descriptor: int, events: int) -> bool:
        """Act on one poll event; false when the client is gone."""
        if descriptor == self._stdin:
            return self._read_client()
        if descriptor == self._stdout:
            return self._write_client(events)
        if descriptor in self._post.errands:
            self._post.serve(descriptor, events)
            return True
        daemon = self._daemon
        if daemon.socket is None or descriptor != daemon.socket.fileno():
            return True
        try:
            if events & select.POLLOUT:
                daemon.flush()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                for line in daemon.receive():
                    self._from_daemon(line)
        except OSError:
            self._lost(time.monotonic(), self._grace_s)
        return True

    def _read_client(self) -> bool:
        try:
            data = os.read(self._stdin, CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._drain_until = time.monotonic() + DRAIN_S
            self._watch(self._stdin, None)
            data = b"\n"  # the last line may lack its end
        for line in self._input.feed(data):
            self._from_client(line)
        return True

    def _write_client(self, events: int) -> bool:
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            return False
        try:
            del self._output[: os.write(self._stdout, self._output[:PIPE_BUF])]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def _from_client(self, line: bytes | None) -> None:
        if line is None:
            self._output += error(None, PARSE_ERROR, f"Parse error: a line of over {MAX_LINE_BYTES} bytes")
            return
        try:
            message = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            self._output += error(None, PARSE_ERROR, "Parse error: a message is one JSON object on one line")
            return
        if not isinstance(message, dict):
            self._output += error(None, INVALID_REQUEST, "Not one JSON-RPC message: batches are not part of MCP")
        elif "id" in message and isinstance(message.get("method"), str):
            if isinstance(message["id"], int | str) and not isinstance(message["id"], bool):
                self._request(Request(line, message, time.monotonic()))
            else:
                self._output += error(None, INVALID_REQUEST, "The id of a request is a string or a whole number")
        else:
            self._notification(line, message)

    def _notification(self, line: bytes, message: Json) -> None:
        method, params = message.get("method"), message.get("params")
        if method == "notifications/initialized":
            self._initialized = line
        elif method == "notifications/cancelled" and isinstance(params, dict):
            self._pending.pop(json.dumps(params.get("requestId")), None)
        if self._daemon.is_there:
            self._daemon.send(line)

    def _request(self, request: Request) -> None:
        if request.method == "tools/call" and request.params.get("name") == TOOL:
            self._post.take(request)
            return
        if request.method == "initialize":
            self._initialize = request
            if self._daemon.era == "modern":
                # A client that probed the new era and settled for the handshake: the daemon has one era per connection.
                self._lost(request.since, self._grace_s)
        if len(self._pending) >= MAX_PENDING or self._pending_bytes() + len(request.line) > MAX_PENDING_BYTES:
            self._output += degraded(request, self._manifest, "has too many unanswered requests")
            return
        static = self._manifest.knows(request)
        if static and not self._daemon.is_there and not self._manifest.is_stale:
            waiting = self._daemon.connected_at + HOLD_S if self._daemon.socket is not None else 0.0
            if request.since >= waiting:
                self._answer_statically(request)
                return
            request.deadline = waiting
        self._pending[json.dumps(request.id)] = request
        if self._daemon.is_there:
            self._forward(request, request.since)
        elif request.deadline is None:
            request.deadline = request.since + self._grace_s

    def _told(self, request: Request, problem: str) -> None:
        self._output += told(request, self._manifest, problem)

    def _answer_statically(self, request: Request) -> None:
        self._told_lists = self._told_lists or request.method == "tools/list"
        self._output += self._manifest.answer(request)

    # The daemon's side

    def _forward(self, request: Request, now: float) -> None:
        self._daemon.era = self._daemon.era or ("modern" if request.is_modern else "legacy")
        self._daemon.send(request.line)
        if request.method == "subscriptions/listen":
            request.deadline = None  # answered when it ends
        else:
            request.deadline = min(now, request.since + self._grace_s) + self._budget_s + self._grace_s / 2

    def _from_daemon(self, line: bytes | None) -> None:
        self._daemon.heard_at = time.monotonic()
        self._daemon.probed_at = None
        if line is None:
            raise ConnectionResetError  # it does not speak this protocol
        message = json.loads(line)
        if not self._daemon.is_there:
            self._greeted(message)
            return
        if "recalld" in message:
            return
        if "method" not in message and message.get("id") is not None:
            if message["id"] == PRIVATE_ID:
                return
            key = json.dumps(message["id"])
            if key not in self._pending:
                return  # cancelled, or answered from here when its time was up
            if (message.get("error") or {}).get("code") == CONNECTION_CLOSED:
                return
            del self._pending[key]
        self._output += line

    def _greeted(self, hello: Json) -> None:
        """The daemon's first line: it is there. Repeat the handshake in private, then everything unanswered, in order."""
        if hello.get("recalld") != 1:
            raise ConnectionResetError
        now = time.monotonic()
        self._daemon.greeted()
        if isinstance(hello.get("budget_ms"), int):
            self._budget_s = hello["budget_ms"] / 1000
        if self._manifest.learn(hello) and self._told_lists and self._initialize is not None:
            self._output += encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        if self._initialize is not None and json.dumps(self._initialize.id) not in self._pending:
            self._daemon.era = "legacy"
            self._daemon.send(encode({**self._initialize.message, "id": PRIVATE_ID}))
            if self._initialized is not None:
                self._daemon.send(self._initialized)
        for request in self._pending.values():
            self._forward(request, now)

    def _reconnect(self, now: float) -> None:
        if self._daemon.socket is not None or now < self._daemon.next_try:
            return
        if self._daemon.connect(self._first_line, now):
            try:
                self._daemon.flush()
            except OSError:
                self._lost(now, self._grace_s)
        elif self._on_away is not None:
            self._on_away(now)

    def _lost(self, now: float, patience_s: float) -> None:
        """The connection is gone; what is unanswered waits ``patience_s`` for the next one."""
        if self._daemon.socket is not None:
            self._watch(self._daemon.socket.fileno(), None)
        self._daemon.drop(now)
        for request in self._pending.values():
            if self._manifest.knows(request) and not self._manifest.is_stale:
                request.deadline = now
            else:
                request.deadline = min(now + patience_s, request.since + self._budget_s + self._grace_s)

    def _probe(self, now: float) -> None:
        """A daemon that is stopped or stuck keeps its connection: one that is silent while a call waits is asked."""
        daemon = self._daemon
        if not daemon.is_there or not self._pending:
            return
        half = self._grace_s / 2
        if daemon.probed_at is not None:
            if now - daemon.probed_at >= half:
                self._lost(now, 0.0)
        elif now - max(daemon.heard_at, min(request.since for request in self._pending.values())) >= half:
            daemon.probed_at = now
            daemon.send(b'{"recalld":"probe"}\n')

    def _expire(self, now: float) -> None:
        for key, request in list(self._pending.items()):
            if request.deadline is None or now < request.deadline:
                continue
            del self._pending[key]
            if self._manifest.knows(request):
                self._answer_statically(request)
                continue
            if self._daemon.is_there:
                self._daemon.send(encode(cancellation(request)))
                why = "did not answer in time"
            else:
                why = "is restarting or stuck" if self._daemon.was_ever_there else "is not running"
            self._output += degraded(request, self._manifest, why)

    # The loop

    def _is_done(self, now: float) -> bool:
        if os.getppid() != self._parent:
            return True
        if self._drain_until is None or self._output:
            return False
        return not (self._pending or self._post.errands) or now >= self._drain_until

    def _watch_what_is_wanted(self) -> None:
        daemon = self._daemon
        if self._drain_until is None:
            room = len(self._output) < MAX_BUFFER_BYTES and len(daemon.outbox) < MAX_BUFFER_BYTES
            self._watch(self._stdin, select.POLLIN if room else 0)
        self._watch(self._stdout, select.POLLOUT if self._output else 0)
        if daemon.socket is not None:
            wanted = select.POLLIN if len(self._output) < MAX_BUFFER_BYTES else 0
            self._watch(daemon.socket.fileno(), wanted | (select.POLLOUT if daemon.outbox else 0))

    def _watch(self, descriptor: int, events: int | None) -> None:
        if self._watched.get(descriptor) == events:
            return
        if events is None:
            self._poll.unregister(descriptor)
            del self._watched[descriptor]
        else:
            self._poll.register(descriptor, events)
            self._watched[descriptor] = events

    def _timeout_ms(self, now: float) -> int:
        moments = [now + PARENT_CHECK_S]
        moments += [request.deadline for request in self._pending.values() if request.deadline is not None]
        moments += [errand.deadline for errand in self._post.errands.values()]
        if self._daemon.socket is None:
            moments.append(self._daemon.next_try)
        elif self._daemon.is_there and self._pending:
            moments.append(now + self._grace_s / 8)
        if self._drain_until is not None:
            moments.append(self._drain_until)
        return max(0, int((min(moments) - now) * 1000) + 1)

    def _pending_bytes(self) -> int:
        return sum(len(request.line) for request in self._pending.values())
