"""
Looking at a folder and reading files, as blocking functions for a worker thread.

Nothing outside the root is ever read: symbolic links to folders are not followed, those to files only when they end inside
the root. Only regular files are opened, and without waiting (O_NONBLOCK): a named pipe called ``x.md`` is no note.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat as modes
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from ...memory.notes.ignore import FILES as IGNORE_FILES
from ...memory.notes.ignore import Rules
from ...memory.notes.parse import is_note
from ...memory.notes.tree import Scan
from ...protocol.messages.common import FileStat
from .. import inside

SF_DATALESS = 0x40000000
"""st_flags on macOS: the file's bytes are in the cloud only, and opening it would wait for them."""
RACY_NS = 20_000_000
"""A file that changed this shortly before it was read may change again within the same clock tick of its file system."""
INLINE_BYTES = 4096
"""Smaller files may be kept in the inode: having no blocks says nothing about them."""
MAX_UNREADABLE = 200
IGNORE_FILE_BYTES = 1_000_000


class Content(msgspec.Struct, frozen=True):
    """A file as it was read: ``stat`` and ``raw`` belong together. ``racy``: look again, the clock may be too coarse."""

    path: str
    stat: FileStat
    raw: bytes
    hash: bytes
    racy: bool


class Unreadable(Exception):
    """Raised when a file is there and cannot be read; the text says why."""


