"""
One hook event: read, check the folder's policy, tell the daemon, else spool; at a session's start print the briefing.

There are two clocks. What the daemon may take is counted from the process's start, or, when the host hands its payload over
later than that, from the moment the payload is complete: 200 ms. The payload itself is waited for until shortly before
hosts give up on a hook, since a host that is late is one on a busy machine, and its event is worth the wait. What did not
come whole by then is kept as a dead letter with the reason.

Everything has a deadline, and behind all of them stands an alarm: when it rings the agent is let go at once, and a forked
child finishes what is left (the spool file), with nothing open that the agent could wait for. Modules that are slow to
import are imported where they are needed.
"""

from __future__ import annotations

import os
import sys
import time

from recalld.clients.bridge import paths
from recalld.clients.hooking import letter, plainjson
from recalld.protocol import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    Json = dict[str, Any]

HANDOVER_MS = 1500
"""For the host to hand over its payload, from the process's start. Hosts give up on a hook after 2 s (see ``install.hosts``)."""
HANDOVER_ALARM_MS = HANDOVER_MS + 150
"""For a descriptor that polls readable and then blocks: somebody else reads from it too."""
QUIET_MS = 15
"""After this long without more bytes, what came may be whole although stdin was left open."""
LIMIT_MS = 170
"""To the agent going on: 200 ms less what a fork and an exit take."""
BRIEF_LIMIT_MS = 222
ACK_MS = 110
"""When the acknowledgement is waited for no longer: leaves time to redact and spool."""
STARTUP_MS = 25
"""What an interpreter's start takes where the system does not say when it began."""
MAX_STARTUP_MS = 120
LEFTOVER_S = 30.0
"""How long the child that outlives us may take to write the spool file."""
MAX_BYTES = 15 * 1024 * 1024
"""Just below the daemon's longest line."""

STARTS = ("sessionstart", "sessioncreated")
QUIET_SOURCES = ("resume", "fork")
"""Sessions that still hold the briefing of their beginning."""


class Options:
    """
    The command line: ``[--data DIR] [--runtime DIR] [--spool] [--late] HOST [EVENT]``. Wrong ones are ignored: a hook never
    fails.
    """

    def __init__(self, argv: list[str]) -> None:
        named = {"--data": "", "--runtime": ""}
        words: list[str] = []
        rest = iter(argv)
        for word in rest:
            name, equals, value = word.partition("=")
            if name in named:
                named[name] = value if equals else next(rest, "")
            elif not word.startswith("-"):
                words.append(word)
        self.host = words[0] if words else ""
        self.event = words[1] if len(words) > 1 else ""
        self.spool = "--spool" in argv
        """The daemon was asked already, and did not answer."""
        self.late = "--late" in argv
        """Whoever read the payload for us has given up waiting for the rest."""
        self.data, self.runtime = named["--data"], named["--runtime"]


