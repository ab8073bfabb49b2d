"""
What git knows of a watched folder: which version of each note was committed when. Blocking, and never writes.

The history is that of the first parents of HEAD, by commit time: what was merged stood here from the merge on. A clock
that was wrong cannot turn it round: no commit counts as later than the one after it.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable

import msgspec
import pygit2
from pygit2.enums import DeltaStatus, DiffOption, FileMode, SortMode

from ....memory.notes.ignore import FILES as IGNORE_FILES
from ....memory.notes.ignore import Rules
from ....memory.notes.intervals import Stood
from ....memory.notes.parse import is_note
from ... import inside

IGNORE_FILE_BYTES = 1_000_000
MAX_FOLDERS = 20_000
"""So many are searched for repositories."""
FILES = {FileMode.BLOB, FileMode.BLOB_EXECUTABLE}


class Unusable(Exception):
    """Raised when the repository cannot be read; the text says why."""


class Limits(msgspec.Struct, frozen=True, array_like=True):
    """How far back a log goes. All are bounds on work, not on what is kept."""

    commits: int = 5000
    versions: int = 200_000
    per_path: int = 1000
    since_ms: int = 0
    """The first commit before this is the last one looked at."""


class VaultLog(msgspec.Struct, frozen=True):
    """Versions by path, oldest first. ``commits``: how many were looked at."""

    tip: str
    versions: dict[str, list[Stood]]
    commits: int


class Ignored:
    """What the watcher would not look at, by the ignore files that lie in the folder now: they hold for the past too."""

    def __init__(self, root: str, patterns: Iterable[str]) -> None:
        self._root = root
        self._base = Rules(patterns)
        self._folders: dict[str, Rules | None] = {}

    def __call__(self, path: str) -> bool:
        rules = self._below(path.rpartition("/")[0])
        return rules is None or rules.ignores(path, folder=False)

    def folder(self, path: str) -> bool:
        return self._below(path) is None

    def _below(self, folder: str) -> Rules | None:
        """Rules for what is in ``folder``; None when that is itself ignored."""
        if folder not in self._folders:
            above = self._below(folder.rpartition("/")[0]) if folder else self._base
            if above is not None and folder and above.ignores(folder, folder=True):
                above = None
            self._folders[folder] = self._with_files(folder, above) if above is not None else None
        return self._folders[folder]

    def _with_files(self, folder: str, above: Rules) -> Rules:
        lines: list[str] = []
        for name in IGNORE_FILES:
            try:
                raw = inside.read_file(
                    self._root, f"{folder}/{name}" if folder else name, IGNORE_FILE_BYTES, links=True
                )
            except OSError:
                continue
            lines += (raw or b"").decode("utf-8", "replace").splitlines()
        return above.with_folder(folder, lines) if lines else above


def repositories(root: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """
    Folders whose history is that of notes in ``root``: '' for the root itself, which may lie inside a repository, and those
    below it that are repositories of their own. Ignored ones, and what links lead to, are left out.
    """
    ignored = Ignored(root, patterns)
    found = [""]
    for count, (folder, names, files) in enumerate(os.walk(root)):
        here = os.path.relpath(folder, root)
        sub = "" if here == "." else here
        if sub and (".git" in names or ".git" in files):
            found.append(sub)
        names[:] = [name for name in names if name != ".git" and not ignored.folder(f"{sub}/{name}" if sub else name)]
        if count >= MAX_FOLDERS:
            break
    return tuple(found)


def tip(root: str) -> str:
    """The id of the last commit of the repository that ``root`` is in; '' when there is none. Raises Unusable."""
    try:
        found = pygit2.discover_repository(root)
        if not found:
            return ""
        repo = pygit2.Repository(found)
        try:
            return "" if repo.head_is_unborn or repo.workdir is None else str(repo.head.target)
        finally:
            repo.free()
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        raise Unusable(f"its git repository cannot be read ({error})") from None


class Vault:
    """
    A vault, or the folder ``sub`` of it, in a repository. Raises Unusable wherever that turns out to be damaged, or another
    user's.
    """

    def __init__(self, root: str, sub: str = "") -> None:
        self.root = os.path.realpath(root)
        self._sub = f"{sub}/" if sub else ""
        folder = os.path.join(self.root, sub) if sub else self.root
        try:
            found = pygit2.discover_repository(folder)
            if not found:
                raise Unusable("it is in no git repository")
            self._repo = pygit2.Repository(found)
            if self._repo.workdir is None:
                raise Unusable("its git repository has no working tree")
            prefix = os.path.relpath(folder, os.path.realpath(self._repo.workdir))
            self._prefix = [] if prefix == "." else prefix.split("/")
        except (pygit2.GitError, KeyError, ValueError, OSError) as error:
            raise Unusable(f"its git repository cannot be read ({error})") from None

    def log(self, limits: Limits, now_ms: int, ignored: Ignored, known_tip: str = "") -> VaultLog:
        """
        Versions that commits made which ``known_tip`` does not contain, and what these replaced; all of them when it is ''
        or not there any more.
        """
        try:
            if self._repo.head_is_unborn:
                return VaultLog("", {}, 0)
            walk = _Walk(self._repo, self._prefix, self._sub, limits, now_ms, ignored)
            walk.run(self._repo.head.peel(pygit2.Commit), known_tip)
        except (pygit2.GitError, KeyError, ValueError, OSError) as error:
            raise Unusable(f"its git repository cannot be read ({error})") from None
        return VaultLog(walk.tip, {path: found[::-1] for path, found in walk.found.items()}, walk.commits)

    def data(self, blob: str, max_bytes: int) -> bytes | None:
        """The bytes of a version; None when there are more than ``max_bytes``, or they are not here (a partial clone)."""
        oid = pygit2.Oid(hex=blob)
        try:
            if self._repo.odb.read_header(oid)[1] > max_bytes:
                return None
            found = self._repo[oid]
        except (pygit2.GitError, KeyError, ValueError):
            return None
        return found.data if isinstance(found, pygit2.Blob) else None

    def same(self, blob: str, digest: bytes) -> bool:
        """Whether a file with this hash is this blob, as it is or with the line ends that git may have given it."""
        raw = self.data(blob, 1 << 26)
        if raw is None:
            return False
        return digest_of(raw) == digest or (b"\r" not in raw and digest_of(raw.replace(b"\n", b"\r\n")) == digest)


def digest_of(raw: bytes) -> bytes:
    """The hash of a file's bytes, as everywhere in the index."""
    return hashlib.blake2b(raw, digest_size=16).digest()


