"""
A copy of everything that cannot be made again, as one .tar.gz: wiki with its history, journal, config.toml, and what a person
asked and judged in `recalld eval` and `ab`.

Consistent while the daemon writes: journal files end at a whole line, git's names are read before the objects that they
name, the index (when asked for) is a snapshot by SQLite itself. Runs in a thread; nobody waits for it.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG

import msgspec

from ...protocol.envelope import Invalid
from ...protocol.messages.index import Backup
from ...protocol.runtime import Paths
from ...protocol.version import VERSION
from ..sqlite import sqlite3
from . import schema
from .disk import FORBIDDEN, FULL, sync

MANIFEST = "recalld-backup.json"
FORMAT = 1
SNAPSHOT_PAGES = 2000
"""Pages copied at a time, 8 MB."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """First member of the archive: what made it and what is in it."""

    format: int
    version: str
    schema: int
    created_at: str
    with_index: bool


async def write(paths: Paths, message: Backup) -> dict[str, str]:
    """
    Write the archive (0600) under ``message.target``, replacing what is there only when it is complete.

    Reports its size and the number of files. Raises Invalid when the target cannot be written.
    """
    given_up = threading.Event()
    try:
        return await asyncio.to_thread(_write, paths, Path(message.target), message.with_index, given_up)
    except OSError as error:
        raise Invalid(f"the backup was not written: {_why(error, Path(message.target))}") from None
    finally:
        given_up.set()


def _why(error: OSError, target: Path) -> str:
    """What went wrong with which folder: the target seldom lies on the data folder's disk."""
    if error.errno in FULL:
        return f"the disk of {target.parent} is full: free some space, or name a file elsewhere"
    if error.errno in FORBIDDEN:
        return f"{target.parent} cannot be written ({error.strerror}): check its permissions, or name a file elsewhere"
    return f"{error.filename or target}: {error.strerror or error}"


def _write(paths: Paths, target: Path, with_index: bool, given_up: threading.Event) -> dict[str, str]:
    if not target.is_absolute() or target.is_dir():
        raise Invalid(f"{target} is not the absolute path of a file")
    if any(target.parent.resolve().is_relative_to(folder) for folder in (paths.wiki, paths.journal)):
        raise Invalid(f"{target} lies in what is backed up: choose a place outside of {paths.data}")
    if not target.parent.is_dir():
        raise Invalid(f"there is no folder {target.parent}: make it first, or name a file in one that is there")
    fd, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(fd, "wb") as stream:
            with (
                gzip.GzipFile("", "wb", compresslevel=6, fileobj=stream, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                files = _fill(archive, paths, with_index, given_up)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        sync(target.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return {"file": str(target), "bytes": str(target.stat().st_size), "files": str(files)}


def _fill(archive: tarfile.TarFile, paths: Paths, with_index: bool, given_up: threading.Event) -> int:
    manifest = Manifest(
        format=FORMAT,
        version=VERSION,
        schema=schema.VERSION,
        created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        with_index=with_index,
    )
    _add(archive, MANIFEST, msgspec.json.encode(manifest))
    files = 0
    # The journal last: pages name what it tells, and it is the journal that is replayed.
    for name, path in (
        *_config(paths),
        *_lines(paths.data / "eval"),
        *_wiki(paths.wiki),
        *_lines(paths.journal),
    ):
        if given_up.is_set():
            raise Invalid("the caller went away")
        data = _read(path)
        if data is None:
            continue
        if name.startswith("journal/"):
            data = data[: data.rfind(b"\n") + 1]
        _add(archive, name, data, path.stat().st_mtime if path.exists() else 0)
        files += 1
    if with_index and paths.database.exists():
        with tempfile.TemporaryDirectory(dir=paths.data, prefix=".backup-") as folder:
            copy = Path(folder) / paths.database.name
            snapshot(paths.database, copy)
            archive.add(copy, paths.database.name, filter=_plain)
        files += 1
    return files


def snapshot(source: Path, copy: Path) -> None:
    """A consistent copy of the database while others write into it."""
    reading = sqlite3.connect(f"file:{source}?mode=ro", uri=True, isolation_level=None)
    writing = sqlite3.connect(copy, isolation_level=None)
    try:
        # One read transaction over all steps: the copy is of one moment, and a write does not start it over.
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        reading.backup(writing, pages=SNAPSHOT_PAGES, sleep=0)
        reading.execute("COMMIT")
        writing.execute("PRAGMA journal_mode = DELETE")
    finally:
        writing.close()
        reading.close()


def _config(paths: Paths) -> Iterator[tuple[str, Path]]:
    if paths.config.is_file():
        yield "config.toml", paths.config


def _wiki(root: Path) -> Iterator[tuple[str, Path]]:
    """Pages, then git: names and HEAD before objects, so that whatever a copied name points at is there to be copied."""
    git = root / ".git"
    for folder in (root, git, git / "objects"):
        for path in _walk(folder, (git,) if folder == root else (git / "objects",) if folder == git else ()):
            if not path.name.endswith((".lock", ".new", ".part")):
                yield f"wiki/{path.relative_to(root).as_posix()}", path


def _lines(root: Path) -> Iterator[tuple[str, Path]]:
    """The files of JSON lines in a folder."""
    for path in _walk(root, ()):
        if path.suffix == ".jsonl":
            yield f"{root.name}/{path.name}", path


def _walk(folder: Path, without: tuple[Path, ...]) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if Path(here, name) not in without)
        yield from (Path(here, name) for name in sorted(names))


def _read(path: Path) -> bytes | None:
    """The bytes of a regular file; None for anything else, and for one that has just gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        if path.is_symlink():
            return None
        raise
    with os.fdopen(fd, "rb") as stream:
        return stream.read() if S_ISREG(os.fstat(fd).st_mode) else None


def _add(archive: tarfile.TarFile, name: str, data: bytes, mtime: float = 0) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o600
    info.mtime = int(mtime)
    archive.addfile(info, io.BytesIO(data))


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info
