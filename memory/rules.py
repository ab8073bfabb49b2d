"""
The machinery of redaction: a rule finds places in a text and puts ``[redacted:kind]`` there.

A rule takes a text, the user's allowed strings and the counts, and gives the text back. Patterns are compiled at first use.
Every pattern is linear: no unbounded run may start at each position of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

Rule = Callable[[str, Sequence[str], "dict[str, int]"], str]
Span = Callable[["re.Match[str]"], "tuple[int, int] | None"]
_cache: dict[str, re.Pattern[str]] = {}
_found: tuple[str, tuple[str, ...], list[int]] = ("", (), [])
"""The last answer of ``places``: six rules in a row ask the same of one text."""


def compiled(source: str) -> re.Pattern[str]:
    found = _cache.get(source)
    if found is None:
        found = _cache[source] = re.compile(source)
    return found


def whole(match: re.Match[str]) -> tuple[int, int]:
    return match.span()


def group(match: re.Match[str]) -> tuple[int, int]:
    return match.span("s")


def apply(
    text: str, kind: str, matches: Iterable[re.Match[str]], span: Span, allow: Sequence[str], counts: dict[str, int]
) -> str:
    """Replace what ``span`` says of each match; None leaves it."""
    parts: list[str] = []
    done = 0
    for match in matches:
        where = span(match)
        if where is None or where[0] < done or where[0] == where[1]:
            continue
        secret = text[where[0] : where[1]]
        if secret in allow or (secret.startswith("[redacted:") and secret.find("]") == len(secret) - 1):
            continue
        parts += (text[done : where[0]], f"[redacted:{kind}]")
        done = where[1]
        counts[kind] = counts.get(kind, 0) + 1
    return "".join((*parts, text[done:])) if parts else text


def rule(kind: str, source: str, span: Span = whole) -> Rule:
    """A rule whose pattern begins so that searching is quick."""
    return lambda text, allow, counts: apply(text, kind, compiled(source).finditer(text), span, allow, counts)


def anchored(kind: str, cores: tuple[str, ...], source: str, span: Span = group) -> Rule:
    """A rule whose matches begin with one of ``cores``, in any case: the pattern is tried there alone."""

    def run(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
        pattern = compiled(source)
        found = (pattern.match(text, at) for at in places(text, cores))
        return apply(text, kind, (match for match in found if match), span, allow, counts)

    return run


def places(text: str, cores: tuple[str, ...]) -> list[int]:
    """Where one of ``cores`` stands, in any case, in order."""
    global _found
    known = _found
    if known[0] is text and known[1] is cores:
        return known[2]
    # str.lower() may change a text's length; lowering its bytes lowers ASCII alone.
    low = (
        text.lower()
        if text.isascii()
        else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    )
    found: list[int] = []
    for core in cores:
        at = low.find(core)
        while at >= 0:
            found.append(at)
            at = low.find(core, at + len(core))
    found.sort()
    _found = (text, cores, found)
    return found


def forget() -> None:
    """Keep nothing of the last text."""
    global _found
    _found = ("", (), [])


def replace_spans(text: str, spans: list[tuple[int, int]], kind: str, counts: dict[str, int]) -> str:
    parts: list[str] = []
    done = 0
    for start, end in spans:
        parts += (text[done:start], f"[redacted:{kind}]")
        done = end
        counts[kind] = counts.get(kind, 0) + 1
    return "".join((*parts, text[done:])) if parts else text
