"""What the index holds of one vault, and the messages that change it. Changed here only by what the writer acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import anyio

from ...memory.notes.tree import Known
from ...protocol.envelope import Conflict, Internal, Invalid, ProtocolError, Unavailable
from ...protocol.messages.common import FileStat, Message
from ...protocol.messages.index import (
    DropNotes,
    Indexed,
    MoveNotes,
    OpenVault,
    PackedNotes,
    SweepDone,
    TouchNotes,
    Vault,
    VaultState,
)
from .batches import Packed

BUDGET_MS = 60_000
"""For one message to the writer: it may stand behind a large transaction."""
RETRY_MIN_S, RETRY_MAX_S = 0.05, 2.0
PATHS_PER_MESSAGE = 1000

log = logging.getLogger("recalld.watcher")


class IndexReset(Exception):
    """Raised when the writer may hold less than it acknowledged: it was away, or has another database."""


class Writer(Protocol):
    """What is needed of the peer."""

    async def ask(self, body: Message, *, budget_ms: int, trace: str = "") -> Any: ...


class Index:
    """
    One vault's rows. Every method waits for a writer that is away, and raises IndexReset when it was.

    Invalid and Internal are raised as the writer says them.
    """

    def __init__(self, vault: Vault, writer: Writer) -> None:
        self.known: dict[str, Known] = {}
        self.is_open = False
        self.waiting = ""
        """Why the writer is being waited for, '' when it is not."""
        self._vault = vault
        self._writer = writer
        self._vault_id = 0
        self._revision = 0

    async def open(self) -> None:
        """Learn from the writer what it holds."""
        state: VaultState = await self._ask(OpenVault(vault=self._vault))
        self._vault_id = state.vault_id
        self.known = {file.path: Known(file.stat, file.hash) for file in state.files}
        self.is_open = True

    async def upsert(self, notes: Sequence[Packed]) -> dict[str, str]:
        """Store notes; returns those that the writer refused, with its reason."""
        try:
            await self._change(PackedNotes(vault_id=self._vault_id, notes=tuple(note.image for note in notes)))
        except (Invalid, Internal) as error:
            if len(notes) == 1:
                log.error("%s is not indexed: %s", notes[0].path, error.text)
                return {notes[0].path: f"the index refused it: {error.text}"}
            # One note that the writer cannot take must not keep out the others.
            refused: dict[str, str] = {}
            for note in notes:
                refused.update(await self.upsert([note]))
            return refused
        for note in notes:
            self.known[note.path] = Known(note.stat, note.hash)
        return {}

    async def move(self, moves: Sequence[tuple[str, str, FileStat]]) -> None:
        for part in _parts(moves):
            await self._change(MoveNotes(vault_id=self._vault_id, moves=tuple(part)))
            for old, new, stat in part:
                self.known[new] = Known(stat, self.known.pop(old).hash)

    async def touch(self, files: Sequence[tuple[str, FileStat]]) -> None:
        for part in _parts(files):
            await self._ask(TouchNotes(vault_id=self._vault_id, files=tuple(part)))
            for path, stat in part:
                self.known[path] = Known(stat, self.known[path].hash)

    async def drop(self, paths: Sequence[str]) -> None:
        for part in _parts(paths):
            await self._change(DropNotes(vault_id=self._vault_id, paths=tuple(part)))
            for path in part:
                self.known.pop(path, None)

    async def swept(self, at_ms: int, unreadable: Sequence[tuple[str, str]], suspended: str) -> None:
        """Say that a full diff ended."""
        await self._ask(
            SweepDone(
                vault_id=self._vault_id,
                at_ms=at_ms,
                files=len(self.known),
                unreadable=tuple(unreadable),
                suspended=suspended,
            )
        )

    async def _change(self, body: Message) -> None:
        answer: Indexed = await self._ask(body)
        before, self._revision = self._revision, answer.revision
        if answer.revision < before:
            self.is_open = False
            raise IndexReset("the index was replaced")

    async def _ask(self, body: Message) -> Any:
        delay = RETRY_MIN_S
        lost = False
        while True:
            try:
                answer = await self._writer.ask(body, budget_ms=BUDGET_MS)
            except (Invalid, Internal):
                raise
            except Conflict as error:
                # The id is of a database that is gone: what the new one holds has to be asked.
                self.is_open = False
                raise IndexReset(error.text) from None
            except ProtocolError as error:
                self.waiting = error.text
                lost = lost or isinstance(error, Unavailable)
                await anyio.sleep(max(delay, error.retry_after_ms / 1000))
                delay = min(2 * delay, RETRY_MAX_S)
                continue
            self.waiting = ""
            if lost and not isinstance(body, OpenVault):
                self.is_open = False
                raise IndexReset("the writer was away")
            return answer


def _parts(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[start : start + PATHS_PER_MESSAGE] for start in range(0, len(items), PATHS_PER_MESSAGE)]
