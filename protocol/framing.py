"""
Frames: a 4-byte big-endian length, then that many bytes of msgpack.

The length is checked against the cap before anything is allocated, so a stray client cannot make a process grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .envelope import BadFrame, Envelope, decode_envelope, encode

if TYPE_CHECKING:
    import asyncio

MAX_FRAME_BYTES = 16 * 1024 * 1024
HEADER_BYTES = 4


def pack(envelope: Envelope) -> bytes:
    """The frame of one envelope. Raises BadFrame when its body is larger than the cap."""
    return pack_bytes(encode(envelope))


def pack_bytes(body: bytes) -> bytes:
    """The frame around ``body``. Raises BadFrame when it is larger than the cap."""
    if len(body) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(body):,} bytes is over the limit of {MAX_FRAME_BYTES:,}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_length(header: bytes, cap: int = MAX_FRAME_BYTES) -> int:
    """The length that a header announces. Raises BadFrame when it is zero or over ``cap``."""
    length = int.from_bytes(header, "big")
    if not 0 < length <= cap:
        raise BadFrame(f"a frame announces {length:,} bytes; 1 to {cap:,} are allowed")
    return length


def unpack(body: bytes) -> Envelope:
    """The envelope in ``body``. Raises BadFrame when the bytes are not one."""
    try:
        return decode_envelope(body)
    except Exception as error:  # msgspec raises several kinds; every one of them means the same here
        raise BadFrame(f"not an envelope: {error}") from None


async def read_length(reader: asyncio.StreamReader, cap: int = MAX_FRAME_BYTES) -> int | None:
    """The length of the next frame's body, None at a clean end. Raises BadFrame for a wrong or torn header; OSError passes."""
    try:
        header = await reader.readexactly(HEADER_BYTES)
    except EOFError as error:  # asyncio.IncompleteReadError, of which clients without asyncio know nothing
        if getattr(error, "partial", b""):
            raise BadFrame("the connection ended inside a frame's header") from None
        return None
    return body_length(header, cap)


async def read_body(reader: asyncio.StreamReader, cap: int = MAX_FRAME_BYTES) -> bytes | None:
    """The next frame's bytes, None at a clean end. Raises BadFrame for a wrong or torn frame; OSError passes."""
    length = await read_length(reader, cap)
    if length is None:
        return None
    try:
        return await reader.readexactly(length)
    except EOFError:
        raise BadFrame("the connection ended inside a frame") from None


async def read_envelope(reader: asyncio.StreamReader, cap: int = MAX_FRAME_BYTES) -> Envelope | None:
    """The next envelope, None at a clean end. Raises BadFrame; OSError passes."""
    body = await read_body(reader, cap)
    return None if body is None else unpack(body)
