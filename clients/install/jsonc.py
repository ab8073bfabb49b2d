"""
Small edits of JSON files that people wrote: comments, order, indentation and line ends stay as they are.

Takes JSON with ``//`` and ``/* */`` comments and trailing commas, as editors and agents do. Every function gives back the
whole text, changed only where it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class NotJson(ValueError):
    """Raised when a text is not JSON with comments; the text says where."""


@dataclass
class Node:
    """A value and where it stands. ``members`` of objects and ``items`` of arrays, in the order of the text."""

    start: int
    end: int = 0
    value: Any = None
    members: list[tuple[str, int, Node]] = field(default_factory=list)
    """(key, where the key begins, value)."""
    items: list[Node] = field(default_factory=list)

    def get(self, key: str) -> Node | None:
        """The last member of that name: it is the one that counts."""
        return next((node for name, _, node in reversed(self.members) if name == key), None)


def parse(text: str) -> Node:
    """The tree of ``text``; an empty or blank text is an empty object. Raises NotJson."""
    return _Parser(text).document()


def value_of(text: str) -> Any:
    """The plain value. Raises NotJson."""
    return parse(text).value


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0

    def document(self) -> Node:
        self.skip()
        if self.at >= len(self.text):
            return Node(self.at, self.at, {})
        node = self.value()
        self.skip()
        if self.at < len(self.text):
            raise self.wrong("something follows the end")
        return node

    def wrong(self, what: str) -> NotJson:
        line = self.text.count("\n", 0, self.at) + 1
        return NotJson(f"line {line}: {what}")

    def skip(self) -> None:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r\n":
                self.at += 1
            elif text.startswith("//", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("/*", self.at):
                end = text.find("*/", self.at + 2)
                if end < 0:
                    raise self.wrong("a comment does not end")
                self.at = end + 2
            else:
                return

    def value(self, depth: int = 0) -> Node:
        if depth > 200:
            raise self.wrong("nested too deeply")
        char = self.text[self.at : self.at + 1]
        if char == "{":
            return self.object(depth)
        if char == "[":
            return self.array(depth)
        start = self.at
        try:
            value, self.at = json.JSONDecoder(strict=False).raw_decode(self.text, start)
        except ValueError:
            raise self.wrong(f"expected a value, found {char!r}" if char else "ends too soon") from None
        return Node(start, self.at, value)

    def object(self, depth: int) -> Node:
        node = Node(self.at, value={})
        self.at += 1
        while True:
            self.skip()
            if self.take("}"):
                break
            if node.members and not self.comma:
                raise self.wrong("a comma is missing")
            start = self.at
            if self.text[start : start + 1] != '"':
                raise self.wrong("expected a key in quotes")
            key = self.value(depth + 1).value
            self.skip()
            if not self.take(":"):
                raise self.wrong("expected a colon")
            self.skip()
            member = self.value(depth + 1)
            node.members.append((key, start, member))
            node.value[key] = member.value
            self.skip()
            self.comma = self.take(",")
        node.end = self.at
        self.comma = False
        return node

    comma = False

    def array(self, depth: int) -> Node:
        node = Node(self.at, value=[])
        self.at += 1
        while True:
            self.skip()
            if self.take("]"):
                break
            if node.items and not self.comma:
                raise self.wrong("a comma is missing")
            item = self.value(depth + 1)
            node.items.append(item)
            node.value.append(item.value)
            self.skip()
            self.comma = self.take(",")
        node.end = self.at
        self.comma = False
        return node

    def take(self, char: str) -> bool:
        if self.text[self.at : self.at + 1] != char:
            return False
        self.at += 1
        return True


def set_key(text: str, path: Sequence[str], value: Any) -> str:
    """``text`` with the member at ``path`` equal to ``value``; objects on the way are made. Raises NotJson."""
    if not text.strip("\ufeff \t\r\n"):
        text = "{}\n"
    root = parse(text)
    node = root
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise NotJson(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        child = node.get(key)
        if child is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _add(
                text,
                node,
                depth,
                json.dumps(key, ensure_ascii=False) + ": ",
                value,
                node.members and node.members[-1][2],
            )
        node = child
    if node.value == value:
        return text
    return text[: node.start] + _dump(text, value, len(path)) + text[node.end :]


def set_item(text: str, path: Sequence[str], value: Any, owned: Callable[[Any], bool]) -> str:
    """
    ``text`` with ``value`` in the array at ``path``: in place of the first item that is ``owned``, else at the end. Further
    owned items go. Raises NotJson.
    """
    found = _find(parse(text if text.strip("\ufeff \t\r\n") else "{}"), path)
    if found is None:
        return set_key(text, path, [value])
    if not isinstance(found.value, list):
        raise NotJson(f"{'.'.join(path)} is not a list")
    own = [item for item in found.items if owned(item.value)]
    if not own:
        return _add(text, found, len(path), "", value, found.items and found.items[-1])
    for extra in reversed(own[1:]):
        text = _cut(text, found, extra, extra.start)
        found = _find(parse(text), path) or found
    first = next(item for item in found.items if owned(item.value))
    if first.value == value:
        return text
    return text[: first.start] + _dump(text, value, len(path) + 1) + text[first.end :]


def drop_key(text: str, path: Sequence[str]) -> str:
    """``text`` without the member at ``path``; objects that this empties go as well. Raises NotJson."""
    for length in range(len(path), 0, -1):
        parent = _find(parse(text), path[: length - 1])
        if parent is None or not isinstance(parent.value, dict) or path[length - 1] not in parent.value:
            if length == len(path):
                return text
            continue
        _, start, node = next(member for member in reversed(parent.members) if member[0] == path[length - 1])
        if length < len(path) and node.value:
            return text
        text = _cut(text, parent, node, start)
    return text


def drop_items(text: str, path: Sequence[str], owned: Callable[[Any], bool]) -> str:
    """``text`` without the ``owned`` items of the array at ``path``; what this empties goes as well. Raises NotJson."""
    found = _find(parse(text), path)
    if found is None or not isinstance(found.value, list) or not any(owned(item.value) for item in found.items):
        return text
    if all(owned(item.value) for item in found.items):
        return drop_key(text, path)
    while own := next((item for item in found.items if owned(item.value)), None):
        text = _cut(text, found, own, own.start)
        found = _find(parse(text), path)
        assert found is not None
    return text


def _find(node: Node | None, path: Sequence[str]) -> Node | None:
    for key in path:
        if node is None or not isinstance(node.value, dict):
            return None
        node = node.get(key)
    return node


def _add(text: str, parent: Node, depth: int, prefix: str, value: Any, last: Any) -> str:
    """Append to an object or an array whose children stand at ``depth + 1``."""
    line, unit = _newline(text), _indent(text)
    shown = prefix + _dump(text, value, depth + 1)
    if last:
        # Keep an inline container inline.
        inline = "\n" not in text[parent.start : parent.end]
        gap = " " if inline else line + _indent_before(text, last.start, unit * (depth + 1))
        at = last.end
        comma = _comma_after(text, at, parent.end)
        if comma >= 0:  # a trailing comma stands already: add behind it, and keep the style
            return f"{text[: comma + 1]}{gap}{shown},{text[comma + 1 :]}"
        return f"{text[:at]},{gap}{shown}{text[at:]}"
    inner = text[parent.start + 1 : parent.end - 1]
    # Comments in an otherwise empty container stay above what is added.
    kept = inner.rstrip() if inner.strip() else ""
    return (
        f"{text[: parent.start + 1]}{kept}{line}{unit * (depth + 1)}{shown}{line}{unit * depth}{text[parent.end - 1 :]}"
    )


def _cut(text: str, parent: Node, node: Node, start: int) -> str:
    """Remove a member or an item, one comma and the space before it."""
    children = [(begin, member) for _, begin, member in parent.members] or [(item.start, item) for item in parent.items]
    index = next(number for number, (begin, _) in enumerate(children) if begin == start)
    end = node.end
    comma = _comma_after(text, end, parent.end)
    if index == len(children) - 1:
        if index == 0:  # the only one
            stop = comma + 1 if comma >= 0 else end
            left, right = text[parent.start + 1 : start], text[stop : parent.end - 1]
            kept = (left.rstrip() + right.rstrip()) if (left + right).strip() else ""
            closing = _newline(text) + _indent_before(text, parent.start, "") if kept else ""
            return text[: parent.start + 1] + kept + closing + text[parent.end - 1 :]
        previous = children[index - 1][1].end
        if comma >= 0:
            before = _comma_after(text, previous, start)
            return text[: before + 1] + text[comma + 1 :]
        before = _comma_after(text, previous, start)
        between = text[before + 1 : start].rstrip()
        # A comment to the end of its line must not swallow what closes the container.
        ended = _newline(text) if "//" in between.rpartition("\n")[2] else ""
        return text[:before] + between + ended + text[end:]
    following = children[index + 1][0]
    return (
        text[:start] + text[following:]
        if "\n" not in text[comma:following].strip()
        else text[:start] + text[comma + 1 :].lstrip()
    )


def _comma_after(text: str, at: int, limit: int) -> int:
    """Where the comma behind a value stands, over comments; -1 without one."""
    parser = _Parser(text)
    parser.at = at
    parser.skip()
    return parser.at if parser.at < limit and text[parser.at] == "," else -1


def _dump(text: str, value: Any, depth: int) -> str:
    unit, line = _indent(text), _newline(text)
    shown = json.dumps(value, ensure_ascii=False, indent=unit)
    return shown.replace("\n", line + unit * depth)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str) -> str:
    """One step of this file's indentation, from its first indented line; two spaces when it has none."""
    for row in text.splitlines():
        stripped = row.lstrip(" \t")
        if stripped and stripped != row and stripped[0] in '"}]':
            return row[: len(row) - len(stripped)]
    return "  "


def _indent_before(text: str, at: int, otherwise: str) -> str:
    """The white space that begins the line of ``at``, when nothing else stands before it (a key may)."""
    start = text.rfind("\n", 0, at) + 1
    row = text[start:at]
    space = row[: len(row) - len(row.lstrip(" \t"))]
    return space if space or not row else otherwise
