"""
The wiki's git thread: it commits what was written, takes in a person's edits, and packs the history when nothing happens.

Commits are gathered within a second under load and never make a page wait. ``.git/recalld.pending`` names what was written
and not yet committed, so that after a crash our own pages are not taken for somebody's edits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from . import files, history, packing
from .outcomes import Change
from .repository import Damaged, Repository

log = logging.getLogger("recalld.writer")

GROUP_S = 1.0
"""Commits are at most this far apart under load; the first one after a pause is made at once."""
SWEEP_S = 30.0
"""How often the folder is compared with the last commit: a person's edits get into history by then."""
INDEX_IDLE_S = 2.0
"""The index file is brought up to date when nothing was committed for so long: at 10,000 pages that takes 20 ms."""
VANISH_MIN, VANISH_FRACTION = 20, 0.5
"""More than both vanishing is not committed as deletions before a second sweep confirms it (an unmounted folder)."""

Job = Callable[[Repository], None]


class Committer:
    """``start`` first; it waits for ``take_up``. What is not of the git thread may be called from any other."""

    def __init__(self, root: Path) -> None:
        self.packer = packing.Packer(root / ".git")
        self.commits_total = 0
        self.problem = ""
        """Why the last commit failed; '' when it did not."""
        self._root = root
        self._repo: Repository | None = None
        self._wake = threading.Condition()
        self._pending: dict[str, Change] = {}
        self._jobs: list[Job] = []
        self._closing = False
        self._sweep_now = False
        self._thread: threading.Thread | None = None
        self._seen: history.Seen = {}
        self._vanishing: set[str] = set()

    def start(self) -> None:
        """Begin to commit, and to watch for edits."""
        self._thread = threading.Thread(target=self._serve, name="wiki-git", daemon=True)
        self._thread.start()

    def take_up(self, repo: Repository) -> None:
        """This is the repository, with what a crash left uncommitted."""
        for line in self._marks().read_text(encoding="utf-8").splitlines() if self._marks().exists() else ():
            blob, _, path = line.partition(" ")
            data = self.standing(path) if path else None
            if data is not None and repo.store(data) == blob:
                self._pending[path] = Change(blob, f"write {path}")
            elif data is None and not blob.strip("-"):
                self._pending[path] = Change("", f"remove {path}")
        self._repo = repo

    def submit(self, job: Job) -> None:
        """Let the git thread do ``job``, after a commit of what waits. A job raises nothing."""
        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def sweep_soon(self) -> None:
        """Let it look for edits with the next thing that it does."""
        self._sweep_now = True

    def waiting(self, path: str) -> Change | None:
        """What waits to be committed of a page."""
        with self._wake:
            return self._pending.get(path)

    def forget(self, paths: Iterable[str]) -> None:
        """Do not commit what waits of ``paths``."""
        with self._wake:
            for path in paths:
                self._pending.pop(path, None)

    def close(self) -> None:
        """Commit what waits and come to an end; a packing that runs is broken off."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self.packer.close()

    def join(self, seconds: float) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def mark(self, blob: str, path: str) -> None:
        """A page is about to be written (its blob) or removed ('-') by us."""
        # Not synced: a power cut may lose it, and then our page is taken for an edit, which is the safe side.
        with self._marks().open("a", encoding="utf-8") as stream:
            stream.write(f"{blob} {path}\n")

    def enqueue(self, path: str, change: Change) -> None:
        """A page was written or removed: its commit follows."""
        with self._wake:
            self._pending[path] = change
            self._wake.notify()

    def commit(self, repo: Repository, batch: Mapping[str, Change], *, theirs: bool) -> None:
        """Commit ``batch`` now, in one piece. Pages that wait for their commit go on waiting."""
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

    def standing(self, path: str) -> bytes | None:
        """The file at ``path``; None when it cannot be read now, or has become something else."""
        try:
            return files.read(self._root, path)
        except (OSError, files.BadPath):
            return None

    def _everything(self, repo: Repository) -> dict[str, str]:
        found = {}
        for path in files.stats(self._root):
            data = self.standing(path)
            if data is not None:
                found[path] = repo.store(data)
        return found

    def _marks(self) -> Path:
        return self._root / ".git" / "recalld.pending"

    # -- the git thread

    def _serve(self) -> None:
        with self._wake:
            while self._repo is None and not self._closing:
                self._wake.wait(GROUP_S)
            repo = self._repo
        if repo is None:
            return
        self._seen = history.recall_seen(self._root)
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
                if not (jobs or closing or stale or self._pending) and self.packer.due():
                    self.packer.run(repo)
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
            self.commit(repo, {path: change for path, change in batch.items() if path in kept}, theirs=False)
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

    def _sweep(self, repo: Repository) -> set[str]:
        """Commit what differs between folder and last commit and is not ours: a person's edits, as theirs."""
        stats = files.stats(self._root)
        with repo.lock:
            if repo.busy():
                return set()
            self._take_foreign(repo)
            known = repo.files() if stats != self._seen or self._vanishing else {}
        edits: dict[str, Change] = {}
        # Without the lock: ten thousand files take a second, and pages are written meanwhile.
        for path, stat in stats.items():
            data = self.standing(path) if self._seen.get(path) != stat else None
            if data is None:
                continue
            blob = history.blob_id(data)
            waiting = self._pending.get(path)
            if blob != known.get(path, "") and (waiting is None or waiting.blob != blob):
                edits[path] = Change(repo.store(data), f"edit {path}")
        vanished = {path for path in known if path not in stats and path not in self._pending}
        edits |= {path: Change("", f"remove {path}") for path in self._confirmed(vanished, len(known))}
        if edits:
            self.commit(repo, edits, theirs=True)
        if stats != self._seen:
            self._seen = stats
            history.remember_seen(self._root, stats)
        return set(edits)

    def _confirmed(self, vanished: set[str], known: int) -> set[str]:
        if len(vanished) > VANISH_MIN and len(vanished) > known * VANISH_FRACTION and vanished != self._vanishing:
            self._vanishing = vanished
            self._seen = {}
            return set()
        self._vanishing = set()
        return vanished
