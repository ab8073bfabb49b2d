"""
What capture writes into the journal. Applying the entries in order, from nothing, gives the same sessions, events and
handoffs again: every decision that needs a clock or a configuration carries it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...protocol.messages.capture import Handoff, Letter, Place, Signal
from .events import Event


class Happened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="event"):
    """One captured event, with its project's root as it was found ('' = unknown)."""

    event: Event
    root: str = ""
    taken_ms: int = 0
    """
    What the daemon's clock showed when a start or prompt was taken in: it may show that the time of its session's end is of
    a clock that was ahead. 0 = not known, or nothing can be told from it (an import, a sender whose clock was another).
    """


class HandedOff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="handoff"):
    """
    One wish about handoffs; whether it is granted is decided when it is applied, in the journal's order: of any number of
    racers exactly one gets a handoff.
    """

    op: Literal["open", "offer", "accept", "cancel", "expire"]
    at_ms: int
    id: str = ""
    """'' with accept and offer: the best one for ``place``."""
    place: Place = Place()
    handoff: Handoff | None = None
    expire_days: int = 0
    replay_key: str = ""


class Finished(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="finished"):
    """The page of a session's end number ``ends`` stands in the wiki; the handoff is opened with this entry."""

    session: str
    ends: int
    covered: int
    at_ms: int
    page: str = ""
    hash: str = ""
    handoff: Handoff | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="purged"):
    """A session, or what a project had beside sessions, was removed on request: earlier entries of it are gone from here."""

    session: str = ""
    at_ms: int
    project: str = ""
    pages: str = ""
    """The project's folder in the wiki, absolute: feedback on what lies there went too."""


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="judged"):
    """
    What one voice (a session, or a person) said of a note as it stood: ``hash`` is that of its file, in hex. Nothing is
    said of the note once it has another one.
    """

    hash: str
    signal: Signal
    at_ms: int
    path: str = ""
    root: str = ""
    """The vault's folder, to show where the note stood."""
    reason: str = ""
    host: str = ""
    session: str = ""


class Mailed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="letter"):
    """One wish about messages between projects; granted or not when it is applied, in the journal's order."""

    op: Literal["send", "pop", "cancel"]
    at_ms: int
    id: str = ""
    """'' with pop: the oldest that waits; with cancel: all that this project sent."""
    place: Place = Place()
    letter: Letter | None = None
    replay_key: str = ""


Entry = Happened | HandedOff | Finished | Purged | Judged | Mailed

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Entry).decode
