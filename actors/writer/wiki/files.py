"""
Files of the wiki: where a page may stand, and how its bytes get there. Blocking; called on the wiki's own thread.

A write is never seen half done: temp file in the same folder, fsync, rename, fsync of the folder. The temp name starts
with ``.#`` and ends in ``.tmp.md``: the watcher, Obsidian and git all ignore it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from stat import S_ISLNK

from ....protocol.envelope import Invalid
from ... import inside

TEMP_PREFIX = ".#recalld-"
MAX_NAME_BYTES = 200
"""File systems allow 255 bytes a name; the rest is left for what sync clients append."""
MAX_PATH_CHARS = 512
MAX_PAGE_BYTES = 32_000_000
"""A larger file is somebody's, and no page."""
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*\\#^\[\]\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]')
"""Characters that Windows, or a wikilink, cannot carry, that turn text round, or that are none."""


class BadPath(Invalid):
    """Raised when a page path leaves the wiki, hides, or cannot be written on every file system; the text says why."""


def hash_of(data: bytes) -> str:
    """The hash by which callers compare pages: blake2b-16 in hex, the same that the index keeps."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def page_path(text: str) -> str:
    """
    ``text`` as a clean path relative to a project's folder, with '.md'. Raises BadPath.

    >>> page_path("decisions/Use ninja")
    'decisions/Use ninja.md'
    """
    path = unicodedata.normalize("NFC", text.strip()).replace("\\", "/")
    if not path or path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise BadPath(
            f"{text!r} is not a path inside the wiki: give one relative to the project, like 'notes/topic.md'"
        )
    if len(path) > MAX_PATH_CHARS:
        raise BadPath(f"the path is longer than {MAX_PATH_CHARS} characters")
    parts = [part for part in PurePosixPath(path).parts if part != "."]
    if not parts or path.endswith("/"):
        raise BadPath(f"{text!r} names a folder, not a page")
    if not parts[-1].lower().endswith(".md"):
        parts[-1] += ".md"
    for part in parts:
        if part == "..":
            raise BadPath(f"{text!r} leaves the wiki")
        if part.startswith(".") or part.endswith((" ", ".")) or part.strip() != part:
            raise BadPath(f"{part!r} in {text!r} is a hidden or unportable name")
        if FORBIDDEN.search(part) or len(part.encode()) > MAX_NAME_BYTES:
            raise BadPath(f"{part!r} in {text!r} is too long or has characters that not every system can store")
    return "/".join(parts)


def folder_of(project: str) -> str:
    """The folder name of a project: the name itself with what a path cannot carry replaced by '-'."""
    name = FORBIDDEN.sub("-", unicodedata.normalize("NFC", project)).replace("/", "-").strip(" .-")
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore") or "default"


def read(root: Path, relative: str) -> bytes | None:
    """
    The bytes of a page, None when there is none. Raises BadPath when a link stands on the way, or no regular file at the
    end. Any other OSError is raised: it never counts as an empty page.
    """
    try:
        data = inside.read_file(os.fspath(root), relative, MAX_PAGE_BYTES)
    except inside.Outside:
        raise _through_link(relative) from None
    except (FileNotFoundError, NotADirectoryError):
        return None
    if data is None:
        raise BadPath(f"{relative!r} is no regular file, or larger than {MAX_PAGE_BYTES} bytes")
    return data


def write(root: Path, relative: str, data: bytes) -> os.stat_result:
    """Put ``data`` at ``relative`` atomically and durably; returns the stat of the file. Raises OSError, BadPath."""
    folder, _, name = relative.rpartition("/")
    temp = f"{TEMP_PREFIX}{secrets.token_hex(6)}.tmp.md"
    with _opened(root, folder, make=True) as place:
        if _is_link(name, place):
            raise _through_link(relative)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temp, flags, 0o600, dir_fd=place)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
                stat = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temp, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=place)
            raise
        os.fsync(place)
    return stat


def remove(root: Path, relative: str) -> bool:
    """Remove a page durably. False when it was not there. Raises OSError, BadPath."""
    folder, _, name = relative.rpartition("/")
    try:
        with _opened(root, folder) as place:
            if _is_link(name, place):
                raise _through_link(relative)
            os.unlink(name, dir_fd=place)
            os.fsync(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def remove_leftovers(root: Path) -> int:
    """Remove temp files that a crash left behind; returns how many there were."""
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(TEMP_PREFIX):
                Path(folder, name).unlink(missing_ok=True)
                count += 1
    return count


def stats(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every visible regular file below ``root`` with what tells that it changed (mtime, size, inode)."""
    found: dict[str, tuple[int, int, int]] = {}
    folders = [""]
    while folders:
        prefix = folders.pop()
        try:
            entries = list(os.scandir(root / prefix))
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith(".tmp.md") or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                if info.st_size <= MAX_PAGE_BYTES:
                    found[prefix + entry.name] = (info.st_mtime_ns, info.st_size, info.st_ino)
    return found


def count(folder: Path) -> int:
    """How many entries a folder has."""
    try:
        return sum(1 for _ in os.scandir(folder))
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def _opened(root: Path, folder: str, *, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder of the wiki, reached without following links; made where it is missing if wanted."""
    try:
        place = inside.open_folder(os.fspath(root), folder, sync=True, make=make)
    except inside.Outside:
        raise _through_link(folder) from None
    try:
        yield place
    finally:
        os.close(place)


def _is_link(name: str, place: int) -> bool:
    try:
        return S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _through_link(relative: str) -> BadPath:
    return BadPath(f"{relative!r} leads through a symbolic link: recalld neither reads nor writes pages through links")
