"""
Hook events that found nobody at home: one JSON file each, written by the hook client, taken in when the daemon runs.

In order of their names (which begin with the time), one drain at a time, each removed only after the journal has it. What
cannot be understood goes to ``spool/dead`` with the reason beside it, and stays there until a person looks. A file that
cannot be read is passed over and tried again now and then: those behind it are taken in meanwhile, also of its session.
Nothing is given up for having been tried often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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
AGAIN_S = 30.0
"""Between two looks at a file that is held: a hundred thousand of them would keep the disk busy."""
NAMED = 3
"""Held files that are named; of the others, their number."""


class Undeliverable(Exception):
    """Raised when a spooled event can never be taken in; the text says why."""


class Held(NamedTuple):
    """A file that the system lets be neither read nor removed."""

    why: str
    taken: bool
    """It was delivered and could not be removed: not to be delivered again."""
    again: float
    """When it is looked at again, by the clock of ``time.monotonic``."""


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
        self.held_problem = ""
        """Which files are passed over, why, and what to do; '' for none."""
        self._held: dict[str, Held] = {}
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
            due = self._due(names)
            try:
                for start in range(0, len(due), BATCH):
                    delivered += await self._drain_batch(due[start : start + BATCH])
            except (ProtocolError, OSError) as error:
                self.problem = f"{self.waiting} events wait in the spool: {error}"
                log.warning(self.problem)
                return delivered
            finally:
                self._tell_held()
            self.problem = ""
            if due:
                # A client that found the spool full left this mark; there is room again.
                with contextlib.suppress(OSError):
                    (self.folder / ".full").unlink(missing_ok=True)
            if delivered:
                log.info("took in %d spooled events", delivered)
            return delivered

    def _due(self, names: Collection[str]) -> list[str]:
        """Those of ``names`` that are to be looked at now."""
        self._held = {name: held for name in names if (held := self._held.get(name)) is not None}
        self.waiting = len(names) - sum(held.taken for held in self._held.values())
        now = time.monotonic()
        return [name for name in names if (held := self._held.get(name)) is None or held.again <= now]

    def _tell_held(self) -> None:
        """Log what is held, once for as long as it stays the same."""
        before, self.held_problem = self.held_problem, in_words(self.folder, self._held)
        if self.held_problem and self.held_problem != before:
            log.warning(self.held_problem)

    async def _drain_batch(self, names: Sequence[str]) -> int:
        left = {name for name in names if (held := self._held.get(name)) is not None and held.taken}
        bodies = await asyncio.to_thread(self._read, [name for name in names if name not in left])
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
        await asyncio.to_thread(self._clear, [*taken, *left], bad)
        self.delivered_total += len(taken)
        buried = sum(name not in self._held for name, _ in bad)
        self.dead_letters += buried
        self.waiting -= len(taken) + buried
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
            if entry.name.endswith(".json") and entry.name[:1] != "." and _is_file(entry)
        )
        self._settle_unfinished({entry.name for entry in entries if entry.name.endswith(".tmp") and _is_file(entry)})
        try:
            dead = sum(1 for entry in os.scandir(self.dead) if entry.name.endswith(".json"))
        except FileNotFoundError:
            dead = 0
        except OSError:  # what cannot be counted holds up nobody; what is to go there is held
            dead = self.dead_letters
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
                self._held.pop(name, None)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._hold(name, error, taken=False)
        return found

    def _clear(self, taken: Sequence[str], bad: Sequence[tuple[str, str]]) -> None:
        for name in taken:
            try:
                (self.folder / name).unlink(missing_ok=True)
                self._held.pop(name, None)
            except OSError as error:
                self._hold(name, error, taken=True)
        for name, why in bad:
            try:
                self._bury(name, why)
            except OSError as error:
                self._hold(name, error, taken=False)

    def _hold(self, name: str, error: OSError, *, taken: bool) -> None:
        self._held[name] = Held(error.strerror or type(error).__name__, taken, time.monotonic() + AGAIN_S)

    def _bury(self, name: str, why: str) -> None:
        self.dead.mkdir(mode=0o700, exist_ok=True)
        (self.dead / f"{name}.reason").write_text(why + "\n", encoding="utf-8")
        os.replace(self.folder / name, self.dead / name)
        log.error("a spooled event cannot be taken in: %s; see %s", why, self.dead / name)

    async def purge(self, session: str) -> str:
        """
        Remove files that mention ``session``, dead letters and unfinished ones included. In words, how many there were, and
        how many could not be looked into or removed.
        """
        async with self._draining:
            return await asyncio.to_thread(self._purge, session.encode())

    def _purge(self, session: bytes) -> str:
        gone = left = 0
        for folder in (self.folder, self.dead):
            for path in (*folder.glob("*.json"), *folder.glob("*.json.tmp")) if folder.is_dir() else ():
                try:
                    if session in path.read_bytes():
                        path.unlink(missing_ok=True)
                        path.with_name(path.name + ".reason").unlink(missing_ok=True)
                        gone += 1
                except FileNotFoundError:
                    continue
                except OSError:
                    left += 1
        words = f"{gone} files"
        return (
            f"{words}; {left} could not be read or removed and may be of it: look at {self.folder}" if left else words
        )


def in_words(folder: Path, held: Mapping[str, Held]) -> str:
    """What a person should know of the files that are held in ``folder``; '' for none."""
    if not held:
        return ""
    named = ", ".join(f"{name} ({each.why})" for name, each in sorted(held.items())[:NAMED])
    more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
    return (
        f"what cannot be read or removed stays in {folder}: {named}{more}; chown it to yourself and chmod u+rw, or delete"
        " it; the others are taken in meanwhile"
    )


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Also for a link, which is set aside whatever it leads to, if anywhere."""
    return entry.is_symlink() or entry.is_file(follow_symlinks=False)


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
