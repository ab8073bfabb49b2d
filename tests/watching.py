"""A writer that only remembers, and a watcher actor around it: what the tests of the watcher share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
from recalld.actors.base import Env
from recalld.actors.watcher.actor import Watcher
from recalld.protocol import config as configuration
from recalld.protocol.config import Config, VaultConfig
from recalld.protocol.envelope import Conflict, Invalid, ProtocolError, encode
from recalld.protocol.messages import decode_writer
from recalld.protocol.messages.common import Ok
from recalld.protocol.messages.index import (
    AwaitIndex,
    CloseVault,
    DropNotes,
    IndexBirth,
    Indexed,
    KnownFile,
    MoveNotes,
    NoteImage,
    OpenVault,
    PackedNotes,
    SweepDone,
    TouchNotes,
    UpsertNotes,
    VaultState,
)
from recalld.protocol.runtime import Paths

LIMIT_S = 20


class FakeWriter:
    """Holds notes by vault root and path; ``error`` is raised instead of an answer; ``refuse`` names paths it chokes on."""

    def __init__(self) -> None:
        self.vaults: dict[str, dict[str, NoteImage]] = {}
        self.roots: list[str] = []
        self.log: list[object] = []
        self.sweeps: list[SweepDone] = []
        self.error: ProtocolError | None = None
        self.refuse: set[str] = set()
        self.asked = 0
        self.revision = 0
        self.birth = 1
        self._reborn = anyio.Event()
        self._changed = anyio.Event()

    def replace_index(self) -> None:
        """Another, empty database takes the place of this one."""
        self.birth += 1
        self.vaults.clear()
        self._reborn.set()
        self._reborn = anyio.Event()

    def held(self, name: str = "vault") -> dict[str, NoteImage]:
        return next((notes for root, notes in self.vaults.items() if root.endswith("/" + name)), {})

    def texts(self, name: str = "vault") -> dict[str, str]:
        return {path: "\n".join(chunk.text for chunk in image.chunks) for path, image in self.held(name).items()}

    async def ask(self, body, *, budget_ms, trace=""):
        if isinstance(body, AwaitIndex):
            while self.birth == body.birth:
                await self._reborn.wait()
            return IndexBirth(birth=self.birth)
        if isinstance(body, PackedNotes):
            body = decode_writer(encode(body))
        self.asked += 1
        self.notify()
        if self.error is not None:
            raise self.error
        await anyio.lowlevel.checkpoint()
        answer = self._answer(body)
        self.log.append(body)
        self.notify()
        return answer

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds after some message; fails after LIMIT_S."""
        with anyio.fail_after(LIMIT_S):
            while not condition():
                with anyio.move_on_after(0.05):
                    await self._changed.wait()

    def _answer(self, body):
        if isinstance(body, OpenVault):
            if body.vault.root not in self.roots:
                self.roots.append(body.vault.root)
            notes = self.vaults.setdefault(body.vault.root, {})
            files = tuple(KnownFile(path, image.stat, image.hash) for path, image in notes.items())
            return VaultState(vault_id=self.roots.index(body.vault.root) + 1, files=files)
        if isinstance(body, CloseVault):
            self.vaults.pop(body.root, None)
            return Ok()
        root = self.roots[body.vault_id - 1]
        if root not in self.vaults:
            raise Conflict("no such vault")
        notes = self.vaults[root]
        if isinstance(body, UpsertNotes):
            if self.refuse & {image.path for image in body.notes}:
                raise Invalid("cannot take this")
            notes.update((image.path, image) for image in body.notes)
        elif isinstance(body, MoveNotes):
            for old, new, stat in body.moves:
                image = notes.pop(old)
                notes[new] = NoteImage(path=new, stat=stat, hash=image.hash, note=image.note, chunks=image.chunks)
        elif isinstance(body, TouchNotes):
            return Ok()
        elif isinstance(body, DropNotes):
            for path in body.paths:
                del notes[path]
        elif isinstance(body, SweepDone):
            self.sweeps.append(body)
            return Ok()
        self.revision += 1
        return Indexed(revision=self.revision, changed=1)


class Place:
    """A vault on disk and the actor that watches it."""

    def __init__(self, folder: Path, writer: FakeWriter, actor: Watcher) -> None:
        self.vault = folder / "vault"
        self.paths = actor._paths
        self.writer = writer
        self.actor = actor

    def write(self, path: str, text: str | bytes) -> Path:
        target = self.vault / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        return target

    async def settled(self) -> None:
        """Wait for a sweep that begins after now."""
        before = {root: watch.sweeps for root, (watch, _) in self.actor._running.items()}
        for watch, _ in self.actor._running.values():
            watch.sweep_now()
        await self.writer.until(
            lambda: all(watch.sweeps > before.get(root, 0) for root, (watch, _) in self.actor._running.items())
        )


def config_of(vaults: list[Path], **settings: object) -> Config:
    raw = "".join(f"{key} = {value!r}\n" for key, value in settings.items())
    base = configuration.parse(f"[watcher]\n{raw}", "test", {})
    return Config(vaults=tuple(VaultConfig(path=str(path)) for path in vaults), watcher=base.watcher)


@contextlib.asynccontextmanager
async def watching(
    folder: Path, *, writer: FakeWriter | None = None, backend: str = "", settle: bool = True, **settings: object
) -> AsyncIterator[Place]:
    """A running watcher on ``folder``/vault; by default sweeps are an hour apart, so that events do the work."""
    (folder / "vault").mkdir(exist_ok=True)
    writer = writer or FakeWriter()
    config = config_of([folder / "vault"], **{"sweep_s": 3600.0, **settings})
    paths = Paths(folder / "data", folder / "run")
    actor = Watcher(Env("watcher", config, paths), writer, backend)
    place = Place(folder, writer, actor)
    async with anyio.create_task_group() as group:
        ready = anyio.Event()
        group.start_soon(actor.run, ready.set)
        try:
            with anyio.fail_after(LIMIT_S):
                await ready.wait()
            if settle:
                await writer.until(lambda: writer.sweeps)
            yield place
        finally:
            group.cancel_scope.cancel()
