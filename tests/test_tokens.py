"""memory/recall/tokens.py against a real FTS5."""

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recalld.memory.recall.tokens import bare, fold, index_text, query_terms, sentences, stem, words_of

try:
    import pysqlite3 as sqlite3
except ImportError:
    import sqlite3

TOKENIZE = "tokenize='porter unicode61 remove_diacritics 2'"


@contextlib.contextmanager
def fts(*texts):
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE t USING fts5 (body, {TOKENIZE})")
        db.execute("CREATE VIRTUAL TABLE words USING fts5vocab (t, 'row')")
        db.executemany("INSERT INTO t (body) VALUES (?)", [(index_text(text),) for text in texts])
        yield db


def found(db, query):
    """How many of the query's terms match any row."""
    terms = query_terms(query)
    return terms, [db.execute("SELECT count(*) FROM t WHERE t MATCH ?", (term.fts,)).fetchone()[0] for term in terms]


@pytest.mark.parametrize("query", ["止", "止损", "即适者生存", "生存", "適者生存", "設備", "存"])
def test_chinese_of_any_length_is_found(query):
    """One, two and four characters hit, at the start, in the middle and at the end of a run."""
    with fts("即适者生存，生存等于止损", "適者生存は設備") as db:
        _, counts = found(db, query)
    assert counts
    assert any(counts)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("データベースの移行", "移行"),
        ("ﾃﾞｰﾀﾍﾞｰｽ", "データベース"),
        ("데이터베이스를 옮긴다", "데이터"),
        ("ฐานข้อมูลอยู่ที่ไหน", "ข้อมูล"),
        ("Straße nach Überlingen", "STRASSE uberlingen"),
        ("Cafe\u0301 São Paulo", "café sao"),
        ("зелёный чай", "зеленый"),
        ("use Python数据库 now", "python"),
        ("use Python数据库 now", "数据"),
        ("ＡＢＣ１２３", "abc123"),
    ],
)
def test_scripts_and_forms_meet(text, query):
    """Both sides are brought to the same form."""
    with fts(text) as db:
        terms, counts = found(db, query)
    assert terms
    assert all(counts)


@pytest.mark.parametrize("mark", [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "\0", "“", "’", "—"])
def test_punctuation_is_never_syntax(mark):
    """Each mark inside, before, after and alone is text."""
    with fts("alpha beta gamma") as db:
        for query in (f"alpha{mark}beta", f"{mark}alpha", f"beta{mark}", mark, f"alpha {mark} gamma", mark * 3):
            terms, counts = found(db, query)
            assert all(counts), query
            assert terms or not any(letter.isalnum() for letter in query)


@pytest.mark.parametrize(
    "query", ["AND", "a NEAR b", "NOT x OR y", "title: x", "col:*", '"', "x*", "(", "^a", "{a b}:c"]
)
def test_keywords_of_fts_are_text(query):
    """Words that mean something to FTS5 mean nothing here."""
    with fts("nothing") as db:
        found(db, query)


def test_ids_dates_and_paths_match_as_phrases():
    """A split word is looked for as a whole first."""
    text = "see 1.0.21, docs/setup.md, PROJ-1234, 2025-01-13 and snake_case_name; don't use C++"
    with fts(text) as db:
        for query in ("1.0.21", "docs/setup.md", "PROJ-1234", "2025-01-13", "snake_case_name"):
            terms, counts = found(db, query)
            assert terms[0].kind == "phrase"
            assert all(counts)
    assert [term.text for term in query_terms("don't C++")] == ["c"]


def test_stop_words_are_dropped_unless_there_is_nothing_else():
    """Question words go, names stay; a question of stop words only is still a question."""
    assert [t.text for t in query_terms("What is kept next to the Foo and which thing needs a Bar?")] == [
        "kept", "next", "foo", "thing", "needs", "bar",
    ]  # fmt: skip
    assert [t.text for t in query_terms("The The")] == ["the"]
    assert [t.text for t in query_terms("Quando foi que não usamos o Redis?")] == ["usamos", "redis"]
    assert [t.text for t in query_terms("Wer ist für die Datenbank zuständig")] == ["datenbank", "zustandig"]
    assert [t.text for t in query_terms("кто отвечает за базу")] == ["отвечает", "базу"]


def test_capitals_are_names():
    """A stop word in capitals is kept, unless the whole question shouts."""
    assert [t.text for t in query_terms("What does the WHO say to IT?")] == ["who", "say", "it"]
    assert [t.text for t in query_terms("WHO IS THE OWNER")] == ["owner"]


def test_a_foreign_stop_word_alone_is_a_word():
    """German "die" in an English question is English."""
    assert [t.text for t in query_terms("when did the server die")] == ["server", "die"]


