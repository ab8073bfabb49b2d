"""A writer actor in this process, with real sockets, database and journal, and what its peers send."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from recalld.actors.base import Env
from recalld.actors.writer.actor import Writer
from recalld.memory.notes.parse import parse
from recalld.protocol.client import Peer
from recalld.protocol.config import Config
from recalld.protocol.messages.common import FileStat, Message
from recalld.protocol.messages.index import (
    Claimed,
    EmbeddedChunk,
    NoteImage,
    OpenVault,
    StoreVectors,
    UpsertNotes,
    UseModel,
    Vault,
    Vector,
)
from recalld.protocol.runtime import Paths

DIM = 4
BUDGET_MS = 20_000


class Stand:
    """The writer, and one connection to it."""

    def __init__(self, writer: Writer, peer: Peer, paths: Paths) -> None:
        self.writer = writer
        self.peer = peer
        self.paths = paths
        self.vault = paths.data.parent / "vault"
        self.vault.mkdir(exist_ok=True)

    async def ask(self, body: Message, budget_ms: int = BUDGET_MS) -> Any:
        return await self.peer.ask(body, budget_ms=budget_ms)

    async def open_vault(self) -> int:
        return (await self.ask(OpenVault(vault=Vault(root=str(self.vault), name="v")))).vault_id

    async def put(self, vault_id: int, **texts: str) -> Any:
        """Files by stem: on the disk, and told to the writer."""
        images = []
        for stem, text in texts.items():
            (self.vault / f"{stem}.md").write_text(text)
            images.append(image(self.vault, f"{stem}.md"))
        return await self.ask(UpsertNotes(vault_id=vault_id, notes=tuple(images)))

    async def use_model(self, name: str = "toy") -> int:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return (await self.ask(UseModel(name=name, sha256=digest, dim=DIM))).model_id

    async def store(self, model_id: int, claimed: Claimed) -> Any:
        return await self.ask(StoreVectors(model_id=model_id, chunks=embedded(claimed)))


def image(root: Path, path: str) -> NoteImage:
    file = root / path
    raw = file.read_bytes()
    info = file.stat()
    note, chunks = parse(path, raw)
    return NoteImage(
        path=path,
        stat=FileStat(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns),
        hash=hashlib.blake2b(raw, digest_size=16).digest(),
        note=note,
        chunks=chunks,
    )


def embedded(claimed: Claimed, values: bytes = bytes(2 * DIM)) -> tuple[EmbeddedChunk, ...]:
    return tuple(EmbeddedChunk(c.hash, (Vector(0, 0, len(c.text), values),)) for c in claimed.chunks)


@asynccontextmanager
async def writer_at(folder: Path, config: Config | None = None) -> AsyncIterator[Stand]:
    """A writer on ``folder``/data that serves until the block ends."""
    paths = Paths(folder / "data", folder / "run")
    paths.runtime.mkdir(exist_ok=True)
    listeners = {}
    for name in ("writer", "events"):
        listener = socket.socket(socket.AF_UNIX)
        paths.socket(name).unlink(missing_ok=True)
        listener.bind(str(paths.socket(name)))
        listener.listen(64)
        listeners[name] = listener
    writer = Writer(Env("writer", config or Config(), paths, listeners))
    ready = asyncio.Event()
    peer = Peer(paths.socket("writer"), "test")
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(writer.run, ready.set)
            with anyio.fail_after(20):
                await ready.wait()
            try:
                yield Stand(writer, peer, paths)
            finally:
                with anyio.CancelScope(shield=True):
                    await peer.aclose()
                group.cancel_scope.cancel()
    finally:
        for listener in listeners.values():
            listener.close()
