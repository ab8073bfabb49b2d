"""What a service manager is told and gives: readiness, watchdog, inherited sockets. Errors are ignored: it is optional."""

from __future__ import annotations

import os
import socket

FIRST_FD = 3


class ServiceManager:
    """systemd's notification protocol (sd_notify(3)); without NOTIFY_SOCKET every call does nothing."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        watchdog_us = os.environ.pop("WATCHDOG_USEC", "")
        watchdog_pid = os.environ.pop("WATCHDOG_PID", "")
        mine = watchdog_pid in ("", str(os.getpid()))
        self.watchdog_s = int(watchdog_us) / 1e6 if watchdog_us.isdigit() and mine else 0.0
        """Seconds within which ``alive`` must be called; 0 = no watchdog."""

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.connect(address)
                out.send(message.encode())
        except OSError:
            pass

    def ready(self, status: str) -> None:
        self._notify(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def status(self, status: str) -> None:
        self._notify(f"STATUS={status}")

    def alive(self) -> None:
        self._notify("WATCHDOG=1")

    def stopping(self) -> None:
        self._notify("STOPPING=1")


def inherited_sockets() -> dict[str, socket.socket]:
    """Listening sockets from socket activation, by FileDescriptorName; empty without it."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = int(os.environ.get("LISTEN_FDS", "0") or "0")
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(variable, None)
    found: dict[str, socket.socket] = {}
    for index in range(count):
        listener = socket.socket(fileno=FIRST_FD + index)
        os.set_inheritable(listener.fileno(), False)
        listener.setblocking(False)
        found[names[index] if index < len(names) else str(index)] = listener
    return found
