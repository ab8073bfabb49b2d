"""
How long things take as a user meets them: the real daemon, the real bridge, the real command.

    python bench/latency.py --json OUT [--chunks 1000,10000,100000] [--asks 200] [--edits 20] [--embed-up-to 0]

For each size a vault is generated (bench/vaults.py) and indexed by `recalld`. Vaults of more than ``--embed-up-to`` chunks
get random unit vectors through the writer, as an embedder would store them: comparing costs the same, embedding a hundred
thousand passages takes an hour. Questions and edits are embedded by the real model in either case.

Figures are wall-clock milliseconds of this machine with whatever else runs on it; ``load`` is its load average before each
size.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import vaults
from harness import Bridge, Daemon, until
from recalld.memory.recall.tokens import sentences
from recalld.protocol.client import ask_sync
from recalld.protocol.envelope import ProtocolError
from recalld.protocol.messages.embed import DescribeModel, ModelInfo
from recalld.protocol.messages.index import (
    ClaimChunks,
    Claimed,
    EmbeddedChunk,
    PendingChunk,
    Settle,
    Settled,
    StoreVectors,
    UseModel,
    Vector,
)
from recalld.protocol.messages.recall import STREAMS, Recall, Stream

CLAIM = 256
"""Passages per StoreVectors: about 2 MB, well below a frame."""
MAX_SENTENCES = 12
LIMIT_S = 1800.0
RESTING_S = 3.0
"""Three beats of an actor without news."""
CLI_RUNS = 15
START_RUNS = 15


def spread(times_ms: Iterable[float]) -> dict[str, float]:
    """p50, p95, p99 and how many."""
    ordered = sorted(times_ms)
    if not ordered:
        return {"n": 0}

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"n": len(ordered), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "min": round(ordered[0], 2)}


def timed(function: Callable[[], object]) -> float:
    """Milliseconds that ``function`` took."""
    started = time.perf_counter()
    function()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--chunks", default="1000,10000,100000", help="sizes, comma-separated")
    parser.add_argument("--asks", type=int, default=200, help="questions per way of asking")
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--embed-up-to", type=int, default=0, help="vaults up to this many chunks get real vectors")
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}, "sizes": {}}
    for size in (int(part) for part in options.chunks.split(",")):
        report["sizes"][str(size)] = measure(size, options.asks, options.edits, real=size <= options.embed_up_to)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    if not options.json:
        print(json.dumps(report, indent=1))


def measure(size: int, asks: int, edits: int, *, real: bool) -> dict[str, Any]:
    """All figures of one vault."""
    found: dict[str, Any] = {"load": os.getloadavg()[0], "vectors": "of the model" if real else "synthetic"}
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        vaults.write(Path(folder) / "vault", size)
        daemon = Daemon(Path(folder))
        try:
            started = time.perf_counter()
            daemon.start(config="[watcher]\nsweep_s = 3600.0\n")
            say(f"{size}: indexing")
            found["index"] = index(daemon, real=real)
            found["index"]["ready_s"] = round(time.perf_counter() - started, 1)
            say(f"{size}: asking")
            found |= ask(daemon, vaults.questions(asks, seed=7))
            say(f"{size}: editing")
            found |= edit(daemon, edits)
            found["memory_mb"] = {
                name: round(actor.vitals.rss_bytes / 1e6) for name, actor in daemon.status().actors.items()
            }
            daemon.stop()
            found["bridge_start_daemon_down"] = spread(bridge_start(daemon) for _ in range(START_RUNS))
        finally:
            daemon.close()
    return found


def index(daemon: Daemon, *, real: bool) -> dict[str, Any]:
    """Wait until text is searchable, then vectors; what there is then."""
    started = time.perf_counter()
    daemon.settle(limit_s=900.0)
    text_s = time.perf_counter() - started
    if not real:
        synthesise(daemon)
    until("vectors", lambda: settled(daemon).pending_vectors == 0, LIMIT_S)
    until("loaded", lambda: daemon.figure("query", "vector_notes") >= daemon.figure("query", "notes") > 0, LIMIT_S)
    rest(daemon)
    return {
        "notes": daemon.figure("query", "notes"),
        "chunks": daemon.figure("query", "chunks"),
        "text_s": round(text_s, 1),
        "vectors_s": round(time.perf_counter() - started - text_s, 1),
        "matrix_mb": round(daemon.figure("query", "vector_bytes") / 1e6, 1),
    }


def rest(daemon: Daemon) -> None:
    """Wait until the query process has fetched the sentences that it keeps: what is asked from then on is warm."""
    before, since = -1.0, time.monotonic()
    while time.monotonic() - since < RESTING_S:
        now = daemon.figure("query", "vector_bytes")
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.2)


def settled(daemon: Daemon) -> Settled:
    reply = daemon.ask("writer", Settle())
    assert isinstance(reply, Settled)
    return reply


def synthesise(daemon: Daemon) -> None:
    """Store random vectors for everything that waits, racing the embedder, which is slower by two orders."""
    info = until("the model", lambda: model_of(daemon), 120)
    rng = np.random.default_rng(1)
    model_id = daemon.ask("writer", UseModel(name=info.name, sha256=info.sha256, dim=info.dim)).model_id  # type: ignore[union-attr]
    while True:
        claimed = daemon.ask("writer", ClaimChunks(model_id=model_id, limit=CLAIM, wait_ms=200), 60_000)
        assert isinstance(claimed, Claimed)
        if not claimed.chunks:
            return
        chunks = tuple(EmbeddedChunk(chunk.hash, random_vectors(rng, chunk, info.dim)) for chunk in claimed.chunks)
        daemon.ask("writer", StoreVectors(model_id=model_id, chunks=chunks), 60_000)


def model_of(daemon: Daemon) -> ModelInfo | None:
    try:
        info = daemon.ask("embedder", DescribeModel())
    except ProtocolError:
        return None
    return info if isinstance(info, ModelInfo) and info.loaded else None


def random_vectors(rng: np.random.Generator, chunk: PendingChunk, dim: int) -> tuple[Vector, ...]:
    spans = [(0, len(chunk.text)), *sentences(chunk.text)[:MAX_SENTENCES]]
    rows = rng.standard_normal((len(spans), dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return tuple(
        Vector(ordinal, *span, row.astype("<f2").tobytes())
        for ordinal, (span, row) in enumerate(zip(spans, rows, strict=True))
    )


def ask(daemon: Daemon, questions: list[str]) -> dict[str, Any]:
    """Warm questions by each way of asking. Every question is asked once: its embedding is not in a cache."""
    found: dict[str, Any] = {"bridge_start": spread(bridge_start(daemon) for _ in range(START_RUNS))}
    half = len(questions) // 3
    first, second, third = questions[:half], questions[half : 2 * half], questions[2 * half :]
    bridge = Bridge(daemon)
    for question in first[:10]:
        bridge.recall(question)
    degraded = 0
    times, inside = [], []
    for question in first[10:] or first:
        started = time.perf_counter()
        content = bridge.recall(question)["structuredContent"]
        times.append((time.perf_counter() - started) * 1000)
        inside.append(content["took_ms"])
        degraded += bool(content["degraded"])
    bridge.close()
    found["mcp_all_streams"] = {**spread(times), "inside_p50": spread(inside)["p50"], "degraded": degraded}
    for name, streams, asked in (("text_only", ("text",), second), ("socket_all_streams", STREAMS, third)):
        found[name] = socket_times(daemon, streams, asked)
    found["cli_process"] = spread(
        timed(lambda question=question: daemon.cli("ask", question))  # type: ignore[misc]
        for question in questions[:CLI_RUNS]
    )
    return found


def socket_times(daemon: Daemon, streams: tuple[Stream, ...], questions: list[str]) -> dict[str, Any]:
    """One connection per question, as the command line asks; ``inside`` is the query actor's own clock."""
    times, inside = [], []
    for question in questions:
        started = time.perf_counter()
        answer = daemon.recall(question, streams=streams)
        times.append((time.perf_counter() - started) * 1000)
        inside.append(answer.took_ms)
    return {**spread(times), "inside_p50": spread(inside)["p50"], "inside_p99": spread(inside)["p99"]}


