"""
Files of the wiki: where a page may stand, and how its bytes get there. Blocking; called on the wiki's own thread.

A write is never seen half done: temp file in the same folder, fsync, rename, fsync of the folder. The temp name starts
with ``.#`` and ends in ``.tmp.md``: the watcher, Obsidian and git all ignore it.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import unicodedata
from pathlib import Path, PurePosixPath

TEMP_PREFIX = ".#recalld-"
MAX_NAME_BYTES = 200
"""File systems allow 255 bytes a name; the rest is left for what sync clients append."""
MAX_PATH_CHARS = 512
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\#^\[\]]')
"""Characters that Windows, or a wikilink, cannot carry."""


class BadPath(ValueError):
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


def locate(root: Path, relative: str) -> Path:
    """The absolute place of a page. Raises BadPath when a symlink on the way leads out of the wiki."""
    target = root / relative
    folder = target.parent
    while not folder.exists() and folder != root:
        folder = folder.parent
    if folder.exists() and not folder.resolve().is_relative_to(root.resolve()):
        raise BadPath(f"{relative!r} leaves the wiki through a symbolic link")
    if target.is_symlink():
        raise BadPath(f"{relative!r} is a symbolic link: recalld does not write through links")
    return target


def read(root: Path, relative: str) -> bytes | None:
    """The bytes of a page, None when there is none. Any other OSError is raised: it never counts as an empty page."""
    try:
        return locate(root, relative).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def write(root: Path, relative: str, data: bytes) -> os.stat_result:
    """Put ``data`` at ``relative`` atomically and durably; returns the stat of the file. Raises OSError, BadPath."""
    target = locate(root, relative)
    _make_folders(root, target.parent)
    temp = target.parent / f"{TEMP_PREFIX}{secrets.token_hex(6)}.tmp.md"
    descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
            stat = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temp, target)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
    return stat


def remove(root: Path, relative: str) -> bool:
    """Remove a page durably. False when it was not there."""
    target = locate(root, relative)
    try:
        target.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    _sync_folder(target.parent)
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


def _make_folders(root: Path, folder: Path) -> None:
    if folder.is_dir():
        return
    made = [folder]
    while made[-1] != root and not made[-1].parent.is_dir():
        made.append(made[-1].parent)
    for each in reversed(made):
        each.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
