"""
The fault matrix: the real daemon under a steady load, while things are done to it.

    python bench/faults.py [--json OUT] [--only NAME,…] [--seconds 20] [--kills-seconds 300] [--soak-seconds 3600]

The load: recall through 4 open MCP bridges, edits of notes, hook events through events.sock and through the real hook
client. Each row counts recalls asked, answered, degraded and failed with their p99; acknowledged events that were lost or
stored twice; edits not found after settling; how long an actor was away; and what was left over; the soak, how the
memory of each process goes in MB an hour over its second half, with the medians of twelfths of the whole. A fault that
this machine cannot make (mounting, for one, needs root) is reported as skipped, with the reason.

The wall clock jumps for the daemon and its clients alone (``clocks.py``); what the kernel writes, the times of the files
that they make, keeps the machine's time. Files from the past and the future are a row of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

import clocks
import fault_kinds
import power
from fault_kinds import Run, Skipped
from harness import Daemon, until
from load import SESSION, WORDS, Footprint, Load
from recalld.protocol.envelope import ProtocolError
from recalld.protocol.messages.capture import EventPage, SessionEvents
from recalld.protocol.messages.recall import DescribeIndex, IndexReport

FAULTS = {**fault_kinds.FAULTS, **clocks.CLOCK_FAULTS}
CLOCK_S = 70.0
"""A wrong clock is kept for longer than anything waits between two looks for what is over."""
SOAK_LOAD = {"events_s": 18.0, "notes": 200}
"""With those through the hook client 20 events/s; edits of the same notes, so that what grows is not the index."""
LATE_S = 35.0
"""A hook client that ran out of time leaves a child behind that may take 30 s to write its spool file."""
CONFIG = "[supervisor]\nbeat_timeout_s = 5.0\n[watcher]\nsweep_s = 5.0\n"


def row(name: str, seconds: float, *, files: int = 10_000) -> dict[str, Any]:
    """Run one fault on a fresh daemon and count."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    if name == "power_cut":
        try:
            return {"fault": name, **power.cut_everywhere(folder, seconds)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    daemon = Daemon(folder)
    try:
        with contextlib.ExitStack() as stack:
            if name in clocks.CLOCK_FAULTS:
                clocks.prepare(daemon)
            stack.enter_context(fault_kinds.prepared(name, daemon))
            for word in WORDS:
                daemon.write(f"{word}.md", f"# The {word}\n\nThe {word} is kept in the {random.choice(WORDS)} room.\n")
            daemon.start(config=CONFIG)
            daemon.settle(vectors=True)
            return measure(name, daemon, seconds, files)
    except Skipped as why:
        return {"fault": name, "skipped": str(why)}
    finally:
        daemon.close()
        shutil.rmtree(folder, ignore_errors=True)


def measure(name: str, daemon: Daemon, seconds: float, files: int) -> dict[str, Any]:
    """The fault under load, then the count after everything has settled."""
    run = Run(daemon, seconds, files)
    with Load(daemon, **SOAK_LOAD if name == "soak" else {}) as load:
        time.sleep(2)
        before = Footprint(daemon)
        FAULTS[name](run)
        time.sleep(2)
    whole = lambda: (status := daemon.try_status()) is not None and not status.degraded  # noqa: E731 - one use
    until("all is well again", whole, 120.0)
    until("the spool is empty", lambda: not list(daemon.paths.spool.glob("*.json")), 120.0)
    daemon.settle()
    after = Footprint(daemon)
    lost, doubled = events_of(daemon, load)
    late = time.monotonic() + LATE_S
    while lost and time.monotonic() < late:
        time.sleep(0.5)
        lost, doubled = events_of(daemon, load)
    missing = [path for path, token in load.edits.items() if not daemon.finds(token, path, streams=("text",))]
    latencies = sorted(load.latencies_ms)
    recoveries = {actor: sorted(times) for actor, times in run.recoveries_ms.items()}
    return {
        "fault": name,
        "recalls": {
            "asked": load.asked, "answered": load.answered, "degraded": load.degraded, "failed": load.failed,
            "p50_ms": at(latencies, 0.5), "p99_ms": at(latencies, 0.99), "failures": sorted(set(load.failures))[:5],
        },
        "events": {
            "acknowledged": len(load.acknowledged), "lost": len(lost), "doubled": len(doubled), "which": [*lost, *doubled][:5],
        },
        "edits": {"made": load.edited, "missing": len(missing)},
        "notes": {"files": files_of(daemon), "indexed": indexed(daemon)},
        "recovery_ms": {actor: {"n": len(t), "p50": at(t, 0.5), "p99": at(t, 0.99)} for actor, t in recoveries.items()},
        "leaks": {
            "processes": after.processes - before.processes,
            "descriptors": {n: after.descriptors[n] - before.descriptors.get(n, 0) for n in after.descriptors},
            "memory_mb": {n: round(after.memory_mb[n] - before.memory_mb.get(n, 0), 1) for n in after.memory_mb},
        },
        "slope_mb_per_h": run.slopes_mb_h,
        "medians_mb": run.medians_mb,
        "memory_mb": after.memory_mb,
        "peak_mb": after.peak_mb,
        "wrong": run.wrong,
        "note": run.note,
    }  # fmt: skip


def events_of(daemon: Daemon, load: Load) -> tuple[list[str], list[str]]:
    """Acknowledged events that are not stored, and those that are stored more than once."""
    texts: list[str] = []
    while True:
        try:
            page = daemon.ask("writer", SessionEvents(session=SESSION, limit=500, offset=len(texts)))
        except ProtocolError as error:
            raise SystemExit(f"the events cannot be read: {error.text}") from None
        assert isinstance(page, EventPage)
        texts += [event.text for event in page.items]
        if len(page.items) < 500:
            break
    stored = [word for text in texts for word in text.split() if word.startswith(("direct", "client"))]
    counts = {token: stored.count(token) for token in load.acknowledged}
    return [t for t, n in counts.items() if n == 0], [t for t, n in counts.items() if n > 1]


def files_of(daemon: Daemon) -> int:
    """Notes on the disk: of the vault and of the wiki."""
    places = (daemon.vault.rglob("*.md"), daemon.paths.wiki.rglob("*.md"))
    return sum(path.is_file() for place in places for path in place)


def indexed(daemon: Daemon) -> int:
    """Notes that the index holds."""
    report = daemon.ask("query", DescribeIndex())
    assert isinstance(report, IndexReport)
    return report.notes


def at(values: list[float], share: float) -> float:
    """A quantile of sorted values, 0 of none."""
    return round(values[min(len(values) - 1, int(share * len(values)))], 1) if values else 0.0


def main() -> None:
    names = [*FAULTS, "power_cut"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="OUT", help="write the rows to this file")
    parser.add_argument("--only", default="", help=f"comma-separated, of: {', '.join(names)}")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a row")
    parser.add_argument("--kills-seconds", type=float, default=300.0, help="length of kill_each")
    parser.add_argument("--clock-seconds", type=float, default=CLOCK_S, help="length of each row of the clock")
    parser.add_argument("--soak-seconds", type=float, default=3600.0, help="length of soak")
    parser.add_argument("--files", type=int, default=10_000, help="how many files appear at once in many_files")
    arguments = parser.parse_args()
    lengths = {"kill_each": arguments.kills_seconds, "soak": arguments.soak_seconds}
    lengths.update(dict.fromkeys(clocks.CLOCK_FAULTS, arguments.clock_seconds))
    report: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "rows": [],
    }
    for name in [name for name in arguments.only.split(",") if name] or names:
        found = row(name, lengths.get(name, arguments.seconds), files=arguments.files)
        report["rows"].append(found)
        print(json.dumps(found), flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