class Scanner:
    """Looks at one root. One thread at a time; answers of ignore rules are kept between looks."""

    def __init__(
        self, root: str, ignore: Iterable[str], max_bytes: int, enter: Callable[[str], None] | None = None
    ) -> None:
        """``enter(folder)`` is called before a folder is listed, so that a watch on it can miss nothing."""
        self.root = os.path.realpath(root)
        self._base = Rules(ignore)
        self._max_bytes = max_bytes
        self._enter = enter or (lambda folder: None)
        self._rules: dict[str, tuple[tuple[int, ...], Rules]] = {}
        self._names: dict[str, str] = {}  # path as text -> path as the system has it, where they differ
        self._blocks_reported = False

    def all(self) -> Scan:
        """Everything below the root."""
        return self._look(None, [""])

    def some(self, paths: Iterable[str]) -> Scan:
        """These paths and what is below them; '' is the root."""
        covers = frozenset(paths)
        return self.all() if "" in covers else self._look(covers, sorted(covers))

    def _look(self, covers: frozenset[str] | None, paths: Iterable[str]) -> Scan:
        look = _Look()
        try:
            root_stat = os.stat(self.root)
        except OSError as error:
            gone = "the folder is gone" if error.errno == errno.ENOENT else f"the folder cannot be read ({_why(error)})"
            return Scan(files={}, covers=covers, root_gone=gone)
        if not modes.S_ISDIR(root_stat.st_mode):
            return Scan(files={}, covers=covers, root_gone="the root is not a folder")
        for path in paths:
            self._visit(path, look)
        if look.root_problem:
            return Scan(files={}, covers=covers, root_gone=look.root_problem)
        self._settle_dataless(look)
        return Scan(
            files=look.files,
            covers=covers,
            unreadable=tuple(look.unreadable.items()),
            root_dev=root_stat.st_dev,
        )

    def _visit(self, path: str, look: _Look) -> None:
        """One path that may have changed: ignored, gone, a file, or a folder with all below it."""
        rules = self._base
        parts = path.split("/") if path else []
        folder = ""
        for part in parts:
            rules = self._rules_of(folder, rules)
            folder = f"{folder}/{part}" if folder else part
            place = self._place(folder)
            try:
                info = os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError as error:
                look.add_unreadable(path, _why(error))
                look.add_unreadable(f"{path}/", _why(error))
                return
            is_folder = modes.S_ISDIR(info.st_mode)
            if rules.ignores(folder, folder=is_folder):
                return
            if folder != path:
                if not is_folder:  # a symbolic link on the way: what is behind it is not ours
                    return
            elif not is_folder:
                if is_note(part):
                    self._file(path, place, info, modes.S_ISLNK(info.st_mode), look)
                return
        self._walk(path, rules, look)

    def _walk(self, top: str, rules: Rules, look: _Look) -> None:
        stack = [(top, rules)]
        while stack:
            folder, rules = stack.pop()
            self._enter(folder)
            try:
                with os.scandir(self._place(folder)) as entries:
                    listed = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if not folder:
                    look.root_problem = f"the folder cannot be read ({_why(error)})"
                    return
                look.add_unreadable(f"{folder}/", _why(error))
                continue
            if any(entry.name in IGNORE_FILES for entry in listed):
                rules = self._rules_of(folder, rules)
            prefix = f"{folder}/" if folder else ""
            for entry in listed:
                name = entry.name
                note = is_note(name)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        path = prefix + self._text(prefix, name)
                        if not rules.ignores(path, folder=True):
                            stack.append((path, rules))
                    elif note:
                        path = prefix + self._text(prefix, name)
                        if not rules.ignores(path, folder=False):
                            link = entry.is_symlink()
                            self._file(path, entry.path, entry.stat(follow_symlinks=False), link, look)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    look.add_unreadable(prefix + self._text(prefix, name), _why(error))

    def _file(self, path: str, place: str, info: os.stat_result, link: bool, look: _Look) -> None:
        """Take a note into the scan, or say why not."""
        if link:
            target = os.path.realpath(place)
            if not target.startswith(self.root.rstrip("/") + "/"):
                return
            try:
                info = os.stat(target)
            except FileNotFoundError:
                return
            except OSError as error:
                look.add_unreadable(path, _why(error))
                return
            if modes.S_ISDIR(info.st_mode):
                return
        if not modes.S_ISREG(info.st_mode):
            look.add_unreadable(path, "not a regular file")
        elif info.st_size > self._max_bytes:
            look.add_unreadable(path, f"larger than {self._max_bytes} bytes (watcher.max_bytes)")
        elif getattr(info, "st_flags", 0) & SF_DATALESS:
            look.add_unreadable(path, "only in the cloud: not downloaded")
        else:
            if info.st_blocks:
                self._blocks_reported = True
            elif info.st_size > INLINE_BYTES and sys.platform != "darwin":
                look.dataless.append(path)
            look.files[path] = stat_of(info)

    def _settle_dataless(self, look: _Look) -> None:
        """Files without blocks are placeholders, on file systems that count blocks at all."""
        if self._blocks_reported:
            for path in look.dataless:
                del look.files[path]
                look.add_unreadable(path, "its content is not on this disk")

    def _rules_of(self, folder: str, above: Rules) -> Rules:
        """Rules below ``folder``, read again when its ignore files changed."""
        prefix = f"{folder}/" if folder else ""
        places = [self._place(prefix + name) for name in IGNORE_FILES]
        state: list[int] = [id(above)]
        for place in places:
            try:
                info = os.stat(place)
                state += (info.st_ino, info.st_size, info.st_mtime_ns)
            except OSError:
                state.append(0)
        if len(state) == 1 + len(places):
            self._rules.pop(folder, None)
            return above
        kept = self._rules.get(folder)
        if kept is None or kept[0] != tuple(state):
            kept = tuple(state), above.with_folder(folder, _patterns(places))
            self._rules[folder] = kept
        return kept[1]

    def _text(self, prefix: str, name: str) -> str:
        """``name`` as text that can be sent: undecodable bytes become ``\\xNN``."""
        try:
            name.encode()
        except UnicodeEncodeError:
            text = os.fsencode(name).decode("utf-8", "backslashreplace")
            self._names[prefix + text] = os.path.join(self._place(prefix.rstrip("/")), name)
            return text
        return name

    def _place(self, path: str) -> str:
        """Where ``path`` is on disk."""
        if self._names:
            head, _, tail = path.rpartition("/")
            return self._names.get(path) or (os.path.join(self._place(head), tail) if head else self._join(tail))
        return self._join(path)

    def _join(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def read(self, path: str) -> Content:
        """
        The bytes of a note with the stat that belongs to them.

        Raises FileNotFoundError when it is gone, Unreadable when it is there and cannot be read.
        """
        below = os.path.relpath(self._place(path), self.root) if self._names else path
        try:
            fd = inside.open_file(self.root, below, links=True)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(path) from None
        except OSError as error:
            raise Unreadable(_why(error)) from None
        try:
            return self._read_open(path, fd)
        except OSError as error:
            raise Unreadable(_why(error)) from None
        finally:
            os.close(fd)

    def _read_open(self, path: str, fd: int) -> Content:
        info = os.fstat(fd)
        if not modes.S_ISREG(info.st_mode):
            raise Unreadable("not a regular file")
        stat = stat_of(info)
        for again in range(3):
            if again:
                os.lseek(fd, 0, os.SEEK_SET)
            raw = b"".join(_pieces(fd, self._max_bytes + 1, stat.size))
            before, stat = stat, stat_of(os.fstat(fd))
            if len(raw) > self._max_bytes:
                raise Unreadable(f"larger than {self._max_bytes} bytes (watcher.max_bytes)")
            if stat == before:
                break
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        racy = stat != before or abs(time.time_ns() - stat.mtime_ns) < RACY_NS
        return Content(path, stat, raw, digest, racy)


class _Look:
    """What one look has gathered so far."""

    def __init__(self) -> None:
        self.files: dict[str, FileStat] = {}
        self.unreadable: dict[str, str] = {}
        self.dataless: list[str] = []
        self.root_problem = ""

    def add_unreadable(self, path: str, why: str) -> None:
        self.unreadable[path] = why


def stat_of(info: os.stat_result) -> FileStat:
    # msgpack holds 64 bits; some network file systems have device numbers beyond that.
    return FileStat(info.st_dev & (2**63 - 1), info.st_ino & (2**63 - 1), info.st_size, info.st_mtime_ns)


def _pieces(fd: int, limit: int, size: int) -> Iterator[bytes]:
    """What is in a file, at most ``limit`` bytes. ``size``, as it was said to be, is enough: a stat afterwards tells."""
    left = limit
    # A buffer for what is there and a byte more: a larger one for each note takes longer than the reading.
    room = min(max(size + 1, 4096), 1 << 20)
    while left > 0 and (piece := os.read(fd, min(left, room))):
        left -= len(piece)
        yield piece
        if limit - left == size:
            break


def _patterns(places: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for place in places:
        try:
            if not os.path.isfile(place):
                continue
            with open(place, encoding="utf-8", errors="replace") as file:
                lines += file.read(IGNORE_FILE_BYTES).splitlines()
        except OSError:
            continue
    return lines


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
