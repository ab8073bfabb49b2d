"""
Values that several messages carry.

Those that come by the thousand (``gc=False``) hold texts and numbers alone: there are no cycles to look for among them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

LinkKind = Literal["wikilink", "embed", "markdown", "causes", "fixes", "contradicts", "supersedes", "superseded_by"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every message. Unknown fields are ignored and new fields have defaults: old and new peers mix."""


class Ok(Message, frozen=True, tag="ok"):
    """Done; there is nothing more to say."""


class FileStat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What identifies one state of a file without reading it."""

    dev: int
    inode: int
    size: int
    mtime_ns: int


class Link(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One link as it is written in a note; resolution happens where all notes are known."""

    kind: LinkKind
    target: str
    """Decoded target without alias, heading or block, as written: ``folder/note``, ``note.md``, ``Title``; "" = this note."""
    heading: str = ""
    block: str = ""
    alias: str = ""
    line: int = 0
    """1-based line in the file; 0 when the link comes from frontmatter."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A passage of a note: verbatim lines of the file, under one heading path."""

    ordinal: int
    hash: bytes
    """blake2b-16 of context + newline + text: equal passages share vectors, whatever note they stand in."""
    context: str
    """Title and heading path, joined by ' > '. Part of what is embedded. A title taken from the file name is left out."""
    text: str
    line_from: int
    line_to: int
    """1-based, inclusive, in the file (frontmatter lines count)."""


class ParsedNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the index knows about one note, apart from its chunks."""

    title: str
    title_from: Literal["frontmatter", "heading", "name"] = "name"
    kind: str = ""
    """Frontmatter ``kind`` or ``type``, folded; else derived from the folder (decisions/ -> decision)."""
    status: str = ""
    date: str = ""
    """ISO date (YYYY-MM-DD) from frontmatter ``date``/``created``, or from the file name; '' when unknown."""
    updated: str = ""
    pinned: bool = False
    expires: str = ""
    summary: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """Folded, without '#', frontmatter and inline."""
    entities: tuple[str, ...] = ()
    """Names from frontmatter ``entities`` and ``aliases``, and proper names the parser is sure of; as written."""
    headings: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    project: str = ""
    session_id: str = ""
    words: int = 0
    encoding: str = "utf-8"
    problem: str = ""
    """What was wrong with the file, in words for a person ('frontmatter is not YAML: …'); '' when nothing was."""
