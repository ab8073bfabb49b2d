"""memory/notes: decoding, frontmatter, structure, the parsed note."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from recalld.memory.notes import frontmatter, structure
from recalld.memory.notes.parse import is_note, parse


def note_of(text, path="n.md"):
    return parse(path, text if isinstance(text, bytes) else text.encode())[0]


@pytest.mark.parametrize(
    "raw",
    [
        b"---\ntitle: X\n---\nbody",
        b"---\r\ntitle: X\r\n---\r\nbody",
        b"---\rtitle: X\r---\rbody",
        b"\xef\xbb\xbf---\ntitle: X\n---\nbody",
        b"--- \ntitle: X\n---\t\nbody",
        b"---\ntitle: X\n...\nbody",
        b"---\ntitle: 'X'\n---",
        b"---\ntitle: X\ntype: null\ntags:\nstatus: ~\n---\n",
        b"---\nTitle: X\n---\n",
        b"---\ntitle: [X]\n---\n",
        b"---\n\ttitle: X\n---\n",
    ],
)
def test_frontmatter_is_found(raw):
    """Line ends, byte order marks, trailing blanks, nulls and a fence at the end of the file make no difference."""
    note = note_of(raw)
    assert (note.title, note.title_from, note.problem) == ("X", "frontmatter", "")
    assert note.kind == note.status == ""


@pytest.mark.parametrize(
    "text",
    [
        "---\n**ACME LLC**\nName\n---\nbody",
        '---\ntitle: "a "b" c"\n---\nbody',
        "---\ntitle: a: b\n---\nbody",
        "---\n- a\n- b\n---\nbody",
        "---\njust text\n---\nbody",
        "---\ntitle: X\nbody and no end",
        "---\n? [a]\n: b\n---\nbody",
        "---\na: *nowhere\n---\nbody",
        "---\nx: !!python/object/apply:os.system [ls]\n  bad\n---\nbody",
    ],
)
def test_malformed_frontmatter_is_text(text):
    """What is not YAML stays in the body, word for word, and is reported."""
    note, chunks = parse("name.md", text.encode())
    assert "frontmatter" in note.problem
    assert note.title == "name"
    assert " ".join(chunk.text for chunk in chunks).split() == text.split()
    assert chunks[0].line_from == 1


def test_a_rule_is_no_frontmatter():
    """A note that opens with a rule has no problem."""
    assert note_of("---\n\nHello\n").problem == ""


@pytest.mark.parametrize(
    "raw",
    [
        "---\na: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9))
        + "---\n",
        "---\na: &a [~,~,~,~,~,~,~,~,~]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9))
        + "---\n",
        "---\nx: " + "[" * 30_000 + "\n---\n",
        "---\nx: " + "[" * 9_000 + "]" * 9_000 + "\n---\n",
        "---\n" + "- " * 20_000 + "a\n---\n",
        "---\n" + "? " * 20_000 + "a\n---\n",
        "---\n" + "".join(" " * n + "a:\n" for n in range(300)) + "---\n",
        "---\na: &a [*a]\n---\n",
        "---\n" + "a: b\n" * 100_000 + "---\n",
        ("> " * 20_000) + "a",
        ("- " * 20_000) + "a",
        "[" * 300_000,
        "[[" * 200_000,
        "[[a|" * 100_000,
        "[a](" * 100_000,
        "<!--" * 100_000,
        "%%" * 100_001,
        "`" * 300_000,
        "#" * 300_000,
        "# a\n" * 50_000,
        "***" * 100_000,
        "$" * 200_001,
        "A " * 300_000,
        "#a" * 200_000,
        "fixes " + "[[a]] " * 50_000 + "x",
        "| a " * 100_000,
        ". " * 300_000,
        "\n" * 1_000_000,
    ],
    ids=range(28),
)
@pytest.mark.timeout(30)
def test_hostile_notes_end(raw):
    """No note costs more than its length deserves: each of these, up to 1 MB, ends (a bad one takes hours)."""
    parse("n.md", raw.encode())


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        ("Zażółć é 🚀".encode(), "utf-8"),
        ("Zażółć é 🚀".encode("utf-16"), "utf-16-le"),
        (b"\xfe\xff" + "Zażółć é 🚀".encode("utf-16-be"), "utf-16-be"),
        (b"\xff\xfe\x00\x00" + "Zażółć".encode("utf-32-le"), "utf-32-le"),
        ("Some plain words and an é".encode("utf-16-le"), "utf-16-le"),
        ("Some plain words and an é".encode("utf-16-be"), "utf-16-be"),
        ("Übergröße, señor: naïve café".encode("latin-1"), "cp1252"),
        ("“quoted” – 5 €".encode("cp1252"), "cp1252"),
        ("Привет, это заметка про базу".encode("cp1251"), "cp1251"),
        (b"caf\xe9 \x81", "latin-1"),
    ],
)
def test_encodings(raw, encoding):
    """The text comes out right, and how it was read is said."""
    expected = raw.decode(encoding).lstrip("\ufeff")
    note, chunks = parse("n.md", raw)
    assert note.encoding == encoding
    assert note.problem == ""
    assert chunks[0].text == expected


def test_damage_is_reported():
    """A bad byte in UTF-8 costs that byte; NULs are replaced; both are named."""
    note, chunks = parse("n.md", "één\ntwée\ndriß ".encode() + b"\xff end")
    assert note.encoding == "utf-8"
    assert "line 3" in note.problem
    assert chunks[0].text == "één\ntwée\ndriß \ufffd end"
    note, chunks = parse("n.md", b"a\0b words")
    assert "NUL" in note.problem
    assert chunks[0].text == "a\ufffdb words"


@pytest.mark.parametrize(
    "raw", [bytes((n * 7919 + n // 13) % 256 for n in range(20_000)), b"\x89PNG\r\n\x1a\n\0\0" * 50, b"\0" * 999]
)
def test_binary_files_give_no_chunks(raw):
    """Data with the name of a note is reported, not indexed."""
    note, chunks = parse("folder/x.md", raw)
    assert chunks == ()
    assert note.problem
    assert note.title == "x"


def test_fields():
    """Every field that is understood, in the spellings that people use."""
    note = note_of(
        """---
