"""A real index without a daemon: files, parsed and stored by the writer's own records, on one connection."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
from recalld.actors.writer.opening import open_database
from recalld.actors.writer.records import notes, vaults, vectors
from recalld.actors.writer.records.common import Rules, revision_of
from recalld.memory.notes.parse import parse
from recalld.memory.recall.tokens import sentences
from recalld.protocol.messages.common import FileStat
from recalld.protocol.messages.index import (
    ClaimChunks,
    CloseVault,
    DropNotes,
    EmbeddedChunk,
    MoveNotes,
    NoteImage,
    OpenVault,
    StoreVectors,
    SweepDone,
    UpsertNotes,
    UseModel,
    Vault,
    Vector,
)
from recalld.protocol.runtime import Paths

DIM = 64
DAY_MS = 86_400_000


class Index:
    """``write`` puts a file on disk and into the index; ``embed`` gives vectors to all that waits for them."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "data", folder / "run")
        self.vault = folder / "vault"
        self.vault.mkdir(parents=True, exist_ok=True)
        self.rules = Rules()
        self.now_ms = 1_790_000_000_000
        self.conn = open_database(self.paths.database).conn
        self.vault_id = self.run(vaults.open_vault, OpenVault(vault=Vault(root=str(self.vault), name="lab"))).vault_id
        self.model_id = 0

    def run(self, function, *arguments):
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            result = function(self.conn, *arguments)
        except BaseException:
            self.conn.execute("ROLLBACK")
            raise
        self.conn.execute("COMMIT")
        return result

    def write(self, path: str, text: str, **more: str) -> None:
        self.write_all({path: text, **more})

    def write_all(self, files: dict[str, str], *, on_disk: bool = True) -> None:
        images = []
        for path, text in files.items():
            raw = text.encode()
            if on_disk:
                target = self.vault / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(raw)
            note, chunks = parse(path, raw)
            digest = hashlib.blake2b(raw, digest_size=16).digest()
            stat = FileStat(1, len(images) + 1, len(raw), self.now_ms * 1_000_000)
            images.append(NoteImage(path=path, stat=stat, hash=digest, note=note, chunks=chunks))
        self.run(notes.upsert_notes, UpsertNotes(vault_id=self.vault_id, notes=tuple(images)), self.now_ms, self.rules)

    def move(self, old: str, new: str) -> None:
        (self.vault / new).parent.mkdir(parents=True, exist_ok=True)
        (self.vault / old).rename(self.vault / new)
        message = MoveNotes(vault_id=self.vault_id, moves=((old, new, FileStat(1, 1, 1, self.now_ms * 1_000_000)),))
        self.run(notes.move_notes, message, self.now_ms, self.rules)

    def drop(self, *paths: str) -> None:
        for path in paths:
            (self.vault / path).unlink()
        self.run(notes.drop_notes, DropNotes(vault_id=self.vault_id, paths=paths), self.now_ms, self.rules)

    def sweep(self) -> None:
        self.run(vaults.sweep_done, SweepDone(vault_id=self.vault_id, at_ms=self.now_ms, files=1))

    def close_vault(self) -> None:
        while self.run(vaults.close_vault, CloseVault(root=str(self.vault)).root, 100):
            pass

    def use_model(self, name: str = "toy") -> int:
        message = UseModel(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), dim=DIM)
        self.model_id = self.run(vectors.use_model, message, self.now_ms).model_id
        return self.model_id

    def embed(self) -> None:
        if not self.model_id:
            self.use_model()
        while True:
            claimed = self.run(vectors.claim_chunks, ClaimChunks(model_id=self.model_id, limit=500), self.now_ms)
            if not claimed.chunks:
                return
            done = tuple(EmbeddedChunk(c.hash, vectors_of(c.context, c.text)) for c in claimed.chunks)
            self.run(vectors.store_vectors, StoreVectors(model_id=self.model_id, chunks=done))

    def later(self, days: float) -> int:
        """Move the clock on; returns the new time."""
        self.now_ms += int(days * DAY_MS)
        return self.now_ms

    @property
    def revision(self) -> int:
        return revision_of(self.conn)

    def close(self) -> None:
        self.conn.close()


def vectors_of(context: str, text: str) -> tuple[Vector, ...]:
    whole = [Vector(0, 0, len(text), embed(f"{context}\n{text}").astype("<f2").tobytes())]
    spans = sentences(text)
    return tuple(whole) + tuple(
        Vector(n, start, end, embed(f"{context}\n{text[start:end]}").astype("<f2").tobytes())
        for n, (start, end) in enumerate(spans, 1)
    )


def embed(text: str) -> np.ndarray:
    """A toy model: each word is a fixed random direction, a text the sum of its words. Same words, near vectors."""
    total = np.full(DIM, 1e-3, np.float32)
    for word in re.findall(r"\w+", text.lower()):
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "little")
        total += np.random.default_rng(seed).standard_normal(DIM).astype(np.float32)
    return total / np.linalg.norm(total)
