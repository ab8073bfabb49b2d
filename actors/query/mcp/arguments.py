"""
Arguments of a tool call, checked against the tool's own schema.

Models are careless with types in ways that have one reading ("5" for 5, one string for a list of one, null for absent):
those are taken. Everything else is refused with a sentence that lets the model correct itself.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

MAX_TEXT_CHARS = 1_000_000
"""A page of this size is a file that somebody pasted."""

Schema = Mapping[str, Any]
NAMES = {"string": "a string", "integer": "a whole number", "boolean": "true or false", "array": "a list of strings",
         "object": "an object"}  # fmt: skip


class BadArguments(Exception):
    """Raised when the arguments do not fit the schema; the text is for the model."""


def check(tool: str, schema: Schema, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments with types settled; absent optional ones stay absent. Raises BadArguments."""
    properties: Mapping[str, Schema] = schema["properties"]
    arguments: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name not in properties:
            if schema.get("additionalProperties") is False:
                raise BadArguments(_unknown(tool, name, properties))
            arguments[name] = value
        elif value is not None:
            arguments[name] = _settle(f"{tool}: '{name}'", properties[name], value)
    missing = [name for name in schema.get("required", ()) if arguments.get(name, "") == ""]
    if missing:
        raise BadArguments(
            f"{tool}: '{missing[0]}' is required: {properties[missing[0]].get('description', '')}".rstrip(": ")
        )
    return arguments


def _unknown(tool: str, name: str, properties: Mapping[str, Schema]) -> str:
    allowed = ", ".join(properties) or "none"
    near = difflib.get_close_matches(name, properties, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"{tool}: unknown argument '{name}'.{hint} Allowed: {allowed}."


def _settle(place: str, schema: Schema, value: Any) -> Any:
    kind = schema["type"]
    settled: Any = _CASTS[kind](value)
    if settled is None:
        raise BadArguments(
            f"{place} must be {NAMES[kind]}, not {json.dumps(value, ensure_ascii=False, default=str)[:80]}."
        )
    if "enum" in schema and settled not in schema["enum"]:
        raise BadArguments(f"{place} must be one of {', '.join(schema['enum'])}, not '{settled}'.")
    if kind == "integer" and not schema.get("minimum", settled) <= settled <= schema.get("maximum", settled):
        raise BadArguments(f"{place} must be {schema.get('minimum')} to {schema.get('maximum')}, not {settled}.")
    if kind == "string" and len(settled) > MAX_TEXT_CHARS:
        raise BadArguments(f"{place} is longer than {MAX_TEXT_CHARS} characters.")
    if kind == "array":
        return _items(place, schema, settled)
    return settled


def _items(place: str, schema: Schema, items: list[Any]) -> tuple[Any, ...]:
    if not schema.get("minItems", 0) <= len(items) <= schema.get("maxItems", len(items)):
        raise BadArguments(
            f"{place} must have {schema.get('minItems', 0)} to {schema.get('maxItems')} items, not {len(items)}."
        )
    return tuple(_settle(f"{place}[{number}]", schema["items"], item) for number, item in enumerate(items))


def _string(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _array(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        return None
    if value.lstrip().startswith("["):
        try:
            parsed = json.loads(value)
        except ValueError:
            return [value]
        return parsed if isinstance(parsed, list) else [value]
    return [value] if value else []


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


_CASTS = {"string": _string, "integer": _integer, "boolean": _boolean, "array": _array, "object": _object}


def strings(place: str, value: Any) -> tuple[str, ...]:
    """``value`` as a tuple of strings, for parts of an object that a schema leaves open. Raises BadArguments."""
    settled: tuple[str, ...] = _settle(place, {"type": "array", "items": {"type": "string"}}, value)
    return settled
