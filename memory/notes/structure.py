"""
What a markdown parser says about a body: headings, code, comments, math, markdown links.

Wikilinks, tags and names are looked for in ``masked``, the body with everything that is not prose blanked out.
Offsets of the parser count UTF-8 bytes, so masking works on bytes too; lines are the same on both sides.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pyromark

MASK = "\0"
"""Stands for each byte of code, comment or math. No note contains it (see ``decode``)."""

_MARKDOWN = pyromark.Markdown(options=pyromark.Options.ENABLE_TABLES | pyromark.Options.ENABLE_MATH)
_LEVELS = {"H1": 1, "H2": 2, "H3": 3, "H4": 4, "H5": 5, "H6": 6}
_COMMENTS = ((b"<!--", b"-->"), (b"%%", b"%%"))
_OPAQUE_HTML = re.compile(rb"\s*<(?:!--|pre\b|script\b|style\b|textarea\b|code\b)", re.IGNORECASE)
_VISIBLE = re.compile(rb"[^\n]")
_WIKILINK = re.compile(r"!?\[\[([^\[\]]*?)\]\]")
MAX_HEADING_CHARS = 300

# Half of all notes are paragraphs, lists and plain headings: nothing to mask, no markdown links. The parser takes half
# the time of indexing a note, so those do without it; a test holds both ways to the same answer.
_MARKS = ("`", "<", "$", "\t", MASK)
_LONG_MARKS = (("~", "~~~"), ("%", "%%"), ("(", "]("), (":", "]:"), ("[", "]["), (" ", "\n    "))
"""One character is looked for twenty times as fast as two: first the rarer one of each."""
_SETEXT = re.compile(r"\n {0,3}(?:=+|-+)[ ]*(?:\n|\Z)")
_HEADING_MARKS = re.compile(r"[\\&*_!\[\]~|#]")
_ATX = re.compile(r"\n {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$", re.MULTILINE)


class Heading(msgspec.Struct, frozen=True, array_like=True):
    """``line`` counts from 0 in the body."""

    level: int
    text: str
    line: int


class Inline(msgspec.Struct, frozen=True, array_like=True):
    """A markdown link or image as written: decoded destination, shown text, 0-based line in the body."""

    destination: str
    label: str
    line: int
    image: bool


class Structure(msgspec.Struct, frozen=True):
    headings: tuple[Heading, ...]
    inlines: tuple[Inline, ...]
    code_lines: tuple[tuple[int, int], ...]
    """First and last line of each code block, 0-based, inclusive, fences included."""
    masked: str


def scan(body: str) -> Structure:
    """The structure of ``body``. Linear in its length, whatever it contains."""
    for mark in _MARKS:
        if mark in body:
            return parse(body)
    for rare, mark in _LONG_MARKS:
        if rare in body and mark in body:
            return parse(body)
    if body.startswith("    ") or _SETEXT.search(body):
        return parse(body)
    headings = _plain_headings(body)
    return parse(body) if headings is None else Structure(headings, (), (), body)


def _plain_headings(body: str) -> tuple[Heading, ...] | None:
    """ATX headings; None when one has inline markup."""
    headings = []
    line, counted = 0, 0
    if "#" in body:
        # A line end first, for the first line too: the pattern begins with one, which is found fast.
        body = "\n" + body
        for match in _ATX.finditer(body):
            if match[2] and _HEADING_MARKS.search(match[2]):
                return None
            line, counted = line + body.count("\n", counted, match.start()), match.start()
            headings.append(Heading(len(match[1]), " ".join((match[2] or "").split())[:MAX_HEADING_CHARS], line))
    return tuple(headings)


def parse(body: str) -> Structure:
    """``scan`` by the markdown parser."""
    data = body.encode("utf-8", "replace")
    masked = bytearray(data)
    headings: list[Heading] = []
    inlines: list[tuple[int, str, str, bool]] = []
    code_lines: list[tuple[int, int]] = []
    heading: tuple[int, int] | None = None
    links: list[tuple[int, str, bool]] = []
    words: list[str] = []
    line, counted = 0, 0

    for event, span in _MARKDOWN.events_with_range(body):
        if isinstance(event, str):
            if words and event in {"SoftBreak", "HardBreak"}:
                words.append(" ")
            continue
        name: str
        value: Any
        ((name, value),) = event.items()
        if name == "Text":
            if heading or links:
                words.append(value)
            continue
        if name == "Start":
            if not isinstance(value, dict):
                if value == "HtmlBlock" and _OPAQUE_HTML.match(data, span["start"]):
                    _blank(masked, span["start"], span["end"])
                continue
            ((kind, about),) = value.items()
            start = span["start"]
            if kind == "Heading":
                if _at_margin(data, start):
                    heading = (_LEVELS[about["level"]], start)
                    words = []
            elif kind in {"Link", "Image"}:
                links.append((start, about["dest_url"], kind == "Image"))
                if not heading:
                    words = []
            elif kind == "CodeBlock":
                end = span["end"]
                # Offsets only grow, so that lines are counted once.
                line, counted = line + data.count(b"\n", counted, start), start
                code_lines.append((line, line + data.count(b"\n", start, max(start, end - 1))))
                _blank(masked, start, end)
        elif name == "End":
            if isinstance(value, dict) and "Heading" in value and heading:
                line, counted = line + data.count(b"\n", counted, heading[1]), heading[1]
                headings.append(_heading(heading, words, line))
                heading, words = None, []
            elif links and (value == "Link" or value == "Image"):
                start, destination, image = links.pop()
                inlines.append((start, destination, "".join(words), image))
        elif name in {"Code", "InlineMath", "DisplayMath"}:
            if heading or links:
                words.append(value)
            _blank(masked, span["start"], span["end"])
        elif name == "InlineHtml" and value.startswith("<!--"):
            _blank(masked, span["start"], span["end"])
    for opening, closing in _COMMENTS:
        _blank_between(masked, opening, closing)
    return Structure(tuple(headings), _inlines(inlines, data, masked), tuple(code_lines), masked.decode())


def _at_margin(data: bytes, start: int) -> bool:
    """Whether a block begins a line by itself: headings inside quotes and lists do not divide a note."""
    return not data[data.rfind(b"\n", 0, start) + 1 : start].strip(b" ")


def _blank(masked: bytearray, start: int, end: int) -> None:
    masked[start:end] = _VISIBLE.sub(b"\0", bytes(masked[start:end]))


def _blank_between(masked: bytearray, opening: bytes, closing: bytes) -> None:
    at = masked.find(opening)
    while at >= 0 and (end := masked.find(closing, at + len(opening))) >= 0:
        _blank(masked, at, end + len(closing))
        at = masked.find(opening, end + len(closing))


def _heading(opened: tuple[int, int], words: list[str], line: int) -> Heading:
    text = _WIKILINK.sub(lambda link: link[1].rpartition("|")[2], "".join(words))
    return Heading(opened[0], " ".join(text.split())[:MAX_HEADING_CHARS], line)


def _inlines(found: list[tuple[int, str, str, bool]], data: bytes, masked: bytearray) -> tuple[Inline, ...]:
    inlines = []
    line, counted = 0, 0
    for start, destination, label, image in sorted(found):
        line, counted = line + data.count(b"\n", counted, start), start
        if masked[start]:
            inlines.append(Inline(destination, label, line, image))
    return tuple(inlines)
