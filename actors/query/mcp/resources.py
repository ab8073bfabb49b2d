"""Resources: a note by its path, and the status. Pure: URIs to messages, replies to text."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ....protocol.messages import recall

SCHEME = "recalld"
STATUS_URI = "recalld://status"
NOTE_TEMPLATE = "recalld://note/{path}"
MAX_NOTE_CHARS = 200_000

STATUS: dict[str, Any] = {
    "uri": STATUS_URI,
    "name": "status",
    "title": "Memory status",
    "description": "What recalld holds and whether all of it works.",
    "mimeType": "application/json",
}
NOTE: dict[str, Any] = {
    "uriTemplate": NOTE_TEMPLATE,
    "name": "note",
    "title": "A note",
    "description": "A note by its path in a vault; add ?vault=NAME when the path is in several.",
    "mimeType": "text/markdown",
}


class NoResource(Exception):
    """Raised for a URI that names nothing here; the text says what there is."""


def note_uri(path: str) -> str:
    return f"recalld://note/{quote(path)}"


def wanted(uri: str) -> recall.ReadNote | None:
    """The message that answers ``uri``; None for the status. Raises NoResource."""
    parts = urlsplit(uri)
    if uri.rstrip("/") == STATUS_URI:
        return None
    if parts.scheme != SCHEME or parts.netloc != "note" or len(parts.path) < 2:
        raise NoResource(f"There is no resource {uri}: there are {STATUS_URI} and {NOTE_TEMPLATE}.")
    vault = parse_qs(parts.query).get("vault", [""])[0]
    # A template expands '/' to %2F, people write it as it is: both name the same note.
    return recall.ReadNote(ref=unquote(parts.path[1:]), vault=vault, max_chars=MAX_NOTE_CHARS)


def text_of(uri: str, reply: recall.NoteText | recall.NotFound | recall.Ambiguous) -> str:
    """The note's text. Raises NoResource when the URI names none, or several."""
    if isinstance(reply, recall.NoteText):
        return reply.text
    if isinstance(reply, recall.Ambiguous):
        raise NoResource(f"{uri} names several notes: {', '.join(reply.candidates)}.")
    nearest = f" Nearest: {', '.join(reply.nearest)}." if reply.nearest else ""
    raise NoResource(f"There is no note {reply.ref}.{nearest}")
