"""actors/query/streams: what SQLite finds, on real databases filled by the writer's records."""

import numpy as np
import pytest
from recalld.actors.query.reader import connect
from recalld.actors.query.streams import bm25, events, fulltext, notes, past, vectors
from recalld.memory.recall.tokens import query_terms

from .indexing import Index, embed


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path)
    yield made
    made.close()


@pytest.fixture
def find(index):
    conns = []

    def run(query, params=None, allowed=None, past_too=False):
        conn = connect(index.paths.database)
        conns.append(conn)
        total = conn.execute("SELECT count(*) FROM chunk_fts").fetchone()[0]
        lengths = np.zeros(10_000, np.int32)
        for table in bm25.TABLES:
            for chunk, tokens in bm25.lengths_of(conn, None, table):
                lengths[chunk] = tokens
        return fulltext.find(
            conn,
            query_terms(query),
            params or fulltext.TextParams(),
            fulltext.Frequencies(),
            revision=index.revision,
            chunks_total=total,
            lengths=lengths,
            allowed=allowed,
            past=past_too,
        )

    yield run
    for conn in conns:
        conn.close()


def scores(found, term):
    """Chunk -> score of one term, best first."""
    return dict(zip(*map(np.ndarray.tolist, found.matches[term]), strict=True))


def paths_of(index, chunks):
    sql = "SELECT n.path FROM chunks AS c JOIN notes AS n ON n.id = c.note_id WHERE c.id = ?"
    return [index.conn.execute(sql, (chunk,)).fetchone()[0] for chunk in chunks]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Ticket PROJ-1234 is open.", "PROJ-1234"),
        ("See docs/setup/README.md first.", "docs/setup/README.md"),
        ('He said "never again" twice.', '"never again"'),
        ("Released on 2026-03-31.", "2026-03-31"),
        ("Call foo_bar(baz) at the end.", "foo_bar(baz)"),
        ("Wildcards like * and NEAR are words here.", "NEAR *"),
        ("C++ and C# differ.", "what about C++ (and C#)?"),
        ("適者生存の法則について", "生存"),
        ("東京に行った", "京"),
        ("한국어 문서를 검색한다", "검색"),
        ("O coração é são.", "coracao"),
        ("Die Straße ist lang.", "STRASSE"),
        ("it's the user's problem", "user's AND NOT ^ : {x}"),
    ],
)
def test_any_input_is_words_and_finds_them(index, find, text, query):
    """Punctuation, ids, paths, quotes, operators and scripts without spaces are looked for, never parsed as syntax."""
    index.write_all({"hit.md": text, "other.md": "Nothing of the sort stands here."})
    assert "hit.md" in paths_of(index, find(query).sums)


@pytest.mark.parametrize("query", ["", "   ", "!!!", '"', "()", "*", "\0", "-", "🙂"])
def test_a_question_without_words_finds_nothing(index, find, query):
    """What holds no word is an empty result, not an error."""
    index.write("a.md", "Some text.")
    assert not find(query).sums


def test_each_term_is_scored_by_itself(index, find):
    """The scores of a term are its own BM25, so that what matched is known; df counts chunks over the whole index."""
    index.write_all({"a.md": "apples and pears", "b.md": "apples only", "c.md": "plums"})
    found = find("apples pears quinces")
    assert found.df["apples"] == 2
    assert found.df["pears"] == 1
    assert found.df["quinces"] == 0
    assert sorted(paths_of(index, scores(found, "apples"))) == ["a.md", "b.md"]
    assert paths_of(index, scores(found, "pears")) == ["a.md"]
    assert "quinces" not in found.matches
    assert all(score > 0 for score in scores(found, "pears").values())


def test_a_word_in_the_title_counts_for_more(index, find):
    """Of two notes with the word, the one that is called by it scores higher."""
    index.write_all(
        {"body.md": "# Other\n\nThe zeppelin landed.", "zeppelin.md": "# Zeppelin\n\nThe thing landed here."}
    )
    matches = scores(find("zeppelin"), "zeppelin")
    assert paths_of(index, sorted(matches, key=matches.get, reverse=True))[0] == "zeppelin.md"


