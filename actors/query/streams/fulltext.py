"""
The full-text stream: BM25 of each term of the question by itself, so that what matched is known and not only how well.

The cost of BM25 is linear in the postings touched: the rarest terms decide, and they are cheap.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ....memory.recall.lexical import FTS5_MIN_IDF
from ....memory.recall.tokens import Term
from ....memory.recall.types import Floats, Ints, Matches, TextEvidence
from ...sqlite import sqlite3
from . import bm25
from .notes import parts

PLACES_MAX = 4000
"""Of one word, as far as it is not known how common it is: they are read in a millisecond. Most words have fewer."""

Filter = Callable[[Ints], NDArray[np.bool_]]
"""Which of these passages may answer."""


class TextParams(msgspec.Struct, frozen=True, kw_only=True):
    """How full text is searched."""

    title_weight: float = 2.0
    heading_weight: float = 1.5
    body_weight: float = 1.0
    """Column weights of BM25. A title that holds the word is worth about two bodies (LIMITS: title 2)."""
    terms_max: int = 8
    """Terms that are searched: those with the lowest document frequency."""
    rows: int = 300
    """Best chunks per term."""
    rows_filtered: int = 20_000
    """The same where only some notes may answer: the filter comes after the ranking."""
    common: float = 0.25
    """A term in more than this share of all chunks is left out when rarer ones are there."""

    @property
    def weights(self) -> dict[str, float]:
        """By column, in the order of the columns."""
        return {"title": self.title_weight, "heading": self.heading_weight, "body": self.body_weight}


class Frequencies:
    """Document frequencies by stem, kept while the index stays at one revision. Bounded; not thread-safe on purpose:
    two threads that miss at once both ask SQLite and store the same value."""

    LIMIT = 4096

    def __init__(self) -> None:
        self._known: tuple[int, OrderedDict[str, int]] = (-1, OrderedDict())
        """Of one revision. Put and taken as one: another thread may be at another revision."""

    def known(self, stem: str, revision: int) -> int:
        """How many chunks hold ``stem``, if that was asked before; 0 if not."""
        return self._at(revision).get(stem, 0)

    def learn(self, found: Mapping[str, int], revision: int) -> None:
        """Keep what was counted elsewhere."""
        known = self._at(revision)
        known.update(found)
        while len(known) > self.LIMIT:
            known.popitem(last=False)

    def of(self, conn: sqlite3.Connection, stems: Collection[str], revision: int) -> dict[str, int]:
        """How many chunks hold each of ``stems``."""
        known = self._at(revision)
        found = {stem: known[stem] for stem in stems if stem in known}
        absent = [stem for stem in stems if stem not in found]
        for part in parts(absent):
            sql = f"SELECT term, doc FROM chunk_words WHERE term IN ({','.join('?' * len(part))})"
            found |= dict.fromkeys(part, 0) | dict(conn.execute(sql, part).fetchall())
        self.learn({stem: found[stem] for stem in absent}, revision)
        return found

    def _at(self, revision: int) -> OrderedDict[str, int]:
        held = self._known
        if held[0] != revision:
            held = self._known = (revision, OrderedDict())
        return held[1]


def find(
    conn: sqlite3.Connection,
    terms: Sequence[Term],
    params: TextParams,
    frequencies: Frequencies,
    *,
    revision: int,
    chunks_total: int,
    lengths: bm25.Lengths,
    allowed: Filter | None = None,
    past: bool = False,
) -> TextEvidence:
    """
    The chunks that each term is found in. ``lengths``: tokens of every chunk, by chunk. ``allowed`` says which chunks may
    answer; ``past`` looks at superseded ones too.

    ``df`` has every term, searched or not; ``matches`` those that were searched. With ``past``, ``df`` counts what may answer.
    """
    tables = {table: bm25.averages(conn, table) for table in (bm25.TABLES if past else bm25.TABLES[:1])}
    rows = params.rows if allowed is None else params.rows_filtered
    common = _common(chunks_total, params)

    def read(table: str, stems: Sequence[str], most: int = bm25.ALL) -> dict[str, bm25.Share]:
        found = bm25.shares(conn, table, stems, params.weights, lengths, tables[table].tokens, rows, most)
        return {stem: share for stem, share in zip(stems, found, strict=True) if share is not None}

    # The places of a word tell how many chunks hold it as well: to ask for that first would search for the word twice.
    words = list(dict.fromkeys(term.stem for term in terms if term.kind == "word"))
    rare = [stem for stem in words if frequencies.known(stem, revision) <= common]
    of_words = {table: read(table, rare, PLACES_MAX) if len(rare) <= params.terms_max else {} for table in tables}
    current = of_words[bm25.TABLES[0]]
    counted = {stem: share.df for stem, share in current.items()}
    frequencies.learn(counted, revision)
    stems = {stem for term in terms if term.kind != "prefix" for stem in term.stems}
    counted |= frequencies.of(conn, stems - counted.keys(), revision)
    df = {term.text: _frequency(term, counted) for term in terms}
    if past:
        # The table of words knows nothing of superseded texts: every word may be in them.
        df = {term: max(1, count) for term, count in df.items()}
    chosen = choose(terms, df, chunks_total, params)
    matches: dict[str, Matches] = {}
    for table, found in of_words.items():
        found |= read(table, [term.stem for term in chosen if term.kind == "word" and term.stem not in found])
    for term in chosen:
        by_table = [
            found[term.stem][1:]
            if term.kind == "word"
            else _matches(conn, table, term, params, rows, df[term.text], averages)
            for (table, averages), found in zip(tables.items(), of_words.values(), strict=True)
        ]
        chunks, shares = by_table[0] if len(by_table) == 1 else map(np.concatenate, zip(*by_table, strict=True))
        if term.kind != "word" and len(chunks) < rows:
            df[term.text] = len(chunks)
        if allowed is not None:
            kept = allowed(chunks)
            chunks, shares = chunks[kept], shares[kept]
        if past:
            df[term.text] = len(chunks)
        matches[term.text] = Matches(chunks, shares * _idf(df[term.text], chunks_total))
    return TextEvidence(matches=matches, df=df, chunks_total=chunks_total)


def _idf(df: int, total: int) -> float:
    """As FTS5's bm25() has it."""
    return max(FTS5_MIN_IDF, math.log((max(total, df) - df + 0.5) / (df + 0.5)))


