"""File steps that survive a power cut, and what a disk's errors mean to a person. Blocking: call them in a thread."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

import anyio

from ...protocol.envelope import Unavailable

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` as ``path`` (0600), so that a crash leaves either the old or the new bytes. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(fd)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """
    Make ``folder`` (0700) where it is missing, with those above it, so that a power cut does not take it away with all that
    was synced inside. Raises OSError.
    """
    missing = [folder]
    while not missing[-1].parent.is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        try:
            each.mkdir(mode=0o700)
        except FileExistsError:
            if not each.is_dir():
                raise
        else:
            sync(each.parent)


def in_words(error: OSError) -> str:
    """What ``error`` means for the data folder and what to do about it."""
    if error.errno in FULL:
        return "the disk is full: free some space; nothing was stored"
    if error.errno in FORBIDDEN:
        return f"the data folder cannot be written ({error.strerror}): check its permissions"
    return f"the data folder's disk reports: {error.strerror or error}"


class OnlyOne:
    """
    A lock on the data folder: a writer that outlived its supervisor blocks its successor, and never writes beside it.

    It is on the folder itself, so that it can be had on a full or read-only disk. The kernel releases it with the
    process, however that ends.
    """

    WAIT_S = 10.0
    """Longer than a stopping writer takes to finish."""
    POLL_S = 0.02

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1

    async def acquire(self) -> None:
        """Wait for the lock. Raises Unavailable when another process keeps it, OSError when there can be no folder."""
        make_folder(self._folder)
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        deadline = time.monotonic() + self.WAIT_S
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self.release()
                    raise Unavailable(f"another writer holds {self._folder}: end it first") from None
                await anyio.sleep(self.POLL_S)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
