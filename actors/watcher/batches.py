"""
Files to messages: read, parse, pack into batches. Blocking; for a worker thread.

A note is packed as soon as it is parsed: its bytes take a quarter of the memory of its objects, and those are taken apart
while the processor still has them at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...memory.notes.parse import parse
from ...memory.notes.tree import Known
from ...protocol.envelope import encode
from ...protocol.messages.common import FileStat
from ...protocol.messages.index import NoteImage
from .scan import Scanner, Unreadable

MAX_NOTES = 96
MAX_BYTES = 500_000
"""
Per message: 30 to 100 ms of work for the writer, and far below a frame's limit. A transaction changes a few hundred pages of
indexes however many notes it brings: the fewer notes in each, the longer the writer takes for all.
"""
MAX_NOTE_BYTES = 12_000_000
"""Text of one note that still fits a frame of 16 MiB with all that is said about it."""


class Packed(msgspec.Struct, frozen=True):
    """A file that was read. ``image``: the NoteImage, encoded."""

    path: str
    stat: FileStat
    hash: bytes
    image: msgspec.Raw


class Batch(msgspec.Struct):
    """What became of some files that were read."""

    notes: list[Packed] = []
    touched: list[tuple[str, FileStat]] = []
    gone: list[str] = []
    unreadable: list[tuple[str, str]] = []
    racy: list[str] = []
    done: int = 0
    """How many paths were taken off the list."""


class Progress(msgspec.Struct):
    """Where a reading thread stands, for whoever waits for it: a path whose read does not end is named."""

    path: str = ""


def read_batch(
    scanner: Scanner,
    paths: Sequence[str],
    known: Mapping[str, Known],
    progress: Progress,
) -> Batch:
    """
    Read and parse the first of ``paths``, until a batch is full; ``done`` says how many that were.

    Files whose bytes are the known ones are only ``touched``.
    """
    batch = Batch()
    size = 0
    for path in paths:
        if batch.done and (len(batch.notes) >= MAX_NOTES or size >= MAX_BYTES):
            break
        batch.done += 1
        progress.path = path
        try:
            content = scanner.read(path)
        except FileNotFoundError:
            batch.gone.append(path)
            continue
        except Unreadable as error:
            batch.unreadable.append((path, str(error)))
            continue
        if content.racy:
            batch.racy.append(path)
        entry = known.get(path)
        if entry is not None and entry.hash == content.hash:
            if entry.stat != content.stat:
                batch.touched.append((path, content.stat))
            continue
        note, chunks = parse(path, content.raw)
        if len(content.raw) > MAX_NOTE_BYTES and sum(len(chunk.text.encode()) for chunk in chunks) > MAX_NOTE_BYTES:
            batch.unreadable.append((path, f"more than {MAX_NOTE_BYTES} bytes of text: split it"))
            continue
        image = encode(NoteImage(path=path, stat=content.stat, hash=content.hash, note=note, chunks=chunks))
        batch.notes.append(Packed(path, content.stat, content.hash, msgspec.Raw(image)))
        size += len(image)
    progress.path = ""
    return batch
