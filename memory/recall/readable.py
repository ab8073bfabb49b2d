"""Markdown as a reader sees it: what is embedded and compared in place of the markup."""

from __future__ import annotations

import re

_WIKILINK = re.compile(r"!?\[\[([^\[\]|\n]{1,300})(?:\\?\|([^\[\]\n]{0,300}))?\]\]")
_LINK = re.compile(
    r"!?\[([^\[\]\n]{0,300})\]\((?:<[^<>\n]{0,1000}>|[^()\s]{0,1000})(?:\s+[\"'][^\"'\n]{0,200}[\"'])?\)"
)
_EMPHASIS = re.compile(r"(?<![\w*])(\*\*|\*|_|~~|==)(?=\S)([^\n*_~=]{1,300}?)(?<=\S)\1(?![\w*])")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+", re.MULTILINE)


def readable(text: str) -> str:
    """
    ``text`` with links replaced by what they show, emphasis and heading marks removed. Lengths change; lines do not.

    A link's target is an identifier ("tool-mosscache"), which pulls an embedding away from the sentence that it stands in.
    """
    if "[[" in text:
        text = _WIKILINK.sub(_shown, text)
    if "](" in text:
        text = _LINK.sub(r"\1", text)
    if "#" in text:
        text = _HEADING.sub("", text)
    if "*" in text or "_" in text or "~" in text or "=" in text:
        text = _EMPHASIS.sub(r"\2", text)
    return text


def _shown(match: re.Match[str]) -> str:
    if match[2]:
        return match[2]
    name = match[1].partition("#")[0] or match[1]
    return name.rpartition("/")[2].removesuffix(".md").strip()
