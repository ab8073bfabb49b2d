"""A page that was just written, into the index: the watcher would bring it too, but a writer reads what it wrote at once."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from ...memory.notes.parse import parse
from ...protocol.envelope import Conflict, ProtocolError
from ...protocol.messages.common import FileStat
from ...protocol.messages.index import DropNotes, Indexed, NoteImage, OpenVault, UpsertNotes, Vault
from .database import Database
from .recorder import now_ms
from .records import notes, vaults
from .records.common import Rules
from .wiki.files import hash_of

log = logging.getLogger("recalld.writer.capture")

WIKI_VAULT = "wiki"


class PageIndex:
    """Indexes pages of the wiki by their path below its root. Failing to is no error: the watcher's sweep does it later."""

    def __init__(self, db: Database, root: Path, rules: Callable[[], Rules]) -> None:
        self._db = db
        self._rules = rules
        self._vault_id = 0
        self.root = os.path.realpath(root)
        self.indexed: Callable[[Indexed], None] = lambda indexed: None
        """Called after a change of the index, so that whoever waits for new chunks is told."""

    async def put(self, path: str, data: bytes, stat: os.stat_result) -> None:
        """Index a page that stands on the disk."""
        note, chunks = await asyncio.to_thread(parse, path, data)
        image = NoteImage(
            path=path,
            stat=FileStat(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns),
            hash=bytes.fromhex(hash_of(data)),
            note=note,
            chunks=chunks,
        )
        await self._change(
            lambda vault: self._db.run(
                notes.upsert_notes, UpsertNotes(vault_id=vault, notes=(image,)), now_ms(), self._rules()
            )
        )

    async def drop(self, path: str) -> None:
        """Take a removed page out of recall."""
        await self._change(
            lambda vault: self._db.run(
                notes.drop_notes, DropNotes(vault_id=vault, paths=(path,)), now_ms(), self._rules()
            )
        )

    async def _change(self, change: Callable[[int], object]) -> None:
        for attempt in (1, 2):
            try:
                if not self._vault_id:
                    vault = Vault(root=self.root, name=WIKI_VAULT, kind="wiki")
                    self._vault_id = (await self._db.run(vaults.open_vault, OpenVault(vault=vault))).vault_id
                self.indexed(await change(self._vault_id))  # type: ignore[misc]
                return
            except Conflict:
                self._vault_id = 0  # another database: the vault has another id there
            except ProtocolError as error:
                log.warning("a page is written but not indexed yet: %s", error.text)
                return
            if attempt == 2:
                log.warning("a page is written but not indexed yet: the wiki's vault does not stay open")