def test_long_questions_are_bounded():
    """A pasted page makes a bounded number of terms."""
    assert len(query_terms("word%d " * 3 + " ".join(f"w{n}" for n in range(200_000)))) == 64


WORDS = [
    "running",
    "flies",
    "relational",
    "happiness",
    "caresses",
    "ponies",
    "agreed",
    "plastered",
    "motoring",
    "sensational",
    "hopefulness",
    "formalize",
    "electricity",
    "adjustment",
    "activate",
    "bowdlerize",
    "rate",
    "cease",
    "controller",
    "roll",
    "generalizations",
    "oscillators",
    "sky",
    "skies",
    "dying",
    "news",
    "database",
    "databases",
    "configuration",
    "zustandig",
    "muller",
    "naive",
    "possibly",
    "incredibly",
    "technology",
    "ontologies",
    "apologise",
    "2024",
    "v2",
    "abc123",
    "x86",
    "ied",
]


def test_stems_are_those_of_fts5():
    """``Term.stem`` is the row of fts5vocab, so that document frequencies are found."""
    with fts(" ".join(WORDS)) as db:
        stored = {row[0] for row in db.execute("SELECT term FROM words")}
    assert {stem(word) for word in WORDS} == stored


@given(st.text(st.characters(max_codepoint=0x2FFFF, exclude_categories=("Cn", "Co", "Cs")), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_finds_itself(text):
    """What is indexed is found by its own words, whatever they are; no text is a syntax error."""
    with fts(text) as db:
        terms, counts = found(db, text)
        stored = {row[0] for row in db.execute("SELECT term FROM words")}
    for term, count in zip(terms, counts, strict=True):
        assert count or not stored.issuperset(term.stems), term


def test_fold():
    """Names that people take for equal are equal."""
    assert fold("STRASSE") == fold("Straße")
    assert fold("e\u0301tude") == fold("ÉTUDE") == "etude"
    assert fold("が") == fold("か\u3099") != fold("か")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("See Dr. Who e.g. at 1.0.21. Next.", ["See Dr. Who e.g. at 1.0.21.", "Next."]),
        ("J. Doe came. He left.", ["J. Doe came.", "He left."]),
        ("wrapped\nline. Next\none", ["wrapped\nline.", "Next\none"]),
        ("- a\n- b\n  1. c", ["- a", "- b", "1. c"]),
        ("适者生存。生存！", ["适者生存。", "生存！"]),
        ("「行く。」次。", ["「行く。」", "次。"]),
        ("Что это? Это он.", ["Что это?", "Это он."]),
        ("यह है। वह।", ["यह है।", "वह।"]),
        ("a\n\nb\n\n\nc", ["a", "b", "c"]),
        ('He said "No." Then left.', ['He said "No."', "Then left."]),
        ("  \n ", []),
        ("", []),
    ],
)
def test_sentences(text, expected):
    """Sentences in several scripts; abbreviations, initials and versions do not end one."""
    assert [text[a:b] for a, b in sentences(text)] == expected


@given(st.text(alphabet=[chr(code) for code in range(128)]))
def test_bare_words_stand_where_they_stood(text):
    """The words of the text, each at its place."""
    plain = bare(text)
    assert plain.split() == words_of(fold(text))
    assert len(plain) == len(text) + 2
    assert all(plain[at + 1] in (char.lower(), " ") for at, char in enumerate(text))


def test_a_row_of_dots_is_read_once():
    """As in a table of contents: tried from each of its dots, a long one took minutes."""
    assert sentences(". " + "." * 100_000 + "x")[0] == (0, 1)


@given(
    st.lists(st.sampled_from(("a", "Ab", "No", "dept", "7", "字", "etc", "[x]", "`c`"))),
    st.sampled_from(("\n", "\r\n", "\n\n", " ")),
)
def test_white_space_at_the_end_changes_no_sentence(words, end):
    """Whether the last full stop is followed by anything or not."""
    text = ". ".join(words)
    assert sentences(text + end) == sentences(text.rstrip())


@given(st.text(alphabet="aB .!?。\n-#1é字\t", max_size=200) | st.just("x" * 5000) | st.just("ab " * 900))
@settings(max_examples=300, deadline=None)
def test_sentences_lose_nothing(text):
    """Spans are ordered, disjoint, trimmed, bounded, and hold everything but white space."""
    spans = sentences(text)
    assert all(a < b for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in itertools.pairwise(spans))
    assert "".join("".join(text[a:b].split()) for a, b in spans) == "".join(text.split())
    assert all(text[a:b] == text[a:b].strip() and b - a <= 600 for a, b in spans)
