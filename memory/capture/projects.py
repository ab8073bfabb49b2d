"""
Which project something belongs to, decided from facts: marker before git before session before folder.

Worktrees of a repository share one project, submodules have their own. The home folder and ``/`` are nobody's project: a
session there, or a repository of dotfiles at its top, never swallows what lies below. What was only guessed says so, and
nothing is written to it.
"""

from __future__ import annotations

from typing import Protocol

from ...protocol.messages.capture import ProjectRef
from .policy import Policy, valid_name

SCRATCH = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/dev/shm", "/root", "/home", "/Users")
"""Folders that hold anybody's anything: working right in them says nothing of a project."""


class Facts(Protocol):
    """What ``protocol.place.look`` found."""

    cwd: str
    home: str
    git_root: str
    main_root: str


def resolve(facts: Facts, naming: Policy | None = None, session: ProjectRef | None = None) -> ProjectRef:
    """
    The project of an event or a caller at ``facts.cwd``.

    ``naming`` is the nearest marker's policy that names a project. ``session`` is what the session's earlier events belong
    to: it stays when the shell wanders into a subfolder or a place that is no project, and gives way to another checkout.
    """
    cwd = facts.cwd.rstrip("/") or "/"
    vast = {facts.home.rstrip("/"), "/", ""}
    if naming is not None and naming.project and (naming.root not in vast or cwd == naming.root):
        return ProjectRef(name=naming.project, found_by="marker", root=naming.root)
    if session is not None and not session.guessed and within(cwd, session.root) and _own(facts, session):
        return session
    if facts.git_root and facts.git_root not in vast:
        name = name_of(facts.main_root if facts.main_root not in vast else facts.git_root)
        return ProjectRef(name=name, found_by="git", root=facts.git_root)
    if session is not None and not session.guessed:
        return session
    if not facts.cwd.startswith("/") or cwd in vast or cwd in SCRATCH:
        return ProjectRef(name="", found_by="none", guessed=True)
    return ProjectRef(name=name_of(cwd), found_by="folder", root=cwd)


def _own(facts: Facts, session: ProjectRef) -> bool:
    """Whether no other checkout begins between the session's root and here."""
    return not facts.git_root or facts.git_root == session.root or not within(facts.git_root, session.root)


def within(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or below it, on path boundaries. '' and '/' contain nothing."""
    root = root.rstrip("/")
    return bool(root) and (path == root or path.startswith(root + "/"))


def name_of(folder: str) -> str:
    """A project's name from a folder's: what a wiki folder cannot be called is replaced."""
    base = folder.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git") or "project"
    name = "".join(char if char.isalnum() or char in "._-" else "-" for char in base)[:64].lstrip("._-").rstrip(".")
    return name if valid_name(name) else "project"
