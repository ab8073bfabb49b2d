"""What is known of all notes, as lookups: a Catalog that is kept up to date note by note."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..ids import Ids, file, strike
from . import authority
from .entities import mentions_of, titles_of
from .types import Edge, Ints, NoteCard

FEW_IN = 16
"""Links to one note that are kept as a tuple."""


class Notes:
    """
    A Catalog in memory. Not thread-safe; adding or removing a note costs as much as that note is long.

    Links are resolved elsewhere: ``link`` takes the resolved edges of one note.
    """

    def __init__(self, cards: Iterable[NoteCard] = (), edges: Iterable[Edge] = ()) -> None:
        self.cards: dict[int, NoteCard] = {}
        self.titles: dict[str, Ids] = {}
        self.mentions: dict[str, Ids] = {}
        self.kinds: dict[str, int] = {}
        self._out: dict[int, tuple[Edge, ...]] = {}
        self._in: dict[int, tuple[Edge, ...] | dict[Edge, None]] = {}
        """A tuple up to FEW_IN: a dictionary takes three times as much, and finds one of a thousand at once."""
        self._replacing: dict[int, set[Edge]] = {}
        """Note -> links that say that it is replaced. Few notes have one, and every candidate of a question is asked."""
        self._standing: dict[int, float] = {}
        """Of notes that are not ordinary ones: reckoned once, because every candidate of a question is asked."""
        self._words = 0
        self._lengths = np.zeros(1024, np.int32)
        """By note id, which is a dense row number: 0 where there is no note, as always in the last place."""
        for card in cards:
            self.put(card)
        by_source: dict[int, list[Edge]] = {}
        for edge in edges:
            by_source.setdefault(edge.source, []).append(edge)
        for source, out in by_source.items():
            self.link(source, out)

    @property
    def mean_words(self) -> float:
        return max(1.0, self._words / max(1, len(self.cards)))

    def lengths(self, notes: Ints) -> NDArray[np.int32]:
        return self._lengths.take(notes, mode="clip")

    def put(self, card: NoteCard) -> None:
        """Add a note, or replace what is known of it; its links stay."""
        self._forget(card.id)
        self.cards[card.id] = card
        file(self.titles, titles_of(card), card.id)
        file(self.mentions, mentions_of(card), card.id)
        if card.kind:
            self.kinds[card.kind] = self.kinds.get(card.kind, 0) + 1
        if (standing := authority.factor(card)) != 1.0:
            self._standing[card.id] = standing
        self._words += card.words
        if card.id >= len(self._lengths) - 1:
            more = max(card.id + 2, len(self._lengths) * 3 // 2) - len(self._lengths)
            self._lengths = np.concatenate((self._lengths, np.zeros(more, np.int32)))
        self._lengths[card.id] = card.words or 1

    def drop(self, note_id: int) -> None:
        """Forget a note and its links, out and in. Unknown ids are ignored."""
        self.link(note_id, ())
        for edge in self._in.pop(note_id, ()):
            self._replaces(edge, False)
            self._out[edge.source] = tuple(other for other in self._out.get(edge.source, ()) if other != edge)
        self._forget(note_id)

    def link(self, source: int, edges: Sequence[Edge]) -> None:
        """Replace the out-links of one note."""
        before = self._out.get(source, ())
        kept = tuple(dict.fromkeys(edge for edge in edges if edge.target != source))
        if kept == before:
            return
        self._out.pop(source, None)
        if kept:
            self._out[source] = kept
        for edge in before:
            self._replaces(edge, False)
            self._unhook(edge)
        for edge in kept:
            self._replaces(edge, True)
            self._hook(edge)

    def standing(self, note_id: int) -> float:
        """``authority.factor`` of a note; 1.0 for one that is not here."""
        return self._standing.get(note_id, 1.0)

    def out_edges(self, note_id: int) -> Sequence[Edge]:
        return self._out.get(note_id, ())

    def in_edges(self, note_id: int) -> Sequence[Edge]:
        return tuple(self._in.get(note_id, ()))

    def newer(self, note_id: int) -> Collection[int]:
        edges = self._replacing.get(note_id)
        if edges is None:
            return ()
        return {edge.target if edge.source == note_id else edge.source for edge in edges}

    def _hook(self, edge: Edge) -> None:
        """Note ``edge`` down where it ends. It is not there yet: ``link`` takes out what a note had before."""
        held = self._in.get(edge.target, ())
        if isinstance(held, dict):
            held[edge] = None
        elif len(held) < FEW_IN:
            self._in[edge.target] = (*held, edge)
        else:
            self._in[edge.target] = dict.fromkeys((*held, edge))

    def _unhook(self, edge: Edge) -> None:
        held = self._in.get(edge.target, ())
        if isinstance(held, dict):
            held.pop(edge, None)
        elif edge in held:
            at = held.index(edge)
            held = self._in[edge.target] = held[:at] + held[at + 1 :]
        if not held:
            self._in.pop(edge.target, None)

    def _replaces(self, edge: Edge, holds: bool) -> None:
        """Note down, or strike out, that one end of ``edge`` replaces the other, if its kind says so."""
        match edge.kind:
            case "superseded_by":
                replaced = edge.source
            case "supersedes":
                replaced = edge.target
            case _:
                return
        edges = self._replacing.setdefault(replaced, set())
        if holds:
            edges.add(edge)
        else:
            edges.discard(edge)
        if not edges:
            del self._replacing[replaced]

    def _forget(self, note_id: int) -> None:
        card = self.cards.pop(note_id, None)
        if card is None:
            return
        self._standing.pop(note_id, None)
        strike(self.titles, titles_of(card), note_id)
        strike(self.mentions, mentions_of(card), note_id)
        if card.kind:
            self.kinds[card.kind] -= 1
            if not self.kinds[card.kind]:
                del self.kinds[card.kind]
        self._words -= card.words
        self._lengths[note_id] = 0
