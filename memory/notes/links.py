"""
Links as they are written. What they point at is decided where all notes are known: see ``resolve``.

Nothing is taken from code, comments or math: the text that comes in here is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from ...protocol.messages.common import Link, LinkKind
from . import frontmatter
from .structure import MASK, Inline

MAX_LINKS = 5_000
"""Per note. A generated index of everything is cut here; no written note comes near."""
TYPED: frozenset[str] = frozenset(("causes", "fixes", "contradicts", "supersedes", "superseded_by"))

_TYPED_START = re.compile(r"\n[ \t]*(?:[-*+][ \t]+)?(?ai:causes|fixes|contradicts|superseded?)")

_WIKILINK = re.compile(r"\[\[([^\[\]\n]{1,1000})\]\]")  # begins with two fixed characters: these are found fast
_MARKDOWN_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\(\s*<?([^()<>\n]+?)>?(?:\s+\"[^\"\n]*\")?\s*\)")
_TYPED_LINE = re.compile(
    r"^[ \t]*(?:[-*+][ \t]+)?(?P<kind>causes|fixes|contradicts|supersedes|superseded[ _-]by)[ \t]*(?:::?)?[ \t]+"
    r"(?:\[\[[^\[\]\n]+\]\](?>[ \t]*,?[ \t]*))++\.?$",  # possessive: a line of many links may not backtrack
    re.MULTILINE | re.IGNORECASE,
)
# ``[[ -f x ]]``, ``[[ $a == b ]]``: a shell test has a blank after the brackets and an operator in it.
_SHELL_TEST = re.compile(r"\s+(?:-[a-zA-Z]{1,2}\s|!\s|\S*\$|.*\s(?:[=!]?=|=~|-(?:eq|ne|lt|le|gt|ge)|&&|\|\|)\s)")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?=\S)|//")
_ATTACHMENT = re.compile(
    r"\.(?:png|jpe?g|gif|svg|webp|bmp|avif|heic|ico|tiff?|pdf|mp[34]|m4[av]|wav|ogg|og[av]|flac|webm|mov|mkv|3gp|canvas|base"
    r"|excalidraw|zip|tar|gz|7z|docx?|xlsx?|pptx?|csv|tsv|json|ya?ml|toml|xml|html?|css|js|ts|py|rs|go|java|c|h|cpp|sh"
    r"|sql|txt|log|ipynb|bib|epub)$",
    re.IGNORECASE,
)


def of_body(masked: str, inlines: Iterable[Inline], first_line: int) -> Iterator[Link]:
    """Links of a body whose first line is line ``first_line`` of the file, at most MAX_LINKS, in no promised order."""
    left = MAX_LINKS
    if "[[" in masked:
        kinds = _typed_spans(masked)
        line, counted = first_line, 0
        for match in _WIKILINK.finditer(masked):
            start = match.start()
            embed = masked.startswith("!", start - 1) if start else False
            before = start - 1 - embed
            line, counted = line + masked.count("\n", counted, start), start
            if before >= 0 and masked[before] == "\\":
                continue
            kind = kinds.get(line - first_line) or ("embed" if embed else "wikilink")
            link = wikilink(match[1], kind, line)
            if link is not None:
                yield link
                left -= 1
                if not left:
                    return
    for inline in inlines:
        link = markdown_link(inline.destination, inline.label, "embed" if inline.image else "markdown")
        if link is not None:
            yield _at(link, first_line + inline.line)
            left -= 1
            if not left:
                return


def _typed_spans(masked: str) -> dict[int, LinkKind]:
    """Line (from 0) -> relation, for lines that say a relation and nothing else."""
    if not _TYPED_START.search("\n" + masked):
        return {}
    return {
        masked.count("\n", 0, match.start()): cast("LinkKind", re.sub(r"[ -]", "_", match["kind"].lower()))
        for match in _TYPED_LINE.finditer(masked)
    }


def wikilink(inner: str, kind: LinkKind, line: int = 0) -> Link | None:
    """The link in ``[[inner]]``; None when it is a shell test, an attachment or empty."""
    if inner[0].isspace() and _SHELL_TEST.match(inner):
        return None
    if "\\" in inner or MASK in inner:
        inner = inner.replace("\\|", "|").replace(MASK, "")
    place, _, alias = inner.partition("|")
    target, _, anchor = place.partition("#")
    target = _decoded(target.strip())
    if not target and not anchor:
        return None
    if ("." in target and _ATTACHMENT.search(target)) or ("/" in target and _SCHEME.match(target)):
        return None
    return _link(kind, target, anchor, alias.strip(), line)


def markdown_link(destination: str, label: str, kind: LinkKind) -> Link | None:
    """The link in ``[label](destination)``; None when it leaves the vault or names something else than a note."""
    if not destination or _SCHEME.match(destination):
        return None
    place, _, anchor = destination.partition("#")
    place = _decoded(place.partition("?")[0]).strip()
    if place.endswith("/") or _ATTACHMENT.search(place) or not (place or anchor):
        return None
    return _link(kind, place, _decoded(anchor), " ".join(label.split()), 0)


def of_fields(fields: Mapping[str, Any]) -> Iterator[Link]:
    """Links in frontmatter: typed relations, and every ``[[…]]`` or markdown link in any other value."""
    for key, value in fields.items():
        if key in TYPED:
            yield from _related(cast("LinkKind", key), value)
        elif key in {"relations", "relation"}:
            yield from _relations(value)
        else:
            yield from _related("wikilink", value, plain=False)


def _relations(value: Any) -> Iterator[Link]:
    """``relations:`` as a map of kind to targets, or as a list of maps with ``type`` and ``target``."""
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            yield from _related("wikilink", item, plain=False)
            continue
        named = {str(key).strip().casefold().replace("-", "_").replace(" ", "_"): each for key, each in item.items()}
        kind = frontmatter.text(named.get("type") or named.get("kind")).casefold()
        if kind and "target" in named:
            named = {kind.replace("-", "_").replace(" ", "_"): named["target"]}
        for key, each in named.items():
            yield from _related(cast("LinkKind", key) if key in TYPED else "wikilink", each)


def _related(kind: LinkKind, value: Any, *, plain: bool = True) -> Iterator[Link]:
    """Links in a value. ``plain``: a text without any link syntax is a target itself."""
    if not plain and isinstance(value, str) and "[" not in value:
        return
    for text in frontmatter.texts(value):
        found = False
        for match in _WIKILINK.finditer(text):
            found = True
            link = wikilink(match[1], kind)
            if link is not None:
                yield link
        if not found and "](" in text:
            for match in _MARKDOWN_LINK.finditer(text):
                found = True
                link = markdown_link(match[2], match[1], kind if plain else "markdown")
                if link is not None:
                    yield link
        if not found and plain:
            link = wikilink(text, kind)
            if link is not None:
                yield link


def _link(kind: LinkKind, target: str, anchor: str, alias: str, line: int) -> Link:
    if not anchor:
        return Link(kind=kind, target=target, alias=alias, line=line)
    anchor = anchor.strip()
    heading, block = ("", anchor[1:]) if anchor.startswith("^") else (anchor, "")
    return Link(kind=kind, target=target, heading=heading, block=block, alias=alias, line=line)


def _at(link: Link, line: int) -> Link:
    return Link(kind=link.kind, target=link.target, heading=link.heading, block=link.block, alias=link.alias, line=line)


def _decoded(text: str) -> str:
    """``text`` with percent escapes undone where they are escapes; a stray ``%`` stays one."""
    if "%" not in text:
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text