def test_common_words_are_left_out_where_rarer_ones_are_there(index, find):
    """A word of most chunks is not searched beside a telling one, and is searched alone."""
    index.write_all({f"n{i}.md": f"standard text number {i} xylophone{i}" for i in range(80)})
    assert set(find("standard xylophone7").matches) == {"xylophone7"}
    assert set(find("standard").matches) == {"standard"}


def test_how_a_word_is_counted_makes_no_difference(index, find, monkeypatch):
    """By its places, which are read anyway, or, of a common word or one of many, by the table of words: first or not."""
    index.write_all({f"n{i}.md": f"standard text number {i} xylophone{i % 9} " + "text " * (i % 5) for i in range(80)})
    query = "standard text number 7 xylophone7 quinces text-number"
    by_places = find(query)
    monkeypatch.setattr(fulltext, "PLACES_MAX", 20)
    some = find(query)
    alone = find("standard text")
    monkeypatch.setattr(fulltext, "PLACES_MAX", -1)
    none = find(query)
    assert by_places.df == some.df == none.df
    assert by_places.matches.keys() == some.matches.keys() == none.matches.keys() == {"7", "xylophone7"}
    for term in by_places.matches:
        assert scores(by_places, term) == scores(some, term) == scores(none, term)
    assert alone.df == {"standard": 80, "text": 80}
    assert len(scores(alone, "standard")) == len(scores(alone, "text")) == 80


def test_frequencies_are_those_of_one_revision(index):
    index.write_all({"a.md": "apples", "b.md": "apples and pears"})
    frequencies = fulltext.Frequencies()
    with connect(index.paths.database) as conn:
        frequencies.learn({"appl": 7}, 3)
        assert frequencies.of(conn, {"appl", "pear"}, 3) == {"appl": 7, "pear": 1}
        assert frequencies.known("appl", 4) == 0
        assert frequencies.of(conn, {"appl", "pear", "plum"}, 4) == {"appl": 2, "pear": 1, "plum": 0}
        assert frequencies.known("appl", 4) == 2


def test_the_best_few_are_those_of_all(index, find):
    """A word of more passages than are wanted gives the best of them, with the scores that they have among all."""
    index.write_all(
        {f"n{i}.md": f"zeppelin {'airship ' * (i % 7)}number {i} " + "filler " * (i % 5) for i in range(40)}
    )
    all_of_them = scores(find("zeppelin"), "zeppelin")
    few = scores(find("zeppelin", fulltext.TextParams(rows=9)), "zeppelin")
    assert len(all_of_them) == 40
    assert list(few.items()) == sorted(all_of_them.items(), key=lambda pair: -pair[1])[:9]


def test_only_notes_that_may_answer_are_found(index, find):
    """A filter is applied to all matches, not to the best few of the whole index."""
    index.write_all({f"n{i:03}.md": "needle " * (3 if i else 1) + "hay" for i in range(40)})
    wanted = index.conn.execute("SELECT c.id FROM chunks c JOIN notes n ON n.id = c.note_id WHERE path = 'n000.md'")
    chunk = wanted.fetchone()[0]
    found = find("needle", fulltext.TextParams(rows=5), allowed=lambda c: c == chunk)
    assert list(scores(found, "needle")) == [chunk]


def test_superseded_text_is_found_in_the_past_only(index, find):
    """After an edit the old words are gone from current full text and still there for the past."""
    index.write("a.md", "The launch is in March.")
    index.later(1)
    index.write("a.md", "The launch is in April.")
    assert not find("march").sums
    assert scores(find("march", past_too=True), "march")


def test_edits_do_not_inflate_scores(index, find):
    """A note scores the same whether the index was just built or has seen every note rewritten many times."""
    texts = {f"n{i}.md": f"common words and word{i % 5} here" for i in range(12)}
    index.write_all(texts)
    fresh = scores(find("word3"), "word3")
    for turn in range(6):
        index.later(1)
        index.write_all({path: f"{text} {turn}" for path, text in texts.items()})
    index.later(1)
    index.write_all(texts)
    again = scores(find("word3"), "word3")
    assert sorted(again.values()) == pytest.approx(sorted(fresh.values()), rel=0.05)


