"""
How fast the embedder is, and what it costs: `python bench/embed.py [--json OUT] [--model NAME] [--data FOLDER]`.

Against the raw speed of the same model on the same texts in the same run: chunks per second through the whole path
(claim, embed, store), questions at rest and during indexing, load time, resident memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from recalld.actors.base import Env
from recalld.actors.embedder.actor import Embedder
from recalld.actors.embedder.desk import load_by_name
from recalld.actors.embedder.passages import pieces
from recalld.actors.embedder.session import Embedding
from recalld.protocol.client import Peer
from recalld.protocol.config import Config
from recalld.protocol.config import Embedder as Settings
from recalld.protocol.messages import decode_writer
from recalld.protocol.messages.common import Message, Ok
from recalld.protocol.messages.embed import DescribeModel, Embed, ModelInfo
from recalld.protocol.messages.index import (
    ClaimChunks,
    Claimed,
    FailChunks,
    Indexed,
    ModelInUse,
    PendingChunk,
    StoreVectors,
    UseModel,
)
from recalld.protocol.runtime import Paths
from recalld.protocol.server import Server

WORDS = """
the of and to in a is that for it with on as was by at from this be are or an which have not service database deploy
team note meeting release cluster cache index query vector model token budget error timeout retry queue writer reader
process socket memory latency backup restore migration schema branch commit review incident alert owner customer invoice
payment account region network certificate key secret rotate policy session agent handoff decision because moved chose
""".split()
QUESTION = "which database did we choose for the payment service, and why?"


def chunks(count: int, seed: int = 5) -> list[PendingChunk]:
    """Chunks of about 130 words in sentences of 8 to 18: what the chunker aims at."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        sentences = [" ".join(chance.choices(WORDS, k=chance.randint(8, 18))).capitalize() + "." for _ in range(10)]
        found.append(PendingChunk(number.to_bytes(16), f"Note {number} > Part", " ".join(sentences)))
    return found


class Writer:
    """Hands out ``queue`` and counts what comes back."""

    def __init__(self) -> None:
        self.queue: list[PendingChunk] = []
        self.stored = 0
        self.arrived = anyio.Event()
        self.done = anyio.Event()
        self.wanted = 0

    def begin(self, queue: list[PendingChunk]) -> None:
        self.stored, self.wanted, self.queue = 0, len(queue), list(queue)
        self.done = anyio.Event()
        self.arrived.set()

    async def ask(self, body: Message) -> Message:
        match body:
            case UseModel():
                return ModelInUse(model_id=1, pending=0)
            case ClaimChunks():
                while not self.queue:
                    self.arrived = anyio.Event()
                    await self.arrived.wait()
                taken, self.queue = self.queue[: body.limit], self.queue[body.limit :]
                return Claimed(chunks=tuple(taken))
            case StoreVectors():
                self.stored += len(body.chunks)
                if self.stored >= self.wanted:
                    self.done.set()
                return Indexed(revision=1)
            case _:
                return Ok()


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.setblocking(False)
    return listener


def child(data: str, runtime: str, model: str, threads: int) -> None:
    """The embedder in a process of its own, until its standard input ends."""
    paths = Paths(Path(data), Path(runtime))
    config = Config(embedder=Settings(model=model, threads=threads))
    env = Env("embedder", config, paths, {"embedder": listen(paths.socket("embedder"))})

    async def run() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(Embedder(env).run, lambda: print("ready", flush=True))
            await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
            group.cancel_scope.cancel()

    anyio.run(run, backend_options={"use_uvloop": True})
    os._exit(0)


def raw_speed(model: str, folder: Path, work: list[PendingChunk]) -> dict[str, float]:
    """The model alone, on one thread: the same texts, the same batches, nothing around it."""
    embedding = load_by_name(model, folder, 8)
    assert embedding is not None
    texts = [piece.text for piece in pieces(work, with_sentences=True)]
    embedding.embed(texts[:64])
    wall, cpu = min(_timed(embedding, texts) for _ in range(2))
    count = len(work)
    return {"chunks_per_s": count / wall, "chunks_per_cpu_s": count / cpu, "texts_per_cpu_s": len(texts) / cpu}


def _timed(embedding: Embedding, texts: list[str]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    embedding.embed(texts)
    return time.perf_counter() - wall, time.thread_time() - cpu


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def questions(peer: Peer, count: int) -> list[float]:
    """Milliseconds of each, over the socket."""
    took = []
    for number in range(count):
        started = time.perf_counter()
        await peer.ask(Embed(texts=(f"{QUESTION} {number}",)), budget_ms=30_000)
        took.append((time.perf_counter() - started) * 1000)
    return took


def cpu_s(pid: int) -> float:
    """User and system time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_child(data: Path, model: str, threads: int, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as runtime:
        arguments = [sys.executable, __file__, "--child", str(data), runtime, model, str(threads)]
        started = time.perf_counter()
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            ready_s = time.perf_counter() - started
            found = anyio.run(measure, process.pid, Path(runtime), started, count)
        finally:
            process.communicate()
    return {"model": model, "threads": threads, "start_to_ready_s": ready_s, **found}


async def measure(pid: int, runtime: Path, started: float, count: int) -> dict[str, Any]:
    paths = Paths(runtime, runtime)
    writer = Writer()
    kinds = (UseModel, ClaimChunks, StoreVectors, FailChunks)
    server = Server(listen(paths.socket("writer")), decode_writer, dict.fromkeys(kinds, writer.ask), name="writer")
    peer = Peer(paths.socket("embedder"), "bench")
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(server.run)
            await questions(peer, 1)
            first_answer_s = time.perf_counter() - started
            info = await peer.ask(DescribeModel(), budget_ms=5_000)
            assert isinstance(info, ModelInfo)
            loaded = resident(pid)
            idle = await questions(peer, 100)
            work = chunks(count)
            writer.begin(work[: count // 4])
            await writer.done.wait()  # the size of a claim has settled, and memory has grown to what it will be
            began, cpu_began = time.perf_counter(), cpu_s(pid)
            writer.begin(work)
            await writer.done.wait()
            took, cpu_took = time.perf_counter() - began, cpu_s(pid) - cpu_began
            during = resident(pid)
            writer.begin(work)
            busy = await questions(peer, 50)
            peak = max(during, resident(pid))
            await writer.done.wait()
            await anyio.sleep(0.5)
            rest = resident(pid)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await peer.aclose()
    return {
        "sha256": info.sha256,
        "dim": info.dim,
        "start_to_first_answer_s": first_answer_s,
        "query_ms": {"p50": statistics.median(idle), "p95": statistics.quantiles(idle, n=20)[-1]},
        "query_while_indexing_ms": {"p50": statistics.median(busy), "p95": statistics.quantiles(busy, n=20)[-1]},
        "indexing": {"chunks_per_s": count / took, "chunks_per_cpu_s": count / cpu_took},
        "rss_mb": {"loaded": loaded / 1e6, "indexing": peak / 1e6, "at_rest": rest / 1e6},
    }


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data", type=Path, help="where <data>/models is (default: a folder that is thrown away)")
    parser.add_argument("--threads", type=int, default=1, help="bulk threads (raw speed is of one)")
    parser.add_argument("--chunks", type=int, default=80)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recalld-bench-") as scratch:
        data = options.data or Path(scratch)
        result = with_child(data, options.model, options.threads, options.chunks)
        result["raw"] = raw = raw_speed(options.model, data / "models", chunks(options.chunks))
        # Wall time says it on a quiet machine; processor time also on a busy one.
        result["share_of_raw"] = {name: result["indexing"][name] / raw[name] for name in result["indexing"]}
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
