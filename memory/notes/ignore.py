"""
Which paths are not looked at: the configured patterns, then each folder's ``.gitignore`` and ``.recalldignore``.

gitignore semantics: a later pattern wins over an earlier one, a deeper file over one further up, and nothing below an
ignored folder can be taken back in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pathspec import GitIgnoreSpec

FILES = (".gitignore", ".recalldignore")
"""Names of the files with patterns, in the order in which they apply."""

LOOSE = re.compile(r"\*+(?=[^*/\s])")
"""A star with something after it in the same name: each one multiplies the ways in which a long name can fail to match."""
MAX_LOOSE = 3
"""``*a*a*a*a*b`` takes seconds for one name of 250 letters, two stars more take hours; three take 0.1 s."""
DEEP = re.compile(r"\*\*/")
MAX_DEEP = 2
"""The same for ``**/`` and the folders of a deep path."""
MAX_PATTERN = 4096
"""Longer than any path."""


class Rules:
    """Patterns of one folder on top of those above it. Immutable; answers are remembered, for sweeps ask them again."""

    def __init__(self, patterns: Iterable[str], folder: str = "", parent: Rules | None = None) -> None:
        """
        ``folder`` is relative to the vault's root, '' = the root. Patterns that cannot be read, or whose matching could
        take for ever, are left out.
        """
        self._spec = _spec(patterns)
        self._prefix = f"{folder}/" if folder else ""
        self._parent = parent
        self._answers: dict[str, bool] = {}

    def with_folder(self, folder: str, patterns: Iterable[str]) -> Rules:
        """Rules for what is below ``folder``, which has ignore files of its own."""
        return Rules(patterns, folder, self)

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether ``path`` (relative to the vault's root) is ignored, given that the folder it is in is not."""
        asked = f"{path}/" if folder else path
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._answers[asked] = bool(self._decide(asked))
        return answer

    def _decide(self, asked: str) -> bool | None:
        answer = self._spec.check_file(asked[len(self._prefix) :]).include
        if answer is None and self._parent is not None:
            return self._parent._decide(asked)
        return answer


def _spec(patterns: Iterable[str]) -> GitIgnoreSpec:
    lines = [line for line in patterns if _cheap(line)]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error):  # one bad pattern must not switch the others off
        return GitIgnoreSpec.from_lines([line for line in lines if _valid(line)])


def _cheap(line: str) -> bool:
    return len(line) <= MAX_PATTERN and len(LOOSE.findall(line)) <= MAX_LOOSE and len(DEEP.findall(line)) <= MAX_DEEP


def _valid(line: str) -> bool:
    try:
        GitIgnoreSpec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
