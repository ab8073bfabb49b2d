"""What a note takes from its place, and so changes when its file moves."""

from __future__ import annotations

import msgspec

from ...protocol.messages.common import ParsedNote
from .parse import _date, _kind, stem_of


def moved(note: ParsedNote, old: str, new: str) -> ParsedNote:
    """
    ``note`` after its file went from ``old`` to ``new`` (vault-relative) with the same content.

    Title, kind and date follow when they are what the old place gave; chunks never depend on the place.
    """
    changes: dict[str, str] = {}
    if note.title_from == "name":
        changes["title"] = stem_of(new)
    if note.kind == _kind({}, old):
        changes["kind"] = _kind({}, new)
    if note.date == _date({}, stem_of(old)):
        changes["date"] = _date({}, stem_of(new))
    return msgspec.structs.replace(note, **changes)
