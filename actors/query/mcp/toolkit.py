"""
What a tool is made of: its description to a model, and the few schema forms that every client understands.

The root is a plain object without combinators or $ref (one such schema costs some clients every tool), a description stays
below 1 KB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Schema = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """One tool. ``listed``: in which toolset it is shown; every tool is callable whether listed or not."""

    name: str
    title: str
    description: str
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    output: Mapping[str, Schema] = field(default_factory=dict)
    output_required: tuple[str, ...] = ()
    writes: bool = False
    destructive: bool = False
    idempotent: bool = True
    listed: Literal["default", "full"] = "default"

    def input_schema(self) -> Schema:
        schema: Schema = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            schema["required"] = list(self.required)
        schema["additionalProperties"] = False
        return schema

    def output_schema(self) -> Schema | None:
        if not self.output:
            return None
        return {"type": "object", "properties": dict(self.output), "required": list(self.output_required)}

    def annotations(self) -> dict[str, Any]:
        """Hints for the client. What a read-only tool destroys or repeats is not a question: left out to save bytes."""
        if not self.writes:
            return {"readOnlyHint": True, "openWorldHint": False}
        return {
            "readOnlyHint": False,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": False,
        }


def text(description: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": description} if description else {}), **more}


def number(description: str, low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def texts(description: str = "", **more: Any) -> Schema:
    return {
        "type": "array",
        "items": {"type": "string"},
        **({"description": description} if description else {}),
        **more,
    }


S: Schema = {"type": "string"}
N: Schema = {"type": "number"}
I: Schema = {"type": "integer"}  # noqa: E741
B: Schema = {"type": "boolean"}
O: Schema = {"type": "object"}  # noqa: E741
STRINGS: Schema = {"type": "array", "items": {"type": "string"}}
A: Schema = {"type": "array"}
"""Output schemas name what is there; each byte of detail would be paid in every session."""

PROJECT = text("Name; default: found from your folder")
