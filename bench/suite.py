"""A temporary daemon on one suite's notes, and what it answers. Shared by the retrieval benchmark and the fitting."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recalld.clients.cli.context import Cli
from recalld.clients.cli.index import settle
from recalld.clients.cli.vaults import add_vaults
from recalld.clients.process import temporary
from recalld.protocol.messages.recall import STREAMS, Answer, Recall, Stream
from recalld.protocol.runtime import Paths

BUDGET_MS = 10_000


class Asker:
    """Asks a running daemon; ``ask`` returns the answer and the milliseconds it took at the caller."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli

    def ask(
        self,
        query: str,
        *,
        k: int = 10,
        streams: tuple[Stream, ...] = STREAMS,
        explain: bool = False,
        ranking: Mapping[str, float] | None = None,
    ) -> tuple[Answer, float]:
        started = time.perf_counter()
        message = Recall(query=query, k=k, streams=streams, explain=explain, ranking=dict(ranking or {}))
        reply = self.cli.ask("query", message, BUDGET_MS)
        assert isinstance(reply, Answer), reply
        return reply, (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def daemon(vault: Path) -> Iterator[Asker]:
    """A daemon that has indexed ``vault``, text and vectors, in a temporary folder."""
    for name in list(os.environ):
        if name.startswith("RECALLD_"):
            del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="rcld-") as folder:
        paths = Paths(Path(folder) / "d", Path(folder) / "r")
        cli = Cli(paths)
        add_vaults(cli, [str(vault)])
        cli = Cli(paths)
        with temporary(paths):
            report = settle(cli, text_only=False, timeout_s=1800, show=False)
            print(f"{vault.parent.name}: {report}", file=sys.stderr)
            yield Asker(cli)


def questions(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def suites(folder: Path) -> list[Path]:
    """Folders with questions.jsonl and vault/, at or below ``folder``."""
    return sorted(path.parent for path in folder.rglob("questions.jsonl") if (path.parent / "vault").is_dir())


def note_id(path: str) -> str:
    """Ids of the benchmarks: file name without folder and suffix, lower case."""
    return path.rpartition("/")[2].removesuffix(".md").lower()
