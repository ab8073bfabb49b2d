"""Files to messages: read, parse, pack into batches. Blocking; for a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...memory.notes.parse import parse
from ...memory.notes.tree import Known
from ...protocol.messages.common import FileStat
from ...protocol.messages.index import NoteImage
from .scan import Scanner, Unreadable

MAX_NOTES = 64
MAX_BYTES = 2_000_000
"""Per message: about 50 ms of work for the writer, and far below a frame's limit."""
MAX_NOTE_BYTES = 12_000_000
"""Text of one note that still fits a frame of 16 MiB with all that is said about it."""


class Batch(msgspec.Struct):
    """What became of some files that were read."""

    images: list[NoteImage] = []
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
        if batch.done and (len(batch.images) >= MAX_NOTES or size >= MAX_BYTES):
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
        batch.images.append(NoteImage(path=path, stat=content.stat, hash=content.hash, note=note, chunks=chunks))
        size += len(content.raw)
    progress.path = ""
    return batch
