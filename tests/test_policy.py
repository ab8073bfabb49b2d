"""What a folder's marker lets us capture: patterns, the decision table, and that a broken marker narrows."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recalld.memory.capture import policy, tools
from recalld.memory.capture.policy import DROP, KEEP, METADATA, Policy

ROOT, HOME = "/w/app", "/home/me"


def read(**capture: Any) -> Policy:
    return policy.read({"capture": capture}, ROOT, HOME)


IGNORES = read(ignore_paths=["secrets/**", "*.pem", "~/private/**"])


@pytest.mark.parametrize(
    ("family", "paths", "command", "expected"),
    [
        ("file", ["src/a.py"], "", KEEP),
        ("file", ["secrets/a.txt"], "", DROP),
        ("file", ["src/a.py", "/w/app/secrets/deep/er/x"], "", DROP),
        ("file", ["src/../secrets/x"], "", DROP),
        ("file", ["key.pem"], "", DROP),
        ("file", ["/home/me/private/x"], "", DROP),
        ("file", ["~/private/x"], "", DROP),
        ("file", ["secrets-not/a"], "", KEEP),
        ("file", [], "", METADATA),
        ("search", [], "", DROP),
        ("shell", [], "cat secrets/a.txt", DROP),
        ("shell", [], "bash -c 'cat ./secrets/a | wc'", DROP),
        ("shell", [], "cat secr*/a", DROP),
        ("shell", [], "tool --file=secrets/a", DROP),
        ("shell", [], "wc <secrets/a", DROP),
        ("shell", [], "ninja -C build test", KEEP),
        ("unknown", [], "", KEEP),
        ("mcp", [], "", KEEP),
        ("", [], "", KEEP),
    ],
)
def test_decision_table(family: str, paths: list[str], command: str, expected: str) -> None:
    """Below exclusions: a file tool by its paths, a shell by its words, a search never, what is no tool always."""
    verdict, why = policy.decide(IGNORES, "all", family, paths, tools.words_of(command), ROOT, HOME)
    assert (verdict, bool(why)) == (expected, True)


@pytest.mark.parametrize(
    ("mode", "held", "expected"),
    [
        ("all", Policy(), KEEP),
        ("marked", Policy(), DROP),
        ("marked", Policy("/w"), KEEP),
        ("off", Policy("/w"), DROP),
        ("all", read(enabled=False), DROP),
        ("marked", read(enabled=False), DROP),
    ],
)
def test_modes(mode: str, held: Policy, expected: str) -> None:
    """``marked`` keeps only what lies below a marker, ``off`` nothing, and a marker can switch capture off."""
    assert policy.decide(held, mode, "file", ["a"], [], ROOT, HOME)[0] == expected
    assert policy.decide(held, mode, "", [], [], ROOT, HOME)[0] == expected


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ([], "not a table"),
        ("line 3: bad", "line 3: bad"),
        ({"capture": {"ignore_path": ["x"]}}, "unknown key 'ignore_path'"),
        ({"captur": {}}, "unknown key 'captur'"),
        ({"capture": {"ignore_paths": "x"}}, "list"),
        ({"capture": {"ignore_paths": ["../x"]}}, "'..' is not allowed"),
        ({"capture": {"ignore_paths": ["[ab]"]}}, "only *"),
        ({"capture": {"ignore_paths": ["x"] * 129}}, "at most 128"),
        ({"capture": {"ignore_paths": ["x" * 1025]}}, "at most 1024"),
        ({"capture": {"enabled": "no"}}, "true or false"),
        ({"project": "../x"}, "project must be"),
        ({"project": 3}, "project must be"),
        ({"briefing": {"max_chars": 99999}}, "max_chars"),
        ({"briefing": []}, "tables"),
    ],
)
def test_broken_marker_fails_closed(raw: Any, says: str) -> None:
    """A marker that is wrong is named, and lets only the fact of a file, search or shell tool through."""
    held = policy.read(raw, ROOT, HOME)
    assert says in held.error
    for family in ("file", "search", "shell"):
        assert policy.decide(held, "all", family, ["a"], ["a"], ROOT, HOME)[0] == METADATA
    assert policy.decide(held, "all", "", [], [], ROOT, HOME)[0] == KEEP


def test_off_in_a_broken_marker_is_off() -> None:
    """Capture that is switched off stays off though another key is wrong."""
    held = read(enabled=False, ignore_paths=["[x]"])
    assert held.error
    assert policy.decide(held, "all", "", [], [], ROOT, HOME)[0] == DROP


def test_settings() -> None:
    """Project and briefing are read; absent ones are the defaults."""
    held = policy.read({"project": "acme.api-2", "briefing": {"enabled": False, "max_chars": 800}}, ROOT, HOME)
    assert (held.project, held.briefing, held.briefing_chars, held.error) == ("acme.api-2", False, 800, "")
    assert policy.read({}, ROOT, HOME) == Policy(ROOT)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/a/**", "/a/b/c", True), ("/a/**", "/ab", False), ("/a/*/c", "/a/b/c", True), ("/a/*/c", "/a/b/d/c", False),
        ("/a/**/c", "/a/c", True), ("/a/**/c", "/a/x/y/c", True), ("/a/b", "/a/b/deep", True), ("/a/?.py", "/a/x.py", True),
        ("/a/?.py", "/a/xy.py", False), ("/a/*.py", "/a/.py", True), ("/**", "/anything", True), ("/a/b*", "/a/bcd/e", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    """``*`` and ``?`` stay within a part, ``**`` crosses parts, and what matches a folder matches what is in it."""
    assert policy.matches(pattern, path) is expected


@settings(max_examples=300)
@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_one_part_is_fnmatch(pattern: str, text: str) -> None:
    """Within one part, patterns mean what they mean in a shell."""
    if "**" not in pattern and pattern and text:
        assert policy.matches("/" + pattern, "/" + text) == fnmatch.fnmatchcase(text, pattern)


def test_comparisons_are_bounded() -> None:
    """Patterns made to be slow end in metadata-only, not in a hang."""
    held = read(ignore_paths=["*a" * 400 + "b"] * 100)
    assert policy.decide(held, "all", "file", ["a" * 4000] * 30, [], ROOT, HOME)[0] == METADATA
