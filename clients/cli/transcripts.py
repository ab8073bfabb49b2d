"""`recalld import`: what agents did before recalld was there, out of their own transcripts."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ...memory.capture import transcripts
from ...memory.capture.transcripts import Format
from ...protocol.envelope import Overloaded
from ...protocol.messages.capture import Imported, ImportEvents
from .context import Cli, Failed, json_option, print_json

BATCH = 200
BATCH_BYTES = 4 * 1024 * 1024
OVER_S = 3600.0
"""A transcript that nobody has written to for an hour belongs to a session that is over."""
IMPORT_MS = 120_000
PAUSE_S = 0.5

path_argument = click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
again_option = click.option("--again", is_flag=True, help="Also files that were imported before and have not changed.")


@click.group("import")
def import_() -> None:
    """
    Import past transcripts: events, sessions, pages.

    It can be interrupted and run again: what was imported, or captured live, is stored once.
    """


@import_.command("claude")
@path_argument
@again_option
@json_option
@click.pass_obj
def claude(cli: Cli, paths: tuple[Path, ...], again: bool, as_json: bool) -> None:
    """Import Claude Code's transcripts from PATHS (files or folders). [default: ~/.claude/projects]"""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    _import(cli, "claude", paths or (home / "projects",), again, as_json)


@import_.command("codex")
@path_argument
@again_option
@json_option
@click.pass_obj
def codex(cli: Cli, paths: tuple[Path, ...], again: bool, as_json: bool) -> None:
    """Import Codex's transcripts from PATHS (files or folders). [default: ~/.codex/sessions]"""
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    _import(cli, "codex", paths or (home / "sessions",), again, as_json)


def _import(cli: Cli, format: Format, paths: tuple[Path, ...], again: bool, as_json: bool) -> None:
    cli.need_daemon()
    files = sorted(set(_files(paths)), key=lambda path: path.stat().st_mtime)
    if not files:
        raise Failed(f"there are no transcripts in {', '.join(map(str, paths))}")
    progress = Progress(cli.paths.data / "import.json")
    todo = [path for path in files if again or not progress.has(path)]
    totals = {"files": len(todo), "unchanged": len(files) - len(todo), "stored": 0, "duplicates": 0, "refused": 0}
    with _bar(todo, as_json) as bar:
        for path in bar:
            mark = progress.mark_of(path)
            for name, number in _import_file(cli, format, path).items():
                totals[name] += number
            progress.done(path, mark)
    if as_json:
        print_json(totals)
    else:
        click.echo(
            f"{totals['stored']} events from {totals['files']} transcripts stored, {totals['duplicates']} were known, "
            f"{totals['refused']} refused, {totals['unchanged']} transcripts were imported before",
            err=True,
        )


def _import_file(cli: Cli, format: Format, path: Path) -> dict[str, int]:
    totals = {"stored": 0, "duplicates": 0, "refused": 0}
    over = time.time() - path.stat().st_mtime > OVER_S
    with path.open("rb") as stream:
        for batch in _batches(transcripts.lines_of(format, stream, over=over)):
            reply = _send(cli, batch)
            totals["stored"] += reply.stored
            totals["duplicates"] += reply.duplicates
            totals["refused"] += reply.refused
    return totals


def _batches(lines: Iterator[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    batch: list[str] = []
    size = 0
    for line in lines:
        text = json.dumps(line, ensure_ascii=True)
        batch.append(text)
        size += len(text)
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def _send(cli: Cli, batch: tuple[str, ...]) -> Imported:
    while True:
        try:
            reply = cli.ask("writer", ImportEvents(lines=batch), IMPORT_MS)
        except Overloaded as error:
            time.sleep(max(PAUSE_S, error.retry_after_ms / 1000))
            continue
        assert isinstance(reply, Imported)
        return reply


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        elif path.is_dir():
            # Subagents' transcripts lie below their session's folder; what they did is in the session's own.
            yield from (found for found in path.rglob("*.jsonl") if "subagents" not in found.parts)


def _bar(files: list[Path], as_json: bool) -> Any:
    if as_json or not sys.stderr.isatty():
        return contextlib.nullcontext(files)
    return click.progressbar(
        files, label="importing", file=sys.stderr, item_show_func=lambda path: path.name if path else ""
    )


class Progress:
    """Which transcripts were imported, as they were then: (inode, size, mtime)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[int]] = {}
        with contextlib.suppress(FileNotFoundError, ValueError):
            self._known = json.loads(file.read_text(encoding="utf-8"))

    def mark_of(self, path: Path) -> list[int]:
        info = path.stat()
        return [info.st_ino, info.st_size, info.st_mtime_ns]

    def has(self, path: Path) -> bool:
        return self._known.get(str(path.resolve())) == self.mark_of(path)

    def done(self, path: Path, mark: list[int]) -> None:
        """Note it at once: an interrupted import goes on with the next file."""
        self._known[str(path.resolve())] = mark
        temp = self._file.with_suffix(".tmp")
        temp.write_text(json.dumps(self._known), encoding="utf-8")
        os.replace(temp, self._file)
