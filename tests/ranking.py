"""Small worlds for tests of ranking: notes, links, word matches and similarities, all given by hand."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from recalld.memory.recall.catalog import Notes
from recalld.memory.recall.params import Params
from recalld.memory.recall.query import Question, analyse
from recalld.memory.recall.rank import Ranking, rank
from recalld.memory.recall.types import Edge, Evidence, Grains, Ints, Matches, NoteCard, TextEvidence, VectorMatch

TODAY = datetime.date(2026, 3, 1)
CHUNKS = 100


def card(id: int, title: str, **more: object) -> NoteCard:
    """A note at ``<title>.md`` of 100 words."""
    path = str(more.pop("path", f"{title.lower().replace(' ', '-')}.md"))
    return NoteCard(**{"id": id, "vault_id": 1, "path": path, "title": title, "words": 100, **more})  # type: ignore[arg-type]


def world(*cards: NoteCard, links: Sequence[tuple[int, int] | tuple[int, int, str]] = ()) -> Notes:
    return Notes(cards, [Edge(one[0], one[1], one[2] if len(one) > 2 else "wikilink") for one in links])  # type: ignore[misc]


class Similar:
    """VectorEvidence from one number a note, or from all its sentences' cosines. Chunk id = note id."""

    def __init__(self, cosines: Mapping[int, float | Sequence[float]]) -> None:
        self.cosines = {note: [value] if isinstance(value, float) else list(value) for note, value in cosines.items()}

    def top(self, n: int) -> list[int]:
        return sorted(self.cosines, key=lambda note: -max(self.cosines[note]))[:n]

    def get(self, note_id: int) -> VectorMatch | None:
        if note_id not in self.cosines:
            return None
        found = self.cosines[note_id]
        best = max(found)
        return VectorMatch(sum(found) / len(found), best, note_id, best, note_id, 0, 10)

    def look_up(self, notes: Iterable[int]) -> None:
        """Each is as quick as all."""

    def grains(self, notes: Sequence[int]) -> Grains:
        found = {note: match for note in notes if (match := self.get(note)) is not None}
        columns = [[m.note_cos, m.chunk_cos, m.sentence_cos, math.nan] for m in found.values()]
        return Grains(list(found), *np.array(columns, np.float32).reshape(-1, 4).T)

    def sentences(self, note_id: int) -> list[tuple[int, int, int, float]]:
        return [(note_id, 10 * i, 10 * i + 10, cosine) for i, cosine in enumerate(self.cosines.get(note_id, ()))]


def itself(chunks: Ints) -> Ints:
    """The note of each chunk, where every note is one chunk of the same id."""
    return chunks


def words(question: Question, where: Mapping[str, Sequence[int]], df: Mapping[str, int] | None = None) -> TextEvidence:
    """Each word (as asked) stands once in each of these notes; others stand nowhere, unless ``df`` says otherwise."""
    counts = {term.text: (df or {}).get(term.text, len(where.get(term.text, ()))) for term in question.terms}
    matches = {
        term.text: Matches(
            np.array(notes, np.int64),
            np.full(len(notes), max(1e-6, math.log((CHUNKS - counts[term.text] + 0.5) / (counts[term.text] + 0.5)))),
        )
        for term in question.terms
        if (notes := where.get(term.text)) is not None
    }
    return TextEvidence(matches=matches, df=counts, chunks_total=CHUNKS)


def ranked(
    text: str,
    notes: Notes,
    where: Mapping[str, Sequence[int]] | None = None,
    cosines: Mapping[int, float | Sequence[float]] | None = None,
    *,
    params: Params | None = None,
    k: int = 5,
    **more: object,
) -> Ranking:
    """The ranking of ``text`` over ``notes``."""
    question = analyse(text, notes, TODAY)
    evidence = Evidence(
        text=words(question, where) if where is not None else None,
        vector=Similar(cosines) if cosines is not None else None,
        note_of_chunk=itself,
    )
    return rank(question, evidence, notes, params or Params(), k=k, **more)  # type: ignore[arg-type]


def order(ranking: Ranking) -> list[int]:
    return [candidate.note_id for candidate in ranking.candidates]
