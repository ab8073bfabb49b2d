"""
What an installation changes: each file's text before and after, shown as a diff, written with a backup beside it.

Removing gives the file back byte by byte when nothing else touched it since; else it takes out our entries alone.
"""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

BACKUP = ".before-recalld"


class InstallError(Exception):
    """Raised when a file cannot be edited safely; the text names the file and what to do. Nothing was changed."""


class Edit(Protocol):
    """How our entry gets into a text and out of it. Both are idempotent and raise ValueError on texts they cannot take."""

    def add(self, text: str) -> str: ...

    def remove(self, text: str) -> str: ...


@dataclass(frozen=True)
class Target:
    """One file of a host and our edits of it. ``own`` files belong to us whole."""

    path: Path
    edits: tuple[Edit, ...] = ()
    own: str = ""
    """The whole text of a file of our own."""
    program: bool = False
    """A file of our own that is run."""

    def added(self, text: str | None) -> str:
        """The text with our entries."""
        if self.own:
            return self.own
        return self._run(text or "", lambda edit, now: edit.add(now))

    def removed(self, text: str) -> str:
        """The text without our entries."""
        return self._run(text, lambda edit, now: edit.remove(now))

    def _run(self, text: str, step: Callable[[Edit, str], str]) -> str:
        try:
            for edit in self.edits:
                text = step(edit, text)
        except ValueError as error:
            raise InstallError(f"{self.path} cannot be edited: {error}. Correct it, then try again.") from None
        return text


@dataclass(frozen=True)
class Change:
    """One file's change. None = the file does not exist."""

    path: Path
    before: str | None
    after: str | None
    fresh: bool = False
    """Nothing of ours was in ``before``: it is what the backup should hold."""
    own: bool = False
    program: bool = False

    def diff(self) -> str:
        """A unified diff for people."""
        name = str(self.path)
        return "".join(
            line if line.endswith("\n") else line + "\n"
            for line in difflib.unified_diff(
                (self.before or "").splitlines(keepends=True),
                (self.after or "").splitlines(keepends=True),
                name if self.before is not None else "/dev/null",
                name if self.after is not None else "/dev/null",
            )
        )

    def apply(self) -> None:
        """Write it: backup first, then the file in one step, mode and symlink kept. Raises InstallError."""
        real = Path(os.path.realpath(self.path))
        if read(self.path) != self.before:
            raise InstallError(f"{self.path} has changed since the diff was made: look at it again.")
        backup = real.with_name(real.name + BACKUP)
        try:
            if self.after is None:
                real.unlink(missing_ok=True)
                return
            real.parent.mkdir(parents=True, exist_ok=True)
            if self.before is not None and not self.own and (self.fresh or not backup.exists()):
                write(backup, self.before, real)
            write(real, self.after, real)
            if self.program:
                real.chmod(0o700)
        except OSError as error:
            raise InstallError(f"{self.path} cannot be written: {error.strerror or error}") from None


def installing(target: Target) -> Change | None:
    """What installing changes in a target; None when everything is there already. Raises InstallError."""
    before = read(target.path)
    after = target.added(before)
    if after == before:
        return None
    if target.own:
        return Change(target.path, before, after, own=True, program=target.program)
    return Change(target.path, before, after, fresh=before is not None and target.removed(before) == before)


def removing(target: Target) -> Change | None:
    """What removing changes; None when nothing of ours is there. Raises InstallError."""
    before = read(target.path)
    if before is None:
        return None
    if target.own:
        return Change(target.path, before, None)
    after: str | None = target.removed(before)
    if after == before:
        return None
    saved = read(backup_of(target.path))
    if saved is not None and _gives(target, saved, before):
        after = saved  # nothing else has changed: give back the very bytes
    elif saved is None and _gives(target, None, before):
        after = None  # we made the file
    return Change(target.path, before, after)


def _gives(target: Target, text: str | None, result: str) -> bool:
    try:
        return target.added(text) == result
    except InstallError:
        return False


def forget_backup(change: Change) -> None:
    """After removing: the backup has done its work when the file is as it was."""
    backup = backup_of(change.path)
    if change.after is not None and read(backup) == change.after:
        backup.unlink(missing_ok=True)


def backup_of(path: Path) -> Path:
    """Where the text before the first installation is kept."""
    real = Path(os.path.realpath(path))
    return real.with_name(real.name + BACKUP)


def read(path: Path) -> str | None:
    """The file's text with its own line ends, None when there is none. Raises InstallError."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallError(f"{path} cannot be read: {error}") from None


def write(path: Path, text: str, like: Path) -> None:
    """Write whole or not at all, with the mode of ``like`` (0600 for a new file: these files may hold secrets)."""
    try:
        mode = like.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
