"""
What capture writes into the journal. Applying the entries in order, from nothing, gives the same sessions, events and
handoffs again: every decision that needs a clock or a configuration carries it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...protocol.messages.capture import Handoff, Place
from .events import Event


class Happened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="event"):
    """One captured event, with its project's root as it was found ('' = unknown)."""

    event: Event
    root: str = ""


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
    """A session was removed on request; its earlier entries are no longer in the journal."""

    session: str
    at_ms: int


Entry = Happened | HandedOff | Finished | Purged

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Entry).decode
