"""
The values that ranking works on: what is known of every note (Catalog), and what the streams found (Evidence).

The query actor fills them from SQLite and from the vector matrix; everything here and in the modules beside it is pure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...protocol.messages.common import Link

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """How many voices said what of a note as it stands."""

    helpful: int = 0
    not_helpful: int = 0
    stale: int = 0
    wrong: int = 0


NOBODY = Tally()


class NoteCard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What ranking knows of one version of a note. ``id`` is the row in ``notes``."""

    id: int
    vault_id: int
    path: str
    title: str
    kind: str = ""
    status: str = ""
    date: str = ""
    updated: str = ""
    modified_ms: int = 0
    pinned: bool = False
    expires: str = ""
    summary: str = ""
    project: str = ""
    session_id: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    words: int = 0
    feedback: Tally = NOBODY


class Edge(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A resolved link between two notes, by id. ``kind`` as in Link.kind."""

    source: int
    target: int
    kind: str


class Matches(NamedTuple):
    """The chunks that one term was found in, each once, best first: row by row."""

    chunks: Ints
    scores: Floats
    """The term's contribution to BM25 (> 0, larger is better)."""


class TextEvidence(msgspec.Struct, kw_only=True, dict=True):
    """
    Full-text matches by query term (``Term.text``).

    Sums over terms are the BM25 of the disjunction, and the matched terms of a chunk are known. ``df`` counts chunks per term
    over the whole index (0 = the word occurs nowhere); ``chunks_total`` is the size of the index.
    """

    matches: dict[str, Matches]
    df: dict[str, int]
    chunks_total: int

    @functools.cached_property
    def sums(self) -> dict[int, float]:
        """Chunk -> sum of its scores, in the order of the terms. Few questions ask: only long notes are chosen from by it."""
        found = list(self.matches.values())
        if not found:
            return {}
        chunks, places = np.unique(np.concatenate([one.chunks for one in found]), return_inverse=True)
        sums = np.bincount(places, np.concatenate([one.scores for one in found]))
        return dict(zip(chunks.tolist(), sums.tolist(), strict=True))


class VectorMatch(msgspec.Struct, frozen=True, array_like=True):
    """Cosines of one note to the question: of the mean of its chunks, its best chunk, its best sentence."""

    note_cos: float
    chunk_cos: float
    chunk_id: int
    sentence_cos: float
    sentence_chunk_id: int
    char_from: int
    char_to: int
    bare_cos: float | None = None
    """Of its nearest sentence to the question without what all passages have in common; None where that is not known."""


class Grains(NamedTuple):
    """Of some notes, row by row, what ``VectorMatch`` says of one."""

    notes: Sequence[int]
    note_cos: NDArray[np.float32]
    chunk_cos: NDArray[np.float32]
    sentence_cos: NDArray[np.float32]
    bare_cos: NDArray[np.float32]
    """NaN where it is not known."""


class VectorEvidence(Protocol):
    """Similarities of all notes to the question; cheap to ask for any single note."""

    def top(self, n: int) -> list[int]:
        """Ids of the ``n`` notes with the largest mean of note and sentence cosine, best first."""
        ...

    def get(self, note_id: int) -> VectorMatch | None:
        """The match of one note, None when it has no vectors yet."""
        ...

    def look_up(self, notes: Iterable[int]) -> None:
        """Prepare what ``get`` says of these ``notes``: many at once cost little more than one."""
        ...

    def grains(self, notes: Sequence[int]) -> Grains:
        """Of those ``notes`` that have vectors, in their order: many at once cost little more than one."""
        ...

    def sentences(self, note_id: int) -> Sequence[tuple[int, int, int, float]]:
        """All sentences of one note: (chunk_id, char_from, char_to, cosine), in order; empty without sentence vectors."""
        ...


class Evidence(msgspec.Struct, kw_only=True):
    """Everything the streams found for one question. A stream that is down or switched off is None."""

    text: TextEvidence | None
    vector: VectorEvidence | None
    note_of_chunk: Callable[[Ints], Ints]
    """Chunk ids -> the notes that hold them; 0 where none does."""
    probes: tuple[VectorEvidence, ...] = ()
    """Similarities to ``Question.probes``, in that order; may be shorter or empty (then only the question itself counts)."""


class Catalog(Protocol):
    """
    All current notes of the scope that is asked, as lookups. Filled by the query actor; ``catalog.Notes`` is one.

    Names are folded by ``entities.name_key``.
    """

    @property
    def cards(self) -> Mapping[int, NoteCard]: ...
    @property
    def titles(self) -> Mapping[str, Collection[int]]:
        """Folded title, file name and aliases -> notes that *are* what is named."""
        ...

    @property
    def mentions(self) -> Mapping[str, Collection[int]]:
        """Folded entity or tag -> notes that carry it."""
        ...

    @property
    def kinds(self) -> Mapping[str, int]:
        """Kind -> number of notes of it."""
        ...

    @property
    def mean_words(self) -> float:
        """Mean length of a note in words; 1.0 for an empty index."""
        ...

    def lengths(self, notes: Ints) -> NDArray[np.int32]:
        """Of each of these, its length in words, 1 at least; 0 where there is no such note."""
        ...

    def standing(self, note_id: int) -> float:
        """How much a note's standing counts: ``authority.factor`` of its card."""
        ...

    def out_edges(self, note_id: int) -> Sequence[Edge]: ...
    def in_edges(self, note_id: int) -> Sequence[Edge]: ...
    def newer(self, note_id: int) -> Collection[int]:
        """Notes that say they replace ``note_id``, or that it says it is replaced by."""
        ...
