"""
File events of Linux without a polling thread: one descriptor that the event loop waits on, one watch per folder.

Folders are added by the scan that lists them, before it lists them, so that nothing between the two is missed, ignored
folders cost no watches, and symbolic links to folders are not followed. (watchfiles, used elsewhere, looks every few
milliseconds, follows such links and watches everything below the root.)
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable

IN_ATTRIB, IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO = 0x4, 0x8, 0x40, 0x80
IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF = 0x100, 0x200, 0x400, 0x800
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
IN_ONLYDIR, IN_DONT_FOLLOW = 0x1000000, 0x2000000
MASK = (
    IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
    | IN_ONLYDIR | IN_DONT_FOLLOW
)  # fmt: skip
"""Changes only: opening and reading raise nothing, so that a scan does not set off the next one."""
_HEADER = struct.Struct("iIII")
READ_BYTES = 1 << 18


class Inotify:
    """
    Watches folders below ``root``. ``sink`` gets a relative path for each change, '' when events were lost.

    Raises OSError when the kernel gives no descriptor. ``add`` may be called from another thread.
    """

    def __init__(self, root: str, sink: Callable[[str], None]) -> None:
        self._root = root
        self._sink = sink
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders: dict[int, str] = {}  # watch descriptor -> folder, relative to the root
        self.problem = ""
        """Why some folders are not watched, '' when all are."""

    @property
    def folders(self) -> int:
        return len(self._folders)

    def fileno(self) -> int:
        return self._fd

    def add(self, folder: str, place: str) -> None:
        """Watch ``folder``, which is at ``place``; again is fine. A folder that is gone is not an error."""
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(place), MASK)
        if watch >= 0:
            self._folders[watch] = folder
            return
        number = ctypes.get_errno()
        if number == errno.ENOSPC:
            self.problem = "too many folders for fs.inotify.max_user_watches: some changes are seen by sweeps only"
        elif number not in {errno.ENOENT, errno.ENOTDIR}:
            self.problem = f"{folder or self._root}: {os.strerror(number)}"

    def receive(self) -> None:
        """Hand every waiting event to the sink. Called when the descriptor is readable."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _cookie, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            name = data[at : at + length].rstrip(b"\0")
            at += length
            if mask & IN_Q_OVERFLOW:
                self._sink("")
            elif mask & IN_IGNORED:
                self._folders.pop(watch, None)
            elif (folder := self._folders.get(watch)) is not None:
                text = name.decode("utf-8", "backslashreplace")
                self._sink(f"{folder}/{text}" if folder and text else folder or text)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def available() -> bool:
    """Whether this system has inotify."""
    return sys.platform == "linux"
