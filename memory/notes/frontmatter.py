"""
The YAML block at the head of a note. Anything that is not one stays body text, and is reported.

All scalars are read as the text that stands there: ``title: 2024-01-01`` is a title, ``id: 0123`` keeps its zero, and no
date in a file can raise. YAML's expanding features are bounded before they are built: see ``_too_deep``.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML built without libyaml: ten times slower, otherwise the same
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]

MAX_CHARS = 65_536
"""A larger block is data, not frontmatter."""
MAX_DEPTH = 32
MAX_VALUES = 512
MAX_VISITS = 4096
"""Bounds of a walk: YAML's aliases make a tree of any size out of a few lines."""

_OPENING = re.compile(r"---[ \t]*\n")
_CLOSING = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)
_KEY = re.compile(r"\s*[\"']?[\w .-]+[\"']?\s*:(?:\s|$)")
_NESTING = re.compile(r"[\[{]|(?:^|\s)[-?:][ \t]+(?=[-?:][ \t])|^[ ]{40}", re.MULTILINE)
# Most frontmatter is lines like these, on which YAML and common sense agree; reading them so takes a tenth of the time.
# A test holds the two to the same answer. Anything else on any line, and all of it goes to the YAML parser.
_PLAIN_LINE = re.compile(
    r"""
      (?P<key> [A-Za-z_][\w-]* ) : (?:
        [ ]+ " (?P<double> [^"\\\n]* ) " [ ]*
      | [ ]+ ' (?P<single> [^'\n]* ) ' [ ]*
      | [ ]+ \[ [ ]* (?P<list> \w[\w./ -]* (?: , [ ]* \w[\w./ -]* )* ) \] [ ]*
      | [ ]+ (?P<plain> \w[^\n:\#]* )
      | [ ]*
      ) (?:\n|\Z)
    | [ ]*\n
    """,
    re.VERBOSE,
)
_NOT_PLAIN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class Frontmatter(msgspec.Struct, frozen=True):
    """``fields`` by folded key with ``_`` for blanks and hyphens; ``lines``: how many lines of the file the block takes."""

    fields: dict[str, Any] = {}
    lines: int = 0
    raw: str = ""
    problem: str = ""


NONE = Frontmatter()


def split(text: str) -> tuple[Frontmatter, str]:
    """The frontmatter of ``text`` and the body after it. A block that cannot be read stays in the body."""
    opening = _OPENING.match(text)
    if opening is None:
        return NONE, text
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        if _KEY.match(text, opening.end()):
            return Frontmatter(problem="frontmatter has no closing '---': read as text"), text
        return NONE, text
    raw = text[opening.end() : closing.start()]
    fields, problem = _read(raw)
    if fields is None:
        return Frontmatter(problem=f"frontmatter is not YAML: {problem}; read as text"), text
    body = text[closing.end() + 1 :]
    return Frontmatter(fields, text.count("\n", 0, closing.end()) + 1, raw), body


def _read(raw: str) -> tuple[dict[str, Any] | None, str]:
    if len(raw) > MAX_CHARS:
        return None, f"larger than {MAX_CHARS} characters"
    plain = _plain(raw)
    if plain is not None:
        return {_key(key): value for key, value in plain.items()}, ""
    if "\t" in raw:
        # Editors indent with tabs, which YAML forbids; at the start of a line they can only be meant as indentation.
        raw = re.sub(r"^\t+", lambda tabs: "  " * len(tabs[0]), raw, flags=re.MULTILINE)
    try:
        return _load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return None, _first_line(error)


def _plain(raw: str) -> dict[str, Any] | None:
    """The fields of frontmatter that is nothing but plain lines; None when it is more than that."""
    if _NOT_PLAIN.search(raw):
        return None
    fields: dict[str, Any] = {}
    at = 0
    while at < len(raw):
        line = _PLAIN_LINE.match(raw, at)
        if line is None:
            return None
        at = line.end()
        kind = line.lastgroup
        if kind == "list":
            fields[line["key"]] = [item.strip() for item in line["list"].split(",")]
        elif kind == "key":
            fields[line["key"]] = ""
        elif kind is not None:
            fields[line["key"]] = line[kind].rstrip() if kind == "plain" else line[kind]
    return fields


def _load(raw: str) -> tuple[dict[str, Any] | None, str]:
    """The fields of ``raw`` by the YAML parser, or what is wrong. Raises what that raises."""
    if _too_deep(raw):
        return None, f"nested deeper than {MAX_DEPTH}"
    loaded = yaml.load(raw, _Loader)
    if loaded is None or loaded == "":
        return {}, ""
    if not isinstance(loaded, dict):
        return None, "no 'key: value' lines"
    return {_key(key): value for key, value in loaded.items()}, ""


def _too_deep(raw: str) -> bool:
    """Whether building ``raw`` could overflow the stack. Counting marks is cheap; only many of them need the real parse."""
    if len(_NESTING.findall(raw)) <= MAX_DEPTH:
        return False
    depth = 0
    for event in yaml.parse(raw, _Loader):
        depth += isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent))
        depth -= isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent))
        if depth > MAX_DEPTH:
            return True
    return False


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return f"line {mark.line + 2}: {what}" if mark else str(what)


def _key(key: Any) -> str:
    return str(key).strip().casefold().replace("-", "_").replace(" ", "_")


def texts(value: Any, limit: int = MAX_VALUES) -> list[str]:
    """
    Every text in a value, depth first, nulls left out; at most ``limit``, from at most ``MAX_VISITS`` nodes.

    ``[[note]]`` without quotes is a list in a list to YAML; it comes back as the wikilink that was meant.
    """
    found: list[str] = []
    stack = [value]
    for _ in range(MAX_VISITS):
        if not stack or len(found) >= limit:
            break
        node = stack.pop()
        if isinstance(node, str):
            if node not in _NULLS:
                found.append(node.strip())
        elif isinstance(node, dict):
            stack.extend(list(node.values())[MAX_VISITS::-1])
        elif isinstance(node, list):
            stack.extend(f"[[{item[0]}]]" if _bare_link(item) else item for item in node[MAX_VISITS::-1])
    return found


def _bare_link(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 1 and isinstance(item[0], str) and item[0] not in _NULLS


def text(value: Any) -> str:
    """The value of a field that holds one text; '' for null, the first of a list."""
    if value is None:
        return ""
    if isinstance(value, str):
        return "" if value in _NULLS else value.strip()
    found = texts(value, 1)
    return found[0] if found else ""


def names(value: Any) -> tuple[str, ...]:
    """The value of a field that holds names: a list, or one text with commas."""
    if value is None:
        return ()
    found = [part.strip() for part in value.split(",")] if isinstance(value, str) else texts(value)
    return tuple(dict.fromkeys(name for name in found if name and name not in _NULLS))


def flag(value: Any) -> bool:
    return text(value).casefold() in {"true", "yes", "on", "1", "y"}
