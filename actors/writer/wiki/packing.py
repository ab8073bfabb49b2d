"""
The process that packs the wiki's history: ``python -m recalld.actors.writer.wiki.packing <.git>``; prints how many objects.

Each commit leaves some files of 4 KB; git itself packs them only when a person runs git here. Packing takes memory and
Python's lock, so it has a process of its own, which may be killed at any moment: a loose object is removed only once a
synced pack holds it, which is also what makes it safe beside git (it is what ``git prune-packed`` does). Every loose object
goes in, reachable or not: which of them somebody is about to refer to cannot be known.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pygit2

from ..disk import sync
from .repository import Repository

log = logging.getLogger("recalld.writer")

MANY = 4096
"""Loose objects that are worth a pack by themselves: 16 MB of files, some eight hundred commits."""
FEW = 64
"""With fewer there is nothing to win, also when asked to."""
AGAIN_S = 3600.0
"""Between two packings that nobody asked for."""
SAMPLE = "17"
"""The folder that is counted to tell how many there are, as git does: names are evenly spread over 256 folders."""
NICE = 10
STALE_S = 86_400.0
"""A half-written pack of this age belongs to nobody."""
LOCK = "recalld.pack.lock"
HALF = "pack_git2_*"
"""What libgit2 calls a pack that it has not finished."""

_FOLDER = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}")


def many(git: Path) -> bool:
    """Whether the loose objects of a repository (its ``.git``) are worth packing by now. One listing."""
    try:
        return len(os.listdir(git / "objects" / SAMPLE)) * 256 >= MANY
    except OSError:
        return False


@contextlib.contextmanager
def alone(git: Path, *, wait: bool) -> Iterator[bool]:
    """Keep packing and purging apart: a pack of what is being purged would bring it back. False: somebody else is at it."""
    fd = os.open(git / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


class Packer:
    """Packs one repository in a process of its own. ``run`` blocks; ``close`` may come from another thread."""

    def __init__(self, git: Path) -> None:
        self._git = git
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._again = 0.0

    def due(self) -> bool:
        """Whether there is something to pack; once in AGAIN_S, whatever came of it."""
        if time.monotonic() < self._again or not many(self._git):
            return False
        self._again = time.monotonic() + AGAIN_S
        return True

    def run(self, repository: Repository) -> int:
        """How many objects were packed. What goes wrong leaves everything as it was, with a line in the log."""
        with start(self._git) as process:
            self._process = process
            if self._closed:
                process.kill()
            told = process.communicate()[0]
        if process.returncode:
            if not self._closed:
                log.warning("the wiki's history was not packed: the process ended with %d", process.returncode)
            return 0
        with repository.lock:
            repository.reopen()
        return int(told)

    def close(self) -> None:
        """No more of it: a process that runs is killed."""
        self._closed = True
        if self._process is not None:
            self._process.kill()


def start(git: Path) -> subprocess.Popen[bytes]:
    """The process that packs ``git``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(git)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip


def pack(git: Path) -> int:
    """
    Put loose objects into one pack and remove them as files; how many they were. 0 when they are too few, or when another
    process does as much. Raises pygit2.GitError, KeyError or OSError when one cannot be read or the pack cannot be written:
    then every object is still where it was.
    """
    with alone(git, wait=False) as ours:
        if not ours or (git / "gc.pid").exists():
            return 0
        objects = git / "objects"
        _remove_stale(objects / "pack")
        loose = dict(_loose(objects))
        if len(loose) < FEW:
            return 0
        packer = pygit2.PackBuilder(pygit2.Repository(str(git)))
        for name in loose:
            packer.add(pygit2.Oid(hex=name))
        packer.write()
        # All of them: the same objects make the same pack, which an earlier attempt may have left unsynced.
        for path in (objects / "pack").glob("pack-*"):
            sync(path)
        sync(objects / "pack")
        # What counts is what can be read from packs alone.
        packed = pygit2.Odb()
        packed.add_backend(pygit2.OdbBackendPack(str(objects)), 1)
        removed = 0
        for name, path in loose.items():
            if pygit2.Oid(hex=name) in packed:
                path.unlink(missing_ok=True)
                removed += 1
        return removed


def _loose(objects: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted(os.listdir(objects)):
        if _FOLDER.fullmatch(folder):
            for name in sorted(os.listdir(objects / folder)):
                if _REST.fullmatch(name):
                    yield folder + name, objects / folder / name


def _remove_stale(folder: Path) -> None:
    """Half a pack, of a process like this one that was killed."""
    for path in folder.glob(HALF):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(NICE)
    sys.stdout.write(f"{pack(Path(sys.argv[1]))}\n")
