"""File steps that survive a power cut, and what a disk's errors mean to a person. Blocking: call them in a thread."""

from __future__ import annotations

import errno
import os
from pathlib import Path

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
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names in ``folder`` durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def in_words(error: OSError) -> str:
    """What ``error`` means for the data folder and what to do about it."""
    if error.errno in FULL:
        return "the disk is full: free some space; nothing was stored"
    if error.errno in FORBIDDEN:
        return f"the data folder cannot be written ({error.strerror}): check its permissions"
    return f"the data folder's disk reports: {error.strerror or error}"
