"""What a service manager is told and gives: readiness, watchdog, inherited sockets. Errors are ignored: it is optional."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

FIRST_FD = 3
ACTIVATED = ("control", "events", "query", "mcp")
"""Sockets through which a client may start the daemon."""


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
    """Listening sockets that the service manager opened, by the name of their file without ``.sock``; empty without one."""
    found: dict[str, socket.socket] = {}
    for descriptor in [*_from_systemd(), *_from_launchd()]:
        listener = socket.socket(fileno=descriptor)
        os.set_inheritable(descriptor, False)
        listener.setblocking(False)
        found[Path(os.fsdecode(listener.getsockname())).stem] = listener
    return found


def _from_systemd() -> list[int]:
    """sd_listen_fds(3). The variables are removed: children must not take them for theirs."""
    mine = os.environ.get("LISTEN_PID") == str(os.getpid())
    count = os.environ.get("LISTEN_FDS", "0")
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(variable, None)
    return list(range(FIRST_FD, FIRST_FD + int(count))) if mine and count.isdigit() else []


def _from_launchd() -> list[int]:
    """launch_activate_socket(3), for the names that our plist declares."""
    if sys.platform != "darwin" or os.environ.get("RECALLD_UNDER") != "launchd":
        return []
    import ctypes

    library = ctypes.CDLL("/usr/lib/libSystem.dylib")
    descriptors: list[int] = []
    for name in ACTIVATED:
        array, count = ctypes.POINTER(ctypes.c_int)(), ctypes.c_size_t()
        if library.launch_activate_socket(name.encode(), ctypes.byref(array), ctypes.byref(count)) == 0:
            descriptors += [array[index] for index in range(count.value)]
            library.free(array)
    return descriptors
