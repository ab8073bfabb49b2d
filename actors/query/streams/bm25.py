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

import numpy as np
from numpy.typing import NDArray

from ....memory.recall.lexical import FTS5_K1
from ....memory.recall.types import Floats, Ints
from ....memory.runs import begins
from ...sqlite import sqlite3
from .notes import parts

TABLES = ("chunk_fts", "past_fts")
FTS5_B = 0.75
"""FTS5's bm25() has it built in, as FTS5_K1."""
AVERAGES = 1
"""The row of an FTS5 table's data with the number of rows and of tokens per column."""

LETTERS = {"title": "l", "heading": "h", "body": "b"}
"""Of each column's name, a letter that no other has."""
_OTHER_LETTERS = bytes({ord(letter) for name in LETTERS for letter in name} - set(map(ord, LETTERS.values())))
ALL = 1 << 40
"""More places than any word has."""

Lengths = NDArray[np.int32]
"""Tokens of each passage, by passage; 0 where that is not known, as in the last place."""


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


class Share(NamedTuple):
    """What one word says of passages: best first, ties by passage, row by row."""

    df: int
    """Passages that it stands in, however many of them are here."""
    passages: Ints
    shares: Floats
    """BM25 without the IDF: 0…FTS5_K1 + 1."""


def shares(
    conn: sqlite3.Connection,
    table: str,
    stems: Sequence[str],
    weights: Mapping[str, float],
    lengths: Lengths,
    mean_tokens: float,
    rows: int,
    most: int = ALL,
) -> list[Share | None]:
    """
    Of each word its best ``rows`` passages; None for a word with more than ``most`` places, which are not read to the end.

    ``weights``: of each column. A passage whose length is not known is taken for one of ``mean_tokens``.
    """
    found = _places(conn, table, stems, most)
    counts = [len(columns) if len(columns) <= most else 0 for _, columns in found]
    bounds = [0, *itertools.accumulate(counts)]
    if not bounds[-1]:
        return [_nothing() if len(columns) <= most else None for _, columns in found]
    kept = [both for both, count in zip(found, counts, strict=True) if count]
    passages = np.fromstring(",".join([docs for docs, _ in kept]), np.int64, sep=",")
    by_letter = np.zeros(128)
    for column, value in weights.items():
        by_letter[ord(LETTERS[column])] = value
    weight = by_letter.take(np.frombuffer(b"".join([columns for _, columns in kept]), np.uint8))
    words = np.arange(len(stems)).repeat(counts)
    first = begins(words, passages).nonzero()[0]  # a word's places come by passage
    passages, words, frequency = passages.take(first), words.take(first), np.add.reduceat(weight, first)
    tokens: Lengths | Floats = lengths.take(passages, mode="clip")
    if np.count_nonzero(tokens) < len(tokens):
        tokens = np.where(tokens == 0, mean_tokens, tokens)
    share = frequency * (FTS5_K1 + 1.0) / (frequency + FTS5_K1 * (1.0 - FTS5_B + FTS5_B * tokens / mean_tokens))
    best = np.lexsort((-share, words))  # passages ascend, and the sort is stable
    passages, share = passages.take(best), share.take(best)
    ends = first.searchsorted(bounds).tolist()
    return [
        Share(end - start, passages[start : min(end, start + rows)], share[start : min(end, start + rows)])
        if len(columns) <= most
        else None
        for (_, columns), (start, end) in zip(found, itertools.pairwise(ends), strict=True)
    ]


def _places(conn: sqlite3.Connection, table: str, stems: Sequence[str], most: int) -> list[tuple[str, bytes]]:
    """Of each word, the passages that it stands in, once for each place, and the letter of the column of each place."""
    if not stems:
        return []
    # One row a word: a row for each of a thousand places would take Python as long as SQLite. One statement for all words:
    # the table of places is opened by a statement that FTS5 prepares each time.
    sql = f"""
        SELECT (
            SELECT group_concat(doc) || ' ' || group_concat(col, '')
            FROM (SELECT doc, col FROM temp.{table}_places WHERE term = word.column1 LIMIT {most + 1})
        )
        FROM (VALUES {",".join(["(?)"] * len(stems))}) AS word
    """
    found: list[tuple[str, bytes]] = []
    for (places,) in conn.execute(sql, stems):
        docs, _, columns = (places or "").partition(" ")
        found.append((docs, columns.encode().translate(None, _OTHER_LETTERS)))
    return found


def _nothing() -> Share:
    return Share(0, np.zeros(0, np.int64), np.zeros(0))


def _varints(data: bytes) -> Iterator[int]:
    """SQLite's: seven bits a byte, the last without the high bit. Those here stay below eight bytes."""
    value = 0
    for byte in data:
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            yield value
            value = 0
