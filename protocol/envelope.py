"""
Envelopes, and every error that can cross a socket.

An envelope carries its body as raw msgpack: the receiver decodes the envelope first and the body second, so a body
that it does not understand can still be answered (``Fail(code="invalid")``) under the right id.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Code = Literal["unavailable", "overloaded", "timeout", "invalid", "conflict", "internal"]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first frame in each direction. ``role`` says who connects (``watcher``, ``cli`` …)."""

    wire: int
    role: str
    pid: int


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A request that wants an answer within ``budget_ms`` (> 0). ``trace`` follows the work through every process."""

    id: int
    budget_ms: int
    trace: str
    body: msgspec.Raw


class Cast(msgspec.Struct, frozen=True, tag="cast"):
    """A message that wants no answer."""

    trace: str
    body: msgspec.Raw


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """The answer to the Call of the same id."""

    id: int
    body: msgspec.Raw


class Fail(msgspec.Struct, frozen=True, tag="fail"):
    """The Call of this id has no answer. ``retry_after_ms`` > 0 invites another try."""

    id: int
    code: Code
    text: str
    retry_after_ms: int = 0


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """The caller no longer wants the answer to this id."""

    id: int


Envelope = Hello | Call | Cast | Reply | Fail | Cancel
encode = msgspec.msgpack.Encoder().encode
decode_envelope = msgspec.msgpack.Decoder(Envelope).decode


class ProtocolError(Exception):
    """Base of everything that a call may raise. ``code`` is what crosses the wire."""

    code: Code = "internal"

    def __init__(self, text: str, *, retry_after_ms: int = 0) -> None:
        super().__init__(text)
        self.text = text
        self.retry_after_ms = retry_after_ms


class Unavailable(ProtocolError):
    """Raised when the peer cannot be reached or went away: nothing is known to have happened, try again later."""

    code: Code = "unavailable"


class Overloaded(ProtocolError):
    """Raised when a bounded queue is full. ``retry_after_ms`` says when to try again; nothing happened."""

    code: Code = "overloaded"


class TimedOut(ProtocolError):
    """Raised when the budget of a call is spent. The work may still finish on the other side."""

    code: Code = "timeout"


class Invalid(ProtocolError):
    """Raised when a message cannot be understood or asks for something impossible: a bug, or an older peer."""

    code: Code = "invalid"


class Conflict(ProtocolError):
    """Raised when a compare-and-set found another value than the caller expected."""

    code: Code = "conflict"


class Internal(ProtocolError):
    """Raised when the other side failed in a way that it did not foresee; it has logged the cause under the trace."""

    code: Code = "internal"


class BadFrame(ProtocolError):
    """Raised when bytes on a socket are not a frame of this protocol. The connection is closed."""

    code: Code = "invalid"


ERRORS: dict[Code, type[ProtocolError]] = {
    "unavailable": Unavailable,
    "overloaded": Overloaded,
    "timeout": TimedOut,
    "invalid": Invalid,
    "conflict": Conflict,
    "internal": Internal,
}


def error_of(fail: Fail) -> ProtocolError:
    """The exception that ``fail`` stands for."""
    return ERRORS[fail.code](fail.text, retry_after_ms=fail.retry_after_ms)
