"""How a journal record stands in its file: one checked line."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec


class Line(msgspec.Struct, frozen=True):
    """One line as it is stored. ``rec`` is null in a line whose record was purged."""

    seq: int
    crc: str
    rec: msgspec.Raw


_decode = msgspec.json.Decoder(Line).decode


def encode_line(seq: int, record: bytes) -> bytes:
    return b'{"seq":%d,"crc":"%08x","rec":%b}\n' % (seq, zlib.crc32(record), record)


def decode_line(line: bytes) -> tuple[int, bytes | None]:
    """(seq, record) of one line, with or without newline; record None: it was purged. Raises ValueError."""
    try:
        parsed = _decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    record = bytes(parsed.rec)
    if parsed.crc != f"{zlib.crc32(record):08x}":
        raise ValueError("checksum does not match")
    return parsed.seq, None if record == b"null" else record


def measure(path: Path) -> tuple[int, int]:
    """(last seq, end of the last whole line in bytes) of a journal file; damage before that end is left alone."""
    last, end, position = 0, 0, 0
    with path.open("rb") as stream:
        for line in stream:
            position += len(line)
            try:
                seq, _ = decode_line(line)
            except ValueError:
                continue
            if line.endswith(b"\n"):
                last, end = max(last, seq), position
    return last, end