class _Walk:
    """From the newest commit back: a version is known when the commit that it began with is met."""

    def __init__(
        self, repo: pygit2.Repository, prefix: list[str], sub: str, limits: Limits, now_ms: int, ignored: Ignored
    ) -> None:
        self.tip = ""
        self.commits = 0
        self.found: dict[str, list[Stood]] = defaultdict(list)
        self._repo = repo
        self._prefix = prefix
        self._sub = sub
        self._limits = limits
        self._ignored = ignored
        self._wanted: dict[str, bool] = {}
        self._total = 0
        self._at_ms = now_ms
        self._ends: dict[str, tuple[int, str, str]] = {}
        """When the version before the one that was seen last ended, where it was moved to, and its blob."""

    def run(self, commit: pygit2.Commit, known_tip: str) -> None:
        self.tip = str(commit.id)
        fresh = self._fresh(known_tip) if known_tip else None
        while fresh is None or commit.id in fresh:
            self.commits += 1
            self._at_ms = min(self._at_ms, commit.commit_time * 1000)
            parent = self._parent(commit)
            tree = self._tree(commit)
            # A commit whose parent is not looked at is where everything in it begins, as far as anybody can tell.
            before = self._tree(parent) if parent is not None else None
            if parent is None or (tree.id if tree else None) != (before.id if before else None):
                self._take(tree, before)
            if parent is None or self._total >= self._limits.versions:
                return
            commit = parent
        # What stood at the known commit and ended since.
        self._at_ms = min(self._at_ms, commit.commit_time * 1000)
        for path, (to_ms, moved, blob) in self._ends.items():
            self._add(path, Stood(blob, self._at_ms, to_ms, moved))

    def _fresh(self, known_tip: str) -> set[pygit2.Oid] | None:
        """What is to be looked at when ``known_tip`` and all before it is known; None = everything."""
        if known_tip not in self._repo:
            return None
        walker = self._repo.walk(self._repo.head.target, SortMode.TOPOLOGICAL)
        walker.simplify_first_parent()
        walker.hide(pygit2.Oid(hex=known_tip))
        return {commit.id for commit in walker}

    def _parent(self, commit: pygit2.Commit) -> pygit2.Commit | None:
        if not commit.parent_ids or self.commits >= self._limits.commits or self._at_ms < self._limits.since_ms:
            return None
        try:
            found = self._repo[commit.parent_ids[0]]
        except KeyError:  # a shallow clone ends here
            return None
        return found if isinstance(found, pygit2.Commit) else None

    def _tree(self, commit: pygit2.Commit) -> pygit2.Tree | None:
        """The vault's folder in this commit."""
        tree: pygit2.Object = commit.tree
        for part in self._prefix:
            if not isinstance(tree, pygit2.Tree) or part not in tree:
                return None
            tree = tree[part]
        return tree if isinstance(tree, pygit2.Tree) else None

    def _take(self, tree: pygit2.Tree | None, before: pygit2.Tree | None) -> None:
        flags = DiffOption.SKIP_BINARY_CHECK
        if before is not None and tree is not None:
            diff = before.diff_to_tree(tree, flags=flags)
        elif tree is not None:
            diff = tree.diff_to_tree(flags=flags, swap=True)
        elif before is not None:
            diff = before.diff_to_tree(flags=flags)
        else:
            return
        began: dict[str, str] = {}
        ended: dict[str, str] = {}
        for delta in diff.deltas:
            path = self._sub + delta.new_file.raw_path.decode("utf-8", "backslashreplace")
            if not self._is_wanted(path):
                continue
            old, new = delta.old_file, delta.new_file
            if delta.status != DeltaStatus.ADDED and old.mode in FILES:
                ended[path] = str(old.id)
            if delta.status != DeltaStatus.DELETED and new.mode in FILES:
                began[path] = str(new.id)
        self._close(began, ended)

    def _close(self, began: dict[str, str], ended: dict[str, str]) -> None:
        arrived = {blob: path for path, blob in began.items() if path not in ended}
        left = {blob for path, blob in ended.items() if path not in began}
        for path, blob in began.items():
            if ended.get(path) == blob:
                ended.pop(path)  # only its mode changed
                continue
            to_ms, moved, _ = self._ends.pop(path, (None, "", ""))
            self._add(path, Stood(blob, self._at_ms, to_ms, moved, path not in ended and blob in left))
        for path, blob in ended.items():
            self._ends[path] = (self._at_ms, "" if path in began else arrived.get(blob, ""), blob)

    def _add(self, path: str, one: Stood) -> None:
        found = self.found[path]
        if len(found) < self._limits.per_path and (one.to_ms is None or one.to_ms > one.from_ms):
            found.append(one)
            self._total += 1

    def _is_wanted(self, path: str) -> bool:
        wanted = self._wanted.get(path)
        if wanted is None:
            wanted = self._wanted[path] = is_note(path.rpartition("/")[2]) and not self._ignored(path)
        return wanted