class Hook:
    """One run of the client."""

    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self.options = options
        self.environ = environ
        self.started = began()
        self.sent_ms = int(time.time() * 1000)
        patience = environ.get("RECALLD_TEST_PATIENCE", "1")
        self.patience = int(patience) if patience.isdecimal() else 1
        """Tests on a crowded machine stretch every deadline by this."""
        self.limit_ms = LIMIT_MS
        self.data = paths.data_folder(environ, options.data)
        self.mcp_socket = paths.socket_path(environ, options.data, options.runtime)
        self.events_socket = self.mcp_socket[: -len("mcp.sock")] + "events.sock"

    def left_s(self, until_ms: float) -> float:
        """What is left until a time counted from the start of the clock."""
        return max(0.0, until_ms * self.patience / 1000 - (time.monotonic() - self.started))

    def run(self) -> None:
        """The whole of it. May raise anything: ``main`` exits 0 all the same."""
        arm(self.left_s(HANDOVER_ALARM_MS))
        handed = read_stdin(self.left_s(HANDOVER_MS), MAX_BYTES)
        if handed.waited:
            self.started = time.monotonic()
        arm(self.left_s(self.limit_ms))
        text = handed.data.decode("utf-8", "replace")
        try:
            payload = plainjson.loads(text)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            self._bury(text, handed, torn=payload is None)
            return
        event = letter.Letter(
            payload, text, host=self.options.host, event=self.options.event, sent_ms=self.sent_ms, data=self.data,
            environ=self.environ,
        )  # fmt: skip
        asked = None
        if self._wants_briefing(payload, event.door):
            self.limit_ms = BRIEF_LIMIT_MS
            arm(self.left_s(self.limit_ms))
            asked = self._ask_briefing(event.cwd, payload, event.door)
        if event.disposition != "drop" and not self._deliver(event.line()):
            event.spool()
        if asked is not None:
            self._print_briefing(asked, str(name_of(payload, self.options.event)))

    def _bury(self, text: str, handed: Handed, *, torn: bool) -> None:
        """Kept for a person to look at, unless the host closed stdin without a word."""
        size = len(handed.data)
        if handed.too_long:
            why = f"the host's payload is larger than {MAX_BYTES} bytes"
            text = ""
        elif os.isatty(0):
            return  # a person tries the command
        elif self.options.late or not handed.ended:
            why = f"the host handed over {size} bytes and no end of them within {HANDOVER_MS} ms"
        elif text.strip():
            why = f"the host handed over {size} bytes that are not a JSON object"
        else:
            return
        letter.bury(
            text, why, host=self.options.host, event=self.options.event, sent_ms=self.sent_ms, data=self.data,
            environ=self.environ, torn=torn,
        )  # fmt: skip

    # -- the daemon

    def _connect(self, path: str, until_ms: float) -> Any:
        import _socket

        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        sock.settimeout(self.left_s(until_ms) or 0.001)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
            raise
        return sock

    def _deliver(self, line: bytes) -> bool:
        """Whether the daemon has taken the event in: its acknowledgement means that the journal is on disk."""
        if self.options.spool:
            return False
        try:
            sock = self._connect(self.events_socket, ACK_MS)
            send(sock, line, self, ACK_MS)
            return b'"ok":true' in receive(sock, self, ACK_MS)
        except OSError:
            return False

    def _wants_briefing(self, payload: Json, door: Any) -> bool:
        if squeeze(name_of(payload, self.options.event)) not in STARTS or payload.get("agent_id"):
            return False
        if payload.get("source") in QUIET_SOURCES or host_shape(self.options.host, payload) in ("copilot", "windsurf"):
            return False
        info = payload.get("event", {}) if isinstance(payload.get("event"), dict) else {}
        if "parentID" in str(info):
            return False
        return door is None or door.policy is None or bool(door.policy.briefing)

    def _ask_briefing(self, cwd: str, payload: Json, door: Any) -> Any:
        """The connection on which the briefing will come, or None."""
        request: Json = {
            "recalld": 1, "role": "hook", "op": "brief", "cwd": cwd, "host": host_shape(self.options.host, payload),
            "session": session_of(payload),
        }  # fmt: skip
        chars = door.policy.briefing_chars if door is not None and door.policy is not None else -1
        if chars == 0:
            return None
        if chars > 0:
            request["max_chars"] = chars
        try:
            sock = self._connect(self.mcp_socket, ACK_MS)
            send(sock, (letter.flat_object(request) + "\n").encode(), self, ACK_MS)
        except OSError:
            return None
        return sock

    def _print_briefing(self, sock: Any, event: str) -> None:
        try:
            reply = plainjson.loads(receive(sock, self, self.limit_ms - 8).decode("utf-8", "replace"))
        except (OSError, ValueError):
            return
        text = reply.get("text") if isinstance(reply, dict) else None
        if isinstance(text, str) and text.strip():
            os.write(1, (shaped(self.options.host, event, text) + "\n").encode())


def shaped(host: str, event: str, text: str) -> str:
    """A briefing as ``host`` wants it on stdout."""
    if host == "cursor":
        return letter.flat_object({"additional_context": text})
    if host in ("claude", "codex", "gemini", "vscode"):
        return (
            '{"hookSpecificOutput":'
            + letter.flat_object({"hookEventName": "SessionStart", "additionalContext": text})
            + "}"
        )
    return letter.flat_object({"additionalContext": text})


