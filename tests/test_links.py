"""memory/notes/links.py: what is a link, and what only looks like one."""

import pytest
from recalld.memory.notes.parse import parse


def links_of(text, kind=None):
    note, _ = parse("n.md", text.encode())
    return [link for link in note.links if kind is None or link.kind == kind]


def targets(text):
    return [link.target for link in links_of(text)]


@pytest.mark.parametrize(
    ("text", "target", "heading", "block", "alias"),
    [
        ("[[alpha]]", "alpha", "", "", ""),
        ("[[ alpha ]]", "alpha", "", "", ""),
        ("[[ALPHA]]", "ALPHA", "", "", ""),
        ("[[alpha#Part|shown]]", "alpha", "Part", "", "shown"),
        ("[[alpha#^b1]]", "alpha", "", "b1", ""),
        ("[[sub/beta]]", "sub/beta", "", "", ""),
        ("[[./sub/beta]]", "./sub/beta", "", "", ""),
        ("[[alpha.md]]", "alpha.md", "", "", ""),
        ("[[#Here]]", "", "Here", "", ""),
        ("[[my%20note]]", "my note", "", "", ""),
        ("[[100%]]", "100%", "", "", ""),
        ("[[a|the `x` call]]", "a", "", "", "the  call"),
        ("[[Заметка]]", "Заметка", "", "", ""),
        ("[[生存]]", "生存", "", "", ""),
        ("[[🚀 launch]]", "🚀 launch", "", "", ""),
        ("[[v1.2 plan]]", "v1.2 plan", "", "", ""),
        ("up:: [[alpha]]", "alpha", "", "", ""),
        ("| [[alpha\\|label]] |", "alpha", "", "", "label"),
        ("| a |\n|---|\n| [[alpha\\|label]] |", "alpha", "", "", "label"),
    ],
)
def test_wikilinks(text, target, heading, block, alias):
    """Every spelling of a wikilink gives its parts."""
    (link,) = links_of(text)
    assert (link.kind, link.target, link.heading, link.block, link.alias) == (
        "wikilink", target, heading, block, alias,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "target", "heading"),
    [
        ("[label](alpha.md)", "alpha.md", ""),
        ("[label](../a/my%20note.md#Part%20one)", "../a/my note.md", "Part one"),
        ("[label](<my note.md> 'title')", "my note.md", ""),
        ("[label](note)", "note", ""),
        ("[label](#here)", "", "here"),
        ("[label](a(b).md)", "a(b).md", ""),
        ("[label][ref]\n\n[ref]: sub/x.md", "sub/x.md", ""),
        ("[a\nb](x.md)", "x.md", ""),
    ],
)
def test_markdown_links(text, target, heading):
    """Relative markdown links, decoded; references too."""
    (link,) = links_of(text)
    assert (link.kind, link.target, link.heading) == ("markdown", target, heading)


@pytest.mark.parametrize(
    "text",
    [
        "[x](https://example.com/a.md)", "[x](mailto:a@b.c)", "[x](//host/a.md)", "[x](file.pdf)", "[x](folder/)",
        "![](pic.png)", "![[pic.png]]", "[x]()", "<https://a.b>", "\\[[x]]", "[[]]", "[[ ]]", "[[a", "[ [a]]",
        "`[[alpha]]`", "`` `[[alpha]]` ``", "`[[` x `]]`", "    [[alpha]]", "\t[[alpha]]",
        "```\n[[alpha]]\n```", "~~~\n[[alpha]]\n~~~", "```\n[[alpha]]\nnever closed", "````\n```\n[[a]]\n```\n[[b]]\n````",
        "- item\n\n      [[alpha]]", "> ```\n> [[alpha]]\n> ```", "```bash\nif [[ -n \"$a\" && -f b ]]; then\n```",
        "<!-- [[alpha]] -->", "<!--\n\n[[alpha]]\n\n-->", "a <!-- [[alpha]] --> b", "<div>\n<!-- [[a]] -->\n</div>",
        "<pre>\n[[alpha]]\n</pre>", "%%[[alpha]]%%", "%%\n[[alpha]]\n[x](y.md)\n%%", "$[[alpha]]$", "$$\n[[alpha]]\n$$",
        "if [[ -f x ]]; then", "while [[ $a == b ]]", "[[ a == b ]]", "[[ ! -e x ]]",
        "[[alpha and no end\n\nmore | text ] here", "`[x](a.md)`",
    ],
)  # fmt: skip
def test_not_links(text):
    """Code, comments, math, shell tests, attachments, the web, and unfinished brackets are no links."""
    assert links_of(text) == []


def test_a_price_is_no_math():
    """Dollar amounts do not hide what stands between them."""
    assert targets("costs $5 and [[x]] or $6") == ["x"]


def test_embeds():
    """An embedded note is a link of its own kind."""
    assert [(link.kind, link.target) for link in links_of("![[a]] ![b](c.md)")] == [("embed", "a"), ("embed", "c.md")]


def test_a_sentence_is_no_relation():
    """Links in prose are plain links, all of them; only a line that says a relation and nothing else is one."""
    text = (
        "- Added [[Target]] to the roster and [[Other]]\n- supersedes [[Old]]\n- this supersedes [[Older]]\n"
        "fixes:: [[A]], [[B]]\n"
    )
    assert [(link.kind, link.target, link.line) for link in links_of(text)] == [
        ("wikilink", "Target", 1), ("wikilink", "Other", 1), ("supersedes", "Old", 2), ("wikilink", "Older", 3),
        ("fixes", "A", 4), ("fixes", "B", 4),
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_numbers(end, mark):
    """Lines count from the top of the file, frontmatter and byte order mark included, for each line end."""
    text = f"{mark}---\ntitle: é\n---\n\n# é [[one]]\n\n```\n[[no]]\n```\nü [two](two.md)\n[[three]]\n".replace(
        "\n", end
    )
    assert [(link.target, link.line) for link in links_of(text)] == [("one", 5), ("two.md", 10), ("three", 11)]


def test_frontmatter_links():
    """Links in frontmatter have line 0; relations are typed, quoted or bare, in either form."""
    text = """---
superseded_by: "[[new]]"
supersedes: [[old]]
fixes:
  - bug.md
  - "[[other bug|shown]]"
relations:
  causes: ["[[c1]]", c2]
  contradicts: "[x](d.md)"
  mentions: "[[m]]"
up: [[parent]]
related: "see [[r1]] and [[r2]]"
title: plain text
---
"""
    assert [(link.kind, link.target) for link in links_of(text)] == [
        ("superseded_by", "new"), ("supersedes", "old"), ("fixes", "bug.md"), ("fixes", "other bug"), ("causes", "c1"),
        ("causes", "c2"), ("contradicts", "d.md"), ("wikilink", "m"), ("wikilink", "parent"), ("wikilink", "r1"),
        ("wikilink", "r2"),
    ]  # fmt: skip
    assert all(link.line == 0 for link in links_of(text))


def test_relations_as_a_list():
    """``relations`` may be a list of maps."""
    text = (
        '---\nrelations:\n  - {type: superseded-by, target: "[[x]]"}\n  - {kind: fixes, target: y}\n  - "[[z]]"\n---\n'
    )
    assert [(link.kind, link.target) for link in links_of(text)] == [
        ("superseded_by", "x"), ("fixes", "y"), ("wikilink", "z"),
    ]  # fmt: skip


def test_links_are_bounded():
    """A generated index of links is cut, in bounded time."""
    assert len(links_of("[[a]] [[b]]\n" * 100_000)) <= 5_000
