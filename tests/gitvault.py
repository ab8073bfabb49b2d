"""A folder of notes in a real git repository, with commits at given times."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

WHO = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in
       (("NAME", "Ana"), ("EMAIL", "ana@example.org"))}  # fmt: skip


def ms(when: str) -> int:
    """A date, or date and time in UTC, as ms since the epoch."""
    return int(datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp() * 1000)


class GitVault:
    """``commit`` writes files (None: removes them) and commits at a time."""

    def __init__(self, root: Path, repository: Path | None = None) -> None:
        self.root = root
        self.repository = repository or root
        root.mkdir(parents=True, exist_ok=True)
        if not (self.repository / ".git").exists():
            self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, when: str = "") -> str:
        # The person's own configuration (hooks, signing, line ends) is none of ours.
        environ = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        if when:
            at = f"{ms(when) // 1000} +0000"
            environ |= {"GIT_AUTHOR_DATE": "1000000000 +0000", "GIT_COMMITTER_DATE": at}
        done = subprocess.run(
            ["git", *arguments], cwd=self.repository, env=environ, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, files: dict[str, str | None]) -> None:
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                target.unlink()
            else:
                target.write_text(text, encoding="utf-8", newline="")

    def commit(self, when: str, files: dict[str, str | None]) -> str:
        """The id of the commit. Its author time is long before ``when``: commit time is what counts."""
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", f"as of {when}", when=when)
        return self.git("rev-parse", "HEAD")
