"""One file to everything the index knows of it: ``parse``. Pure; never raises, whatever the bytes are."""

from __future__ import annotations

import re
import sys
from typing import Any

from ...protocol.messages.common import Chunk, Link, ParsedNote
from ..recall.tokens import fold
from . import chunks as chunking
from . import entities, expiry, frontmatter, links
from .decode import decode
from .structure import Structure, scan

SUFFIXES = (".md", ".markdown")
"""File names that are notes, whatever their case."""
MAX_TITLE_CHARS = 300

KIND_OF_FOLDER = {
    "decisions": "decision", "adr": "decision", "adrs": "decision", "gotchas": "gotcha", "procedures": "procedure",
    "runbooks": "procedure", "howtos": "procedure", "concepts": "concept", "rules": "rule", "notes": "note",
    "sessions": "session", "people": "person", "persons": "person", "contacts": "person", "projects": "project",
    "meetings": "meeting", "tools": "tool", "teams": "team", "sites": "site", "daily": "daily", "journal": "daily",
    "ideas": "idea", "tasks": "task", "references": "reference",
}  # fmt: skip
"""What a note in such a folder is when it does not say so itself."""

_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)-?(0[1-9]|1[0-2])-?(0[1-9]|[12]\d|3[01])(?!\d)")
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_PLAIN_VALUE = re.compile(r"(?:true|false|yes|no|null|~|[\d.:TZ+/ -]*)", re.IGNORECASE)
_STRUCTURAL = frozenset(
    (
        "title", "kind", "type", "status", "date", "created", "updated", "modified", "pinned", "expires", "expires_at",
        "aliases", "alias", "tags", "tag", "keywords", "entities", "project", "session_id", "session", "relations",
        "relation", "cssclass", "cssclasses", "publish", "id", "uid", "permalink", "slug", "layout", *links.TYPED,
    )
)  # fmt: skip
"""Fields that are understood or that style a page; any other text in frontmatter is something a person wrote to be found."""


def parse(path: str, raw: bytes) -> tuple[ParsedNote, tuple[Chunk, ...]]:
    """
    The note in ``raw``, a file at ``path`` (relative to its vault, POSIX), and its chunks.

    What could not be understood stays in the text and is named in ``ParsedNote.problem``.
    """
    decoded = decode(raw)
    stem = stem_of(path)
    if decoded.binary:
        return ParsedNote(title=stem, kind=_kind({}, path), encoding="binary", problem=decoded.problem), ()
    matter, body = frontmatter.split(decoded.text)
    fields = matter.fields
    first_line = matter.lines + 1
    structure = scan(body)
    title, title_from = _title(fields, structure, stem)

    lines = body.split("\n")
    words = chunking.words_of(lines)
    body_chunks = chunking.split(
        lines,
        words,
        structure.headings,
        structure.code_lines,
        "" if title_from == "name" else title,
        first_line,
    )
    if matter.raw.strip() and (not body_chunks or _says_more(fields)):
        body_chunks.append(_of_frontmatter(matter.raw, "" if title_from == "name" else title, len(body_chunks)))

    aliases = frontmatter.names(fields.get("aliases", fields.get("alias")))
    found_links = (*links.of_fields(fields), *links.of_body(structure.masked, structure.inlines, first_line))
    note = ParsedNote(
        title=title,
        title_from=title_from,
        kind=_kind(fields, path),
        status=fold(frontmatter.text(fields.get("status"))),
        date=_date(fields, stem),
        updated=_iso(frontmatter.text(fields.get("updated") or fields.get("modified"))),
        pinned=frontmatter.flag(fields.get("pinned")),
        expires=expiry.stated(frontmatter.text(fields.get("expires") or fields.get("expires_at"))),
        summary=frontmatter.text(fields.get("summary") or fields.get("description")),
        aliases=aliases,
        tags=_tags(fields, structure.masked),
        entities=_entities(fields, aliases, structure.masked),
        headings=tuple(heading.text for heading in structure.headings if heading.text),
        links=_in_order(found_links),
        project=frontmatter.text(fields.get("project")),
        session_id=frontmatter.text(fields.get("session_id") or fields.get("session")),
        words=sum(words),
        encoding=decoded.encoding,
        problem="; ".join(problem for problem in (decoded.problem, matter.problem) if problem),
    )
    return note, tuple(body_chunks)


