"""
Asking the service manager for the daemon, where recalld is installed as a service.

Standard library only and without waiting: the bridge's loop goes on while the daemon starts, and finds it at one of its next
attempts. What is not installed (`recalld service install`) is never started.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

EVERY_S = 60.0
"""A daemon that does not start is not asked for all the time: its manager has limits of its own, and says why in its log."""
LABEL = "dev.recalld.daemon"
UNIT = "recalld.service"
MORE_PATH = "/usr/bin:/bin"
"""Agents with a window are started with a poor PATH."""


class Starter:
    """Call it, with a monotonic time in seconds, whenever the daemon is found to be away."""

    def __init__(self, environ: Mapping[str, str], data: str) -> None:
        self._environ = environ
        self._data = data
        self._asked_at: float | None = None

    def __call__(self, now: float) -> None:
        if self._asked_at is not None and now - self._asked_at < EVERY_S:
            return
        self._asked_at = now
        command = self._command()
        if command:
            self._spawn(command)

    def _command(self) -> list[str]:
        """What starts the service; empty when none is installed for this data folder."""
        home = self._environ.get("HOME") or os.path.expanduser("~")
        if sys.platform == "darwin":
            path = f"{home}/Library/LaunchAgents/{LABEL}.plist"
            start = ["launchctl", "kickstart", f"gui/{os.getuid()}/{LABEL}"]
        else:
            config = self._environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
            path = f"{config}/systemd/user/{UNIT}"
            start = ["systemctl", "--user", "--no-block", "start", UNIT]
        try:
            with open(path, encoding="utf-8") as file:
                definition = file.read()
        except (OSError, ValueError):
            return []
        return start if self._serves_us(definition) else []

    def _serves_us(self, definition: str) -> bool:
        """Whether the service is that of our data folder: another one would not answer us."""
        if sys.platform == "darwin":
            escaped = self._data.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            return f"<string>{escaped}</string>" in definition
        for line in definition.splitlines():
            if line.startswith("ExecStart="):
                import shlex  # seldom needed

                words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.partition("=")[2])]
                return self._data in words
        return False

    def _spawn(self, command: list[str]) -> None:
        """Run it without waiting, with nothing of ours open: stdout is the wire."""
        # Nobody waits for the child: the system clears it away.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        environ = dict(self._environ)
        environ["PATH"] = f"{environ.get('PATH', '')}:{MORE_PATH}".lstrip(":")
        environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        program = next(
            (path for folder in environ["PATH"].split(":") if os.access(path := f"{folder}/{command[0]}", os.X_OK)),
            None,
        )
        if program is None:
            return
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        try:
            os.posix_spawn(program, command, environ, file_actions=nothing, setsigdef=[signal.SIGCHLD])
        except OSError:
            pass