def choose(terms: Iterable[Term], df: dict[str, int], chunks_total: int, params: TextParams) -> list[Term]:
    """The terms that are worth their cost: known ones, rarest first, very common ones only where nothing else is left."""
    known = sorted((term for term in terms if df[term.text] > 0), key=lambda term: df[term.text])
    common = _common(chunks_total, params)
    telling = [term for term in known if df[term.text] <= common]
    return (telling or known)[: params.terms_max]


def _common(chunks_total: int, params: TextParams) -> float:
    """The most chunks that a telling term stands in."""
    return max(50, params.common * chunks_total)


def _frequency(term: Term, known: Mapping[str, int]) -> int:
    if term.kind == "prefix":
        return 1
    return min((known[stem] for stem in term.stems), default=0)


def _matches(
    conn: sqlite3.Connection, table: str, term: Term, params: TextParams, rows: int, df: int, averages: bm25.Averages
) -> tuple[Ints, Floats]:
    """As ``bm25.shares``, of a phrase or prefix: passages and shares."""
    weights = f"bm25({', '.join(map(str, params.weights.values()))})"
    # ORDER BY rank would have FTS5 sort: by a statement of its own, looking each row up again. SQLite's sort by an expression
    # keeps the best rows only, in half of the time.
    sql = f"SELECT rowid, -rank AS fit FROM {table} WHERE {table} MATCH ? AND rank MATCH ? ORDER BY fit DESC LIMIT ?"
    found = conn.execute(sql, (term.fts, weights, rows)).fetchall()
    # Scores are put back on the passages that there are: see ``Averages``.
    unit = _idf(len(found) if len(found) < rows else df, averages.rows)
    return np.array([chunk for chunk, _ in found], np.int64), np.array([score / unit for _, score in found], np.float64)
