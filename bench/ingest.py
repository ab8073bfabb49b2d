"""
How fast notes become searchable, against the raw speed of the parts in the same run.

    python bench/ingest.py [--notes 10000] [--vectors] [--json OUT]

parse: the parser alone, one thread. sqlite: the writer's own transaction on a bare connection, notes parsed before.
text: a real daemon without a model, from the moment that the folder is added until every note is found by text.
vectors (with ``--vectors``): the same with the packaged model, against the model's own batch speed on the same passages.
``made_notes`` and ``parse_speed`` are for other programs too: notes of a given length with what real ones have in them
(frontmatter, headings, links, tags, a list, now and then code), always the same for the same seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness import running
from recalld.actors.embedder.actor import bulk_threads, usable_cores
from recalld.actors.embedder.desk import load_by_name
from recalld.actors.embedder.passages import pieces
from recalld.actors.watcher.batches import MAX_NOTES
from recalld.actors.writer.opening import open_database
from recalld.actors.writer.records import notes as records
from recalld.actors.writer.records import vaults
from recalld.actors.writer.records.common import Rules
from recalld.memory.notes.parse import parse
from recalld.protocol.config import Embedder
from recalld.protocol.messages.common import FileStat
from recalld.protocol.messages.index import NoteImage, OpenVault, PendingChunk, Settle, Settled, UpsertNotes, Vault

WORDS = (
    "the a of to and in is for that on with as was at by it from be this have or are not but had his they which one you were "
    "all their there been has when who will more no out up into them some could time these two may then do first any my now "
    "such like our over man me even most made after also did many before must through back years where much your way well "
    "down should because each just those people how too little state good very make world still own see men work long get "
    "here between both life being under never day same another know while last might us great old year off come since against "
    "go came right used take three system deploy cluster database index query latency budget release service queue worker "
    "cache token schema migration backup restore rollback incident owner review design decision meeting project note plan "
    "server client request response timeout retry error log metric alert dashboard test build branch commit merge deadline"
).split()
FOLDERS = ("", "projects/", "decisions/", "meetings/", "people/", "notes/2024/")


def made_notes(count: int, words: int = 300, seed: int = 1) -> Iterator[tuple[str, str]]:
    """``(path, text)`` of ``count`` notes of about ``words`` words."""
    dice = random.Random(seed)
    names = [f"{FOLDERS[n % len(FOLDERS)]}{dice.choice(WORDS)}-{dice.choice(WORDS)}-{n}" for n in range(count)]
    for n, name in enumerate(names):
        yield f"{name}.md", _made_note(dice, n, names, words)


def _made_note(dice: random.Random, number: int, names: Sequence[str], words: int) -> str:
    head = (
        f"---\ntitle: {dice.choice(WORDS).title()} {number}\ntype: note\ndate: 2024-{number % 12 + 1:02d}-{number % 28 + 1:02d}\n"
        f"tags: [{dice.choice(WORDS)}, {dice.choice(WORDS)}]\n---\n\n# {dice.choice(WORDS).title()} {number}\n"
    )
    parts = [head]
    left = words
    while left > 0:
        length = min(left, dice.randint(30, 70))
        sentence = " ".join(dice.choices(WORDS, k=length - 2)).capitalize()
        link = dice.choice(names)
        parts.append(f"{sentence} [[{link.rpartition('/')[2]}|{dice.choice(WORDS)}]] #{dice.choice(WORDS)}.\n")
        left -= length
        if dice.random() < 0.3:
            parts.append(f"## {dice.choice(WORDS).title()} {dice.choice(WORDS)}\n")
    parts.append("".join(f"- {dice.choice(WORDS)} {dice.choice(WORDS)}\n" for _ in range(3)))
    if number % 4 == 0:
        parts.append(f"```python\nif x[[0]] == 1:\n    {dice.choice(WORDS)}('#{dice.choice(WORDS)}')\n```\n")
    return "\n".join(parts)


def write_vault(folder: Path, count: int, words: int = 300, seed: int = 1) -> int:
    """Write made notes below ``folder``; returns their bytes."""
    size = 0
    for path, text in made_notes(count, words, seed):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        size += target.write_bytes(text.encode())
    return size


def parse_speed(notes: Sequence[tuple[str, bytes]]) -> dict[str, float]:
    """Notes, megabytes and chunks per second of one thread's CPU time: decode, frontmatter, structure, links, chunks."""
    began = time.process_time()
    chunks = links = 0
    for path, raw in notes:
        note, pieces = parse(path, raw)
        chunks += len(pieces)
        links += len(note.links)
    took = time.process_time() - began
    return {
        "notes_per_s": round(len(notes) / took, 1),
        "mb_per_s": round(sum(len(raw) for _, raw in notes) / took / 1e6, 2),
        "chunks_per_s": round(chunks / took, 1),
        "chunks_per_note": round(chunks / len(notes), 2),
        "links_per_note": round(links / len(notes), 2),
    }


