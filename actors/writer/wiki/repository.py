"""
The wiki's git repository. Blocking; one caller at a time (``lock``).

Commits are built with TreeBuilder along the changed paths: the cost depends on the folders that a page stands in, not on
the size of the wiki. The index file is brought up to date when there is time, for the person who runs git here.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pygit2
from pygit2.enums import DiffOption, FileMode, ObjectType, SortMode

from ..disk import make_folder
from . import loose

log = logging.getLogger("recalld.writer")

OURS = ("recalld", "recalld@localhost")
BRANCH = "refs/heads/main"
EXCLUDE = "# written by recalld\n.obsidian/\n.trash/\n.git.damaged-*/\n.#*\n*.tmp.md\n.DS_Store\n"
COMMIT_TRIES = 4
"""The person may commit at the same moment: the tip moved, look again."""


class Version(msgspec.Struct, frozen=True):
    """One commit that changed a page. ``at_ms``: author time."""

    commit: str
    at_ms: int
    author: str
    subject: str


class Known(msgspec.Struct):
    """What recalld remembers beside the repository (in ``.git/recalld.json``): derived, safe to lose."""

    tip: str = ""
    """The last commit that it made or saw."""
    theirs: set[str] = msgspec.field(default_factory=set)
    """Paths whose last change came from a person: not overwritten without their consent."""


class Damaged(Exception):
    """Raised when the repository cannot be read: it has to be set aside."""


class Repository:
    """``note`` is what a person should know about it ('' = all is well)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.note = ""
        self.lock = threading.RLock()
        """Held for every use from the git thread, and by the file thread when it looks something up."""
        self.repo = self._open()
        self.known = self._recall()

    # -- opening

    def _open(self) -> pygit2.Repository:
        make_folder(self.root)
        try:
            if not (self.root / ".git").exists():
                return self._init()
            self._pass_over_cut_off()
            repo = pygit2.Repository(str(self.root / ".git"))
            if "core.repositoryformatversion" not in repo.config:
                raise ValueError("its configuration is not one")
            if not repo.head_is_unborn:
                _ = repo.head.peel(pygit2.Commit).tree.id
            return repo
        except (pygit2.GitError, KeyError, ValueError, OSError) as error:
            return self._start_afresh(str(error))

    def _init(self) -> pygit2.Repository:
        repo = pygit2.init_repository(str(self.root), initial_head="main")
        info = self.root / ".git" / "info"
        info.mkdir(exist_ok=True)
        (info / "exclude").write_text(EXCLUDE, encoding="utf-8")
        return repo

    def _pass_over_cut_off(self) -> None:
        objects = self.root / ".git" / "objects"
        try:
            found = loose.set_aside_cut_off(objects)
        except OSError as error:
            log.warning("the wiki's history could not be looked through: %s", error)
            return
        if found:
            self.note = (
                f"objects in the wiki's history were cut off, by a power cut perhaps: {', '.join(found)} in {objects};"
                " they are named *.cut-off there now: put the files back from a copy of the folder where there is one"
            )
            log.error(self.note)

    def _start_afresh(self, why: str) -> pygit2.Repository:
        aside = self.root / f".git.damaged-{time.time_ns()}"
        os.rename(self.root / ".git", aside)
        self.note = (
            f"the wiki's git repository was damaged ({why}); it was set aside as {aside.name} and a new one begun"
        )
        log.error(self.note)
        return self._init()

    def set_aside(self, why: str) -> None:
        """Begin a new repository beside the damaged one. The pages themselves are untouched."""
        self.repo.free()
        self.repo = self._start_afresh(why)
        self.known = Known()

    def reopen(self) -> None:
        """Forget what libgit2 keeps of the object store: files below it were replaced."""
        self.repo.free()
        self.repo = pygit2.Repository(str(self.root / ".git"))

    def _recall(self) -> Known:
        try:
            return msgspec.json.decode((self.root / ".git" / "recalld.json").read_bytes(), type=Known)
        except (FileNotFoundError, msgspec.MsgspecError):
            return Known(tip=self.tip())

    def remember(self) -> None:
        """Store what is known. Not synced: it may be lost with the power, and is then conservative."""
        target = self.root / ".git" / "recalld.json"
        temp = target.with_suffix(".tmp")
        temp.write_bytes(msgspec.json.encode(self.known))
        os.replace(temp, target)

    # -- reading

    def tip(self) -> str:
        """The id of the last commit, '' before the first."""
        return "" if self.repo.head_is_unborn else str(self.repo.head.target)

    def busy(self) -> bool:
        """A merge or rebase of the person is under way, or the head is not on a branch: nothing is committed meanwhile."""
        return bool(self.repo.state()) or self.repo.head_is_detached

    def tree(self) -> pygit2.Tree | None:
        return None if self.repo.head_is_unborn else self.repo.head.peel(pygit2.Commit).tree

    def blob_id(self, path: str) -> str:
        """The id of a page in the last commit, '' when it is not there."""
        tree = self.tree()
        if tree is None:
            return ""
        try:
            return str(tree[path].id)
        except KeyError:
            return ""

    def files(self) -> dict[str, str]:
        """Every path in the last commit, with its blob's id."""
        tree = self.tree()
        return dict(_walk(tree, "")) if tree is not None else {}

    def log(self, path: str, limit: int) -> list[Version]:
        """The commits that changed ``path``, newest first. Renames are not followed."""
        if self.repo.head_is_unborn:
            return []
        found: list[Version] = []
        for commit in self.repo.walk(self.repo.head.target, SortMode.TOPOLOGICAL | SortMode.TIME):
            here = _entry(commit.tree, path)
            before = {_entry(parent.tree, path) for parent in commit.parents} or {""}
            if here not in before:
                subject = commit.message.strip().split("\n", 1)[0]
                author = commit.author
                found.append(Version(str(commit.id), author.time * 1000, author.name, subject))
                if len(found) >= limit:
                    break
        return found

    # -- writing

    def store(self, data: bytes) -> str:
        """Put bytes into the object store; the id is what git will call them."""
        with self.lock:
            return str(self.repo.create_blob(data))

    def has(self, blob: str) -> bool:
        """Whether the object store has an object of this id."""
        return pygit2.Oid(hex=blob) in self.repo

    def commit(self, changes: Mapping[str, str], message: str, *, theirs: bool = False) -> str:
        """
        Commit ``changes`` (path -> blob id, '' = removed) on top of whatever the tip is; '' when nothing differs.

        Raises Damaged. The author is recalld, or the person as git knows them.
        """
        try:
            for attempt in range(COMMIT_TRIES):
                try:
                    return self._commit(changes, message, theirs)
                except pygit2.GitError as error:
                    # Trigger: the tip is no longer the parent that was read.
                    # Why: the person committed in between; theirs stays, ours goes on top.
                    # Outcome: build the tree again from the new tip.
                    if "tip is not the first parent" not in str(error) or attempt == COMMIT_TRIES - 1:
                        raise
        except (pygit2.GitError, KeyError, ValueError) as error:
            raise Damaged(str(error)) from error
        raise AssertionError("unreachable")

    def _commit(self, changes: Mapping[str, str], message: str, theirs: bool) -> str:
        tree = self.tree()
        grafted = self._graft(tree, changes)
        new = grafted if grafted is not None else self.repo.TreeBuilder().write()
        if tree is not None and new == tree.id:
            return ""
        parents = [] if tree is None else [self.repo.head.target]
        ours = pygit2.Signature(*OURS)
        author = self.person() if theirs else ours
        made = str(self.repo.create_commit("HEAD", author, author if theirs else ours, message, new, parents))
        self.known.tip = made
        if theirs:
            self.known.theirs.update(changes)
        else:
            self.known.theirs.difference_update(changes)
        return made

    def _graft(self, tree: pygit2.Tree | None, changes: Mapping[str, str]) -> pygit2.Oid | None:
        builder = self.repo.TreeBuilder() if tree is None else self.repo.TreeBuilder(tree)
        below: dict[str, dict[str, str]] = {}
        for path, blob in changes.items():
            name, _, rest = path.partition("/")
            if rest:
                below.setdefault(name, {})[rest] = blob
            elif blob:
                builder.insert(name, pygit2.Oid(hex=blob), FileMode.BLOB)
            elif builder.get(name) is not None:
                builder.remove(name)
        for name, inner in below.items():
            entry = builder.get(name)
            oid = self._graft(entry if isinstance(entry, pygit2.Tree) else None, inner)
            if oid is not None:
                builder.insert(name, oid, FileMode.TREE)
            elif entry is not None:
                builder.remove(name)
        return builder.write() if len(builder) else None

    def person(self) -> pygit2.Signature:
        """The person at this machine, as their git configuration names them."""
        try:
            return self.repo.default_signature
        except (KeyError, pygit2.GitError):
            return pygit2.Signature("you", "you@localhost")

    def foreign_changes(self) -> set[str]:
        """Paths that commits changed which recalld did not make (the person ran git, or pulled)."""
        tip = self.tip()
        if not tip or tip == self.known.tip:
            return set()
        try:
            old = self.repo[self.known.tip].peel(pygit2.Tree) if self.known.tip else None
        except (KeyError, ValueError, pygit2.GitError):
            old = None
        new = self.repo[tip].peel(pygit2.Tree)
        if old is None:
            return set()
        diff = old.diff_to_tree(new, flags=DiffOption.SKIP_BINARY_CHECK)
        return {delta.new_file.path for delta in diff.deltas}

    def refresh_index(self, paths: set[str]) -> bool:
        """Bring the index in line with the last commit for ``paths``; False when git holds its lock just now."""
        try:
            index = self.repo.index
            index.read(force=False)
            tree = self.tree()
            for path in paths:
                blob = _entry(tree, path) if tree is not None else ""
                if blob:
                    index.add(pygit2.IndexEntry(path, pygit2.Oid(hex=blob), FileMode.BLOB))
                elif path in index:
                    index.remove(path)
            index.write()
        except (pygit2.GitError, OSError):
            return False
        return True


def _entry(tree: pygit2.Tree, path: str) -> str:
    try:
        return str(tree[path].id)
    except KeyError:
        return ""


def _walk(tree: pygit2.Tree, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in tree:
        path = f"{prefix}{entry.name}"
        if entry.type == ObjectType.TREE:
            assert isinstance(entry, pygit2.Tree)
            yield from _walk(entry, path + "/")
        elif entry.type == ObjectType.BLOB:
            yield path, str(entry.id)
