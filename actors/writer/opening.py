"""
Open the database, whatever is there: nothing, an older or newer schema, noise.

The index is derived, so damage is never repaired in place: the file is set aside (never deleted) and a fresh one takes
its place, to be filled again from files and journal. Everything here blocks and belongs on the database's own thread.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ..sqlite import sqlite3
from .disk import in_words
from .schema import SCHEMA, Schema

log = logging.getLogger("recalld.writer.database")

BUSY_TIMEOUT_MS = 5000
"""A backup tool or a checkpointing reader may hold the lock for a moment; nothing of ours holds it for 100 ms."""
CACHE_KIB = 8 * 1024
"""Twice as much takes no less processor time while a vault is taken in; the system caches the file's pages too."""
CHECK_S = 0.2
"""quick_check reads about 300 MB/s: a larger file is checked to its end behind the start, while it serves."""
KEPT_ASIDE = 3
CHECKPOINT_PAGES = 16_000
"""64 MB, what the log keeps anyway: while a vault is taken in, a page that changes in many transactions goes to the file once."""
WAL_LIMIT_BYTES = 64 * 1024 * 1024
DAMAGE = {11, 26}
"""Primary result codes SQLITE_CORRUPT and SQLITE_NOTADB."""


class Opened(NamedTuple):
    conn: sqlite3.Connection
    read_only: str
    """Why this database is only read (it was made by a newer version), or ''."""
    set_aside: str
    """Name that a damaged predecessor was moved to, or ''."""
    fresh: bool
    """True when the database is new and empty."""


class NotOurs(Exception):
    """Raised when a file is a sound SQLite database of some other program."""


def is_damage(error: BaseException) -> bool:
    """True when ``error`` says that the file is corrupt or no database."""
    return isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def open_database(path: Path, schema: Schema = SCHEMA) -> Opened:
    """The database at ``path``, migrated to ``schema`` or read-only. Raises sqlite3.Error or OSError when it cannot be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        # A log without its database would be replayed into whatever is created under that name.
        remove_companions(path)
        return _fresh(path, schema, "")
    try:
        conn = connect(path)
        try:
            return _existing(conn, path, schema)
        except BaseException:
            conn.close()
            raise
    except (sqlite3.DatabaseError, NotOurs) as error:
        if not isinstance(error, NotOurs) and not is_damage(error):
            raise
        aside = set_aside(path, "corrupt")
        log.error("the index was damaged (%s): moved to %s, rebuilding it from your files", error, aside)
        return _fresh(path, schema, aside)


def connect(path: Path) -> sqlite3.Connection:
    """A read-write connection that leaves transactions to its caller. Only ``Database`` and its rebuild may call this."""
    return sqlite3.connect(str(path), timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, cached_statements=256)


def birth_of(conn: sqlite3.Connection) -> int:
    """The number that tells this database from every other one; 0 when it has none (a newer schema)."""
    try:
        row = conn.execute("SELECT value FROM meta WHERE key = 'birth'").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(row[0]) if row else 0


def quick_check(conn: sqlite3.Connection, seconds: float = CHECK_S) -> None:
    """Raise sqlite3.DatabaseError when damage is found within ``seconds``; silence means none was found in that time."""
    deadline = time.monotonic() + seconds
    conn.set_progress_handler(lambda: int(time.monotonic() > deadline), 10_000)
    try:
        verdict = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
            raise
        return
    finally:
        conn.set_progress_handler(None, 0)
    if verdict != "ok":
        damage = sqlite3.DatabaseError(verdict)
        damage.sqlite_errorcode = 11
        raise damage


def verify(path: Path, seconds: float) -> None:
    """
    Look at the file with fresh eyes: a page that a connection has in its cache hides what became of it on the disk.

    Raises sqlite3.DatabaseError when damage is found within ``seconds`` (0: header and schema only).
    """
    conn = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1, isolation_level=None)
    try:
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if seconds:
            quick_check(conn, seconds)
    finally:
        conn.close()


def integrity(path: Path) -> str:
    """'ok', or what SQLite's own full check finds in the file as it is on the disk."""
    conn = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1, isolation_level=None)
    try:
        return "; ".join(row[0] for row in conn.execute("PRAGMA integrity_check(20)"))
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return str(error)
    finally:
        conn.close()


