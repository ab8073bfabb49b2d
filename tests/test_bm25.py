"""actors/query/streams/bm25: the same numbers as FTS5's own bm25(), on an index with a history of edits."""

import random

import numpy as np
import pytest
from recalld.actors.query.catalog import View
from recalld.actors.query.live import apply_changes, load_notes, load_past_notes
from recalld.actors.query.reader import connect
from recalld.actors.query.streams import bm25, notes

from .indexing import Index

WORDS = ("harbour", "cranes", "ledger", "signals", "archive", "turbine", "orchard", "Straße", "東京")
NO_LENGTHS = np.zeros(1, np.int32)
WEIGHTS = {"title": 2.0, "heading": 1.5, "body": 1.0}


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path)
    yield made
    made.close()


@pytest.fixture
def edited(index):
    """Notes of all lengths with words in titles, headings and texts; half of them were written again, some are gone."""
    rng = random.Random(4)

    def text(number):
        title = rng.choice(WORDS) if number % 3 else f"Note {number}"
        body = " ".join(rng.choices(WORDS, k=rng.choice((1, 3, 40, 400))))
        return f"# {title}\n\n{body}\n\n## {rng.choice(WORDS)} {rng.choice(WORDS)}\n\n{rng.choice(WORDS)}\n"

    for _ in range(2):
        index.write_all({f"n{number}.md": text(number) for number in range(60)})
    index.write_all({f"n{number}.md": text(number) for number in range(30)})
    index.drop(*(f"n{number}.md" for number in range(55, 60)))
    return index


def stems(conn):
    return [row[0] for row in conn.execute("SELECT term FROM chunk_words ORDER BY term")]


def fts5(conn, table, stem, rows=-1):
    """Passage -> score by FTS5, best first, ties by passage."""
    sql = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? AND rank MATCH ? ORDER BY 2 DESC, 1 LIMIT ?"
    return dict(conn.execute(sql, (f'"{stem}"', "bm25(2.0, 1.5, 1.0)", rows)))


def shares(conn, stems, lengths, mean_tokens, rows):
    """Of each word: passage -> share, best first."""
    found = bm25.shares(conn, "chunk_fts", stems, WEIGHTS, lengths, mean_tokens, rows)
    return [dict(zip(share.passages.tolist(), share.shares.tolist(), strict=True)) for share in found]


def test_shares_are_those_of_fts5(edited):
    """Of every word: the same passages in the same order, and scores that differ from FTS5's by one factor, the IDF."""
    with connect(edited.paths.database) as conn:
        view = View()
        load_notes(conn, view)
        averages = bm25.averages(conn, "chunk_fts")
        words = stems(conn)
        found = shares(conn, words, view.chunks.lengths, averages.tokens, 1000)
        assert len(words) > 8
        for stem, of_word in zip(words, found, strict=True):
            expected = fts5(conn, "chunk_fts", stem)
            assert list(of_word) == list(expected), stem
            factors = [expected[chunk] / share for chunk, share in of_word.items()]
            assert factors == pytest.approx([factors[0]] * len(factors), rel=1e-12), stem


def test_the_best_few_are_the_first_of_all(edited):
    with connect(edited.paths.database) as conn:
        whole, few = (shares(conn, ["harbour", "ledger"], NO_LENGTHS, 20.0, n) for n in (999, 7))
    assert [len(found) for found in few] == [7, 7]
    assert [list(found.items()) for found in few] == [list(found.items())[:7] for found in whole]


def test_a_word_with_too_many_places_is_not_read(edited):
    """The others are, with the same shares."""
    with connect(edited.paths.database) as conn:
        whole = bm25.shares(conn, "chunk_fts", ["harbour", "zzz"], WEIGHTS, NO_LENGTHS, 20.0, 10)
        places = conn.execute("SELECT cnt FROM chunk_words WHERE term = 'harbour'").fetchone()[0]
        assert whole[0].df > len(whole[0].passages) == 10
        for most, read in ((places, True), (places - 1, False)):
            first, none = bm25.shares(conn, "chunk_fts", ["harbour", "zzz"], WEIGHTS, NO_LENGTHS, 20.0, 10, most)
            assert (first is not None) == read
            assert none.df == 0
        assert first is None
        alone = bm25.shares(conn, "chunk_fts", ["harbour"], WEIGHTS, NO_LENGTHS, 20.0, 10, places)[0]
        assert (alone.shares == whole[0].shares).all()


def test_words_that_occur_nowhere_find_nothing(edited):
    """Between others, and alone; in an index without a note as well."""
    with connect(edited.paths.database) as conn:
        none, some, last = shares(conn, ["zzz", "ledger", "zzy"], NO_LENGTHS, 20.0, 10)
        assert (none, len(some), last) == ({}, 10, {})
        assert shares(conn, ["zzz"], NO_LENGTHS, 20.0, 10) == [{}]
        assert shares(conn, [], NO_LENGTHS, 20.0, 10) == []


def test_an_empty_index_has_averages(index):
    with connect(index.paths.database) as conn:
        assert bm25.averages(conn, "chunk_fts") == (0, 1.0)


def lengths_of(view):
    return {chunk: int(view.chunks.lengths[chunk]) for note in view.cards for chunk in view.chunks.chunks_of(note)}


def test_lengths_follow_edits(index):
    """A passage's length changes with its note's title too, though its text and its id stay."""
    index.write_all({"a.md": "# One\n\nThe same text.\n", "b.md": "# Two\n\nAnother text.\n"})
    view = View()
    with connect(index.paths.database) as conn:
        load_notes(conn, view)
        before = lengths_of(view)
    index.write("a.md", "# One title that is much longer\n\nThe same text.\n")
    index.write("c.md", "# Three\n\nNew.\n")
    with connect(index.paths.database) as conn:
        assert apply_changes(conn, view, notes.revision(conn))
        fresh = View()
        load_notes(conn, fresh)
        assert lengths_of(view) == lengths_of(fresh) == dict(bm25.lengths_of(conn))
        assert sum(lengths_of(view).values()) > sum(before.values())
        held = set(lengths_of(view))
        assert not [
            chunk for chunk in range(len(view.chunks.lengths)) if view.chunks.lengths[chunk] and chunk not in held
        ]


def test_the_past_knows_lengths_of_both_tables(index):
    """What is superseded now stands in a table of its own."""
    index.write_all({"a.md": "# One\n\nWhat was said first.\n", "b.md": "# Two\n\nWhat stays.\n"})
    when = index.now_ms
    index.now_ms += 86_400_000
    index.write("a.md", "# One\n\nSomething else.\n")
    view = View()
    with connect(index.paths.database) as conn:
        load_past_notes(conn, view, when)
        tables = [dict(bm25.lengths_of(conn, None, table)) for table in bm25.TABLES]
    assert all(tables)
    assert lengths_of(view) == {chunk: (tables[0] | tables[1])[chunk] for chunk in lengths_of(view)}
    assert set(lengths_of(view)) & set(tables[1])
