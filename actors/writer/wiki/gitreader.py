"""
The process that reads git histories for the writer: ``python -m recalld.actors.writer.wiki.gitreader``.

Walking a history and parsing old texts is work for minutes that holds Python's lock; next to the database's thread every
statement of a live write would wait for it. A repository that makes libgit2 crash takes this process along, and nothing
else. It is asked over its stdin and answers on its stdout, in frames of msgpack, and ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from ....memory.notes import intervals
from ....memory.notes.parse import parse
from ....protocol.framing import HEADER_BYTES, pack_bytes
from ....protocol.messages.common import Chunk, ParsedNote
from .vaultlog import Ignored, Limits, Unusable, Vault, VaultLog, digest_of

NICE = 10
"""The past can wait for everything else."""
PATHS = 64
"""Notes that are looked up in the index at a time."""
BATCH_CHUNKS = 24
"""Passages that are written in one transaction: about 15 ms."""
BATCH_BYTES = 200_000
MAX_TEXT_BYTES = 4_000_000
"""A larger version is left out: it would hold up live writes for a second, and hardly fit a frame."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Read the history of the vault at ``root`` -> Opened | Failed."""

    root: str
    sub: str
    """The folder of it whose repository is meant; '' = the root."""
    known_tip: str
    limits: Limits
    bounds: tuple[int, int, int, tuple[int, int] | None]
    """now_ms, oldest_ms, room for versions per note, the time in which nobody looked."""
    ignore: tuple[str, ...]
    max_bytes: int


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    tip: str
    notes: int
    commits: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    reason: str


class More(msgspec.Struct, frozen=True, tag="more"):
    """Which notes come next -> Look. Without paths: that was all."""


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Tell what the index holds of these paths: Rows."""

    paths: tuple[str, ...]


RowOf = tuple[bytes, int, int | None, bool]
"""As ``intervals.Row``."""


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """-> Steps, one or several, the last with ``last``."""

    rows: dict[str, tuple[RowOf, ...]]


class Text(msgspec.Struct, frozen=True, array_like=True):
    """A past version, parsed."""

    hash: bytes
    size: int
    from_ms: int
    to_ms: int
    note: ParsedNote
    chunks: tuple[Chunk, ...]


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One change to one note, valid while its versions stand at ``expect``. Exactly one of the others is there."""

    path: str
    expect: tuple[tuple[int, int | None], ...]
    insert: Text | None = None
    begin: tuple[int, int] | None = None
    end: tuple[int, int] | None = None


class Steps(msgspec.Struct, frozen=True, tag="steps"):
    steps: tuple[Step, ...]
    last: bool = False


Request = Start | More | Rows
Reply = Opened | Failed | Look | Steps
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class Reading:
    """One vault's history, as far as it was asked for."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._vault = Vault(start.root, start.sub)
        ignored = Ignored(self._vault.root, start.ignore)
        self.log: VaultLog = self._vault.log(start.limits, start.bounds[0], ignored, start.known_tip)
        self._paths = iter(self.log.versions)
        self._now: tuple[str, ...] = ()

    def more(self) -> Look:
        """The next notes, and where they were moved to: the index may hold them there."""
        self._now = tuple(itertools.islice(self._paths, PATHS))
        also = [one.moved for path in self._now for one in self.log.versions[path] if one.moved]
        return Look(tuple(dict.fromkeys((*self._now, *also))))

    def steps(self, rows: Rows) -> Iterator[Steps]:
        """What to change in the index for the notes that ``more`` named."""
        steps: list[Step] = []
        weight = 0
        for path in self._now:
            known = {name: [intervals.Row(*row) for row in found] for name, found in rows.rows.items()}
            for step in self._of_path(path, known):
                chunks, size = (len(step.insert.chunks), step.insert.size) if step.insert is not None else (0, 0)
                if steps and (len(steps) + weight + chunks > BATCH_CHUNKS or size > BATCH_BYTES):
                    yield Steps(tuple(steps))
                    steps, weight = [], 0
                steps.append(step)
                weight += chunks + size * BATCH_CHUNKS // BATCH_BYTES
        yield Steps(tuple(steps), last=True)

    def _of_path(self, path: str, known: dict[str, list[intervals.Row]]) -> Iterator[Step]:
        stood = self.log.versions[path]
        now_ms, oldest_ms, room, blind = self._start.bounds
        rows = known.get(path, [])
        past = sum(row.to_ms is not None for row in rows)
        bounds = intervals.Bounds(now_ms, oldest_ms, room - past, blind, self._moved_at(stood, known))
        there = [(row.from_ms, row.to_ms) for row in rows]
        for change in intervals.plan(stood, rows, self._vault.same, bounds):
            expect = tuple(there)
            match change:
                case intervals.Insert(blob, from_ms, to_ms):
                    text = self._text(path, blob, from_ms, to_ms)
                    if text is None:
                        continue
                    yield Step(path, expect, insert=text)
                case intervals.Begin(old_ms, new_ms):
                    yield Step(path, expect, begin=(old_ms, new_ms))
                case intervals.End(from_ms, to_ms):
                    yield Step(path, expect, end=(from_ms, to_ms))
            there = intervals.apply(there, change)

    def _moved_at(self, stood: list[intervals.Stood], known: dict[str, list[intervals.Row]]) -> int | None:
        """
        Since when the index has the last version under its later path: a move keeps a version and its time, so the
        index knows it there from before the commit that renamed it.
        """
        last = stood[-1]
        there = known.get(last.moved, []) if last.moved else []
        # A time that is only guessed gives way to the commit (``intervals``).
        if last.to_ms is None or not there or (len(there) == 1 and there[0].guessed) or there[0].from_ms >= last.to_ms:
            return None
        return there[0].from_ms if self._vault.same(last.blob, there[0].hash) else None

    def _text(self, path: str, blob: str, from_ms: int, to_ms: int) -> Text | None:
        raw = self._vault.data(blob, min(self._start.max_bytes, MAX_TEXT_BYTES))
        if raw is None:
            return None
        note, chunks = parse(path, raw)
        return Text(digest_of(raw), len(raw), from_ms, to_ms, note, chunks)


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer until ``requests`` ends."""
    reading: Reading | None = None
    while (header := requests.read(HEADER_BYTES)) and len(header) == HEADER_BYTES:
        request = decode_request(requests.read(int.from_bytes(header, "big")))
        try:
            match request:
                case Start():
                    reading = Reading(request)
                    log = reading.log
                    _send(replies, Opened(log.tip, len(log.versions), log.commits))
                case More():
                    assert reading is not None
                    _send(replies, reading.more())
                case Rows():
                    assert reading is not None
                    for steps in reading.steps(request):
                        _send(replies, steps)
        except Unusable as error:
            _send(replies, Failed(str(error)))


def _send(replies: BinaryIO, reply: Reply) -> None:
    replies.write(pack_bytes(msgspec.msgpack.encode(reply)))
    replies.flush()


def start_of(root: str, sub: str, known_tip: str, limits: Limits, room: int, ignore: tuple[str, ...], max_bytes: int,
             blind: tuple[int, int] | None) -> Start:  # fmt: skip
    """A Start for now. ``limits.since_ms``: versions that ended before are not wanted."""
    bounds = (time.time_ns() // 1_000_000, limits.since_ms, room, blind)
    return Start(root, sub, known_tip, limits, bounds, ignore, max_bytes)


if __name__ == "__main__":
    with contextlib.suppress(OSError):
        os.nice(NICE)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
