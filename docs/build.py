"""
Writes the pages of ``docs`` that are derived: the commands, the configuration, the degraded modes.

    python docs/build.py            rewrite them
    python docs/build.py --check    exit 1 when one is out of date (a test does the same)
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import click
import msgspec
from recalld.actors.health import DEGRADATION
from recalld.clients.cli.main import COMMANDS, SECTIONS, recalld
from recalld.protocol import config

DOCS = Path(__file__).resolve().parent
NOTE = "<!-- Written by docs/build.py; edit the source that it names, then run it. -->\n"


def commands_page() -> str:
    """`recalld --help` and the help of every command, as one page."""
    lines = [NOTE, "# Commands\n", "Every command has `--help`; this page is the same text.\n"]
    root = click.Context(recalld, info_name="recalld", max_content_width=100, terminal_width=100)
    lines += ["```text", recalld.get_help(root).rstrip(), "```\n"]
    for title, names in SECTIONS:
        lines.append(f"## {title}\n")
        for name in names:
            if name in COMMANDS:
                command = recalld.get_command(root, name)
                assert command is not None, name
                lines += _help(command, root, name)
    return "\n".join(lines)


def _help(command: click.Command, parent: click.Context, name: str) -> list[str]:
    ctx = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    path = ctx.command_path
    lines = [f"### `{path}`\n", "```text", command.get_help(ctx).rstrip(), "```\n"]
    if isinstance(command, click.Group):
        for sub in command.list_commands(ctx):
            found = command.get_command(ctx, sub)
            assert found is not None, sub
            lines += _help(found, ctx, sub)
    return lines


def configuration_page() -> str:
    """Every key of config.toml with its default and what it does, from the classes in protocol/config.py."""
    source = Path(config.__file__).read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    lines = [
        NOTE,
        "# Configuration\n",
        "`config.toml` lies in the data folder (`recalld status` names it). Every key has a default, so the file may be",
        "absent. Each key can be overridden by a variable: `embedder.threads` by `RECALLD_EMBEDDER__THREADS`. A wrong key or",
        "value is named with its file and line. `recalld add` and `remove` edit the file and keep its comments.\n",
    ]
    for field in msgspec.structs.fields(config.Config):
        if field.name == "vaults":
            lines += ["## `[[vaults]]`\n", *_keys(classes["VaultConfig"], config.VaultConfig)]
        else:
            kind = type(field.default)
            lines += [f"## `[{field.name}]`\n", *_keys(classes[kind.__name__], kind)]
    lines += ["## Where things are\n", "| variable | meaning |", "|---|---|"]
    lines += [
        "| `RECALLD_DATA` | the data folder (also `--data`) |",
        "| `RECALLD_RUNTIME` | the sockets' folder (also `--runtime`) |",
    ]
    lines += ["| `RECALLD_GRACE_MS` | how long the MCP bridge holds a call while the daemon is away |", ""]
    return "\n".join(lines)


def _keys(node: ast.ClassDef, kind: type[msgspec.Struct]) -> list[str]:
    texts: dict[str, str] = {}
    for before, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            texts[before.target.id] = ast.literal_eval(after.value)
    annotations = {
        item.target.id: ast.unparse(item.annotation)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    intro = (ast.get_docstring(node) or "").strip()
    lines = [f"{intro}\n"] if intro else []
    lines += ["| key | default | kind | meaning |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        default = "(required)" if field.default is msgspec.NODEFAULT else f"`{_toml(field.default)}`"
        meaning = " ".join(texts.get(field.name, "").split()).replace("|", "\\|")
        lines.append(f"| `{field.name}` | {default} | {_kind(annotations[field.name])} | {meaning} |")
    return [*lines, ""]


def _kind(annotation: str) -> str:
    if annotation.startswith("Literal["):
        return "one of " + ", ".join(f"`{value}`" for value in ast.literal_eval(f"({annotation[8:-1]},)"))
    names = {
        "PositiveInt": "number ≥ 1", "Fraction": "0 … 1", "str": "text", "FolderPath": "text", "bool": "true or false",
        "tuple[str, ...]": "list of texts", "dict[str, float]": "table of numbers",
    }  # fmt: skip
    if annotation.startswith("Annotated[int"):
        return "number"
    return "number" if annotation.startswith("Annotated[float") else names.get(annotation, annotation)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def degraded_page() -> str:
    """What works when something is down."""
    lines = [
        NOTE,
        "# Degraded modes\n",
        "Recall degrades rather than fails: any process may die at any time, and a question still gets an answer that says what",
        "it lacks. Failed processes are started again within a fraction of a second; one that cannot start cools down, and",
        "`recalld status` says why.\n",
        "| down | still works | the caller is told |",
        "|---|---|---|",
    ]
    lines += [f"| {row.down} | {row.works} | {row.told} |" for row in DEGRADATION]
    return "\n".join([*lines, ""])


PAGES = {"commands.md": commands_page, "configuration.md": configuration_page, "degraded-modes.md": degraded_page}


def main() -> int:
    stale = [name for name, render in PAGES.items() if _read(name) != render()]
    if "--check" in sys.argv[1:]:
        for name in stale:
            sys.stderr.write(f"docs/{name} is out of date: python docs/build.py\n")
        return 1 if stale else 0
    for name in stale:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
    return 0


def _read(name: str) -> str:
    try:
        return (DOCS / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
