"""
The process that packs the wiki's history: ``python -m recalld.actors.writer.wiki.packing <.git>``; prints a Packed.

Each commit leaves some files of 4 KB; git itself packs them only when a person runs git here. Packing takes memory and
Python's lock, so it has a process of its own, which may be killed at any moment: a loose object is removed only once a
synced pack holds it, which is also what makes it safe beside git (it is what ``git prune-packed`` does). Every loose object
goes in, reachable or not: which of them somebody is about to refer to cannot be known. One that is damaged stays the file
that it is, for a person to look at: it may be the only copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pygit2

from ..disk import sync
from . import loose
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
LIMIT_S = 600.0
"""A process that runs for longer is stuck: commits wait for it."""
NAMED = 3
"""Damaged objects that are named; of the others, their number."""
REASON_CHARS = 300


class Packed(msgspec.Struct, frozen=True):
    """What came of packing."""

    objects: int = 0
    """How many were packed and removed as files."""
    damaged: dict[str, str] = {}
    """Objects that are left as they are, each with what is wrong with it."""


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
        self.problem = ""
        """Why not everything was packed the last time, and what to do; '' when it was."""

    def due(self) -> bool:
        """Whether there is something to pack; once in AGAIN_S, whatever came of it."""
        if time.monotonic() < self._again or not many(self._git):
            return False
        self._again = time.monotonic() + AGAIN_S
        return True

    def run(self, repository: Repository) -> int:
        """
        How many objects were packed. What goes wrong leaves everything as it was; it is logged once for as long as it goes
        wrong in the same way.
        """
        try:
            packed, problem = self._outcome()
        except (OSError, msgspec.MsgspecError) as error:
            packed, problem = None, f"its process does not work: {error}"
        if self._closed:
            return 0
        before = self.problem
        if problem:
            self.problem = f"the wiki's history was not packed: {problem}; run `git fsck` in {self._git.parent}"
        elif packed is not None:
            self.problem = damage_in_words(packed.damaged, self._git / "objects")
        if self.problem and self.problem != before:
            log.warning(self.problem)
        if packed is None or not packed.objects:
            return 0
        with repository.lock:
            repository.reopen()
        return packed.objects

    def _outcome(self) -> tuple[Packed | None, str]:
        """What the process did, and why it failed. (None, ''): it left the work to somebody else who is at it."""
        with start(self._git) as process:
            self._process = process
            if self._closed:
                process.kill()
            try:
                told, why = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return None, f"the process did not end within {LIMIT_S:.0f} s"
        if process.returncode:
            lines = why.decode(errors="replace").strip().splitlines()
            return None, lines[-1][:REASON_CHARS] if lines else f"the process ended with {process.returncode}"
        return msgspec.json.decode(told, type=Packed | None), ""

    def close(self) -> None:
        """No more of it: a process that runs is killed."""
        self._closed = True
        if self._process is not None:
            self._process.kill()


def start(git: Path) -> subprocess.Popen[bytes]:
    """The process that packs ``git``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(git)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
    )  # fmt: skip


def damage_in_words(damaged: Mapping[str, str], objects: Path) -> str:
    """What a person should know of the objects that are ``damaged``; '' for none."""
    if not damaged:
        return ""
    named = ", ".join(f"{name[:2]}/{name[2:]} ({why})" for name, why in sorted(damaged.items())[:NAMED])
    more = f" and {len(damaged) - NAMED} more" if len(damaged) > NAMED else ""
    return (
        f"damaged objects in the wiki's history stay unpacked in {objects}: {named}{more}; put back the files from a copy of"
        " the folder, then `recalld compact`; without one, an old version of a page may be lost; all else is packed"
    )


def pack(git: Path) -> Packed | None:
    """
    Put loose objects into one pack and remove them as files, but for the damaged ones. Nothing is packed when they are too
    few; None when another process does as much. Raises pygit2.GitError, KeyError or OSError when the pack cannot be written
    or another one cannot be read: then every object is still where it was.
    """
    with alone(git, wait=False) as ours:
        if not ours or (git / "gc.pid").exists():
            return None
        objects = git / "objects"
        _remove_stale(objects / "pack")
        files = dict(loose.find(objects))
        damaged = {name: why for name, path in files.items() if (why := loose.damage(name, path)) and path.exists()}
        sound = {name: path for name, path in files.items() if name not in damaged}
        if len(sound) < FEW:
            return Packed(damaged=damaged)
        packer = pygit2.PackBuilder(pygit2.Repository(str(git)))
        for name in sound:
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
        for name, path in sound.items():
            if pygit2.Oid(hex=name) in packed:
                path.unlink(missing_ok=True)
                removed += 1
        return Packed(removed, damaged)


def _remove_stale(folder: Path) -> None:
    """Half a pack, of a process like this one that was killed."""
    for path in folder.glob(HALF):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(NICE)
    sys.stdout.write(msgspec.json.encode(pack(Path(sys.argv[1]))).decode())
