"""Names: how they are folded, which names a note has, and which names a question says."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from .tokens import STOPWORDS, fold, words_of
from .types import Catalog, NoteCard

MAX_NAME_WORDS = 8
"""Longer titles are found by full text; the table of names is for what a person would say in a question."""
MAX_WORDS = 200
"""A pasted page is looked through for names so far."""
MAX_NAME_CHARS = 16
"""Length, in characters, up to which a name is looked for inside a run of a script without spaces."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7ff\u0e00-\u0e7f]")
_POSSESSIVE = re.compile("['\u2019\u02bc]s\\b")
_PROPER = re.compile(
    r"(?<![\w@#/.-])[^\W\d_a-zà-öø-ÿ][\w]*(?:[-'’][^\W\d_a-zà-öø-ÿ]\w*)*(?:\s+[^\W\d_a-zà-öø-ÿ][\w]*(?:[-'’][^\W\d_a-zà-öø-ÿ]\w*)*)*"
)
_DAYS_AND_MONTHS = """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december english i
"""
_NOT_NAMES = STOPWORDS["en"].union(_DAYS_AND_MONTHS.split())


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the question calls by name. ``notes`` is empty for a name that no note has as title or entity."""

    text: str
    key: str
    source: Literal["title", "mention", "proper"]
    notes: tuple[int, ...] = ()


def name_key(text: str) -> str:
    """The form in which names are compared: folded, possessive endings dropped, words joined by one space."""
    return " ".join(words_of(_POSSESSIVE.sub("", fold(text))))


def titles_of(card: NoteCard) -> set[str]:
    """Folded names of the thing that the note is about: title, aliases, file name."""
    stem = card.path.rpartition("/")[2].rpartition(".")[0]
    return {key for key in map(name_key, (card.title, stem, *card.aliases)) if key}


def mentions_of(card: NoteCard) -> set[str]:
    """Folded names that the note carries: entities and tags."""
    return {key for key in map(name_key, (*card.entities, *card.tags)) if key}


def find_names(text: str, catalog: Catalog) -> tuple[Name, ...]:
    """
    The names in a question, longest match first, without overlaps: titles and aliases, entities and tags, and
    capitalised words that no note is called by (what decides that a thing is unknown).

    One-word names that are stop words are not names; a single lower-case word names a note only by its whole title.
    """
    bare = _POSSESSIVE.sub(_blank, text)
    words = [(*match.span(), match[0]) for match in itertools.islice(_WORD.finditer(bare), MAX_WORDS)]
    folded = [word.lower() if word.isascii() else name_key(word) for _, _, word in words]
    taken = [False] * len(words)
    found: list[tuple[int, Name]] = []
    titles, mentions = catalog.titles, catalog.mentions
    for size in range(min(MAX_NAME_WORDS, len(words)), 0, -1):
        for at in range(len(words) - size + 1):
            key = " ".join(folded[at : at + size])
            # Nearly always it is nobody's name: the rest is asked of the few that are.
            if key not in titles and key not in mentions:
                continue
            if any(taken[at : at + size]) or (size == 1 and (key in STOPWORDS["en"] or len(key) < 2)):
                continue
            name = _lookup(key, text[words[at][0] : words[at + size - 1][1]], catalog)
            if name is not None:
                taken[at : at + size] = [True] * size
                found.append((words[at][0], name))
    if not text.isascii() and _UNSPACED.search(text):
        found += _unspaced_names(text, catalog)
    found += _proper_names(text, bare, words, taken)
    return tuple(name for _, name in sorted(found, key=lambda pair: pair[0]))


def _lookup(key: str, text: str, catalog: Catalog) -> Name | None:
    for source, index in (("title", catalog.titles), ("mention", catalog.mentions)):
        ids = index.get(key)
        if ids:
            return Name(text=text, key=key, source=source, notes=tuple(sorted(ids)))  # type: ignore[arg-type]
    return None


def _unspaced_names(text: str, catalog: Catalog) -> list[tuple[int, Name]]:
    found: list[tuple[int, Name]] = []
    at = 0
    while at < len(text):
        step = 1
        if _UNSPACED.match(text[at]):
            for size in range(min(MAX_NAME_CHARS, len(text) - at), 1, -1):
                piece = text[at : at + size]
                name = _lookup(name_key(piece), piece, catalog) if " " not in piece else None
                if name is not None:
                    found.append((at, name))
                    step = size
                    break
        at += step
    return found


def _proper_names(text: str, bare: str, words: list[tuple[int, int, str]], taken: list[bool]) -> list[tuple[int, Name]]:
    """
    Runs of capitalised words that are no known name; the first word of a sentence is one only beside another. ``bare``: the
    text with blanks in place of possessive endings.
    """
    free = {start for (start, _, _), used in zip(words, taken, strict=True) if not used}
    found: list[tuple[int, Name]] = []
    for match in _PROPER.finditer(bare):
        parts = [part for part in _WORD.finditer(match[0]) if match.start() + part.start() in free]
        while parts and _is_opening(text, match.start() + parts[0].start()):
            parts = parts[1:]
        parts = [part for part in parts if name_key(part[0]) not in _NOT_NAMES]
        if parts:
            start, end = match.start() + parts[0].start(), match.start() + parts[-1].end()
            found.append((start, Name(text=text[start:end], key=name_key(text[start:end]), source="proper")))
    return found


def _is_opening(text: str, at: int) -> bool:
    before = text[:at].rstrip(" \"'“‘(¿¡*_")
    return not before or before[-1] in ".!?:\n"


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def entity_scores(names: tuple[Name, ...], cards: Mapping[int, NoteCard], *, limit: int) -> dict[int, float]:
    """
    Note -> sum over the names it answers to of 1 / (notes that answer to that name); names on more than ``limit``
    notes say nothing and are skipped.
    """
    scores: dict[int, float] = {}
    for name in names:
        ids: Collection[int] = [note for note in name.notes if note in cards]
        if not ids or len(ids) > limit:
            continue
        for note in ids:
            scores[note] = scores.get(note, 0.0) + 1.0 / len(ids)
    return scores
