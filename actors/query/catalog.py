"""
The catalog of one set of notes: their cards, who links to whom, and which note holds which chunk.

A ``View`` is what one question is answered from: the notes that are current now, or those that were current at some time.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Mapping

import msgspec

from ...memory.ids import Ids, file, strike
from ...memory.notes import expiry
from ...memory.notes.resolve import Ambiguous as SeveralNotes
from ...memory.notes.resolve import Answer, Missing, Resolved, Resolver, key, without_suffix
from ...memory.recall.catalog import Notes
from ...memory.recall.types import Edge, NoteCard, Tally
from ...protocol.messages.common import Link
from .chunks import ChunkTable
from .matrix import Matrix
from .streams.notes import NoteRow, VaultRow


class View:
    """
    Everything in memory about one set of notes. ``lock`` is held while it changes and while ranking walks it.

    ``matrix`` is None until vectors were loaded, and where no model was ever used.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.notes = Notes()
        self.chunks = ChunkTable()
        self.matrix: Matrix | None = None
        self.vaults: dict[int, VaultRow] = {}
        self.revision = 0
        self.past_ms: int | None = None
        """The time that the notes are of; None = now."""
        self.earliest_ms = 0
        """With a time: since when there are versions at all; 0 = there are none."""
        self.stood: dict[int, tuple[int, int | None]] = {}
        """With a time: since when, and until when, each version stood."""
        self.unembedded = 0
        """With a time: texts of then that have no vector yet."""
        self._resolver = Resolver()
        self._written: dict[int, tuple[str, ...]] = {}
        """Links as written, flat: kind, target, kind, target … A hundred thousand pairs would cost three times as much."""
        self._sources: dict[str, Ids] = {}
        """Name that a link may mean -> notes with such a link: who has to be looked at again when a note comes or goes."""
        self._missing: dict[int, tuple[str, ...]] = {}
        self._several: dict[int, tuple[tuple[str, tuple[int, ...]], ...]] = {}
        self._ends: dict[int, int] = {}
        """Notes that expire -> when, in ms. Most notes do not."""

    @property
    def cards(self) -> dict[int, NoteCard]:
        return self.notes.cards

    def change(self, gone: Iterable[int], rows: Iterable[NoteRow]) -> None:
        """
        Forget the notes ``gone`` (unknown ids are ignored), add those of ``rows`` or replace what is known of them; links
        to and from all of them follow.
        """
        names, fresh = self.file(gone, rows)
        self.link(self.affected(names).union(fresh), {})

    def file(self, gone: Iterable[int], rows: Iterable[NoteRow]) -> tuple[set[str], list[int]]:
        """
        The first half of ``change``: cards come and go, links follow with ``link``. The names by which links may mean what
        changed, and the ids of ``rows``. Many notes are filed part by part and linked once: each may be meant by others.
        """
        names: set[str] = set()
        empty = not self.cards  # a first load: every link is looked at anyway
        for note in gone:
            names |= self._forget(note)
            self.notes.drop(note)
        fresh: list[int] = []
        for row in rows:
            if not empty:
                names |= self._forget(row.card.id)
            self._file(row)
            if not empty:
                names |= _names_of(row.card)
            fresh.append(row.card.id)
        return names, fresh

    def affected(self, names: Iterable[str]) -> set[int]:
        """The notes with a link that may mean one of ``names``."""
        return {source for name in names for source in self._sources.get(name, ())}

    def link(self, sources: Iterable[int], answers: dict[tuple[int, str], Answer]) -> None:
        """Resolve the links of these notes anew. ``answers`` holds what is known already while no card comes or goes."""
        for source in sources:
            self._link(source, answers)

    def judge(self, tallies: Mapping[int, Tally]) -> None:
        """Take in what was said of notes that are here; of a note that ``change`` brings, nothing was said until then."""
        for note, tally in tallies.items():
            card = self.cards.get(note)
            if card is not None and card.feedback != tally:
                self.notes.put(msgspec.structs.replace(card, feedback=tally))

    def find(self, ref: str, vault_ids: Iterable[int]) -> list[int]:
        """The notes that a person may mean by ``ref``: a path, absolute or the end of one, a title, an alias."""
        found: set[int] = set()
        for vault_id in vault_ids:
            root = self.vaults[vault_id].root
            name = ref[len(root) :].lstrip("/") if ref.startswith(root + "/") else ref
            found.update(_ids(self._resolver.find(name, vault_id)))
        return sorted(note for note in found if note in self.cards)

    def expired(self, at_ms: int) -> set[int]:
        """Notes that are over at ``at_ms``: they are read by name, and neither found nor listed."""
        return {note for note, ends in self._ends.items() if ends <= at_ms}

    def holding(self, only: set[int] | None, at_ms: int) -> set[int] | None:
        """The notes of ``only`` (None = all) that are not over at ``at_ms``; None = all."""
        over = self.expired(at_ms)
        if not over:
            return only
        return (set(self.cards) if only is None else only) - over

    def unresolved(self, note: int) -> tuple[str, ...]:
        """Targets of links in ``note`` that mean no note."""
        return self._missing.get(note, ())

    def ambiguous(self, note: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Targets of links in ``note`` that may mean several notes, with those."""
        return self._several.get(note, ())

    def leads_to(self, source: int, link: Link, target: int) -> bool:
        """Whether ``link``, written in ``source``, means ``target``."""
        card = self.cards.get(source)
        return card is not None and self._resolver.resolve(card.vault_id, card.path, link) == Resolved(target)

    def _file(self, row: NoteRow) -> None:
        """Take in a note whose links are not resolved yet."""
        card = row.card
        vault = self.vaults.get(card.vault_id)
        if vault is not None and vault.kind == "wiki" and not card.project and "/" in card.path:
            # The wiki's first folders are its projects.
            card = msgspec.structs.replace(card, project=sys.intern(card.path.partition("/")[0]))
        self.notes.put(card)
        if card.expires and (ends := expiry.ends_ms(card.expires)):
            self._ends[card.id] = ends
        self._resolver.add(card)
        written: list[str] = []
        seen: set[tuple[str, str]] = set()
        for link in row.links:
            pair = (link.kind, link.target)
            if not link.target or pair in seen:
                continue
            seen.add(pair)
            written += (sys.intern(link.kind), sys.intern(link.target))
            file(self._sources, _names_meant(written[-1]), card.id)
        if written:
            self._written[card.id] = tuple(written)

    def _forget(self, note: int) -> set[str]:
        """Take out what ``_file`` put in, but for the card; the names by which links meant the note."""
        card = self.cards.get(note)
        if card is None:
            return set()
        self._resolver.remove(note)
        self._ends.pop(note, None)
        written = self._written.pop(note, ())
        for target in written[1::2]:
            strike(self._sources, _names_meant(target), note)
        self._missing.pop(note, None)
        self._several.pop(note, None)
        return _names_of(card)

    def _link(self, source: int, answers: dict[tuple[int, str], Answer]) -> None:
        card = self.cards.get(source)
        if card is None:
            return
        edges: list[Edge] = []
        missing: list[str] = []
        several: list[tuple[str, tuple[int, ...]]] = []
        written = self._written.get(source, ())
        for kind, target in zip(written[::2], written[1::2], strict=True):
            match self._answer(card, kind, target, answers):
                case Resolved(note):
                    edges.append(Edge(source, note, kind))
                case SeveralNotes(notes):
                    several.append((target, notes))
                case Missing():
                    missing.append(target)
        self.notes.link(source, edges)
        self._missing.pop(source, None)
        self._several.pop(source, None)
        if missing:
            self._missing[source] = tuple(dict.fromkeys(missing))
        if several:
            self._several[source] = tuple(dict.fromkeys(several))

    def _answer(self, card: NoteCard, kind: str, target: str, answers: dict[tuple[int, str], Answer]) -> Answer:
        link = Link(kind=kind, target=target)  # type: ignore[arg-type]
        if kind in ("markdown", "embed") or "/" in target:
            return self._resolver.resolve(card.vault_id, card.path, link)
        # What a bare name means does not depend on where it stands.
        at = (card.vault_id, target)
        answer = answers.get(at)
        if answer is None:
            answer = answers[at] = self._resolver.resolve(card.vault_id, card.path, link)
        return answer


def _ids(answer: Answer) -> tuple[int, ...]:
    match answer:
        case Resolved(note):
            return (note,)
        case SeveralNotes(notes):
            return notes
    return ()


def _names_of(card: NoteCard) -> set[str]:
    """Keys of the names by which a link may mean this note."""
    stem = without_suffix(card.path.rpartition("/")[2])
    return {key(stem), key(card.title), *map(key, card.aliases)}


@functools.lru_cache(maxsize=1024)
def _names_meant(target: str) -> tuple[str, ...]:
    """Keys of the names that a link with this target may mean."""
    bare = without_suffix(target).strip("/")
    name = key(bare.rpartition("/")[2])
    # A title or alias may hold a slash.
    return (name, key(bare)) if "/" in bare else (name,)