def bridge_start(daemon: Daemon) -> float:
    """Process start to ``initialize`` answered."""
    started = time.perf_counter()
    bridge = Bridge(daemon)
    took = (time.perf_counter() - started) * 1000
    bridge.close()
    return took


def edit(daemon: Daemon, edits: int) -> dict[str, Any]:
    """From the end of a write to the first answer that has the note: by a new word, and by a new sentence's vector."""
    notes = sorted(daemon.vault.rglob("*.md"))[: max(1, edits)]
    text_ms, vector_ms = [], []
    for number, note in enumerate(notes):
        word = f"zqx{number}w{os.getpid()}"
        sentence = f"The {word} lighthouse keeper repairs {number} brass telescopes before the storm."
        path = note.relative_to(daemon.vault).as_posix()
        with note.open("a", encoding="utf-8") as file:
            file.write(f"\n## Lighthouse {word}\n\n{sentence}\n")
        written = time.perf_counter()
        wait(daemon, Recall(query=word, k=3, streams=("text",)), path)
        text_ms.append((time.perf_counter() - written) * 1000)
        wait(daemon, Recall(query=sentence, k=50, streams=("vector",)), path, lighthouse=True)
        vector_ms.append((time.perf_counter() - written) * 1000)
    return {"edit_to_text": spread(text_ms), "edit_to_vector": spread(vector_ms)}


def wait(daemon: Daemon, question: Recall, path: str, *, lighthouse: bool = False) -> None:
    """Ask until ``path`` is among the hits (with ``lighthouse``: by the new passage). Each ask is part of the wait."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        reply = ask_sync(daemon.paths.socket("query"), question, budget_ms=5000)
        # Edits that say nearly the same are folded into one hit, which names the others.
        if any(path in (hit.path, *hit.also) and (not lighthouse or "brass" in hit.passage) for hit in reply.hits):  # type: ignore[union-attr]
            return
        time.sleep(0.002)
    raise SystemExit(f"{path} was not found by {question.streams} within a minute of its edit")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed}: {failed.stderr}")
