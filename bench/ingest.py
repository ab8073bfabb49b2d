"""
How fast notes become searchable, against the raw speed of the parts in the same run.

    python bench/ingest.py [--notes 10000] [--json OUT]

``made_notes`` and ``parse_speed`` are for other programs too: notes of a given length with what real ones have in them
(frontmatter, headings, links, tags, a list, now and then code), always the same for the same seed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from recalld.memory.notes.parse import parse

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


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast notes become searchable.")
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    notes = [(path, text.encode()) for path, text in made_notes(options.notes, options.words)]
    parse_speed(notes[:200])
    report = {"parse": parse_speed(notes)}
    print("parse: {notes_per_s:,.0f} notes/s, {mb_per_s} MB/s, {chunks_per_s:,.0f} chunks/s".format(**report["parse"]))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
