"""memory/notes/resolve.py: which note a link means."""

import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.notes.resolve import Ambiguous, Missing, Resolved, Resolver
from recalld.protocol.messages.common import Link


class Card(msgspec.Struct, frozen=True):
    id: int
    path: str
    title: str = ""
    aliases: tuple[str, ...] = ()
    vault_id: int = 1


NOTES = [
    Card(1, "alpha.md", "Alpha Title", ("The First",)),
    Card(2, "sub/beta.md", "Beta"),
    Card(3, "sub/deep/gamma.MD", "Gamma"),
    Card(4, "a/twin.md", "Twin"),
    Card(5, "b/twin.md", "Twin"),
    Card(6, "Straße.md", "Straße"),
    Card(7, unicodedata.normalize("NFD", "café.md"), "Café"),
    Card(8, "my note.markdown", "My Note"),
    Card(9, "x/Case.md", "Case"),
    Card(10, "y/case.md", "case"),
    Card(11, "v1.2 plan.md", "CI/CD", ("Pipeline",)),
    Card(12, "x/beta-two.md", "Alpha", ("Beta",)),
    Card(13, "root.md", "Root"),
    Card(14, "sub/root.md", "Sub root"),
    Card(15, "Заметка.md", "Заметка"),
]


def resolve(target, source="sub/beta.md", kind="wikilink", notes=NOTES, vault=1):
    return Resolver(notes).resolve(vault, source, Link(kind=kind, target=target))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("alpha", 1), ("ALPHA", 1), ("alpha.md", 1), ("Alpha Title", 1), ("alpha  title", 1), ("the first", 1), ("sub/beta", 2),
        ("./deep/gamma", 3), ("deep/gamma", 3), ("/sub/beta", 2), ("gamma", 3), ("a/twin", 4), ("STRASSE", 6), ("café", 7),
        ("CAFÉ", 7), ("my note", 8), ("my note.md", 8), ("Case", 9), ("case", 10), ("v1.2 plan", 11), ("CI/CD", 11),
        ("Pipeline", 11), ("beta", 2), ("root", 13), ("заметка", 15), ("", 2), ("../alpha", 1), ("Zwei", None), ("eta", None),
        ("b/eta", None), ("cafe", None), ("twin", (4, 5)), ("CASE", (9, 10)), ("../../../alpha", 1),
    ],
)  # fmt: skip
def test_wikilinks(target, expected):
    """Path, end of path, file name, title, alias, in this order; several that fit are all named."""
    answer = resolve(target)
    if expected is None:
        assert answer == Missing()
    else:
        assert answer == (Ambiguous(expected) if isinstance(expected, tuple) else Resolved(expected))


@pytest.mark.parametrize(
    ("target", "source", "expected"),
    [
        ("twin.md", "a/x.md", Resolved(4)),
        ("twin.md", "b/x.md", Resolved(5)),
        ("root.md", "sub/x.md", Resolved(14)),
        ("root.md", "x.md", Resolved(13)),
        ("../a/twin.md", "b/x.md", Resolved(4)),
        ("twin", "c/x.md", Ambiguous((4, 5))),
    ],
)
def test_markdown_links_are_relative(target, source, expected):
    """A markdown link is a path from the folder of its note."""
    assert resolve(target, source, "markdown") == expected


def test_a_namesake_in_the_same_folder_is_not_guessed():
    """``[[twin]]`` next to one of two twins stays ambiguous."""
    assert resolve("twin", "a/x.md") == Ambiguous((4, 5))


def test_other_vaults_come_second():
    """A note of the own vault wins; one that only another vault has is found there."""
    notes = [*NOTES, Card(20, "alpha.md", "Other", (), 2), Card(21, "only.md", "Only", (), 2)]
    assert resolve("alpha", notes=notes) == Resolved(1)
    assert resolve("alpha", notes=notes, vault=2) == Resolved(20)
    assert resolve("only", notes=notes) == Resolved(21)


def test_find():
    """What a person types: path, file name, title."""
    resolver = Resolver([*NOTES, Card(20, "alpha.md", "Other", (), 2)])
    assert resolver.find("sub/beta.md") == Resolved(2)
    assert resolver.find("Gamma") == Resolved(3)
    assert resolver.find("alpha.md") == Ambiguous((1, 20))
    assert resolver.find("alpha.md", 2) == Resolved(20)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NOTES)), max_size=40))
def test_adding_and_removing_is_building_anew(steps):
    """After any changes the answers are those of a resolver built from what is left."""
    resolver, left = Resolver(), {}
    for add, card in steps:
        if add:
            resolver.add(card)
            left[card.id] = card
        else:
            resolver.remove(card.id)
            left.pop(card.id, None)
    fresh = Resolver(left.values())
    assert len(resolver) == len(left)
    for target in ("alpha", "twin", "case", "CASE", "sub/root", "Beta", "The First"):
        link = Link(kind="wikilink", target=target)
        assert resolver.resolve(1, "x.md", link) == fresh.resolve(1, "x.md", link)
