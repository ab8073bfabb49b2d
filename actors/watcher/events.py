"""
Where hints about changes come from: inotify on Linux, watchfiles elsewhere, or nothing (then sweeps do it alone).

A watch only says where to look. It may lose events, name paths that are gone, end, or not exist for a file system: the
sweep is the authority. This is the only module that imports watchfiles.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, Protocol

import anyio
from watchfiles import DefaultFilter, awatch

from .inotify import Inotify
from .inotify import available as inotify_available

NO_REMOTE_EVENTS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "vboxsf", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "ceph", "afs",
     "prl_fs", "fuse.vmhgfs-fuse", "fuse.glusterfs", "drvfs", "davfs", "fuse.davfs2", "virtiofs", "fuse.gvfsd-fuse")
)  # fmt: skip
"""File systems whose changes from another machine raise no event here."""
RUST_TIMEOUT_MS = 3_600_000
"""watchfiles comes back to Python this often for nothing; its stop event does not wait for it."""
STANDS_AFTER_S = 1.0
REARM_MIN_S, REARM_MAX_S = 0.5, 60.0

Mode = Literal["native", "poll", "off"]
Sink = Callable[[str], None]

log = logging.getLogger("recalld.watcher")


class Watch(Protocol):
    """Hints about one root. ``problem`` says in words what it cannot see, '' when nothing."""

    @property
    def problem(self) -> str: ...

    def enter(self, folder: str, place: str) -> None:
        """A folder is about to be listed. Called from a worker thread."""
        ...

    async def run(self) -> None:
        """Feed the sink until cancelled, or raise OSError or RuntimeError."""
        ...


class InotifyWatch:
    """Linux. Wakes up when something happens and not before."""

    def __init__(self, root: str, sink: Sink) -> None:
        self._inotify = Inotify(root, sink)

    @property
    def problem(self) -> str:
        return self._inotify.problem

    def enter(self, folder: str, place: str) -> None:
        self._inotify.add(folder, place)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._inotify.fileno(), self._inotify.receive)
        try:
            await anyio.sleep_forever()
        finally:
            loop.remove_reader(self._inotify.fileno())
            self._inotify.close()


class WatchfilesWatch:
    """FSEvents and the like, through watchfiles: everything below the root, looked for every ``step_ms``."""

    problem = ""

    def __init__(self, root: str, sink: Sink, step_ms: int) -> None:
        self._root = root
        self._sink = sink
        self._step_ms = step_ms

    def enter(self, folder: str, place: str) -> None:
        """Nothing to do: the whole tree is watched."""

    async def run(self) -> None:
        # A cancelled scope around awatch waits for its thread, which waits for events. So awatch is shielded, and ends
        # within a step once its own stop event is set.
        stop, ended = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(self._feed, stop, ended)
            try:
                # Nothing tells when the watch stands: what changed before that is found by one more look.
                with anyio.move_on_after(STANDS_AFTER_S):
                    await ended.wait()
                self._sink("")
                await ended.wait()
            finally:
                stop.set()

    async def _feed(self, stop: anyio.Event, ended: anyio.Event) -> None:
        with anyio.CancelScope(shield=True):
            async for batch in awatch(
                self._root,
                watch_filter=DefaultFilter(ignore_dirs=(".git",), ignore_entity_patterns=()),
                debounce=max(50, 2 * self._step_ms),
                step=self._step_ms,
                stop_event=stop,
                rust_timeout=RUST_TIMEOUT_MS,
                recursive=True,
                ignore_permission_denied=True,
            ):
                for _, place in batch:
                    self._sink(place.removeprefix(self._root).replace(os.sep, "/").strip("/"))
        ended.set()


def open_watch(root: str, mode: Mode, step_ms: int, sink: Sink, backend: str = "") -> Watch | None:
    """
    A watch on ``root``; None when ``mode`` asks for none or the file system would not tell.

    Raises OSError when the system refuses one. ``backend`` overrides the choice (tests).
    """
    if mode != "native":
        return None
    if backend == "watchfiles" or (not backend and not inotify_available()):
        return WatchfilesWatch(root, sink, step_ms)
    return InotifyWatch(root, sink)


def silent_file_system(root: str, mounts: Iterable[str] | None = None) -> str:
    """The type of the file system that ``root`` is on when it raises no events for remote changes, else ''."""
    best, kind = "", ""
    for line in _mounts() if mounts is None else mounts:
        fields = line.split(" ")
        if " - " not in line or len(fields) < 5:
            continue
        point = fields[4].replace("\\040", " ")
        if (root == point or root.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, line.partition(" - ")[2].split(" ")[0]
    return kind if kind in NO_REMOTE_EVENTS else ""


def _mounts() -> list[str]:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return []