def sqlite_speed(notes: Sequence[tuple[str, bytes]], folder: Path) -> dict[str, float]:
    """Notes per second that one connection stores, in transactions of the watcher's size."""
    images = []
    for number, (path, raw) in enumerate(notes):
        note, chunks = parse(path, raw)
        digest = hashlib.blake2b(raw, digest_size=16).digest()
        images.append(
            NoteImage(path=path, stat=FileStat(1, number, len(raw), 1), hash=digest, note=note, chunks=chunks)
        )
    conn = open_database(folder / "raw.sqlite").conn
    began = time.perf_counter()
    vault = vaults.open_vault(conn, OpenVault(vault=Vault(root=str(folder), name="raw")))
    for start in range(0, len(images), MAX_NOTES):
        batch = tuple(images[start : start + MAX_NOTES])
        conn.execute("BEGIN IMMEDIATE")
        records.upsert_notes(conn, UpsertNotes(vault_id=vault.vault_id, notes=batch), 1_700_000_000_000, Rules())
        conn.execute("COMMIT")
    took = time.perf_counter() - began
    conn.close()
    return {"notes_per_s": round(len(notes) / took, 1)}


def model_speed(notes: Sequence[tuple[str, bytes]], chunks: int = 512) -> dict[str, float]:
    """Chunks per second of the packaged model alone, on the threads that the embedder would use, sentences included."""
    settings = Embedder()
    threads = bulk_threads(settings.threads, usable_cores())
    passages: list[PendingChunk] = []
    for path, raw in notes:
        passages += [PendingChunk(chunk.hash, chunk.context, chunk.text) for chunk in parse(path, raw)[1]]
        if len(passages) >= chunks:
            break
    with tempfile.TemporaryDirectory(prefix="r-") as folder:
        embedding = load_by_name(settings.model, Path(folder), settings.batch)
        assert embedding is not None
        groups = [passages[start : start + 64] for start in range(0, len(passages), 64)]

        def work(group: Sequence[PendingChunk]) -> int:
            return len(embedding.embed([piece.text for piece in pieces(group, with_sentences=True)]).vectors)

        work(groups[0][:8])
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            vectors = sum(pool.map(work, groups))
        took = time.perf_counter() - began
    return {
        "chunks_per_s": round(len(passages) / took, 1),
        "vectors_per_s": round(vectors / took, 1),
        "threads": float(threads),
    }


def daemon_speed(notes: Sequence[tuple[str, bytes]], *, vectors: bool) -> dict[str, float]:
    """Notes per second from the moment that the folder is added until the last is in the index; memory at the end."""
    model = "minilm" if vectors else "none"
    with running(f"[embedder]\nmodel = '{model}'\n") as daemon:
        more = daemon.folder / "more"
        for path, raw in notes:
            target = more / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(raw)
        began = time.perf_counter()
        with daemon.paths.config.open("a") as config:
            config.write(f'\n[[vaults]]\npath = "{more}"\nname = "more"\n')
        settled = daemon.settle()
        text_s = time.perf_counter() - began
        report = {"notes_per_s": round(len(notes) / text_s, 1), "seconds": round(text_s, 2)}
        if vectors:
            began_vectors, before = time.perf_counter(), settled.pending_vectors
            while settled.pending_vectors:
                time.sleep(0.5)
                reply = daemon.ask("writer", Settle())
                assert isinstance(reply, Settled)
                settled = reply
            took = time.perf_counter() - began_vectors
            report |= {"chunks_per_s": round(before / took, 1), "vector_seconds": round(took, 1)}
        peaks = {name: _peak_mb(pid) for name, pid in {**daemon.pids(), "supervisor": daemon.status().pid}.items()}
        report |= {f"cpu_s_{name}": _cpu_s(pid) for name, pid in daemon.pids().items()}
        report |= {f"peak_mb_{name}": peak for name, peak in peaks.items()}
        report["peak_mb_sum"] = round(sum(peaks.values()), 1)
        return report


def _cpu_s(pid: int) -> float:
    """Processor time so far; 0 where the system does not tell. On a busy machine it says more than the clock."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return round((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), 2)


def _peak_mb(pid: int) -> float:
    """Largest resident memory so far, in MB; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM")), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast notes become searchable.")
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--vectors", action="store_true", help="also with the packaged model: takes minutes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    notes = [(path, text.encode()) for path, text in made_notes(options.notes, options.words)]
    parse_speed(notes[:200])
    report = {"parse": parse_speed(notes)}
    print("parse: {notes_per_s:,.0f} notes/s, {mb_per_s} MB/s, {chunks_per_s:,.0f} chunks/s".format(**report["parse"]))
    with tempfile.TemporaryDirectory(prefix="r-") as folder:
        report["sqlite"] = sqlite_speed(notes, Path(folder))
    print(f"sqlite: {report['sqlite']['notes_per_s']:,.0f} notes/s")
    report["text"] = daemon_speed(notes, vectors=False)
    print(
        f"text, whole daemon: {report['text']['notes_per_s']:,.0f} notes/s, "
        f"{report['text']['peak_mb_sum']:.0f} MB peak in all processes"
    )
    if options.vectors:
        report["model"] = model_speed(notes)
        print("model alone: {chunks_per_s:,.1f} chunks/s, {vectors_per_s:,.1f} vectors/s".format(**report["model"]))
        report["vectors"] = daemon_speed(notes, vectors=True)
        share = report["vectors"]["chunks_per_s"] / report["model"]["chunks_per_s"]
        print(
            f"vectors, whole daemon: {report['vectors']['chunks_per_s']:,.1f} chunks/s, {share:.2f} of the model alone"
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
