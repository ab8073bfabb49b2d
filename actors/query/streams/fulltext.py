"""
The full-text stream: BM25 of each term of the question by itself, so that what matched is known and not only how well.

The cost of BM25 is linear in the postings touched: the rarest terms decide, and they are cheap.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ....memory.recall.tokens import Term
from ....memory.recall.types import TextEvidence
from ...sqlite import sqlite3

TABLES = ("chunk_fts", "past_fts")
FTS5_MIN_IDF = 1e-6
"""FTS5 gives a word of more than half of all rows this weight."""
FTS5_AVERAGES = 1
"""The row of an FTS5 table's data that begins with the number of rows."""


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


class Frequencies:
    """Document frequencies by stem, kept while the index stays at one revision. Bounded; not thread-safe on purpose:
    two threads that miss at once both ask SQLite and store the same value."""

    LIMIT = 4096

    def __init__(self) -> None:
        self._revision = -1
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, conn: sqlite3.Connection, stem: str, revision: int) -> int:
        """How many chunks hold ``stem``."""
        if revision != self._revision:
            self._known, self._revision = OrderedDict(), revision
        known = self._known.get(stem)
        if known is None:
            row = conn.execute("SELECT doc FROM chunk_words WHERE term = ?", (stem,)).fetchone()
            known = int(row[0]) if row else 0
            self._known[stem] = known
            if len(self._known) > self.LIMIT:
                self._known.popitem(last=False)
        return known


def find(
    conn: sqlite3.Connection,
    terms: Sequence[Term],
    params: TextParams,
    frequencies: Frequencies,
    *,
    revision: int,
    chunks_total: int,
    allowed: Callable[[int], bool] | None = None,
    past: bool = False,
) -> TextEvidence:
    """
    The chunks that each term is found in. ``allowed`` says which chunks may answer; ``past`` looks at superseded ones too.

    ``df`` has every term, searched or not; ``scores`` those that were searched. With ``past``, ``df`` counts what may answer.
    """
    df = {term.text: _frequency(conn, term, frequencies, revision) for term in terms}
    if past:
        # The table of words knows nothing of superseded texts: every word may be in them.
        df = {term: max(1, count) for term, count in df.items()}
    tables = TABLES if past else TABLES[:1]
    counted = {table: _rows_counted(conn, table) for table in tables}
    rows = params.rows if allowed is None else params.rows_filtered
    scores: dict[str, dict[int, float]] = {}
    for term in choose(terms, df, chunks_total, params):
        shares: dict[int, float] = {}
        for table in tables:
            found = _matches(conn, table, term, params, rows)
            unit = _idf(len(found) if len(found) < rows else df[term.text], counted[table])
            shares |= {chunk: score / unit for chunk, score in found.items()}
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


def _rows_counted(conn: sqlite3.Connection, table: str) -> int:
    """
    Rows that FTS5 reckons with. A contentless table never counts deleted rows down, so that the weight of every word grows
    with each edit: scores are put back on the chunks that there are.
    """
    row = conn.execute(f"SELECT block FROM {table}_data WHERE id = {FTS5_AVERAGES}").fetchone()
    count = 0
    for byte in row[0][:9] if row else b"":  # SQLite's varint: seven bits a byte, the last without the high bit
        count = (count << 7) | (byte & 0x7F)
        if byte < 0x80:
            break
    return count


def choose(terms: Iterable[Term], df: dict[str, int], chunks_total: int, params: TextParams) -> list[Term]:
    """The terms that are worth their cost: known ones, rarest first, very common ones only where nothing else is left."""
    known = sorted((term for term in terms if df[term.text] > 0), key=lambda term: df[term.text])
    telling = [term for term in known if df[term.text] <= max(50, params.common * chunks_total)]
    return (telling or known)[: params.terms_max]


def _frequency(conn: sqlite3.Connection, term: Term, frequencies: Frequencies, revision: int) -> int:
    if term.kind == "prefix":
        return 1
    return min((frequencies.of(conn, stem, revision) for stem in term.stems), default=0)


def _matches(conn: sqlite3.Connection, table: str, term: Term, params: TextParams, rows: int) -> dict[int, float]:
    """Passage -> BM25 of the best ``rows``, best first, ties by passage."""
    weights = f"bm25({params.title_weight}, {params.heading_weight}, {params.body_weight})"
    # ORDER BY rank would have FTS5 sort: by a statement of its own, looking each row up again. SQLite's sort by an expression
    # keeps the best rows only, in half of the time.
    sql = f"SELECT rowid, -rank AS fit FROM {table} WHERE {table} MATCH ? AND rank MATCH ? ORDER BY fit DESC LIMIT ?"
    return dict(conn.execute(sql, (term.fts, weights, rows)).fetchall())
