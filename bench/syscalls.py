"""What strace says of a process, as steps on the files below one folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK = b"\nMARK "
"""What a process writes to stderr after this is a step too."""
CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,ftruncate,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,"
    "linkat,fsync,fdatasync,lseek,fallocate"
)


class Op(NamedTuple):
    """One step. ``kind``: write, cut, name, link, unname, sync, mark. ``path`` is below the data folder."""

    kind: str
    path: str
    at: int = 0
    data: bytes = b""
    other: str = ""
    begun: int = 0
    """How many steps had ended when this one began: a sync covers those."""


_LINE = re.compile(r"(\d+) +(.*)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"(\d+)<((?:[^>\\]|\\x[0-9a-f]{2})*)>")


def _text(raw: str) -> bytes:
    return bytes.fromhex(raw.replace("\\x", ""))


def _name(raw: str) -> str:
    return _text(raw).decode() if raw.startswith("\\x") else raw


class Parser:
    """Lines of strace to steps. Positions of descriptors are followed, since ``write`` does not say where it writes."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.position: dict[int, int] = {}
        self.appending: set[int] = set()
        self.sizes: dict[str, int] = {}
        self.ended = 0

    def parse(self, log: Path) -> Iterator[Op]:
        begun: dict[str, tuple[str, int]] = {}
        with log.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                found = _LINE.match(line)
                if found is None:
                    continue
                thread, call = found.groups()
                if call.endswith("<unfinished ...>"):
                    begun[thread] = call.removesuffix("<unfinished ...>"), self.ended
                    continue
                at = self.ended
                if call.startswith("<..."):
                    start, at = begun.pop(thread, ("", at))
                    call = start + call.partition("resumed>")[2]
                for op in self._ops(call):
                    yield op._replace(begun=at)
                    self.ended += 1

    def _ops(self, call: str) -> Iterator[Op]:
        name, _, rest = call.partition("(")
        arguments, _, result = rest.rpartition(") ")
        result = result.strip().removeprefix("= ")
        if result.startswith(("-1", "?")):
            return
        match name:
            case "openat" | "creat":
                yield from self._opened(arguments, result)
            case "write" | "pwrite64":
                yield from self._written(name, arguments, int(result))
            case "writev" | "pwritev" | "fallocate":
                if self._inside(arguments) is not None:
                    raise RuntimeError(f"{name} on a file is not replayed")
            case "lseek":
                if (fd := _FD.match(arguments)) is not None:
                    self.position[int(fd[1])] = int(result)
            case "ftruncate":
                if (path := self._inside(arguments)) is not None:
                    size = int(arguments.rpartition(", ")[2])
                    self.sizes[path] = size
                    yield Op("cut", path, size)
            case "fsync" | "fdatasync":
                if (path := self._inside(arguments)) is not None:
                    yield Op("sync", path)
            case "rename" | "renameat" | "renameat2":
                old, new = self._paths(arguments)
                if old is not None and new is not None:
                    self.sizes[new] = self.sizes.pop(old, 0)
                    yield Op("name", new, other=old)
            case "link" | "linkat":
                old, new = self._paths(arguments)
                if old is not None and new is not None:
                    self.sizes[new] = self.sizes.get(old, 0)
                    yield Op("link", new, other=old)
            case "unlink" | "unlinkat" | "rmdir":
                if (path := self._paths(arguments)[0]) is not None:
                    self.sizes.pop(path, None)
                    yield Op("unname", path)
            case "mkdir" | "mkdirat":
                if (path := self._paths(arguments)[0]) is not None:
                    yield Op("name", path, other="/")

    def _opened(self, arguments: str, result: str) -> Iterator[Op]:
        fd = _FD.match(result)
        path = self._inside(result)
        if fd is None or path is None:
            return
        number = int(fd[1])
        self.position[number] = 0
        self.appending.discard(number)
        if "O_APPEND" in arguments:
            self.appending.add(number)
        if "O_CREAT" in arguments and path not in self.sizes:
            self.sizes[path] = 0
            yield Op("name", path)
        elif "O_TRUNC" in arguments and self.sizes.get(path):
            self.sizes[path] = 0
            yield Op("cut", path)

    def _written(self, name: str, arguments: str, count: int) -> Iterator[Op]:
        fd = _FD.match(arguments)
        text = _TEXT.search(arguments)
        if fd is None or text is None:
            return
        data = _text(text[1])[:count]
        if fd[1] == "2" and data.startswith(MARK):
            yield Op("mark", data[len(MARK) :].decode().strip())
            return
        path = self._inside(arguments)
        if path is None:
            return
        number = int(fd[1])
        if name == "pwrite64":
            at = int(arguments.rpartition(", ")[2])
        else:
            at = self.sizes.get(path, 0) if number in self.appending else self.position.get(number, 0)
            self.position[number] = at + count
        self.sizes[path] = max(self.sizes.get(path, 0), at + count)
        yield Op("write", path, at, data)

    def _inside(self, text: str) -> str | None:
        """The path of the first descriptor in ``text``, below the root; None for anything else or what is deleted."""
        fd = _FD.match(text)
        return self._below(_name(fd[2])) if fd else None

    def _paths(self, arguments: str) -> tuple[str | None, str | None]:
        """The one or two paths of a call, each after the folder that it is relative to."""
        found: list[str | None] = []
        folder = ""
        for token in re.finditer(rf"{_FD.pattern}|{_TEXT.pattern}", arguments):
            if token[2] is not None:
                folder = _name(token[2])
            else:
                found.append(self._below(os.path.normpath(os.path.join(folder, _text(token[3]).decode()))))
        return (found[0] if found else None), (found[1] if len(found) > 1 else None)

    def _below(self, path: str) -> str | None:
        prefix = self.root + "/"
        if path == self.root:
            return ""
        return path[len(prefix) :] if path.startswith(prefix) and not path.endswith(" (deleted)") else None
