"""`recalld logs` and `recalld metrics`: what the processes wrote and count."""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ...protocol.messages.control import Status
from .context import Cli, Failed, clean

POLL_S = 0.25
LEVELS = ("debug", "info", "warning", "error")


@click.command("logs")
@click.argument("actor", required=False, type=click.Choice(["supervisor", "writer", "query", "embedder", "watcher"]))
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until interrupted.")
@click.option("-n", "--lines", default=50, show_default=True, help="How many lines at most, newest last.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Only this level and worse.")
@click.option("--trace", default="", help="Only lines of one trace: a call's way through every process.")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON lines as they are.")
@click.pass_obj
def logs(cli: Cli, actor: str | None, follow: bool, lines: int, level: str, trace: str, as_json: bool) -> None:
    """Print the logs of all processes, or of one, in the order in which things happened."""
    if not cli.paths.logs.is_dir():
        raise Failed(f"there are no logs yet in {cli.paths.logs}")
    pattern = f"{actor or '*'}.jsonl"

    def wanted(entry: dict[str, Any]) -> bool:
        at_least = LEVELS.index(level)
        severe = entry.get("level") not in LEVELS or LEVELS.index(entry["level"]) >= at_least
        return severe and (not trace or entry.get("trace") == trace)

    tails = [Tail(path) for path in sorted(cli.paths.logs.glob(pattern))]
    entries = [entry for tail in tails for entry in tail.history() if wanted(entry)]
    for entry in heapq.nlargest(lines, entries, key=_at)[::-1]:
        click.echo(_line(entry, as_json))
    while follow:
        known = {tail.path for tail in tails}
        tails += [Tail(path, from_start=True) for path in cli.paths.logs.glob(pattern) if path not in known]
        for entry in sorted((entry for tail in tails for entry in tail.new() if wanted(entry)), key=_at):
            click.echo(_line(entry, as_json))
        time.sleep(POLL_S)


class Tail:
    """One log file: its history (with the rotated part before it), then what is appended, across rotation."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self.path = path
        self._offset = 0 if from_start else _size(path)
        self._inode = _inode(path)

    def history(self) -> Iterator[dict[str, Any]]:
        yield from _entries(self.path.with_name(self.path.name + ".1"), 0)[0]
        entries, self._offset = _entries(self.path, 0)
        yield from entries

    def new(self) -> Iterator[dict[str, Any]]:
        if _inode(self.path) != self._inode or _size(self.path) < self._offset:
            self._offset, self._inode = 0, _inode(self.path)
        entries, self._offset = _entries(self.path, self._offset)
        yield from entries


def _entries(path: Path, start: int) -> tuple[list[dict[str, Any]], int]:
    """The entries from ``start`` on, and where the next one begins: a line that is being written is left for then."""
    try:
        with path.open("rb") as log:
            log.seek(start)
            data = log.read()
    except OSError:
        return [], start
    end = data.rfind(b"\n") + 1
    return list(_read(data[:end])), start + end


def _read(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut by a full disk
        if isinstance(entry, dict):
            yield entry


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _at(entry: dict[str, Any]) -> float:
    at = entry.get("at")
    return at if isinstance(at, float | int) else 0.0


def _line(entry: dict[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps(entry, ensure_ascii=False)
    at = datetime.fromtimestamp(_at(entry)).strftime("%Y-%m-%d %H:%M:%S")
    trace = f" [{entry['trace']}]" if entry.get("trace") else ""
    text = clean(f"{at} {entry.get('level', ''):<7} {entry.get('actor', '')}: {entry.get('text', '')}{trace}")
    return text + (f"\n{clean(entry['error'])}" if entry.get("error") else "")


@click.command("metrics")
@click.pass_obj
def metrics(cli: Cli) -> None:
    """
    Print metrics in Prometheus' text format, for a textfile collector or a cron job.

    With the daemon down, only recalld_up 0; exit code 0 all the same.
    """
    click.echo(exposition(cli.status()), nl=False)


def exposition(status: Status | None) -> str:
    """The text exposition of a status; names end in their unit, counters in _total."""
    if status is None:
        return "# HELP recalld_up Whether the daemon answers.\n# TYPE recalld_up gauge\nrecalld_up 0\n"
    samples: dict[tuple[str, str, str], list[tuple[str, float]]] = {}

    def add(name: str, kind: str, text: str, labels: str, value: float) -> None:
        samples.setdefault((name, kind, text), []).append((labels, value))

    add("recalld_up", "gauge", "Whether the daemon answers.", "", 1)
    add("recalld_uptime_seconds", "gauge", "How long the supervisor has run.", "", status.uptime_s)
    for name, actor in status.actors.items():
        label = f'actor="{name}"'
        running = float(actor.state == "RUNNING")
        add("recalld_actor_running", "gauge", "Whether an actor serves.", label, running)
        add("recalld_actor_restarts_total", "counter", "Generations after the first.", label, actor.restarts)
        add("recalld_actor_rss_bytes", "gauge", "Resident memory.", label, actor.vitals.rss_bytes)
        add("recalld_actor_lag_milliseconds", "gauge", "How late the event loop runs.", label, actor.vitals.lag_ms)
        for key, queue in actor.vitals.queues.items():
            labels = f'{label},queue="{_escaped(key)}"'
            add("recalld_queue_depth", "gauge", "Entries in a bounded queue.", labels, queue.depth)
            add("recalld_queue_peak", "gauge", "The most it has held.", labels, queue.peak)
            add("recalld_queue_refused_total", "counter", "Entries refused because it was full.", labels, queue.refused)
        for key, value in actor.vitals.figures.items():
            kind = "counter" if key.endswith("_total") else "gauge"
            add(f"recalld_{name}_{_identifier(key)}", kind, f"Figure '{key}' of the {name}.", "", value)
    lines = []
    for (name, kind, text), values in samples.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:.15g}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _identifier(key: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in key)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
