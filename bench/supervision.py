"""
How long recalld is without one of its processes: the real daemon, killed and stopped.

    python bench/supervision.py [--rounds 10] [--json OUT]

restart.<actor>     kill -9 of the actor until its next generation does its work again: query has answered a recall, writer a
                    call, the watcher and the embedder are ready. Both answers were asked for while nobody was there.
cpu.<actor>         what the new process has spent of a processor when that happens (Linux only, in steps of 10 ms): what is left
                    of the time on a machine that does nothing else, and the figure to compare on one that does.
hung                SIGSTOP of an actor until the next generation is ready, less the time after which a silent process counts
                    as hung. The clock of that limit starts with the last beat: a figure may be below what the end takes.
supervisor          kill -9 of the supervisor until no process of the daemon is left.
yardstick           a bare interpreter that imports asyncio and ends, between the rounds: about 60 ms on an idle machine. When
                    it takes longer, something else is running, and the others take longer by as much.

Figures are milliseconds of wall clock, median and maximum. Exit code 1 when a median is over its bar.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from harness import ACTORS, Daemon, alive, until
from recalld.actors.lifecycle import STABLE_S
from recalld.protocol.messages.common import Message
from recalld.protocol.messages.index import Settle
from recalld.protocol.messages.recall import Recall

BEAT_TIMEOUT_S = 2.0
CONFIG = f"[supervisor]\nbeat_timeout_s = {BEAT_TIMEOUT_S}\n[embedder]\nmodel = '%s'\n"
BARS_MS = {
    "restart.watcher": 300.0,
    "restart.query": 300.0,
    "restart.writer": 300.0,
    "supervisor": 20.0,
    "hung": 1500.0,
}
PROBES: dict[str, Message] = {"query": Recall(query="anything", k=1), "writer": Settle()}


def measure(rounds: int, hung_rounds: int, model: str) -> dict[str, list[float]]:
    """Every figure by its name, in milliseconds."""
    found: dict[str, list[float]] = {}
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    daemon = Daemon(folder)
    try:
        for number in range(20):
            daemon.write(f"{number}.md", f"# Note {number}\n\nAnything may stand here, also {number}.\n")
        daemon.start(config=CONFIG % model)
        for _ in range(rounds):
            settled(daemon)
            found.setdefault("yardstick", []).append(bare())
            for actor in ACTORS:
                found.setdefault(f"restart.{actor}", []).append(killed(daemon, actor))
                if (spent := cpu_ms(daemon.pids().get(actor, 0))) is not None:
                    found.setdefault(f"cpu.{actor}", []).append(spent)
        for number in range(hung_rounds):
            if number % len(ACTORS) == 0:
                settled(daemon)
            found.setdefault("hung", []).append(hung(daemon, ACTORS[number % len(ACTORS)]))
        for _ in range(rounds):
            settled(daemon, seconds=0.0)
            found.setdefault("supervisor", []).append(orphaned(daemon))
            daemon.start()
    finally:
        daemon.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def settled(daemon: Daemon, seconds: float = STABLE_S) -> None:
    """Wait until every process has run so long that its death counts as one that comes from outside."""

    def stable() -> bool:
        return all(a.state == "RUNNING" and a.uptime_s > seconds for a in daemon.status().actors.values())

    until("all run", stable, 60.0)


def cpu_ms(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def bare() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-c", "import asyncio"], check=True)
    return (time.perf_counter() - started) * 1000


def killed(daemon: Daemon, actor: str) -> float:
    """From the kill until the actor does its work again."""
    before = daemon.status().actors[actor]
    started = time.perf_counter()
    os.kill(before.pid, signal.SIGKILL)
    if actor in PROBES:
        daemon.ask(actor, PROBES[actor])
    else:
        ready(daemon, actor, before.generation)
    return (time.perf_counter() - started) * 1000


def hung(daemon: Daemon, actor: str) -> float:
    """From the stop until the next generation is ready, less the limit."""
    before = daemon.status().actors[actor]
    started = time.perf_counter()
    os.kill(before.pid, signal.SIGSTOP)
    ready(daemon, actor, before.generation)
    return (time.perf_counter() - started - BEAT_TIMEOUT_S) * 1000


def ready(daemon: Daemon, actor: str, generation: int) -> None:
    while True:
        now = daemon.status().actors[actor]
        if now.generation > generation and now.state == "RUNNING":
            return
        time.sleep(0.002)


def orphaned(daemon: Daemon) -> float:
    """From the kill of the supervisor until no child is left."""
    assert daemon.process is not None
    pids = list(daemon.pids().values())
    started = time.perf_counter()
    daemon.process.kill()
    while any(alive(pid) for pid in pids):
        time.sleep(0.0002)
    took = (time.perf_counter() - started) * 1000
    daemon.process.wait()
    return took


def report(found: dict[str, list[float]]) -> dict[str, Any]:
    """Median, maximum, and whether the median keeps its bar."""
    rows: dict[str, Any] = {}
    for name, values in found.items():
        median = statistics.median(values)
        bar = BARS_MS.get(name)
        rows[name] = {
            "n": len(values), "median_ms": round(median, 1), "max_ms": round(max(values), 1), "bar_ms": bar,
            "ok": bar is None or median <= bar,
        }  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--hung-rounds", type=int, default=12, help="each takes some seconds")
    parser.add_argument(
        "--model", default="none", help="embedding model of the daemon; minilm measures its loading, too"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures here, too")
    options = parser.parse_args()
    rows = report(measure(options.rounds, options.hung_rounds, options.model))
    for name, row in rows.items():
        bar = f"  bar {row['bar_ms']:.0f} {'ok' if row['ok'] else 'MISSED'}" if row["bar_ms"] else ""
        print(f"{name:<18} n {row['n']:>3}  median {row['median_ms']:>7.1f} ms  max {row['max_ms']:>7.1f} ms{bar}")
    if options.json:
        figures = {"machine": {"cpus": os.cpu_count(), "python": platform.python_version()}, "figures": rows}
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(row["ok"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
