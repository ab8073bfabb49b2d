"""
Which note a link means. Where several could be meant, all of them are named and none is chosen.

Names are compared after NFKC and casefolding (``Straße`` = ``STRASSE``, NFD file names of macOS = NFC links), with ``.md``
optional. Accents count: ``resume`` and ``résumé`` are two notes.
"""

from __future__ import annotations

import functools
import posixpath
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

import msgspec

from ...protocol.messages.common import Link
from ..ids import Ids, file, strike
from .parse import SUFFIXES

KEYS = 16_384
"""Keys that are remembered: while links are resolved the same names come again and again. Each takes 300 bytes."""


class Card(Protocol):
    """
    What has to be known of a note (``memory.recall.types.NoteCard`` has it), and never changes. ``id`` is unique over all
    vaults.
    """

    @property
    def id(self) -> int: ...
    @property
    def vault_id(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def aliases(self) -> tuple[str, ...]: ...


class Resolved(msgspec.Struct, frozen=True, array_like=True):
    id: int


class Ambiguous(msgspec.Struct, frozen=True, array_like=True):
    """Several notes fit equally well; ids ascending."""

    ids: tuple[int, ...]


class Missing(msgspec.Struct, frozen=True, array_like=True):
    """No note fits."""


Answer = Resolved | Ambiguous | Missing
MISSING = Missing()


class Resolver:
    """
    An index of names. Not thread-safe; ``add`` and ``remove`` cost a few dictionary entries each.

    A link is looked for in the source's own vault first, then in all others.
    """

    def __init__(self, cards: Iterable[Card] = ()) -> None:
        self._cards: dict[int, Card] = {}
        self._index: dict[tuple[str, int], dict[str, Ids]] = {}
        """(index name, vault id) -> key -> ids; index names: path, stem, title, alias"""
        self._vaults: dict[int, int] = {}  # vault id -> how many notes
        for card in cards:
            self.add(card)

    def __len__(self) -> int:
        return len(self._cards)

    def __contains__(self, note_id: object) -> bool:
        return note_id in self._cards

    def add(self, card: Card) -> None:
        """File a note; one that is known under this id is replaced."""
        self.remove(card.id)
        self._cards[card.id] = card
        self._vaults[card.vault_id] = self._vaults.get(card.vault_id, 0) + 1
        for index, names in _names(card):
            file(self._index.setdefault((index, card.vault_id), {}), names, card.id)

    def remove(self, note_id: int) -> None:
        """Forget a note; unknown ids are fine."""
        card = self._cards.pop(note_id, None)
        if card is None:
            return
        for index, names in _names(card):
            strike(self._index[index, card.vault_id], names, note_id)
        self._vaults[card.vault_id] -= 1
        if not self._vaults[card.vault_id]:
            del self._vaults[card.vault_id]

    def resolve(self, source_vault_id: int, source_path: str, link: Link) -> Answer:
        """The note that ``link``, written in the note at ``source_path``, means."""
        if not link.target:
            return self._answer(self._at(source_vault_id, source_path), without_suffix(source_path))
        answer = self._in_vault(source_vault_id, source_path, link)
        if not isinstance(answer, Missing) or len(self._vaults) < 2:
            return answer
        found: set[int] = set()
        for vault_id in self._vaults:
            if vault_id != source_vault_id:
                found.update(self._by_name(vault_id, without_suffix(link.target)))
        return self._answer(found, without_suffix(link.target))

    def find(self, name: str, vault_id: int | None = None) -> Answer:
        """The note that a person calls ``name``: a path, the end of one, a file name, a title or an alias."""
        name = without_suffix(name)
        found: set[int] = set()
        for each in self._vaults if vault_id is None else (vault_id,):
            found.update(self._at(each, name) or self._by_name(each, name))
        return self._answer(found, name)

    def _in_vault(self, vault_id: int, source_path: str, link: Link) -> Answer:
        target = without_suffix(link.target)
        # ``[[name]]`` is looked up by name everywhere, as Obsidian does: a namesake in the same folder is no proof. A
        # markdown link, and anything with a slash, is a path from where it stands.
        if target.startswith("/"):
            places = [target]
        elif link.kind in {"markdown", "embed"} or "/" in target:
            places = [posixpath.join(posixpath.dirname(source_path), target), target]
        else:
            places = [target]
        for place in places:
            found = self._at(vault_id, place)
            if found:
                return self._answer(found, place)
        if target.startswith(("./", "../")):
            target = target.lstrip("./")
        return self._answer(self._by_name(vault_id, target), target)

    def _at(self, vault_id: int, place: str) -> Collection[int]:
        """Notes at exactly this path from the vault's root."""
        path = without_suffix(place)
        if "/" in path or path in ("", ".", ".."):
            path = posixpath.normpath(path.lstrip("/"))
        return self._filed("path", vault_id, key(path))

    def _by_name(self, vault_id: int, target: str) -> Collection[int]:
        """Notes by the end of their path, else by title, else by alias."""
        wanted = key(target.strip("/"))
        stem = wanted.rpartition("/")[2]
        found: Collection[int] = self._filed("stem", vault_id, stem)
        if "/" in wanted:
            found = {each for each in found if f"/{_path_key(self._cards[each])}".endswith(f"/{wanted}")}
        return found or self._filed("title", vault_id, wanted) or self._filed("alias", vault_id, wanted)

    def _filed(self, index: str, vault_id: int, name: str) -> Ids:
        filed = self._index.get((index, vault_id))
        return () if filed is None else filed.get(name, ())

    def _answer(self, found: Collection[int], wanted: str) -> Answer:
        if not found:
            return MISSING
        if len(found) > 1:
            name = _nfc(wanted.strip("/"))
            exact = {each for each in found if name in _exact(self._cards[each])}
            found = exact or found
        return Resolved(next(iter(found))) if len(found) == 1 else Ambiguous(tuple(sorted(found)))


def _names(card: Card) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(index name, keys) under which the note is filed."""
    path = without_suffix(card.path)
    yield "path", (key(path),)
    # Interned, as the targets of links are: nearly always they are the same string.
    yield "stem", (sys.intern(key(path.rpartition("/")[2])),)
    yield "title", (key(card.title),)
    if card.aliases:
        yield "alias", tuple(map(key, card.aliases))


def _path_key(card: Card) -> str:
    return key(without_suffix(card.path))


def _exact(card: Card) -> set[str]:
    """Names as they are written: they decide between notes that differ in case alone."""
    path = without_suffix(card.path)
    return {_nfc(name) for name in (path, path.rpartition("/")[2], card.title, *card.aliases)}


@functools.lru_cache(maxsize=KEYS)
def key(name: str) -> str:
    """The form in which names are equal; ``name`` itself where it has that form."""
    lowered = name.lower() if name.isascii() else _nfkc(_nfkc(name).casefold())
    folded = " ".join(lowered.split())
    return name if folded == name else folded


def without_suffix(path: str) -> str:
    """``path`` without ``.md`` or ``.markdown``, whatever the case."""
    if "." not in path:
        return path
    lowered = path.lower()
    for suffix in SUFFIXES:
        if lowered.endswith(suffix) and len(path) > len(suffix) and not path.endswith("/" + path[-len(suffix) :]):
            return path[: -len(suffix)]
    return path


def _nfkc(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
