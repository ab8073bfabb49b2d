"""
What changed in a folder: known state against what was seen, as a plan. Pure; every source of changes goes through here.

Absence is proved, never assumed: what could not be read, a root that is gone, a disk that is not mounted and a mass
disappearance that nobody has confirmed remove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ...protocol.messages.common import FileStat
from .parse import parse_depends_on_path


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the index holds of one file."""

    stat: FileStat
    hash: bytes


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """
    One look at a folder.

    ``covers`` names the paths that were looked at, each with everything below it; None = all. A folder in ``unreadable``
    ends with '/'. Paths are relative to the root, POSIX.
    """

    files: dict[str, FileStat]
    covers: frozenset[str] | None = None
    unreadable: tuple[tuple[str, str], ...] = ()
    root_gone: str = ""
    """Why there is no root to look at, '' when there is one."""
    root_dev: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """
    What to do, in this order: move, read, drop.

    A file that is read may turn out to be unchanged (only its stat is stored) or to be one of ``drop`` under a new name:
    see ``match_moved``. ``vanished`` goes into the next sweep's ``vanished_before``.
    """

    read: tuple[str, ...] = ()
    touch: tuple[str, ...] = ()
    move: tuple[tuple[str, str], ...] = ()
    drop: tuple[str, ...] = ()
    vanished: frozenset[str] = frozenset()
    suspended: str = ""

    @property
    def empty(self) -> bool:
        return not (self.read or self.touch or self.move or self.drop)


class Breaker(msgspec.Struct, frozen=True):
    """More than ``fraction`` of all files and more than ``minimum`` vanishing at once is not believed the first time."""

    fraction: float = 0.5
    minimum: int = 20


def diff(
    known: Mapping[str, Known],
    seen: Scan,
    *,
    breaker: Breaker,
    vanished_before: frozenset[str] = frozenset(),
    doubtful: Iterable[str] = (),
) -> Plan:
    """
    The plan that brings ``known`` to ``seen``.

    ``vanished_before``: what the previous sweep missed and held back. ``doubtful`` files are read whatever their stat
    says: they changed within the file system's clock tick of being read.
    """
    if seen.root_gone:
        return Plan(suspended=f"{seen.root_gone}: nothing is removed")
    if known and not seen.files and seen.covers is None and seen.root_dev:
        devices = {entry.stat.dev for entry in known.values()}
        if seen.root_dev not in devices:
            return Plan(suspended="the folder is empty and on another device (not mounted?): nothing is removed")

    read: list[str] = []
    touch: list[str] = []
    appeared: list[str] = []
    doubted = frozenset(doubtful)
    for path, stat in seen.files.items():
        entry = known.get(path)
        if entry is None:
            appeared.append(path)
        elif path in doubted:
            read.append(path)
        elif entry.stat != stat:
            # Device numbers change with mounts and reboots; the rest of the stat does not, by accident.
            (touch if _same_file(entry.stat, stat) else read).append(path)

    vanished = _vanished(known, seen)
    renames, read_new = _renamed(known, seen, appeared, vanished)
    move = tuple((old, new) for old, new in renames if not parse_depends_on_path(old, new))
    # A rename that makes another note of the same bytes: read under the new name, and certain to be gone from the old.
    certain = {old for old, new in renames if parse_depends_on_path(old, new)}
    read += [new for old, new in renames if old in certain] + read_new
    gone = vanished.difference(old for old, _ in renames)
    if len(gone) > breaker.minimum and len(gone) > breaker.fraction * len(known) and not gone <= vanished_before:
        return Plan(
            read=tuple(read),
            touch=tuple(touch),
            move=move,
            drop=tuple(sorted(certain)),
            vanished=frozenset(gone),
            suspended=f"{len(gone)} of {len(known)} files vanished: waiting for a second sweep",
        )
    return Plan(read=tuple(read), touch=tuple(touch), move=move, drop=tuple(sorted(gone | certain)))


def match_moved(known: Mapping[str, Known], drop: Iterable[str], read: Mapping[str, bytes]) -> dict[str, str]:
    """
    New path -> old path for files that were read and have the bytes of a file that is to be dropped.

    ``read`` maps the paths that the index does not know to their hashes. Each old path is used once; empty files are
    all alike and are not matched.
    """
    by_hash: dict[bytes, list[str]] = {}
    for old in drop:
        if known[old].stat.size:
            by_hash.setdefault(known[old].hash, []).append(old)
    moves = {}
    for new, digest in read.items():
        candidates = [old for old in by_hash.get(digest, ()) if not parse_depends_on_path(old, new)]
        if candidates:
            name = new.rpartition("/")[2]
            old = next((each for each in candidates if each.rpartition("/")[2] == name), candidates[0])
            by_hash[digest].remove(old)
            moves[new] = old
    return moves


def _same_file(one: FileStat, other: FileStat) -> bool:
    return (one.inode, one.size, one.mtime_ns) == (other.inode, other.size, other.mtime_ns)


def _vanished(known: Mapping[str, Known], seen: Scan) -> set[str]:
    """Known paths that were looked for and are not there; nothing below a folder that could not be read."""
    vanished = known.keys() - seen.files.keys()
    if seen.covers is not None and "" not in seen.covers:
        vanished = {path for path in vanished if _covered(path, seen.covers)}
    if not vanished or not seen.unreadable:
        return vanished
    files = {path for path, _ in seen.unreadable if not path.endswith("/")}
    folders = tuple(path for path, _ in seen.unreadable if path.endswith("/"))
    return {path for path in vanished if path not in files and not (folders and path.startswith(folders))}


def _covered(path: str, covers: frozenset[str]) -> bool:
    """Whether ``path`` or a folder it is in was looked at."""
    while path:
        if path in covers:
            return True
        path = path.rpartition("/")[0]
    return False


def _renamed(
    known: Mapping[str, Known], seen: Scan, appeared: list[str], vanished: set[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """``(old, new)`` of files with the same inode, size and time under another name; and the other new paths."""
    by_stat: dict[tuple[int, int, int, int], list[str]] = {}
    for path in vanished:
        stat = known[path].stat
        by_stat.setdefault((stat.dev, stat.inode, stat.size, stat.mtime_ns), []).append(path)
    renames, new = [], []
    for path in appeared:
        stat = seen.files[path]
        candidates = by_stat.get((stat.dev, stat.inode, stat.size, stat.mtime_ns))
        if candidates:
            renames.append((candidates.pop(), path))
        else:
            new.append(path)
    return renames, new