def test_versions_are_current_in_their_interval(index):
    """``notes_at`` gives the version that stood at that time, and nothing of files that were not there."""
    index.write("a.md", "# First")
    first = index.now_ms
    second = index.later(2)
    index.write("a.md", "# Second")
    index.write("b.md", "# New")
    third = index.later(2)
    index.drop("a.md")
    at = {when: sorted(row.card.title for row in past.notes_at(index.conn, when)) for when in (first, second, third)}
    assert at == {first: ["First"], second: ["New", "Second"], third: ["New"]}
    assert [row.card.title for row in past.notes_at(index.conn, first - 1)] == []
    assert past.earliest_ms(index.conn) == first


def test_cards_carry_what_ranking_needs(index):
    """A card has the note's fields; links come beside it; problems are listed."""
    index.write(
        "decisions/use-sqlite.md",
        "---\ntitle: Use SQLite\naliases: [the db decision]\ntags: [Storage]\nstatus: accepted\ndate: 2026-03-01\n---\n"
        "We use [[SQLite]].\n",
    )
    index.write("bad.md", "---\n: : nope\n  - x: [\n---\nbody\n")
    rows = {row.card.path: row for row in notes.current_notes(index.conn)}
    card = rows["decisions/use-sqlite.md"].card
    assert (card.title, card.kind, card.status, card.date) == ("Use SQLite", "decision", "accepted", "2026-03-01")
    assert (card.aliases, card.tags) == (("the db decision",), ("storage",))
    assert [link.target for link in rows["decisions/use-sqlite.md"].links] == ["SQLite"]
    assert [path for _, path, _ in notes.problems(index.conn)] == ["bad.md"]


def test_changes_since_a_revision(index):
    """Only versions that changed after a revision are listed: new ones, moved ones, superseded ones."""
    index.write_all({"a.md": "# A", "b.md": "# B", "c.md": "# C"})
    seen = index.revision
    index.later(1)
    index.write("a.md", "# A2")
    index.move("b.md", "sub/b.md")
    index.drop("c.md")
    changed = [(row.card.title, row.card.path, row.current) for row in notes.notes_since(index.conn, seen)]
    assert sorted(changed) == [
        ("A", "a.md", False), ("A2", "a.md", True), ("B", "sub/b.md", True), ("C", "c.md", False)
    ]  # fmt: skip
    assert notes.count_current(index.conn) == 2


def test_vectors_of_chunks_and_sentences(index):
    """Chunks have one vector by hash, sentences several with their slices; a delta has what came after a revision."""
    index.write("a.md", "One sentence stands here. Another one follows it.")
    assert vectors.active_model(index.conn) is None
    before = index.revision
    index.embed()
    model = vectors.active_model(index.conn)
    assert model is not None
    (fresh,) = vectors.since(index.conn, model.id, before)
    assert list(vectors.of_chunks(index.conn, model.id, [fresh[0], b"x" * 16])) == [fresh]
    spoken = vectors.sentences(index.conn, model.id, [fresh[0]])
    text = index.conn.execute("SELECT text FROM chunks").fetchone()[0]
    assert [text[row.char_from : row.char_to] for row in spoken] == [
        "One sentence stands here.", "Another one follows it."
    ]  # fmt: skip
    assert vectors.since(index.conn, model.id, index.revision) == []
    assert len(spoken[0].vec) == 2 * embed("x").size


def test_events_are_found_by_any_word(index):
    """Raw events answer where no page does: best match first, within a project and up to a time."""
    for seq, (project, at, body) in enumerate(
        [("a", 10, "fix the flux capacitor"), ("b", 20, "flux flux flux"), ("a", 30, "unrelated words")], 1
    ):
        index.conn.execute(
            "INSERT INTO events (seq, event_id, session, host, kind, at_ms, project, event) VALUES (?,?,?,?,?,?,?,?)",
            (seq, f"e{seq}", "s", "claude", "user-prompt", at, project, b""),
        )
        index.conn.execute("INSERT INTO event_fts (rowid, body) VALUES (?, ?)", (seq, body))
    terms = query_terms("flux capacitor?")
    assert [row.seq for row in events.find(index.conn, terms, 5)] == [1, 2]
    assert [row.seq for row in events.find(index.conn, terms, 5, project="b")] == [2]
    assert [row.seq for row in events.find(index.conn, terms, 5, until_ms=15)] == [1]
    assert events.find(index.conn, [], 5) == []