def set_aside(path: Path, word: str) -> str:
    """Rename the database and its companions to ``<name>.<word>-<utc>``; return that name. Keeps the newest KEPT_ASIDE."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    name, number = f"{path.name}.{word}-{stamp}", 1
    while path.with_name(name).exists():
        number += 1
        name = f"{path.name}.{word}-{stamp}-{number}"
    # The log first: should we die in between, a database without its log is old but sound, and the reverse is not.
    for suffix in ("-wal", "-shm", ""):
        try:
            os.rename(f"{path}{suffix}", path.with_name(f"{name}{suffix}"))
        except FileNotFoundError:
            continue
    stems = [old for old in path.parent.glob(f"{path.name}.{word}-*") if not old.name.endswith(("-wal", "-shm"))]
    for old in sorted(stems, key=lambda one: one.stat().st_mtime_ns)[:-KEPT_ASIDE]:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{old}{suffix}").unlink(missing_ok=True)
    return name


def change_places(path: Path, successor: Path) -> None:
    """
    Put the closed database ``successor`` in the place of the closed database ``path``. Raises OSError, with ``path`` back.

    The old log never stands beside the new database: it would be replayed into it. Readers have it open by descriptor.
    A crash on the way leaves no database, and an empty one is filled from files at the next start.
    """
    old = path.with_name(f"{path.name}.old")
    moved = [suffix for suffix in ("", "-wal", "-shm") if _rename(f"{path}{suffix}", f"{old}{suffix}")]
    try:
        os.rename(successor, path)
    except OSError:
        for suffix in reversed(moved):
            os.rename(f"{old}{suffix}", f"{path}{suffix}")
        raise
    for suffix in moved:
        os.unlink(f"{old}{suffix}")


def _rename(source: str, target: str) -> bool:
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


def remove_set_aside(path: Path) -> int:
    """Remove databases that were set aside, and return how many: their text is in the rebuilt one, or was to be removed."""
    copies = list(path.parent.glob(f"{path.name}.corrupt-*"))
    for copy in copies:
        copy.unlink(missing_ok=True)
    return sum(not copy.name.endswith(("-wal", "-shm")) for copy in copies)


def remove_unfinished(path: Path) -> None:
    """Remove what a rebuild or a backup left that was ended half-way. Nobody else works on this folder."""
    for pattern in (f"{path.name}.building*", f"{path.name}.old*"):
        for leftover in path.parent.glob(pattern):
            leftover.unlink(missing_ok=True)
    for folder in path.parent.glob(".backup-*"):
        shutil.rmtree(folder, ignore_errors=True)


def remove_companions(path: Path) -> None:
    """Remove ``-wal`` and ``-shm`` that stand beside a database that is not there or not theirs."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def transaction(conn: sqlite3.Connection, function: Callable[[], None]) -> None:
    """``function`` in one write transaction of its own."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        function()
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def _fresh(path: Path, schema: Schema, aside: str) -> Opened:
    conn = connect(path)
    try:
        os.chmod(path, 0o600)
        _settings(conn)
        transaction(conn, lambda: schema.create(conn))
    except BaseException:
        conn.close()
        raise
    return Opened(conn, "", aside, True)


def _existing(conn: sqlite3.Connection, path: Path, schema: Schema) -> Opened:
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    if version > schema.version:
        conn.execute("PRAGMA query_only = 1")
        why = (
            f"the index {path.name} was made by a newer recalld (schema {version}, this one knows {schema.version}): "
            f"it is only read. Upgrade recalld, or remove {path} to have it rebuilt"
        )
        log.warning(why)
        return Opened(conn, why, "", False)
    empty = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if version == 0 and not empty:
        raise NotOurs("it is a database of another program")
    quick_check(conn)
    _settings(conn)
    if empty:
        transaction(conn, lambda: schema.create(conn))
    else:
        schema.migrate(conn, version)
    return Opened(conn, "", "", empty)


def _settings(conn: sqlite3.Connection) -> None:
    for pragma in (
        "journal_mode = WAL",
        # The journal's fsync is the durability point: what a power cut takes from here is replayed.
        "synchronous = NORMAL",
        "foreign_keys = ON",
        f"cache_size = -{CACHE_KIB}",
        f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        f"journal_size_limit = {WAL_LIMIT_BYTES}",
        # A file that somebody truncates would be a SIGBUS under mmap, and is an error without.
        "mmap_size = 0",
        "temp_store = MEMORY",
    ):
        conn.execute(f"PRAGMA {pragma}")


def is_environment(error: BaseException) -> bool:
    """True for failures of disk, memory or file: their transaction is lost as a whole. Codes: sqlite.org/rescode.html."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # 5 BUSY, 6 LOCKED, 7 NOMEM, 8 READONLY, 10 IOERR, 13 FULL, 14 CANTOPEN
    return isinstance(error, sqlite3.Error) and (code in {5, 6, 7, 8, 10, 13, 14} or code in DAMAGE)


def failure_words(error: BaseException) -> str:
    if isinstance(error, OSError):
        return in_words(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return {
        5: "another program holds the index locked: close it",
        7: "the machine is out of memory",
        8: "the data folder cannot be written: check its permissions",
        10: "the data folder's disk reports an I/O error",
        13: "the disk is full: free some space; nothing was stored",
        14: "the index file cannot be opened: check the data folder's permissions and free descriptors",
    }.get(code, f"the index: {error}")


def identity(path: Path) -> tuple[int, int] | None:
    """(device, inode) of ``path``; None when there is no such file. Raises OSError when that cannot be told."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return None
    return info.st_dev, info.st_ino


def state_of(path: Path) -> tuple[int, int]:
    """(bytes, mtime in ns) of ``path``; zeros when there is no such file. Raises OSError."""
    try:
        info = path.stat()
    except FileNotFoundError:
        return 0, 0
    return info.st_size, info.st_mtime_ns
