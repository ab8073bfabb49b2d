"""Tags and proper names in prose."""

from __future__ import annotations

import re

from ..recall.tokens import fold

MAX_TAGS = 256
MAX_NAMES = 64
"""A note that names more people and things than this is a list; the first ones stand for it."""

_TAG = re.compile(r"#(?=[\d_/-]*[^\W\d_])([\w/-]{1,100})")
_BEFORE_TAG = frozenset(" \t\n(,;>[")
_HEX_COLOUR = re.compile(r"(?=[a-f]*\d)[0-9a-f]{3}(?:[0-9a-f]{3}){0,1}")
_CAPITAL = "A-ZÀ-ÖØ-ÞĀĂĄĆČĎĐĒĖĘĚĞĪĮİŁŃŇŌŐŘŚŞŠŤŪŮŰŹŻŽΑ-ΡΣ-ΫА-ЯЁІЇЄҐ"
# Bounded, so that a line of capitals (base64, a table of codes) costs no more than any other text of its length.
_NAME = re.compile(rf"[{_CAPITAL}][\w'’-]{{0,40}}(?: [{_CAPITAL}][\w'’.-]{{0,40}}\w){{1,7}}(?!\w)")


def tags(masked: str) -> list[str]:
    """Inline ``#tags``, folded, without repeats. Numbers (#123) and colours (#1a2b3c) are not tags."""
    if "#" not in masked:
        return []
    found: dict[str, None] = {}
    for match in _TAG.finditer(masked):
        start = match.start()
        if start and (masked[start - 1] not in _BEFORE_TAG or masked[start - 2 : start] == "]("):
            continue
        tag = fold(match[1].strip("/-"))
        if tag and not (len(tag) in (3, 6) and _HEX_COLOUR.fullmatch(tag)):
            found[tag] = None
            if len(found) >= MAX_TAGS:
                break
    return list(found)


def names(masked: str) -> list[str]:
    """
    Proper names of two words or more, as written, without repeats.

    Conservative, for a missed name costs little: only after a word that does not end a sentence, since the start of one
    capitalises anything. Names in links are left to the links.
    """
    found: dict[str, None] = {}
    for match in _NAME.finditer(masked):
        start = match.start()
        if start > 1 and masked[start - 1] == " " and (masked[start - 2].isalnum() or masked[start - 2] in ",;)"):
            found[match[0]] = None
            if len(found) >= MAX_NAMES:
                break
    return list(found)
