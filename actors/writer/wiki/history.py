"""Taking a page out of the wiki's history: every commit is written anew without it, and the old objects are removed."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pygit2
from pygit2.enums import ObjectType, SortMode

from ..disk import sync
from . import files, packing
from .repository import Repository

HEAD_BYTES = 8192
"""Frontmatter stands within this."""

log = logging.getLogger("recalld.writer")


def blob_id(data: bytes) -> str:
    """What git calls these bytes, without storing them."""
    return str(pygit2.hash(data))


Seen = dict[str, tuple[int, int, int]]
"""What the files looked like when they were last compared: (mtime in ns, size, inode) by path."""


def remember_seen(root: Path, seen: Seen) -> None:
    """Keep ``seen`` beside the repository, so that the next start need not read every page. Safe to lose."""
    target = root / ".git" / "recalld.seen"
    temp = target.with_name("recalld.seen.tmp")
    temp.write_bytes(msgspec.msgpack.encode(seen))
    temp.replace(target)


def recall_seen(root: Path) -> Seen:
    """What ``remember_seen`` kept; nothing when it is not there or not readable."""
    try:
        return msgspec.msgpack.decode((root / ".git" / "recalld.seen").read_bytes(), type=Seen)
    except (OSError, msgspec.MsgspecError):
        return {}


def stored(repository: Repository, wanted: Mapping[str, str]) -> set[str]:
    """
    The paths of ``wanted`` (path -> blob id, '' = removed) that can be committed. A purge takes the blobs that no commit has
    yet: they are stored again, except where a person has changed the page since.
    """
    kept = set()
    for path, blob in wanted.items():
        if blob and not repository.has(blob):
            try:
                data = files.read(repository.root, path)
            except (OSError, files.BadPath):
                continue
            if data is None or repository.store(data) != blob:
                continue
        kept.add(path)
    return kept


def purge(repository: Repository, paths: set[str], session: str) -> str:
    """
    Remove ``paths``, and every version of a page of ``session`` under whatever name, from all branches and tags, and the
    objects from the store. In words, what was done.
    """
    with repository.lock:
        if repository.tip() == "":
            return "the wiki has no history yet"
        rewriter = _Rewriter(repository.repo, paths, session)
        moved = rewriter.rewrite_references()
        repository.known.tip = repository.tip()
        repository.known.theirs -= paths
        repository.refresh_index(paths | rewriter.gone)
        repository.remember()
        with packing.alone(repository.root / ".git", wait=True):
            _forget_old_objects(repository)
    for path in rewriter.gone:
        with contextlib.suppress(files.BadPath):
            files.remove(repository.root, path)
    words = f"{rewriter.rewritten} commits were written anew on {moved} branches"
    if rewriter.remotes:
        words += f"; {', '.join(rewriter.remotes)} keeps its copy until you run: git push --force"
    return words


class _Rewriter:
    def __init__(self, repo: pygit2.Repository, paths: set[str], session: str) -> None:
        self.repo = repo
        self.paths = paths
        self.page_of = re.compile(rb"(?m)^session_id: ['\"]?" + re.escape(session.encode()) + rb"['\"]?\s*$")
        self.trees: dict[tuple[str, str], pygit2.Oid | None] = {}
        self.blobs: dict[str, bool] = {}
        self.commits: dict[str, pygit2.Oid] = {}
        self.rewritten = 0
        self.gone: set[str] = set()
        self.remotes: list[str] = []

    def rewrite_references(self) -> int:
        moved = 0
        for name in list(self.repo.references):
            reference = self.repo.references[name]
            if name.startswith("refs/remotes/"):
                remote = name.split("/")[2]
                if remote not in self.remotes:
                    self.remotes.append(remote)
                reference.delete()
                continue
            if name.startswith("refs/stash"):
                reference.delete()
                continue
            try:
                tip = reference.peel(pygit2.Commit)
            except (pygit2.GitError, ValueError):
                continue
            new = self._rewrite(tip)
            if new != tip.id:
                reference.set_target(new)
                moved += 1
        if self.repo.head_is_detached:
            self.repo.set_head(self._rewrite(self.repo.head.peel(pygit2.Commit)))
        return moved

    def _rewrite(self, tip: pygit2.Commit) -> pygit2.Oid:
        for commit in self.repo.walk(tip.id, SortMode.TOPOLOGICAL | SortMode.REVERSE):
            key = str(commit.id)
            if key in self.commits:
                continue
            tree = self._without(commit.tree, "")
            parents = [self.commits.get(str(parent), parent) for parent in commit.parent_ids]
            if tree == commit.tree.id and parents == list(commit.parent_ids):
                self.commits[key] = commit.id
                continue
            self.rewritten += 1
            message = commit.message
            for path in self.paths | self.gone:
                message = message.replace(path, "(removed)")
            made = self.repo.create_commit(None, commit.author, commit.committer, message, tree, parents)
            self.commits[key] = made
        return self.commits[str(tip.id)]

    def _without(self, tree: pygit2.Tree, prefix: str) -> pygit2.Oid:
        """The id of ``tree`` without what is purged; the empty tree when nothing is left."""
        known = self.trees.get((str(tree.id), prefix))
        if known is not None:
            return known
        builder = self.repo.TreeBuilder(tree)
        for entry in tree:
            path = f"{prefix}{entry.name}"
            if entry.type == ObjectType.TREE:
                assert isinstance(entry, pygit2.Tree)
                new = self._without(entry, path + "/")
                if new != entry.id:
                    builder.remove(str(entry.name))
                    inner = self.repo[new]
                    if isinstance(inner, pygit2.Tree) and len(inner):
                        builder.insert(str(entry.name), new, entry.filemode)
            elif path in self.paths or self._names(entry):
                builder.remove(str(entry.name))
                self.gone.add(path)
        made = builder.write()
        self.trees[str(tree.id), prefix] = made
        return made

    def _names(self, entry: pygit2.Object) -> bool:
        key = str(entry.id)
        if key not in self.blobs:
            data = entry.data[:HEAD_BYTES] if isinstance(entry, pygit2.Blob) else b""
            self.blobs[key] = b"kind: session" in data and self.page_of.search(data) is not None
        return self.blobs[key]


def _forget_old_objects(repository: Repository) -> None:
    """One new pack of what is reachable; every other object, and the logs that kept it alive, is removed."""
    repo = repository.repo
    git = repository.root / ".git"
    shutil.rmtree(git / "logs", ignore_errors=True)
    for name in ("ORIG_HEAD", "FETCH_HEAD"):
        (git / name).unlink(missing_ok=True)
    objects, place = git / "objects", git / "recalld.purge"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    packer = pygit2.PackBuilder(repo)
    seen: set[str] = set()
    heads = [repo.head.target] if repo.head_is_detached else []
    for tip in (*heads, *(repo.references[name].resolve().target for name in repo.references)):
        target = repo[tip]
        while isinstance(target, pygit2.Tag):
            packer.add(target.id)
            target = repo[target.target]
        if not isinstance(target, pygit2.Commit):
            packer.add_recur(target.id)
            continue
        for commit in repo.walk(target.id, SortMode.TOPOLOGICAL):
            if str(commit.id) not in seen:
                seen.add(str(commit.id))
                packer.add(commit.id)
                packer.add_recur(commit.tree.id)
    packer.write(str(place))
    # Made elsewhere to know its name: the same objects make the same pack, and one of the old ones may be just that.
    fresh = sorted(place.iterdir(), reverse=True)  # the pack before its index, which makes it count
    for path in fresh:
        sync(path)
        path.replace(objects / "pack" / path.name)
    sync(objects / "pack")
    place.rmdir()
    for path in (*(objects / "pack").glob("pack-*"), *(objects / "pack").glob(packing.HALF)):
        if path.name not in {each.name for each in fresh}:
            path.unlink(missing_ok=True)
    for folder in objects.iterdir():
        if len(folder.name) == 2 and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        Path(objects / "info" / "commit-graph").unlink()
    repository.reopen()