title: 0123
type: Decision
status: Superseded
date: 2024-05-06
updated: 2024-05-07T10:00:00Z
tags: [Database, "#Ops/Cloud", café]
aliases: Foo, Bar Baz
entities:
  - "[[people/ana|Ana]]"
  - Redis
pinned: yes
expires: 2030/1/2
summary: In short.
project: apollo
session_id: s-1
---
# Heading

Met in Lisbon with Ana Sousa and (later) Project Linnet. #idea #1 #fff #a1b2c3 a#b `#code` #Ops/cloud [x](#frag)
""",
        "decisions/2023-01-01 n.md",
    )
    assert note.title == "0123"
    assert (note.kind, note.status, note.date, note.updated) == ("decision", "superseded", "2024-05-06", "2024-05-07")
    assert note.tags == ("database", "ops/cloud", "cafe", "idea", "fff")
    assert note.aliases == ("Foo", "Bar Baz")
    assert note.entities == ("Ana", "Redis", "Foo", "Bar Baz", "Ana Sousa", "Project Linnet")
    assert note.pinned
    assert (note.expires, note.summary, note.project, note.session_id) == ("2030-01-02", "In short.", "apollo", "s-1")
    assert note.headings == ("Heading",)


@pytest.mark.parametrize(
    ("path", "text", "title", "source", "kind", "date"),
    [
        ("a/b/Note x.md", "text", "Note x", "name", "", ""),
        ("decisions/x.MD", "# Real *title* `code` [[a|b]]\n", "Real title code b", "heading", "decision", ""),
        ("p/people/2024-01-02 x.markdown", "## two\n\nSet\n===\n", "Set", "heading", "person", "2024-01-02"),
        ("20240102.md", "> # quoted\n", "20240102", "name", "", "2024-01-02"),
        ("{.md", "", "{", "name", "", ""),
        (".md", "", ".md", "name", "", ""),
        ("Зоны и проекты.md", "\n", "Зоны и проекты", "name", "", ""),
    ],
)
def test_titles_kinds_dates(path, text, title, source, kind, date):
    """Without frontmatter: the first top heading or the name; the folder; the date in the name."""
    note = note_of(text, path)
    assert (note.title, note.title_from, note.kind, note.date) == (title, source, kind, date)


def test_checkboxes_and_timestamps_are_text():
    """Brackets of other trades give neither tags nor links."""
    note = note_of("[24:33.098 - 24:41.260] text\n- [x] task\n- [ ] other\n")
    assert note.tags == note.links == note.entities == ()


def test_is_note():
    """Both suffixes, any case."""
    assert [name for name in ("a.md", "a.MD", "a.Markdown", "a.txt", "md", "a.md.bak") if is_note(name)] == [
        "a.md", "a.MD", "a.Markdown",
    ]  # fmt: skip


YAML_LINES = [
    "title: X", "a:", "b: ", "c: 'q u' ", 'd: "x: y # z"', "e: [a, b c]", "f: [a]", "g: [ a , b.c ]", "h: a [b], {c} & *d",
    "i: true", "j: 0123", "k: 2024-01-02", "l: a  b   ", "m: é ü 字", "  n: x", "- o", "# p", "q: a #b", "r: a: b", "s: |", "",
    "  ", "t: -", "u: a-b - c", "v: 'it''s'", "w: [a, ]", "x: [a - b]", "y: ~", "title: Y", "z: >", "aa: @x", "bb: `x`", "1: x",
    "cc: null", "dd : x", "ee:x", "ff: a\u00a0b", "gg: \u2028", "hh: _x", "ii: ٣", "jj: a'b\"c", "a b: c", "kk: a?b !c %d",
]  # fmt: skip


@given(st.lists(st.sampled_from(YAML_LINES), max_size=5))
@settings(max_examples=800, deadline=None)
def test_plain_frontmatter_agrees_with_yaml(lines):
    """Frontmatter that is read without the YAML parser has the fields that YAML gives it."""
    raw = "\n".join(lines) + "\n"
    plain = frontmatter._plain(raw)
    if plain is not None:
        assert plain == (yaml.load(raw, yaml.BaseLoader) or {})


PIECES = [
    "# H", "## Two words ##", "   ### x", "#nospace", "####### seven", "text", "a b. C", "", "", "- item", "  - sub", "1. one",
    "> quote", "> # in", "- # in", "=== ", "---", "***", "  # two", "[[a]]", "| a | b |", "\\# esc", "# a_b", "# a * b", "| # |",
    "#", "# ", "## #", "a  ", "   indented", "+ x", "é ü 字", "#\u00a0x", "&amp;", "# &amp;", "* * *", "word\x0cword", "#\tx",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12))
@settings(max_examples=600, deadline=None)
def test_the_short_way_agrees_with_the_parser(pieces):
    """Notes that are scanned without the markdown parser have the structure that the parser sees."""
    body = "\n".join(pieces)
    assert structure.scan(body) == structure.parse(body)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_bytes_raise(raw):
    """Any bytes are a note."""
    parse("n.md", raw)
    parse("n.md", b"---\n" + raw + b"\n---\n")
