"""
A new index from files and journal, built beside the running one and swapped in by name.

Until the swap everything is answered from the old one. The new one has new vault ids: whoever holds an old id gets a
Conflict, opens the vault again and sends what changed in the meantime. Past versions and vectors are carried over as far
as the old index can be read; files and journal are read anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from stat import S_ISREG

from ...memory.notes.parse import parse
from ...protocol.envelope import ProtocolError
from ...protocol.messages.common import FileStat
from ...protocol.messages.index import NoteImage, OpenVault, UpsertNotes, Vault
from ...protocol.runtime import Paths
from .. import inside
from .database import Database
from .journal import Journal
from .opening import remove_companions
from .records import capture, carry, vaults
from .records.common import Rules
from .records.notes import upsert_notes

log = logging.getLogger("recalld.writer")

FILES = 64
"""Files read, parsed and stored at a time."""
ROWS = 500
"""Rows carried over at a time."""


async def build(db: Database, paths: Paths, rules: Rules, say: Callable[[str], None]) -> str:
    """Build, swap, and return a line on what came of it. Raises what keeps the new index from being complete."""
    started = time.monotonic()
    beside = paths.database.with_name(f"{paths.database.name}.building")
    beside.unlink(missing_ok=True)
    remove_companions(beside)
    new = Database(beside)
    await new.open()
    try:
        count = await _notes(db, new, rules, say)
        say("reindex: journal")
        entries = await new.run(capture.rebuild, Journal(paths.journal).read())
        await _carry(db, new, say)
        await new.aclose()
        say("reindex: swapping")
        await db.replace(beside)
    except BaseException:
        await asyncio.shield(new.aclose())
        beside.unlink(missing_ok=True)
        remove_companions(beside)
        raise
    return f"reindexed {count} notes and {entries} journal entries in {time.monotonic() - started:.1f} s"


async def _notes(old: Database, new: Database, rules: Rules, say: Callable[[str], None]) -> int:
    """Every file that the old index knows of, read anew. Files that are gone or unreadable are left to the next sweep."""
    count = 0
    for old_id, root, name, kind in await old.read(vaults.roots):
        vault = Vault(root=root, name=name, kind="wiki" if kind == "wiki" else "vault")
        vault_id = (await new.run(vaults.open_vault, OpenVault(vault=vault))).vault_id
        files = [file.path for file in await old.read(vaults.known_files, old_id)]
        for start in range(0, len(files), FILES):
            say(f"reindex: {name} {start} of {len(files)} notes")
            images = await asyncio.to_thread(_read_all, root, files[start : start + FILES])
            message = UpsertNotes(vault_id=vault_id, notes=images)
            count += (await new.run(upsert_notes, message, time.time_ns() // 1_000_000, rules)).changed
    return count


async def _carry(old: Database, new: Database, say: Callable[[str], None]) -> None:
    """What files do not tell: vectors (hours of work), past versions, since when a version is current."""
    for what, (read, write) in carry.PARTS.items():
        after: carry.Key = carry.FIRST
        count = 0
        try:
            while True:
                rows, after = await old.read(read, after, ROWS)
                if not rows:
                    break
                await new.run(write, rows)
                count += len(rows)
                say(f"reindex: {what} {count}")
        except ProtocolError as error:
            log.warning("%s of the old index could not be carried over whole: %s", what, error.text)
    await new.run(carry.finish, time.time_ns() // 1_000_000)


def _read_all(root: str, paths: Sequence[str]) -> tuple[NoteImage, ...]:
    found = (_read(root, path) for path in paths)
    return tuple(image for image in found if image is not None)


def _read(root: str, path: str) -> NoteImage | None:
    """A file of a vault as it is now; None when it is gone, no file, or leads out of the vault."""
    try:
        fd = inside.open_file(root, path, links=True)
        with os.fdopen(fd, "rb") as stream:
            info = os.fstat(fd)
            if not S_ISREG(info.st_mode):
                return None
            raw = stream.read()
    except OSError:
        return None
    note, chunks = parse(path, raw)
    return NoteImage(
        path=path,
        stat=FileStat(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns),
        hash=hashlib.blake2b(raw, digest_size=16).digest(),
        note=note,
        chunks=chunks,
    )
