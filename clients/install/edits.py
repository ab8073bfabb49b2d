"""The edits that hosts' files need: members and list items of JSON, a table of TOML, a block of YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tomlkit
import tomlkit.exceptions
import yaml

from . import jsonc


@dataclass(frozen=True)
class Member:
    """``value`` under ``path`` of a JSON file; ours by its place."""

    path: tuple[str, ...]
    value: Any

    def add(self, text: str) -> str:
        return jsonc.set_key(text, self.path, self.value)

    def remove(self, text: str) -> str:
        return jsonc.drop_key(text, self.path)


@dataclass(frozen=True)
class Item:
    """``value`` in the array under ``path`` of a JSON file; ours where ``owned`` says so."""

    path: tuple[str, ...]
    value: Any
    owned: Callable[[Any], bool]

    def add(self, text: str) -> str:
        return jsonc.set_item(text, self.path, self.value, self.owned)

    def remove(self, text: str) -> str:
        return jsonc.drop_items(text, self.path, self.owned)


@dataclass(frozen=True)
class Default:
    """``value`` under ``path`` of a JSON file where nothing stands yet; never ours alone, so it is not removed."""

    path: tuple[str, ...]
    value: Any

    def add(self, text: str) -> str:
        now = jsonc.value_of(text) if text.strip() else {}
        for key in self.path:
            if not isinstance(now, dict) or key not in now:
                return jsonc.set_key(text, self.path, self.value)
            now = now[key]
        return text

    def remove(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class TomlTable:
    """A table ``[parent.name]`` of a TOML file; ours by its name."""

    parent: str
    name: str
    values: Mapping[str, Any]

    def add(self, text: str) -> str:
        document = self._parse(text)
        parent = document.get(self.parent)
        if parent is not None and self.name in parent and dict(parent[self.name].unwrap()) == dict(self.values):
            return text
        if parent is None:
            # Written at the end by hand: a new super table must not land among another table's keys.
            rows = "".join(f"{key} = {tomlkit.item(value).as_string()}\n" for key, value in self.values.items())
            gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
            return f"{text}{gap}[{self.parent}.{self.name}]\n{rows}"
        table = tomlkit.table()
        for key, value in self.values.items():
            table.add(key, value)
        parent[self.name] = table
        return tomlkit.dumps(document)

    def remove(self, text: str) -> str:
        document = self._parse(text)
        parent = document.get(self.parent)
        if parent is None or self.name not in parent:
            return text
        del parent[self.name]
        if not parent:
            del document[self.parent]
        return tomlkit.dumps(document)

    def _parse(self, text: str) -> tomlkit.TOMLDocument:
        try:
            return tomlkit.parse(text)
        except tomlkit.exceptions.TOMLKitError as error:
            raise ValueError(str(error)) from None


@dataclass(frozen=True)
class YamlBlock:
    """A block ``parent: {name: …}`` of a YAML file, edited as text so that comments stay; ours by its name."""

    parent: str
    name: str
    values: Mapping[str, Any]

    def add(self, text: str) -> str:
        data = self._load(text)
        held = data.get(self.parent)
        if isinstance(held, dict) and held.get(self.name) == dict(self.values):
            return text
        text = self.remove(text)
        data = self._load(text)
        lines = text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        head = self._line(lines, f"{self.parent}:")
        if head < 0:
            return "".join(lines) + f"{self.parent}:\n" + self._block("  ")
        held = data.get(self.parent)
        if not isinstance(held, dict) or not held:
            raise ValueError(f"'{self.parent}:' is empty or written on one line; write it as a block")
        first = next(row for row in lines[head + 1 :] if row.strip() and not row.lstrip().startswith("#"))
        indent = first[: len(first) - len(first.lstrip())]
        if not indent:
            raise ValueError(f"'{self.parent}:' is not indented as a block")
        return "".join((*lines[: head + 1], self._block(indent), *lines[head + 1 :]))

    def remove(self, text: str) -> str:
        held = self._load(text).get(self.parent)
        if not isinstance(held, dict) or self.name not in held:
            return text
        lines = text.splitlines(keepends=True)
        head = self._line(lines, f"{self.parent}:")
        start = next((n for n in range(head + 1, len(lines)) if lines[n].strip() == f"{self.name}:"), -1)
        if head < 0 or start < 0:
            raise ValueError(f"'{self.parent}.{self.name}' is not written as a block")
        depth = len(lines[start]) - len(lines[start].lstrip())
        end = start + 1
        while end < len(lines) and lines[end].strip() and len(lines[end]) - len(lines[end].lstrip()) > depth:
            end += 1
        rest = lines[:start] + lines[end:]
        if len(held) == 1:
            rest = lines[:head] + lines[end:]
        return "".join(rest)

    def _block(self, indent: str) -> str:
        shown = yaml.safe_dump({self.name: dict(self.values)}, sort_keys=False, default_flow_style=False, width=10_000)
        return "".join(f"{indent}{row}\n" for row in shown.splitlines())

    @staticmethod
    def _line(lines: list[str], wanted: str) -> int:
        return next((n for n, row in enumerate(lines) if row.split("#")[0].rstrip() == wanted), -1)

    @staticmethod
    def _load(text: str) -> dict[str, Any]:
        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(str(error).replace("\n", " ")) from None
        if data is None:
            return {}
        if not isinstance(data, dict):
            raise ValueError("it is not a mapping")
        return data
