"""
The stdio bridge: what an agent's MCP client starts, and what outlives the daemon for it.

MCP clients do not start a server again that has died, so this process stays while the daemon comes and goes. It carries
lines between stdin/stdout and ``mcp.sock``, remembers what is unanswered, and

- answers what does not depend on data (initialize, lists, ping) from the packaged manifest while the daemon is away,
- reconnects with growing pauses, repeats the handshake in private and sends everything unanswered again,
- asks the service manager for the daemon, where recalld is installed as a service,
- past its grace answers a call with a well-formed degraded result, and drops the daemon's own answer if it still comes,
- takes the events of hosts that call a tool as a hook, and keeps them whether or not there is a daemon (``bridge/post``).

Standard library only, one poll loop, so that it starts in a few hundredths of a second and needs few megabytes:
``python -I -S mcp_bridge.py``. This file is small because a program's own file is compiled at each start, and the parts in
``bridge/`` are not. The daemon's side of it is ``actors/query/mcp/session.py``.
"""

from __future__ import annotations

import os
import signal
import sys

if not __package__:  # run as a file, in a Python that knows of no packages: make our root importable as ``recalld``
    _package = type(sys)("recalld")
    _package.__path__ = [__file__.rsplit("/", 2)[0] if __file__.count("/") > 1 else ".."]
    sys.modules["recalld"] = _package

from recalld.clients.bridge.answers import Manifest
from recalld.clients.bridge.loop import GRACE_MS, Bridge
from recalld.clients.bridge.paths import data_folder, socket_path
from recalld.clients.bridge.post import Post
from recalld.clients.bridge.service import Starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Json = dict[str, Any]

HOSTS = {"CLAUDECODE": "claude", "GEMINI_CLI": "gemini", "OPENCODE": "opencode"}
SESSIONS = {"claude": "CLAUDE_CODE_SESSION_ID", "gemini": "GEMINI_SESSION_ID"}


def first_line(environ: Mapping[str, str]) -> Json:
    """Who we are, for the daemon. ``key`` and a request's id together are one call, however often it is sent."""
    host = next((name for variable, name in HOSTS.items() if environ.get(variable)), "")
    try:
        cwd = environ.get("CLAUDE_PROJECT_DIR") or environ.get("GEMINI_PROJECT_DIR") or os.getcwd()
    except OSError:
        cwd = ""
    return {
        "recalld": 1,
        "role": "mcp",
        "key": os.urandom(8).hex(),
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "cwd": cwd,
        "host": host,
        "session": environ.get(SESSIONS.get(host, ""), ""),
    }


def claim_stdio() -> tuple[int, int]:
    """
    (stdin, stdout) for us alone. Whatever else writes to descriptor 1 or ``sys.stdout``, a library or a stray print, goes
    to stderr from here on: stdout is the wire.
    """
    stdin, stdout = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)
    os.close(nothing)
    sys.stdout = sys.stderr
    return stdin, stdout


def main(argv: list[str] | None = None) -> int:
    """``recalld-mcp [--data DIR] [--runtime DIR]``: serve until the client goes."""
    options = {"--data": "", "--runtime": ""}
    words = list(sys.argv[1:] if argv is None else argv)
    while words:
        name, _, value = words.pop(0).partition("=")
        if name not in options:
            sys.stderr.write(f"recalld-mcp: unknown option '{name}'. It speaks MCP on stdin and stdout for an agent; "
                             "options: --data DIR, --runtime DIR\n")  # fmt: skip
            return 2
        options[name] = value or (words.pop(0) if words else "")
    # Clients end a server with SIGINT first: go at once, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    grace = os.environ.get("RECALLD_GRACE_MS", "")
    stdin, stdout = claim_stdio()
    path = socket_path(os.environ, options["--data"], options["--runtime"])
    data = data_folder(os.environ, options["--data"])
    who = first_line(os.environ)
    bridge = Bridge(
        path,
        Manifest.packaged(),
        who,
        Post(path[: -len("mcp.sock")] + "events.sock", data, os.environ, who),
        stdin=stdin,
        stdout=stdout,
        grace_ms=int(grace) if grace.isdecimal() else GRACE_MS,
        on_away=Starter(os.environ, data),
    )
    return bridge.run()


if __name__ == "__main__":
    sys.exit(main())
