"""memory/notes/chunks.py: passages follow headings, are bounded, and lose nothing."""

import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recalld.memory.notes.chunks import TARGET_TOKENS, cut_line, tokens_of, words_of
from recalld.memory.notes.parse import parse


def chunks_of(text, path="name.md"):
    return parse(path, text.encode())[1]


def words(n, word="word"):
    return " ".join(f"{word}{i}" for i in range(n))


def test_a_short_section_is_one_chunk_with_its_path():
    """Chunks carry title and heading path; a heading without text goes with the section below it."""
    chunks = chunks_of("# Title\n\nIntro.\n\n## Part\n\n### Sub\n\ntext\n\n## Other\nmore\n")
    assert [(chunk.context, chunk.text, chunk.line_from, chunk.line_to) for chunk in chunks] == [
        ("Title", "# Title\n\nIntro.", 1, 3),
        ("Title > Part > Sub", "## Part\n\n### Sub\n\ntext", 5, 9),
        ("Title > Other", "## Other\nmore", 11, 12),
    ]
    assert [chunk.ordinal for chunk in chunks] == [0, 1, 2]


def test_titles_in_context():
    """A title from frontmatter stands before another first heading, once; one from the file name is left out."""
    assert chunks_of("---\ntitle: T\n---\n# H\nx")[0].context == "T > H"
    assert chunks_of("---\ntitle: T\n---\n# t\nx")[0].context == "t"
    assert chunks_of("x")[0].context == ""
    assert chunks_of("## H\nx")[0].context == "H"


PLAIN = [" ", "word", "a", "x" * 40, "two words "]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([PLAIN, [*PLAIN, "  "], [*PLAIN, "\t"], [*PLAIN, *"\t\x0b\x1c\u00a0\u2028é"]]).flatmap(
    lambda parts: st.lists(st.sampled_from(parts), min_size=1, max_size=20).map("".join)
))  # fmt: skip
def test_words_are_counted_as_they_are_split(line):
    """Lines of plain prose are counted in another way, to the same number."""
    assert words_of([line]) == [len(line.split())]


def test_renaming_keeps_hashes():
    """Moving a file without a title of its own changes no chunk."""
    text = f"{words(500)}\n\n## H\n\ntext"
    assert chunks_of(text, "a.md") == chunks_of(text, "b/c.md")


def test_hash():
    """The hash is of what is embedded."""
    (chunk,) = chunks_of("# T\nx")
    assert chunk.hash == hashlib.blake2b(b"T\n# T\nx", digest_size=16).digest()


def test_an_edit_changes_one_chunk():
    """Chunks of untouched sections keep their hashes."""
    before = chunks_of("# T\n\na\n\n## B\n\nb\n\n## C\n\nc\n")
    after = chunks_of("# T\n\na\n\n## B\n\nchanged\n\n## C\n\nc\n")
    assert len({chunk.hash for chunk in before} - {chunk.hash for chunk in after}) == 1


def test_long_sections_are_cut_between_paragraphs():
    """Paragraphs stay whole where they fit."""
    paragraphs = [words(60, f"p{n}") for n in range(8)]
    chunks = chunks_of("\n\n".join(paragraphs))
    assert len(chunks) == 4
    assert "\n\n".join(chunk.text for chunk in chunks) == "\n\n".join(paragraphs)


def test_a_code_block_stays_whole():
    """A code block that fits is not cut at its empty lines."""
    code = "```python\n" + "\n\n".join(words(10, f"c{n}") for n in range(8)) + "\n```"
    chunks = chunks_of(f"{words(120)}\n\n{code}\n\n{words(120)}")
    assert code in [chunk.text for chunk in chunks]


def test_short_notes_are_indexed():
    """No floor: a few characters are a chunk, in any script."""
    assert [chunk.text for chunk in chunks_of("buy oat milk")] == ["buy oat milk"]
    assert [chunk.text for chunk in chunks_of("止损")] == ["止损"]
    assert chunks_of("") == chunks_of("\n \n") == ()


def test_frontmatter_words_are_found():
    """Words in fields of the user's own are a chunk of the frontmatter's lines; plain metadata is not."""
    chunks = chunks_of("---\ntitle: T\nowner: Ana Sousa\n---\nbody\n")
    assert [(chunk.text, chunk.line_from, chunk.line_to) for chunk in chunks] == [
        ("body", 5, 5), ("title: T\nowner: Ana Sousa", 2, 3),
    ]  # fmt: skip
    assert len(chunks_of("---\ntitle: T\ntype: x\nsynthetic: true\ncount: 3\n---\nbody\n")) == 1
    assert [chunk.text for chunk in chunks_of("---\ntitle: T\n---\n")] == ["title: T"]


@pytest.mark.parametrize("unit", ["word ", "😀", "生存。", "x", "Sentence one. ", "a" * 300 + " ", "é", "生", "ก"])
def test_one_long_line(unit):
    """A line of a megabyte is cut into bounded pieces with its number, without losing a character."""
    text = unit * (1_000_000 // len(unit))
    chunks = chunks_of(f"# T\n\n{text}\n\n## needle\nneedle")
    long = [chunk for chunk in chunks if chunk.line_from == chunk.line_to == 3]
    assert "".join("".join(chunk.text for chunk in long).split()) == "".join(text.split())
    assert all(tokens_of(chunk.text) <= TARGET_TOKENS * 1.5 for chunk in long)
    assert chunks[-1].text == "## needle\nneedle"


def test_five_megabytes_of_lines():
    """A 5 MB note is indexed to its last word."""
    text = "\n".join(words(12) for _ in range(60_000)) + "\nneedle"
    chunks = chunks_of(text)
    assert chunks[-1].text.endswith("needle")
    assert "\n".join(chunk.text for chunk in chunks) == text


LINES = st.sampled_from(
    ["", "", "# H", "## H2", "### H3", "text here", words(80), words(300), "- item", "```", "| a | b |", "Set", "===", "---",
     "    code", "> q", "生存" * 150, "\x0c", "a\u2028b", "\x85"]
)  # fmt: skip


@example(lines=["```", "生存" * 150, "", words(300)], head="")
@given(st.lists(LINES, max_size=40), st.sampled_from(["", "---\ntitle: x\n---\n", "---\nbad: [\n---\n"]))
@settings(max_examples=400, deadline=None)
def test_nothing_is_lost(lines, head):
    """Every line with text is in exactly one chunk, verbatim, in order, under the number that the chunk says."""
    if not head and lines[:1] == ["---"]:
        lines = ["text", *lines]
    text = head + "\n".join(lines)
    file_lines = text.split("\n")
    skip = 3 if head.startswith("---\ntitle") else 0
    seen = []
    for chunk in chunks_of(text):
        assert 1 <= chunk.line_from <= chunk.line_to <= len(file_lines)
        if skip and chunk.line_to < skip:
            continue
        expected = file_lines[chunk.line_from - 1 : chunk.line_to]
        if chunk.line_from == chunk.line_to:
            assert chunk.text in expected[0]
        else:
            assert chunk.text == "\n".join(expected)
        assert tokens_of(chunk.text) < TARGET_TOKENS * 2.2
        seen.append(chunk.text)
    assert "".join("".join(seen).split()) == "".join("".join(file_lines[skip:]).split())


@given(st.text(alphabet="ab. 。字é\t", max_size=4000))
@settings(max_examples=200, deadline=None)
def test_cut_line_loses_nothing(line):
    """Pieces of a line hold all of it but white space at the cuts."""
    pieces = list(cut_line(line))
    assert "".join("".join(pieces).split()) == "".join(line.split())
    assert all(piece == piece.strip() and piece for piece in pieces)
