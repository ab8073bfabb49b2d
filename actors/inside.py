"""
Opening files below a root without ever leaving it. Blocking; for a worker thread.

A check of the path and a later open by the same path are two looks at the disk, and whoever may write there can swap a
folder for a link between them. So every folder on the way is opened by its own name from the folder above, not following
links: what is opened is what was checked.

A hard link to a file elsewhere is that file: nothing about it tells where else it has names. Whoever can make one could
read the file anyway (Linux protects against others by ``fs.protected_hardlinks``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes

LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Opens a folder as a place to open from; with O_PATH that needs no right to list it."""
SYNC = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Without waiting: opening a named pipe would last until somebody writes."""


class Outside(FileNotFoundError):
    """Raised when a path leads through a link, or out of the root by '..'. For a reader there is nothing there."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOENT, "leads out of its folder", path)


def open_folder(root: str, folder: str, *, sync: bool = False, make: bool = False) -> int:
    """
    A descriptor of ``folder``, a path below ``root`` ('' = the root itself). The root may be a link; nothing below it may.

    With ``sync`` the descriptor can be synced; with ``make`` that too, and folders that are missing are made, durably and
    private. Raises Outside, FileNotFoundError, NotADirectoryError and other OSErrors.
    """
    flags = SYNC if sync or make else LOOK
    fd = os.open(root, flags)
    for part in folder.split("/") if folder else ():
        above = fd
        try:
            if part in ("", ".", ".."):
                raise Outside(folder)
            if make:
                _make(part, above)
            fd = os.open(part, flags | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            raise _outside(error, part, above, folder) from None
        finally:
            os.close(above)
    return fd


def open_file(root: str, path: str, *, links: bool = False) -> int:
    """
    A descriptor for reading ``path``, a path below ``root``; it may be of any kind of file but a link.

    With ``links`` a link, or a path through one, is taken for what it leads to, if that is inside the root. Raises Outside,
    and every OSError that opening raises.
    """
    try:
        return _open(root, path)
    except Outside:
        if not links:
            raise
    # The target may be swapped again while we look: it is opened by the same rule.
    real_root = os.path.realpath(root)
    real = os.path.realpath(os.path.join(real_root, path))
    prefix = real_root.rstrip("/") + "/"
    if not real.startswith(prefix):
        raise Outside(path)
    return _open(real_root, real[len(prefix) :])


def read_file(root: str, path: str, limit: int, *, links: bool = False) -> bytes | None:
    """The bytes of a regular file, None for one of another kind or of more than ``limit`` bytes. Raises as ``open_file``."""
    with os.fdopen(open_file(root, path, links=links), "rb") as stream:
        if not modes.S_ISREG(os.fstat(stream.fileno()).st_mode):
            return None
        data = stream.read(limit + 1)
    return data if len(data) <= limit else None


def _open(root: str, path: str) -> int:
    folder, _, name = path.rpartition("/")
    above = open_folder(root, folder)
    try:
        if name in ("", ".", ".."):
            raise Outside(path)
        return os.open(name, READ, dir_fd=above)
    except OSError as error:
        raise _outside(error, name, above, path) from None
    finally:
        os.close(above)


def _make(name: str, above: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=above)
    except FileExistsError:
        return
    os.fsync(above)


def _outside(error: OSError, name: str, above: int, path: str) -> OSError:
    """Systems say ELOOP or ENOTDIR (and some EMLINK) of a link that is not followed; ENOTDIR is also said of a file."""
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return Outside(path)
    if error.errno == errno.ENOTDIR:
        with contextlib.suppress(OSError):
            if modes.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                return Outside(path)
    return error