def host_shape(host: str, payload: Json) -> str:
    """The host that runs us: Cursor and VS Code also run Claude's hook files."""
    if "cursor_version" in payload:
        return "cursor"
    return "vscode" if "hookEventName" in payload else host


def name_of(payload: Json, hint: str) -> str:
    """The event's name: the payload's own before the command line's."""
    inner = payload.get("event")
    own = payload.get("hook_event_name") or payload.get("hookEventName")
    if not own and isinstance(inner, dict):
        own = inner.get("type")
    if not own and not hint and "source" in payload and "prompt" not in payload:
        own = "sessionStart"  # Copilot's payloads carry no name
    return str(own or hint)


def squeeze(name: str) -> str:
    return "".join(char for char in name if char.isalnum()).lower()


def session_of(payload: Json) -> str:
    found = next((payload[key] for key in ("session_id", "sessionId", "conversation_id") if payload.get(key)), "")
    return found if isinstance(found, str) else ""


class Handed:
    """What a host handed over. ``waited``: it was not all there when we looked."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False
        self.waited = False
        self.too_long = False


def read_stdin(limit_s: float, limit_bytes: int) -> Handed:
    """
    stdin to its end, or what came within ``limit_s``. A JSON object that is whole ends it too: some hosts never close stdin.
    """
    import select

    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    handed, size, looked_at = Handed(), 0, 0
    parts: list[bytes] = []
    deadline = time.monotonic() + limit_s
    while True:
        ready = poll.poll(0)
        if not ready:
            handed.waited = True
            ready = poll.poll(QUIET_MS)
        if not ready:
            if size > looked_at and is_whole(b"".join(parts)):
                break
            looked_at = size
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0 or not poll.poll(left_ms):
                break
        part = os.read(0, 1 << 20)
        if not part:
            handed.ended = True
            break
        parts.append(part)
        size += len(part)
        if size > limit_bytes:
            handed.too_long = True
            break
    handed.data = b"".join(parts)
    return handed


def is_whole(data: bytes) -> bool:
    """Whether nothing can follow but white space: no beginning of a JSON object is one itself."""
    if not data.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(plainjson.loads(data.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return False


def send(sock: Any, data: bytes, hook: Hook, until_ms: float) -> None:
    view = memoryview(data)
    while view:
        sock.settimeout(hook.left_s(until_ms) or 0.001)
        view = view[sock.send(view) :]


def receive(sock: Any, hook: Hook, until_ms: float) -> bytes:
    """One line, without its end; what came of it when the peer closes. Raises OSError when the time is up."""
    parts = b""
    while True:
        left = hook.left_s(until_ms)
        if not left:
            raise TimeoutError
        sock.settimeout(left)
        part: bytes = sock.recv(1 << 16)
        parts += part
        if not part or b"\n" in part:
            return parts.partition(b"\n")[0]


def began() -> float:
    """When this process started, on the monotonic clock: the agent counts from there, however slow the machine is."""
    elapsed_ms: float = STARTUP_MS
    try:
        ticks = int(place.read_text("/proc/self/stat", 4096).rpartition(")")[2].split()[19])
        elapsed_ms = (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")) * 1000
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    return time.monotonic() - min(max(elapsed_ms, 0), MAX_STARTUP_MS) / 1000


def arm(seconds: float) -> None:
    """From ``seconds`` on, the agent waits no longer."""
    import _signal  # type: ignore[import-not-found]  # ``signal`` would bring ``enum``

    def ring(signum: int, frame: object) -> None:
        try:
            child = os.fork()
        except OSError:
            os._exit(0)
        if child:
            os._exit(0)
        # In the child: whatever is under way goes on, for a while, where nobody waits for it.
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
        _signal.setitimer(_signal.ITIMER_REAL, LEFTOVER_S)

    _signal.signal(_signal.SIGALRM, ring)
    _signal.setitimer(_signal.ITIMER_REAL, max(seconds, 0.001))


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one event. Exits 0, always."""
    try:
        Hook(Options(sys.argv[1:] if argv is None else argv), os.environ).run()
    except BaseException as error:
        if os.environ.get("RECALLD_DEBUG"):
            os.write(2, f"recalld-hook: {type(error).__name__}: {error}\n".encode())
    os._exit(0)
