"""
The wiki as the writer uses it: pages in, history kept, a person's edits respected.

Two threads: one for files, here (a page is durable within a millisecond), one for git (``committer``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

from ....protocol.envelope import Unavailable
from ..disk import in_words
from . import files, history
from .committer import Committer
from .outcomes import Change, Expect, Refused, Written
from .repository import Repository, Version

log = logging.getLogger("recalld.writer")
T = TypeVar("T")

RETRY_MS = 5000
STOP_S = 5.0


class Wiki:
    """``await start()`` first, ``await aclose()`` last. Paths are relative to the wiki's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._repo: Repository | None = None
        self._files = ThreadPoolExecutor(1, thread_name_prefix="wiki-files")
        self._committer = Committer(root)
        self._cannot_open = ""

    # -- the event loop's side

    async def start(self) -> None:
        """
        Open or create the repository, commit what a crash left uncommitted, begin to watch for edits.

        A folder that cannot be written is told by ``note``, and is tried again with the next page.
        """
        try:
            await self._on_files(self._ready)
        except Unavailable as error:
            log.error(error.text)
        self._committer.start()

    async def read(self, path: str) -> bytes | None:
        """The page as it stands on the disk, None when there is none. Raises BadPath, Unavailable."""
        return await self._on_files(lambda: files.read(self.root, path))

    async def write(self, path: str, data: bytes, subject: str, expect: Expect | None = None) -> Written | Refused:
        """Write a page atomically; its commit follows. ``data`` is redacted already. Raises BadPath, Unavailable."""
        return await self._on_files(lambda: self._write(path, data, subject, expect or Expect()))

    async def remove(self, path: str, subject: str, expect_hash: str = "") -> bool | Refused:
        """Remove a page; False when there was none."""
        return await self._on_files(lambda: self._remove(path, subject, expect_hash))

    async def log(self, path: str, limit: int) -> list[Version]:
        """The page's history, newest first; what waits is committed first."""
        return await self._on_git(lambda repo: repo.log(path, limit))

    async def purge(self, paths: set[str], session: str) -> str:
        """
        Remove ``paths``, and every page of ``session`` under whatever name, from folder and history. What was done, in
        words. The old objects are gone from this repository; copies elsewhere are not.
        """
        await self._on_files(lambda: [files.remove(self.root, path) for path in paths])
        self._committer.forget(paths)
        return await self._on_git(lambda repo: history.purge(repo, paths, session))

    async def count(self, folder: str) -> int:
        """How many entries a folder of the wiki has."""
        return await self._on_files(lambda: files.count(self.root / folder))

    async def exists(self, path: str) -> bool:
        """Whether a page stands there."""
        return await self._on_files(lambda: (self.root / path).exists())

    async def flush(self) -> None:
        """Until everything written is committed and the index file agrees."""
        await self._on_git(_refresh)

    async def pack(self) -> int:
        """Pack the history's loose objects; how many there were."""
        return await self._on_git(lambda repo: self._committer.packer.run(repo))

    async def sweep(self) -> None:
        """Take in a person's edits now."""
        self._committer.sweep_soon()
        await self._on_git(lambda repo: None)

    async def aclose(self) -> None:
        """Commit what waits and stop."""
        self._committer.close()
        await asyncio.to_thread(self._committer.join, STOP_S)
        # A repository half made when the lock on the data folder is let go would be "damaged" for the next writer.
        await asyncio.to_thread(self._files.shutdown)

    @property
    def note(self) -> str:
        """What a person should know about the repository; '' when all is well."""
        return self._cannot_open or self._committer.problem or (self._repo.note if self._repo is not None else "")

    @property
    def packing_problem(self) -> str:
        """Why not all of the history is packed, and what to do; '' when nothing stands in the way."""
        return self._committer.packer.problem

    @property
    def commits_total(self) -> int:
        """Commits that were made since the start."""
        return self._committer.commits_total

    async def _on_files(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._files, work)
        except OSError as error:
            raise Unavailable(in_words(error), retry_after_ms=RETRY_MS) from error

    async def _on_git(self, work: Callable[[Repository], T]) -> T:
        await self._on_files(self._ready)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, failure: Exception | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(cast("T", value))

        def run(repo: Repository) -> None:
            try:
                loop.call_soon_threadsafe(settle, work(repo), None)
            except Exception as error:
                loop.call_soon_threadsafe(settle, None, error)

        self._committer.submit(run)
        return await future

    # -- the file thread

    def _open(self) -> None:
        repo = Repository(self.root)
        files.remove_leftovers(self.root)
        self._committer.take_up(repo)
        self._repo = repo

    def _write(self, path: str, data: bytes, subject: str, expect: Expect) -> Written | Refused:
        repo = self._ready()
        old = files.read(self.root, path)
        if (refused := self._refusal(repo, path, old, expect)) is not None:
            return refused
        if old == data:
            return Written(path, files.hash_of(data), (self.root / path).stat(), created=False)
        blob = repo.store(data)
        self._committer.mark(blob, path)
        stat = files.write(self.root, path, data)
        self._committer.enqueue(path, Change(blob, subject))
        return Written(path, files.hash_of(data), stat, created=old is None)

    def _remove(self, path: str, subject: str, expect_hash: str) -> bool | Refused:
        repo = self._ready()
        old = files.read(self.root, path)
        if old is None:
            return False
        if expect_hash and files.hash_of(old) != expect_hash:
            return Refused("changed", files.hash_of(old))
        if not self._is_ours(repo, path, old):
            # Their version goes into history before it goes from the folder.
            self._committer.commit(repo, {path: Change(repo.store(old), f"edit {path}")}, theirs=True)
        self._committer.mark("-", path)
        files.remove(self.root, path)
        self._committer.enqueue(path, Change("", subject))
        return True

    def _refusal(self, repo: Repository, path: str, old: bytes | None, expect: Expect) -> Refused | None:
        if old is None:
            return Refused("gone", "") if expect.hash else None
        standing = files.hash_of(old)
        if expect.create_only:
            return Refused("exists", standing)
        if expect.hash:
            if standing != expect.hash:
                return Refused("changed", standing)
            if not self._is_ours(repo, path, old):
                self._committer.commit(repo, {path: Change(repo.store(old), f"edit {path}")}, theirs=True)
            return None
        return Refused("theirs", standing) if expect.ours_only and not self._is_ours(repo, path, old) else None

    def _is_ours(self, repo: Repository, path: str, data: bytes) -> bool:
        """Whether the bytes on the disk are the last that we wrote there."""
        blob = history.blob_id(data)
        waiting = self._committer.waiting(path)
        if waiting is not None:
            return waiting.blob == blob
        with repo.lock:
            return path not in repo.known.theirs and repo.blob_id(path) == blob

    def _ready(self) -> Repository:
        """The repository. Raises Unavailable when its folder cannot be used now."""
        if self._repo is None:
            try:
                self._open()
            except OSError as error:
                self._cannot_open = f"the wiki in {self.root} cannot be opened: {error.strerror or error}"
                raise Unavailable(self._cannot_open, retry_after_ms=RETRY_MS) from None
            self._cannot_open = ""
        assert self._repo is not None
        return self._repo


def _refresh(repo: Repository) -> None:
    with repo.lock:
        repo.remember()
