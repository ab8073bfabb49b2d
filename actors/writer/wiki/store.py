"""
The wiki as the writer uses it: pages in, history kept, a person's edits respected.

Two threads: one for files (a page is durable within a millisecond), one for git (commits are gathered within a second under
load and never make a page wait). ``.git/recalld.pending`` names what was written and not yet committed, so that after a
crash our own pages are not taken for somebody's edits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, cast

from ....protocol.envelope import Unavailable
from ..disk import in_words
from . import files, history, packing
from .outcomes import Change, Expect, Refused, Written
from .repository import Damaged, Repository, Version

log = logging.getLogger("recalld.writer")
T = TypeVar("T")

GROUP_S = 1.0
"""Commits are at most this far apart under load; the first one after a pause is made at once."""
SWEEP_S = 30.0
"""How often the folder is compared with the last commit: a person's edits get into history by then."""
INDEX_IDLE_S = 2.0
"""The index file is brought up to date when nothing was committed for so long: at 10,000 pages that takes 20 ms."""
RETRY_MS = 5000
VANISH_MIN, VANISH_FRACTION = 20, 0.5
"""More than both vanishing is not committed as deletions before a second sweep confirms it (an unmounted folder)."""


class Wiki:
    """``await start()`` first, ``await aclose()`` last. Paths are relative to the wiki's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commits_total = 0
        self.foreign_total = 0
        self.problem = ""
        self.changed: Callable[[set[str]], None] = lambda paths: None
        """Called on the git thread with pages that a person changed (the index may want to know)."""
        self._repo: Repository | None = None
        self._files = ThreadPoolExecutor(1, thread_name_prefix="wiki-files")
        self._wake = threading.Condition()
        self._pending: dict[str, Change] = {}
        self._jobs: list[_Job] = []
        self._closing = False
        self._sweep_now = False
        self._thread: threading.Thread | None = None
        self._packer = packing.Packer(root / ".git")
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._vanishing: set[str] = set()

    # -- the event loop's side

    async def start(self) -> None:
        """
        Open or create the repository, commit what a crash left uncommitted, begin to watch for edits.

        A folder that cannot be written is a ``problem``, and is tried again with the next page.
        """
        try:
            await self._on_files(self._ready)
        except Unavailable as error:
            log.error(error.text)
        self._thread = threading.Thread(target=self._serve, name="wiki-git", daemon=True)
        self._thread.start()

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
        with self._wake:
            for path in paths:
                self._pending.pop(path, None)
        return await self._on_git(lambda repo: history.purge(repo, paths, session))

    async def count(self, folder: str) -> int:
        """How many entries a folder of the wiki has."""
        return await self._on_files(lambda: files.count(self.root / folder))

    async def exists(self, path: str) -> bool:
        """Whether a page stands there."""
        return await self._on_files(lambda: (self.root / path).exists())

    async def flush(self) -> None:
        """Until everything written is committed and the index file agrees."""
        await self._on_git(lambda repo: self._refresh(repo))

    async def pack(self) -> int:
        """Pack the history's loose objects; how many there were."""
        return await self._on_git(lambda repo: self._packer.run(repo))

    async def sweep(self) -> None:
        """Take in a person's edits now."""
        self._sweep_now = True
        await self._on_git(lambda repo: None)

    async def aclose(self) -> None:
        """Commit what waits and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._packer.close()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5.0)
        # A repository half made when the lock on the data folder is let go would be "damaged" for the next writer.
        await asyncio.to_thread(self._files.shutdown)

    @property
    def note(self) -> str:
        """What a person should know about the repository; '' when all is well."""
        return self.problem or (self._repo.note if self._repo is not None else "")

    @property
    def packing_problem(self) -> str:
        """Why not all of the history is packed, and what to do; '' when nothing stands in the way."""
        return self._packer.problem

    @property
    def waiting(self) -> int:
        """Pages that wait for their commit."""
        return len(self._pending)

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

        with self._wake:
            self._jobs.append(run)
            self._wake.notify()
        return await future

    # -- the file thread

    def _open(self) -> None:
        repo = Repository(self.root)
        files.remove_leftovers(self.root)
        for line in self._marks().read_text(encoding="utf-8").splitlines() if self._marks().exists() else ():
            blob, _, path = line.partition(" ")
            data = self._standing(path) if path else None
            if data is not None and repo.store(data) == blob:
                self._pending[path] = Change(blob, f"write {path}")
            elif data is None and not blob.strip("-"):
                self._pending[path] = Change("", f"remove {path}")
        self._repo = repo

    def _write(self, path: str, data: bytes, subject: str, expect: Expect) -> Written | Refused:
        repo = self._ready()
        old = files.read(self.root, path)
        if (refused := self._refusal(repo, path, old, expect)) is not None:
            return refused
        if old == data:
            return Written(path, files.hash_of(data), (self.root / path).stat(), created=False)
        blob = repo.store(data)
        self._mark(blob, path)
        stat = files.write(self.root, path, data)
        self._enqueue(path, Change(blob, subject))
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
            self._commit(repo, {path: Change(repo.store(old), f"edit {path}")}, theirs=True)
        self._mark("-", path)
        files.remove(self.root, path)
        self._enqueue(path, Change("", subject))
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
                self._commit(repo, {path: Change(repo.store(old), f"edit {path}")}, theirs=True)
            return None
        return Refused("theirs", standing) if expect.ours_only and not self._is_ours(repo, path, old) else None

    def _is_ours(self, repo: Repository, path: str, data: bytes) -> bool:
        """Whether the bytes on the disk are the last that we wrote there."""
        blob = history.blob_id(data)
        with self._wake:
            waiting = self._pending.get(path)
        if waiting is not None:
            return waiting.blob == blob
        with repo.lock:
            return path not in repo.known.theirs and repo.blob_id(path) == blob

    def _enqueue(self, path: str, change: Change) -> None:
        with self._wake:
            self._pending[path] = change
            self._wake.notify()

    def _marks(self) -> Path:
        return self.root / ".git" / "recalld.pending"

    def _mark(self, blob: str, path: str) -> None:
        # Not synced: a power cut may lose it, and then our page is taken for an edit, which is the safe side.
        with self._marks().open("a", encoding="utf-8") as stream:
            stream.write(f"{blob} {path}\n")

    def _ready(self) -> Repository:
        """The repository. Raises Unavailable when its folder cannot be used now."""
        if self._repo is None:
            try:
                self._open()
            except OSError as error:
                self.problem = f"the wiki in {self.root} cannot be opened: {error.strerror or error}"
                raise Unavailable(self.problem, retry_after_ms=RETRY_MS) from None
            self.problem = ""
        assert self._repo is not None
        return self._repo

    # -- the git thread

    def _serve(self) -> None:
        with self._wake:
            while self._repo is None and not self._closing:
                self._wake.wait(GROUP_S)
        if self._repo is None:
            return
        repo = self._repo
        self._seen = history.recall_seen(self.root)
        # What a person did while nobody looked is found soon, but not in the busy moment of the start.
        committed = swept = time.monotonic() - GROUP_S
        self._sweep_now = self._sweep_now or bool(repo.note)
        stale: set[str] = set()
        while True:
            with self._wake:
                now = time.monotonic()
                due = committed + GROUP_S if self._pending else swept + SWEEP_S
                if stale and not self._pending:
                    due = min(due, committed + INDEX_IDLE_S)
                if not self._jobs and not self._closing and not self._sweep_now and due > now:
                    self._wake.wait(due - now)
                jobs, self._jobs = self._jobs, []
                closing = self._closing
                commit_now = bool(jobs) or closing or time.monotonic() >= committed + GROUP_S
                sweep_now = self._sweep_now or time.monotonic() >= swept + SWEEP_S
                self._sweep_now = False
            try:
                if self._pending and commit_now:
                    stale |= self._commit_pending(repo)
                    committed = time.monotonic()
                if sweep_now:
                    stale |= self._sweep(repo)
                    swept = time.monotonic()
                if stale and (jobs or closing or time.monotonic() >= committed + INDEX_IDLE_S):
                    with repo.lock:
                        if repo.refresh_index(stale):
                            stale = set()
                        repo.remember()
                if not (jobs or closing or stale or self._pending) and self._packer.due():
                    self._packer.run(repo)
                self.problem = ""
            except Exception as error:
                # A failing repository must not take pages or capture down: say so, try again with the next change.
                self.problem = f"the wiki's git repository cannot be written: {error}"
                log.exception("a commit to the wiki failed")
                committed = swept = time.monotonic()
            for job in jobs:
                job(repo)
            if closing:
                return

    def _commit_pending(self, repo: Repository) -> set[str]:
        with repo.lock:
            if repo.busy():
                return set()
            self._take_foreign(repo)
            with self._wake:
                batch = dict(self._pending)
            kept = history.stored(repo, {path: change.blob for path, change in batch.items()})
            self._commit(repo, {path: change for path, change in batch.items() if path in kept}, theirs=False)
        with self._wake:
            for path, change in batch.items():
                if self._pending.get(path) is change:
                    del self._pending[path]
            if not self._pending:
                self._marks().unlink(missing_ok=True)
        return set(batch)

    def _take_foreign(self, repo: Repository) -> None:
        """Commits that the person made themselves: what they changed is theirs."""
        foreign = repo.foreign_changes()
        if foreign or repo.tip() != repo.known.tip:
            repo.known.theirs |= foreign
            repo.known.tip = repo.tip()
            self.foreign_total += len(foreign)

    def _commit(self, repo: Repository, batch: Mapping[str, Change], *, theirs: bool) -> None:
        changes = {path: change.blob for path, change in batch.items()}
        subjects = [change.subject for change in batch.values()]
        verb = "edit" if theirs else "record"
        message = subjects[0] if len(subjects) == 1 else f"{verb} {len(subjects)} pages\n\n" + "\n".join(subjects[:100])
        with repo.lock:
            try:
                made = repo.commit(changes, message + "\n", theirs=theirs)
            except Damaged as error:
                repo.set_aside(str(error))
                made = repo.commit(self._everything(repo), "record every page\n")
            if made:
                self.commits_total += 1
                repo.remember()

    def _everything(self, repo: Repository) -> dict[str, str]:
        found = {}
        for path in files.stats(self.root):
            data = self._standing(path)
            if data is not None:
                found[path] = repo.store(data)
        return found

    def _standing(self, path: str) -> bytes | None:
        """The file at ``path``; None when it cannot be read now, or has become something else."""
        try:
            return files.read(self.root, path)
        except (OSError, files.BadPath):
            return None

    def _sweep(self, repo: Repository) -> set[str]:
        """Commit what differs between folder and last commit and is not ours: a person's edits, as theirs."""
        stats = files.stats(self.root)
        with repo.lock:
            if repo.busy():
                return set()
            self._take_foreign(repo)
            known = repo.files() if stats != self._seen or self._vanishing else {}
        edits: dict[str, Change] = {}
        # Without the lock: ten thousand files take a second, and pages are written meanwhile.
        for path, stat in stats.items():
            data = self._standing(path) if self._seen.get(path) != stat else None
            if data is None:
                continue
            blob = history.blob_id(data)
            waiting = self._pending.get(path)
            if blob != known.get(path, "") and (waiting is None or waiting.blob != blob):
                edits[path] = Change(repo.store(data), f"edit {path}")
        vanished = {path for path in known if path not in stats and path not in self._pending}
        edits |= {path: Change("", f"remove {path}") for path in self._confirmed(vanished, len(known))}
        if edits:
            self._commit(repo, edits, theirs=True)
            self.foreign_total += len(edits)
            self.changed(set(edits))
        if stats != self._seen:
            self._seen = stats
            history.remember_seen(self.root, stats)
        return set(edits)

    def _confirmed(self, vanished: set[str], known: int) -> set[str]:
        if len(vanished) > VANISH_MIN and len(vanished) > known * VANISH_FRACTION and vanished != self._vanishing:
            self._vanishing = vanished
            self._seen = {}
            return set()
        self._vanishing = set()
        return vanished

    def _refresh(self, repo: Repository) -> None:
        with repo.lock:
            repo.remember()


_Job = Callable[[Repository], None]
