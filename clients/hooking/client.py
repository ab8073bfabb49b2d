"""
One hook event: read, check the folder's policy, tell the daemon, else spool; at a session's start print the briefing.

Everything has a deadline, and behind all of them stands an alarm: when it rings the agent is let go at once, and a forked
child finishes what is left (the spool file), with nothing open that the agent could wait for. Modules that are slow to
import are imported where they are needed.
"""

from __future__ import annotations

import os
import sys
import time

from recalld.clients.bridge import paths
from recalld.clients.hooking import plainjson
from recalld.protocol import place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    Json = dict[str, Any]

LIMIT_MS = 170
"""From the process's start to the agent going on: 200 ms less what a fork and an exit take."""
BRIEF_LIMIT_MS = 222
STDIN_MS = 90
ACK_MS = 110
"""When the acknowledgement is waited for no longer: leaves time to redact and spool."""
STARTUP_MS = 25
"""What an interpreter's start takes where the system does not say when it began."""
MAX_STARTUP_MS = 120
LEFTOVER_S = 30.0
"""How long the child that outlives us may take to write the spool file."""
MAX_BYTES = 15 * 1024 * 1024
"""Just below the daemon's longest line."""
SPOOL_MB = 256

STARTS = ("sessionstart", "sessioncreated")
QUIET_SOURCES = ("resume", "fork")
"""Sessions that still hold the briefing of their beginning."""


class Options:
    """The command line: ``[--data DIR] [--runtime DIR] [--spool] HOST [EVENT]``. Wrong ones are ignored: a hook never fails."""

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
        """What is left until a time counted from the process's start."""
        return max(0.0, until_ms * self.patience / 1000 - (time.monotonic() - self.started))

    def run(self) -> None:
        """The whole of it. May raise anything: ``main`` exits 0 all the same."""
        raw = read_stdin(self.left_s(STDIN_MS), MAX_BYTES)
        text = raw.decode("utf-8", "replace")
        try:
            payload = plainjson.loads(text)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            # Kept for a person to look at, unless there is nothing at all: the daemon files it as a dead letter.
            if text.strip():
                self._spool({"recalld": 1, "host": self.options.host, "event": self.options.event, "payload": text}, {})
            return
        cwd = cwd_of(payload)
        home = self.environ.get("HOME") or os.path.expanduser("~")
        facts = place.look(cwd, home)
        place.read_head(facts)
        from recalld.clients.hooking import gate

        try:
            door = gate.Gate(facts, self.data, self.environ)
            disposition, _ = door.decide(payload)
        except Exception:
            # What cannot be decided is treated as an unreadable policy: the fact alone may pass.
            door, disposition = None, "metadata"
        wants = self._wants_briefing(payload, door)
        wire: Json = {
            "recalld": 1, "role": "hook", "host": self.options.host, "event": self.options.event, "cwd": cwd,
            "sent_ms": self.sent_ms, "branch": facts.branch, "head": facts.head,
        }  # fmt: skip
        if self.environ.get("CLAUDE_CODE_ENTRYPOINT", "").startswith("sdk"):
            wire["interactive"] = False
        if wants:
            self.limit_ms = BRIEF_LIMIT_MS
            arm(self.left_s(self.limit_ms))
        asked = self._ask_briefing(cwd, payload, door) if wants else None
        if disposition != "drop":
            if disposition == "metadata":
                wire["disposition"] = "metadata"
                payload = gate.bare(payload)
                text = _object({key: value for key, value in payload.items() if isinstance(value, str)})
            if not self._deliver(
                _object(wire)[:-1] + ',"payload":' + text.replace("\n", " ").replace("\r", " ") + "}\n"
            ):
                self._spool({**wire, "payload": payload}, door.capture if door else {})
        if asked is not None:
            self._print_briefing(asked, str(name_of(payload, self.options.event)))

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

    def _deliver(self, line: str) -> bool:
        """Whether the daemon has taken the event in: its acknowledgement means that the journal is on disk."""
        if self.options.spool:
            return False
        try:
            sock = self._connect(self.events_socket, ACK_MS)
            send(sock, line.encode("utf-8", "surrogatepass"), self, ACK_MS)
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
            send(sock, (_object(request) + "\n").encode(), self, ACK_MS)
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

    # -- the spool

    def _spool(self, wire: Json, capture: Json) -> None:
        from recalld.clients.hooking import spooling

        wanted = capture.get("spool_max_mb")
        max_mb = wanted if isinstance(wanted, int) and wanted > 0 else SPOOL_MB
        spooling.spool(f"{self.data}/spool", wire, capture, sent_ms=self.sent_ms, max_mb=max_mb)


def shaped(host: str, event: str, text: str) -> str:
    """A briefing as ``host`` wants it on stdout."""
    if host == "cursor":
        return _object({"additional_context": text})
    if host in ("claude", "codex", "gemini", "vscode"):
        return '{"hookSpecificOutput":' + _object({"hookEventName": "SessionStart", "additionalContext": text}) + "}"
    return _object({"additionalContext": text})


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


def read_stdin(limit_s: float, limit_bytes: int) -> bytes:
    """
    stdin to its end, or what came within ``limit_s``: some hosts never close it. Empty when there is more than
    ``limit_bytes``.
    """
    import select

    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + limit_s
    parts: list[bytes] = []
    size = 0
    while True:
        ready = poll.poll(max(0, (deadline - time.monotonic()) * 1000))
        if not ready:
            break
        part = os.read(0, 1 << 20)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > limit_bytes:
            return b""
    return b"".join(parts)


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


def _object(fields: Json) -> str:
    """A flat JSON object of texts, numbers and truth values."""
    parts = []
    for key, value in fields.items():
        if isinstance(value, bool):
            shown = "true" if value else "false"
        else:
            shown = str(value) if isinstance(value, int) else plainjson.quoted(value)
        parts.append(f"{plainjson.quoted(key)}:{shown}")
    return "{" + ",".join(parts) + "}"


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
        hook = Hook(Options(sys.argv[1:] if argv is None else argv), os.environ)
        arm(hook.left_s(LIMIT_MS))
        hook.run()
    except BaseException as error:
        if os.environ.get("RECALLD_DEBUG"):
            os.write(2, f"recalld-hook: {type(error).__name__}: {error}\n".encode())
    os._exit(0)
