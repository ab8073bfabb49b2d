"""
The full-text stream: BM25 of each term of the question by itself, so that what matched is known and not only how well.

The cost of BM25 is linear in the postings touched: the rarest terms decide, and they are cheap.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from ....memory.recall.lexical import FTS5_MIN_IDF
from ....memory.recall.tokens import Term
from ....memory.recall.types import TextEvidence
from ...sqlite import sqlite3
from . import bm25
from .notes import parts


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
        self._revision = -1
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, conn: sqlite3.Connection, stems: Collection[str], revision: int) -> dict[str, int]:
        """How many chunks hold each of ``stems``."""
        if revision != self._revision:
            self._known, self._revision = OrderedDict(), revision
        known = self._known
        found = {stem: known[stem] for stem in stems if stem in known}
        absent = [stem for stem in stems if stem not in found]
        for part in parts(absent):
            sql = f"SELECT term, doc FROM chunk_words WHERE term IN ({','.join('?' * len(part))})"
            found |= dict.fromkeys(part, 0) | dict(conn.execute(sql, part).fetchall())
        known.update((stem, found[stem]) for stem in absent)
        while len(known) > self.LIMIT:
            known.popitem(last=False)
        return found


def find(
    conn: sqlite3.Connection,
    terms: Sequence[Term],
    params: TextParams,
    frequencies: Frequencies,
    *,
    revision: int,
    chunks_total: int,
    lengths: bm25.Lengths,
    allowed: Callable[[int], bool] | None = None,
    past: bool = False,
) -> TextEvidence:
    """
    The chunks that each term is found in. ``lengths``: tokens of every chunk, by chunk. ``allowed`` says which chunks may
    answer; ``past`` looks at superseded ones too.

    ``df`` has every term, searched or not; ``scores`` those that were searched. With ``past``, ``df`` counts what may answer.
    """
    known = frequencies.of(conn, {stem for term in terms if term.kind != "prefix" for stem in term.stems}, revision)
    df = {term.text: _frequency(term, known) for term in terms}
    if past:
        # The table of words knows nothing of superseded texts: every word may be in them.
        df = {term: max(1, count) for term, count in df.items()}
    tables = {table: bm25.averages(conn, table) for table in (bm25.TABLES if past else bm25.TABLES[:1])}
    rows = params.rows if allowed is None else params.rows_filtered
    scores: dict[str, dict[int, float]] = {}
    chosen = choose(terms, df, chunks_total, params)
    stems = list(dict.fromkeys(term.stem for term in chosen if term.kind == "word"))
    of_words = [
        dict(zip(stems, bm25.shares(conn, table, stems, params.weights, lengths, averages.tokens, rows), strict=True))
        for table, averages in tables.items()
    ]
    for term in chosen:
        shares: dict[int, float] = {}
        if term.kind == "word":
            for found in of_words:
                shares |= found[term.stem]
        else:
            for table, averages in tables.items():
                shares |= _matches(conn, table, term, params, rows, df[term.text], averages)
        if term.kind != "word" and len(shares) < rows:
            df[term.text] = len(shares)
        if allowed is not None:
            shares = {chunk: share for chunk, share in shares.items() if allowed(chunk)}
        if past:
            df[term.text] = len(shares)
        unit = _idf(df[term.text], chunks_total)
        scores[term.text] = {chunk: share * unit for chunk, share in shares.items()}
    return TextEvidence(scores=scores, df=df, chunks_total=chunks_total)


def _idf(df: int, total: int) -> float:
    """As FTS5's bm25() has it."""
    return max(FTS5_MIN_IDF, math.log((max(total, df) - df + 0.5) / (df + 0.5)))


def choose(terms: Iterable[Term], df: dict[str, int], chunks_total: int, params: TextParams) -> list[Term]:
    """The terms that are worth their cost: known ones, rarest first, very common ones only where nothing else is left."""
    known = sorted((term for term in terms if df[term.text] > 0), key=lambda term: df[term.text])
    telling = [term for term in known if df[term.text] <= max(50, params.common * chunks_total)]
    return (telling or known)[: params.terms_max]


def _frequency(term: Term, known: Mapping[str, int]) -> int:
    if term.kind == "prefix":
        return 1
    return min((known[stem] for stem in term.stems), default=0)


def _matches(
    conn: sqlite3.Connection, table: str, term: Term, params: TextParams, rows: int, df: int, averages: bm25.Averages
) -> dict[int, float]:
    """As ``bm25.shares``, of a phrase or prefix."""
    weights = f"bm25({', '.join(map(str, params.weights.values()))})"
    # ORDER BY rank would have FTS5 sort: by a statement of its own, looking each row up again. SQLite's sort by an expression
    # keeps the best rows only, in half of the time.
    sql = f"SELECT rowid, -rank AS fit FROM {table} WHERE {table} MATCH ? AND rank MATCH ? ORDER BY fit DESC LIMIT ?"
    found = conn.execute(sql, (term.fts, weights, rows)).fetchall()
    # Scores are put back on the passages that there are: see ``Averages``.
    unit = _idf(len(found) if len(found) < rows else df, averages.rows)
    return {chunk: score / unit for chunk, score in found}
