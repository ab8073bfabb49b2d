"""
Hook events that found nobody at home: one JSON file each, written by the hook client, taken in when the daemon runs.

In order of their names (which begin with the time), one drain at a time, each removed only after the journal has it. What
cannot be understood goes to ``spool/dead`` with the reason beside it, and stays there until a person looks. Nothing is
given up for having been tried often.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import msgspec

from ...protocol.envelope import ProtocolError

log = logging.getLogger("recalld.writer.capture")

BATCH = 64
LOOK_S = 2.0
"""How often the folder is looked at. A listing of an empty folder costs nothing that can be measured."""
MAX_FILE_BYTES = 16 * 1024 * 1024
SETTLE_S = 60.0
"""A file that has been without its final name for this long was left by a client that died, or was let go, while writing."""


class Undeliverable(Exception):
    """Raised when a spooled event can never be taken in; the text says why."""


class Spool:
    """``deliver`` takes the bytes of files in order and returns once they are durable; Undeliverable marks the first bad one."""

    def __init__(self, folder: Path, deliver: Callable[[bytes], Awaitable[None]]) -> None:
        self.folder = folder
        self.dead = folder / "dead"
        self._deliver = deliver
        self._draining = asyncio.Lock()
        self._wake = asyncio.Event()
        self.delivered_total = 0
        self.waiting = 0
        self.dead_letters = 0
        self.problem = ""
        """Why the last drain stopped; '' when it went through."""
        self._unfinished: dict[str, float] = {}
        """Files without their final name -> when they were first seen, by a clock that does not jump."""

    async def run(self) -> None:
        """Drain whenever there is something, until cancelled."""
        while True:
            await self.drain()
            with anyio.move_on_after(LOOK_S):
                await self._wake.wait()
            self._wake.clear()

    async def drain(self) -> int:
        """Deliver what lies there now; how many were delivered. A second caller waits for the first."""
        async with self._draining:
            delivered = 0
            try:
                names, self.dead_letters = await asyncio.to_thread(self._look)
            except OSError as error:
                self.problem = f"the spool cannot be looked through: {error}"
                log.warning(self.problem)
                return 0
            self.waiting = len(names)
            for start in range(0, len(names), BATCH):
                try:
                    delivered += await self._drain_batch(names[start : start + BATCH])
                except (ProtocolError, OSError) as error:
                    self.problem = f"{self.waiting} events wait in the spool: {error}"
                    log.warning(self.problem)
                    return delivered
            self.problem = ""
            if names:
                # A client that found the spool full left this mark; there is room again.
                (self.folder / ".full").unlink(missing_ok=True)
            if delivered:
                log.info("took in %d spooled events", delivered)
            return delivered

    async def _drain_batch(self, names: Sequence[str]) -> int:
        bodies = await asyncio.to_thread(self._read, names)
        outcomes: dict[str, str | Exception | None] = {}

        async def one(name: str, body: bytes) -> None:
            try:
                await self._deliver(body)
                outcomes[name] = None
            except Undeliverable as error:
                outcomes[name] = str(error)
            except (ProtocolError, OSError) as error:
                outcomes[name] = error

        # Started in order, and the recorder keeps the order in which they ask; all of them share an fsync.
        async with anyio.create_task_group() as group:
            for name, body in bodies:
                group.start_soon(one, name, body)
        taken = [name for name, _ in bodies if outcomes.get(name) is None and name in outcomes]
        bad = [(name, str(why)) for name, why in outcomes.items() if isinstance(why, str)]
        await asyncio.to_thread(self._clear, taken, bad)
        self.delivered_total += len(taken)
        self.dead_letters += len(bad)
        self.waiting -= len(taken) + len(bad)
        for why in outcomes.values():
            if isinstance(why, Exception):
                raise why
        return len(taken)

    def _look(self) -> tuple[list[str], int]:
        try:
            entries = list(os.scandir(self.folder))
        except FileNotFoundError:
            return [], 0
        names = sorted(
            entry.name
            for entry in entries
            if entry.name.endswith(".json") and entry.name[:1] != "." and entry.is_file()
        )
        self._settle_unfinished({entry.name for entry in entries if entry.name.endswith(".tmp") and entry.is_file()})
        try:
            dead = sum(1 for entry in os.scandir(self.dead) if entry.name.endswith(".json"))
        except FileNotFoundError:
            dead = 0
        return names, dead

    def _settle_unfinished(self, names: set[str]) -> None:
        """A file that a client left before it got its name is taken in at the next look if it is whole, else removed."""
        now = time.monotonic()
        self._unfinished = {name: self._unfinished.get(name, now) for name in names}
        for name, seen in self._unfinished.items():
            path = self.folder / name
            if now - seen <= SETTLE_S or path.is_symlink():
                continue
            try:
                # One that is too large is set aside under its name.
                if path.stat().st_size > MAX_FILE_BYTES or is_whole(path.read_bytes()):
                    path.rename(path.with_suffix(""))
                else:
                    path.unlink()
            except FileNotFoundError:  # the client was merely slow
                continue
            except OSError as error:
                log.warning("an unfinished file in the spool stays: %s", error)
                self._unfinished[name] = now  # tried again after another SETTLE_S; the others are not held up

    def _read(self, names: Sequence[str]) -> list[tuple[str, bytes]]:
        found = []
        for name in names:
            path = self.folder / name
            try:
                if path.is_symlink() or path.stat().st_size > MAX_FILE_BYTES:
                    self._bury(name, f"larger than {MAX_FILE_BYTES} bytes, or not a plain file")
                    continue
                found.append((name, path.read_bytes()))
            except FileNotFoundError:
                continue
        return found

    def _clear(self, taken: Sequence[str], bad: Sequence[tuple[str, str]]) -> None:
        for name in taken:
            (self.folder / name).unlink(missing_ok=True)
        for name, why in bad:
            self._bury(name, why)

    def _bury(self, name: str, why: str) -> None:
        self.dead.mkdir(mode=0o700, exist_ok=True)
        (self.dead / f"{name}.reason").write_text(why + "\n", encoding="utf-8")
        os.replace(self.folder / name, self.dead / name)
        log.error("a spooled event cannot be taken in: %s; see %s", why, self.dead / name)

    async def purge(self, session: str) -> int:
        """Remove files that mention ``session``, dead letters and unfinished ones included; how many there were."""
        async with self._draining:
            return await asyncio.to_thread(self._purge, session.encode())

    def _purge(self, session: bytes) -> int:
        count = 0
        for folder in (self.folder, self.dead):
            for path in (*folder.glob("*.json"), *folder.glob("*.json.tmp")) if folder.is_dir() else ():
                try:
                    found = session in path.read_bytes()
                except OSError:
                    continue
                if found:
                    path.unlink(missing_ok=True)
                    path.with_name(path.name + ".reason").unlink(missing_ok=True)
                    count += 1
        return count


def is_whole(data: bytes) -> bool:
    """Whether a file was written to its end: one JSON object."""
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return False
    return True


def problem_with(error: Exception) -> str:
    """
    Why a line gives no event, for a person. One that this program stumbles over is set aside as well: tried again, it would
    end the process again. What such an error says may quote the line, which nothing has redacted; where it came from does not.
    """
    if isinstance(error, msgspec.MsgspecError):
        return f"it is not a hook client's line: {error}"
    log.error("a hook client's line cannot be read:\n%s", "".join(traceback.format_tb(error.__traceback__)))
    return f"it cannot be read: {type(error).__name__}"