def parse_depends_on_path(old: str, new: str) -> bool:
    """Whether the same bytes at ``new`` could be another note than at ``old``: kind by folder, date by name."""
    return _kind({}, old) != _kind({}, new) or _date({}, stem_of(old)) != _date({}, stem_of(new))


def is_note(name: str) -> bool:
    """Whether a file of this name is a note."""
    return name.lower().endswith(SUFFIXES)


def stem_of(path: str) -> str:
    """The file name without its folder and its note suffix."""
    name = path.rpartition("/")[2]
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


def _title(fields: dict[str, Any], structure: Structure, stem: str) -> tuple[str, Any]:
    title = " ".join(frontmatter.text(fields.get("title")).split())[:MAX_TITLE_CHARS]
    if title:
        return title, "frontmatter"
    for heading in structure.headings:
        if heading.level == 1 and heading.text:
            return heading.text, "heading"
    return stem, "name"


def _kind(fields: dict[str, Any], path: str) -> str:
    stated = fold(frontmatter.text(fields.get("kind") or fields.get("type")))
    if stated:
        return sys.intern(stated)
    for folder in reversed(path.split("/")[:-1]):
        kind = KIND_OF_FOLDER.get(fold(folder))
        if kind:
            return kind
    return ""


def _date(fields: dict[str, Any], stem: str) -> str:
    for key in ("date", "created"):
        found = _iso(frontmatter.text(fields.get(key)))
        if found:
            return found
    match = _DATE.search(stem)
    return f"{match[1]}-{match[2]}-{match[3]}" if match else ""


def _iso(text: str) -> str:
    """The ISO date that ``text`` begins with, '' when there is none."""
    match = _YEAR_FIRST.match(text) or _DATE.match(text)
    if not match:
        return ""
    year, month, day = (int(part) for part in match.groups())
    return f"{year:04d}-{month:02d}-{day:02d}" if 1 <= month <= 12 and 1 <= day <= 31 else ""


def _tags(fields: dict[str, Any], masked: str) -> tuple[str, ...]:
    stated: list[str] = []
    for key in ("tags", "tag", "keywords"):
        value = fields.get(key)
        if value is None:
            continue
        for name in frontmatter.names(value):
            # ``tags: a b`` is two tags to Obsidian; a keyword may be two words.
            stated += name.split() if isinstance(value, str) and key != "keywords" and "," not in value else [name]
    folded = [fold(name.strip().lstrip("#")) for name in stated]
    return tuple(dict.fromkeys(tag for tag in (*folded, *entities.tags(masked)) if tag))


def _entities(fields: dict[str, Any], aliases: tuple[str, ...], masked: str) -> tuple[str, ...]:
    stated = [_unlinked(name) for name in frontmatter.names(fields.get("entities"))]
    return tuple(dict.fromkeys((*stated, *aliases, *entities.names(masked))))


def _unlinked(name: str) -> str:
    """``[[people/ana|Ana]]`` as a name: Ana."""
    if name.startswith("[[") and name.endswith("]]"):
        place, _, alias = name[2:-2].partition("|")
        return alias or place.partition("#")[0].rpartition("/")[2]
    return name


def _in_order(found: tuple[Link, ...]) -> tuple[Link, ...]:
    """Links by line, each once per line."""
    unique: dict[tuple[int, str, str, str, str], Link] = {}
    for link in found:
        unique.setdefault((link.line, link.kind, link.target, link.heading, link.block), link)
    return tuple(sorted(unique.values(), key=lambda link: link.line))


def _says_more(fields: dict[str, Any]) -> bool:
    """Whether frontmatter holds words of its own beyond the fields that are understood."""
    return any(
        key not in _STRUCTURAL and any(not _PLAIN_VALUE.fullmatch(text) for text in frontmatter.texts(value, 8))
        for key, value in fields.items()
    )


def _of_frontmatter(raw: str, title: str, ordinal: int) -> Chunk:
    """The frontmatter's lines as the last chunk: its first line is line 2 of the file."""
    text = raw.strip("\n")[:4096]
    line_from = 2 + (len(raw) - len(raw.lstrip("\n")))
    return Chunk(
        ordinal=ordinal,
        hash=chunking.chunk_hash(title, text),
        context=title,
        text=text,
        line_from=line_from,
        line_to=line_from + text.count("\n"),
    )
