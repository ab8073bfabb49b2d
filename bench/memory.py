"""
How much memory all processes take with a vault and its vectors: while it is first taken in, and after a restart.

    python bench/memory.py [--notes 10000] [--words 300] [--asks 60] [--json OUT]

A real daemon with the packaged model takes in made notes (bench/ingest.py). While the model embeds, random vectors go through
the writer beside it (bench/latency.py), many times faster than a model makes them: figures of the load are an upper bound.
Questions are asked over MCP before a reading, so that the model and the MCP SDK are loaded and have worked.

RSS is what a process has in memory, and its sum counts what several share as often as they do; PSS counts it once. ``peak``
is the largest sum of RSS at one moment of the load, ``own peaks`` the sum of each process's own. MB are 2^20 bytes. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import Bridge, Daemon, until
from ingest import write_vault
from latency import LIMIT_S, model_of, settled, synthesise
from vaults import questions

SAMPLE_S = 0.1
QUIET_S = 6.0
"""After the last work: by then every process has given back what it needed for a moment."""


class Peak(threading.Thread):
    """Samples the sum of RSS until ``stop``."""

    def __init__(self, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._pids = processes(daemon)
        self._over = threading.Event()
        self.largest: dict[str, float] = {}

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            now = {name: memory(pid)["rss"] for name, pid in self._pids.items()}
            if sum(now.values()) > sum(self.largest.values()):
                self.largest = now

    def stop(self) -> dict[str, float]:
        """Each process at the moment of the largest sum."""
        self._over.set()
        self.join()
        return self.largest


def processes(daemon: Daemon) -> dict[str, int]:
    return {**daemon.pids(), "supervisor": daemon.status().pid}


def memory(pid: int) -> dict[str, float]:
    """``rss``, ``pss`` and ``peak`` of one process."""
    found: dict[str, float] = {}
    for file, wanted in (("smaps_rollup", {"Rss": "rss", "Pss": "pss"}), ("status", {"VmHWM": "peak"})):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in wanted:
                found[wanted[name]] = round(int(value.split()[0]) / 1024, 1)
    return found


def reading(daemon: Daemon) -> dict[str, Any]:
    """``memory`` by process, and the sums."""
    each = {name: memory(pid) for name, pid in processes(daemon).items()}
    return {**each, "all": {kind: round(sum(one[kind] for one in each.values()), 1) for kind in ("rss", "pss", "peak")}}


def ask(daemon: Daemon, asks: int) -> None:
    """Questions over MCP, then quiet."""
    bridge = Bridge(daemon)
    for question in questions(asks, seed=7):
        bridge.recall(question)
    bridge.close()
    time.sleep(QUIET_S)


def loaded(daemon: Daemon) -> bool:
    return daemon.figure("query", "vector_notes") >= daemon.figure("query", "notes") > 0


def measure(folder: Path, notes: int, words: int, asks: int) -> dict[str, Any]:
    write_vault(folder / "more", notes, words)
    daemon = Daemon(folder)
    try:
        daemon.start()
        until("the model", lambda: model_of(daemon), 120.0)
        peak = Peak(daemon)
        peak.start()
        with daemon.paths.config.open("a") as config:
            config.write(f'\n[[vaults]]\npath = "{folder / "more"}"\nname = "more"\n')
        daemon.settle(limit_s=300.0)
        synthesise(daemon)
        until("vectors", lambda: settled(daemon).pending_vectors == 0, LIMIT_S)
        until("vectors in memory", lambda: loaded(daemon), LIMIT_S)
        during = peak.stop()
        ask(daemon, asks)
        report: dict[str, Any] = {"peak": {**during, "all": round(sum(during.values()), 1)}, "loaded": reading(daemon)}
        daemon.stop()
        daemon.start()
        until("vectors in memory", lambda: loaded(daemon), LIMIT_S)
        ask(daemon, asks)
        report |= {"restarted": reading(daemon), "chunks": int(daemon.figure("query", "chunks"))}
        daemon.stop()
        return report
    finally:
        daemon.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notes", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--asks", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        report = measure(Path(folder), options.notes, options.words, options.asks)
    print(f"{options.notes:,} notes, {report['chunks']:,} passages, MB")
    print(f"{'':12} peak of load   after load: RSS / PSS / own peak   after restart: RSS / PSS / own peak")
    for name in report["peak"]:
        after, again = report["loaded"][name], report["restarted"][name]
        print(
            f"{name:12} {report['peak'][name]:12.1f}   {after['rss']:15.1f} /{after['pss']:6.1f} /{after['peak']:6.1f}"
            f"   {again['rss']:21.1f} /{again['pss']:6.1f} /{again['peak']:6.1f}"
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
