"""
BM25 of single words, reckoned here from the places where a word stands.

FTS5's own bm25() gives the same numbers in two to three times the time: it searches every word twice, and looks the length
of each passage up in a table. Phrases and prefixes, of which questions have few, are left to it. What FTS5 stores is
described at sqlite.org/fts5.html#fts5_data_structures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ....memory.recall.lexical import FTS5_K1
from ....memory.runs import begins
from ...sqlite import sqlite3
from .notes import parts

TABLES = ("chunk_fts", "past_fts")
FTS5_B = 0.75
"""FTS5's bm25() has it built in, as FTS5_K1."""
AVERAGES = 1
"""The row of an FTS5 table's data with the number of rows and of tokens per column."""

decode_ints = msgspec.json.Decoder(list[int]).decode

Lengths = NDArray[np.int32]
"""Tokens of each passage, by passage; 0 where that is not known."""


class Averages(NamedTuple):
    """
    What FTS5 reckons with. A contentless table never counts deleted rows down: ``rows`` grows with each edit, and with it
    the weight of every word in FTS5's own scores.
    """

    rows: int
    tokens: float
    """Mean of a row."""


def prepare(conn: sqlite3.Connection) -> None:
    """Name the places of every word, for this connection alone: nothing is written."""
    for table in TABLES:
        conn.execute(f"CREATE VIRTUAL TABLE temp.{table}_places USING fts5vocab(main, {table}, instance)")


def averages(conn: sqlite3.Connection, table: str) -> Averages:
    """The averages of one table; of an empty one, 0 rows of 1 token."""
    row = conn.execute(f"SELECT block FROM {table}_data WHERE id = {AVERAGES}").fetchone()
    rows, *tokens = [*_varints(row[0])] if row and row[0] else [0]
    return Averages(rows, sum(tokens) / rows if rows and any(tokens) else 1.0)


def lengths_of(
    conn: sqlite3.Connection, chunks: Iterable[int] | None = None, table: str = TABLES[0]
) -> Iterator[tuple[int, int]]:
    """(passage, its tokens) of those ``chunks`` that one table holds; None = of all."""
    sql = f"SELECT id, sz FROM {table}_docsize"
    found: Iterable[tuple[int, bytes]] = (
        conn.execute(sql)
        if chunks is None
        else itertools.chain.from_iterable(
            conn.execute(f"{sql} WHERE id IN ({','.join('?' * len(part))})", part) for part in parts(list(chunks))
        )
    )
    return ((chunk, sum(_varints(sizes))) for chunk, sizes in found)


def shares(
    conn: sqlite3.Connection,
    table: str,
    stems: Sequence[str],
    weights: Mapping[str, float],
    lengths: Lengths,
    mean_tokens: float,
    rows: int,
) -> list[dict[int, float]]:
    """
    Of each word: passage -> BM25 without the IDF (0…FTS5_K1 + 1), the best ``rows``, best first, ties by passage.

    ``weights``: of each column. A passage whose length is not known is taken for one of ``mean_tokens``.
    """
    # One row a word: a row for each of a thousand places would take Python as long as SQLite.
    sql = f"SELECT group_concat(doc), group_concat(substr(col, 1, 1), '') FROM temp.{table}_places WHERE term = ?"
    places = [conn.execute(sql, (stem,)).fetchone() for stem in stems]
    chunks = np.array(decode_ints(f"[{','.join(docs for docs, _ in places if docs)}]"), np.int64)
    if not len(chunks):
        return [{} for _ in stems]
    by_letter = np.zeros(128)
    for column, value in weights.items():
        by_letter[ord(column[0])] = value
    weight = by_letter[np.frombuffer("".join(columns or "" for _, columns in places).encode(), np.uint8)]
    words = np.repeat(np.arange(len(stems)), [len(columns or "") for _, columns in places])
    order = np.lexsort((chunks, words))
    chunks, words, weight = chunks[order], words[order], weight[order]
    first = np.flatnonzero(begins(words, chunks))
    chunks, words, frequency = chunks[first], words[first], np.add.reduceat(weight, first)
    tokens, known = np.zeros(len(chunks)), chunks < len(lengths)
    tokens[known] = lengths[chunks[known]]
    tokens[tokens == 0] = mean_tokens
    share = frequency * (FTS5_K1 + 1.0) / (frequency + FTS5_K1 * (1.0 - FTS5_B + FTS5_B * tokens / mean_tokens))
    best = np.lexsort((-share, words))  # passages ascend, and the sort is stable
    found, values = chunks[best].tolist(), share[best].tolist()
    ends = np.cumsum(np.bincount(words, minlength=len(stems))).tolist()
    own = (slice(start, min(end, start + rows)) for start, end in itertools.pairwise([0, *ends]))
    return [dict(zip(found[part], values[part], strict=True)) for part in own]


def _varints(data: bytes) -> Iterator[int]:
    """SQLite's: seven bits a byte, the last without the high bit. Those here stay below eight bytes."""
    value = 0
    for byte in data:
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            yield value
            value = 0
