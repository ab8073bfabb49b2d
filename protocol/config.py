"""
Configuration: config.toml, overridden key by key by ``RECALLD_*``.

``RECALLD_EMBEDDER__THREADS=2`` sets ``embedder.threads``: sections are joined by two underscores. Every key has a default,
so an empty or absent file is a valid configuration. Read-only programs never create the file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

PositiveInt = Annotated[int, Meta(ge=1)]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
FolderPath = Annotated[str, Meta(pattern="^[/~]")]
"""Not relative: it would mean another folder for each process that reads it."""


class ConfigError(Exception):
    """Raised when config.toml or a ``RECALLD_*`` variable has an unknown key or a wrong value; the text names the place."""


class VaultConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One watched folder."""

    path: FolderPath
    """Absolute, or starting with `~`."""
    name: str = ""
    """How answers call it; the folder's own name when empty."""


class Watcher(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How folders are watched."""

    sweep_s: Annotated[float, Meta(gt=0)] = 30.0
    """Seconds between full diffs of every vault."""
    mode: Literal["native", "poll", "off"] = "native"
    """native: the system's file events. poll: look every ``poll_ms``. off: sweeps only."""
    poll_ms: PositiveInt = 1000
    """How often to look, in mode `poll`."""
    step_ms: PositiveInt = 20
    """How long to gather events before acting on them."""
    ignore: tuple[str, ...] = (
        ".*/", "node_modules/", "*.sync-conflict-*", "*conflicted copy*", "*.tmp.md", ".#*", "~$*",
    )  # fmt: skip
    """gitignore patterns, before each folder's own .gitignore and .recalldignore."""
    max_bytes: PositiveInt = 32_000_000
    """Larger files are not read; status names them."""
    vanish_fraction: Fraction = 0.5
    """See `vanish_min`."""
    vanish_min: PositiveInt = 20
    """More notes than this number and than `vanish_fraction` of a vault vanishing at once are confirmed by a second sweep."""


class Embedder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The local embedding model."""

    model: str = "minilm"
    """Name of an installed model (`recalld model list`), or "none"."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """Bulk worker threads; 0 = cores - 1, at most 4."""
    batch: PositiveInt = 8
    """Passages per run of the model; more is slower on one thread and needs more memory."""
    sentences: bool = True
    """Embed sentences beside passages: better recall, about twice the work."""
    reranker: str = ""
    """Folder of an ONNX cross-encoder; '' = none."""


class Recall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How questions are answered."""

    k: PositiveInt = 5
    """How many notes an answer has when the asker does not say."""
    budget_ms: PositiveInt = 5000
    """How long a question may take at most."""
    know_threshold: Fraction = 0.5
    """Below this calibrated confidence an answer says that the notes do not contain it."""
    toolset: Literal["default", "full"] = "default"
    """Which MCP tools are listed."""
    ranking: dict[str, float] = {}
    """Overrides of ranking parameters, by name (see docs/ranking.md)."""


class Capture(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of agents' sessions."""

    mode: Literal["all", "marked", "off"] = "all"
    """all: every project. marked: only below a .recalld.toml. off: nothing."""
    assistant_messages: bool = False
    """Keep the agent's last message of a turn where the host sends it."""
    idle_end_min: PositiveInt = 120
    """A session without events for this long has ended."""
    handoff_expire_days: PositiveInt = 14
    """Automatic handoffs older than this are no longer offered."""
    redact_patterns: tuple[str, ...] = ()
    """Further regular expressions whose matches are removed."""
    redact_allow: tuple[str, ...] = ()
    """Exact strings that are never removed."""
    briefing_chars: Annotated[int, Meta(ge=0, le=10_000)] = 4000
    """The most that a new session is told; 0 = nothing."""
    spool_max_mb: PositiveInt = 256
    """How much may wait in the spool while the daemon is away."""


class History(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long old versions of notes are kept for ``as_of``."""

    keep_versions: PositiveInt = 32
    """Old versions of one note at most: those that stood longest."""
    keep_days: PositiveInt = 3650
    """Older versions are removed by `recalld compact`."""
    git: bool = True
    """Where notes lie in a git repository, take their earlier versions from its commits."""


class Log(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged. `recalld logs` prints it."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a line."""
    max_mb: PositiveInt = 16
    """Per log file; two older ones are kept."""


class Supervisor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a process counts as hung or broken."""

    beat_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """A child whose event loop has not told of itself for this long is replaced."""
    intensity: PositiveInt = 8
    """See `period_s`."""
    period_s: Annotated[float, Meta(gt=0)] = 60.0
    """More quick crashes than `intensity` within this time, in seconds: the process cools down."""
    cooling_probe_s: Annotated[float, Meta(gt=0)] = 300.0
    """After so long a process that cools down is tried again, in seconds."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration. Field names are the keys of config.toml."""

    vaults: tuple[VaultConfig, ...] = ()
    watcher: Watcher = Watcher()
    embedder: Embedder = Embedder()
    recall: Recall = Recall()
    capture: Capture = Capture()
    history: History = History()
    log: Log = Log()
    supervisor: Supervisor = Supervisor()


RESERVED = {"RECALLD_DATA", "RECALLD_RUNTIME", "RECALLD_DEBUG", "RECALLD_GRACE_MS", "RECALLD_UNDER"}
"""``RECALLD_*`` variables that are not configuration keys; those of tests start with ``RECALLD_TEST_``."""


def load(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """
    The configuration from ``path`` (absent is fine) and ``environ`` (default ``os.environ``).

    Raises ConfigError naming file and line, or the variable. Any OSError but FileNotFoundError is raised as it is.
    """
    try:
        # Editors of some systems put a byte order mark at the start; TOML knows none.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        text = ""
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8: {error.reason}") from None
    return parse(text, str(path), os.environ if environ is None else environ)


def parse(text: str, source: str, environ: Mapping[str, str]) -> Config:
    """Pure half of ``load``. Raises ConfigError."""
    try:
        raw: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}") from None
    _convert(raw, lambda dotted: f"{source}:{_line_of(text, dotted)}")
    for name, value in sorted(environ.items()):
        if name.startswith("RECALLD_") and name not in RESERVED and not name.startswith("RECALLD_TEST_"):
            _override(raw, name, value)
    return _convert(raw, lambda dotted: f"RECALLD_{dotted.upper().replace('.', '__')}")


def _convert(raw: dict[str, Any], place: Any) -> Config:
    try:
        return msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        message, _, at = str(error).partition(" - at `$")
        dotted = at.rstrip("`").lstrip(".")
        if message.startswith("Object contains unknown field"):
            field = message.split("`")[1]
            dotted = f"{dotted}.{field}" if dotted else field
            raise ConfigError(f"{place(dotted)}: unknown key '{dotted}'") from None
        raise ConfigError(f"{place(dotted)}: {dotted}: {message}") from None


def _line_of(text: str, dotted: str) -> int:
    """The 1-based line that sets ``dotted`` (``recall.k``, ``vaults[1].path``), else where its section begins, else 1."""
    parts = [part for part in dotted.replace("[", ".").replace("]", "").split(".") if part and part != "..."]
    names = [part for part in parts if not part.isdigit()]
    wanted = next((int(part) for part in parts if part.isdigit()), 0)
    section: list[str] = []
    inside, seen, best = True, -1, 1
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.partition("#")[0].strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            section = _names(stripped.strip("[]"))
            seen += stripped.startswith("[[") and section == names[:1]
            inside = not stripped.startswith("[[") or seen == wanted
            key = section
        else:
            key = [*section, *_names(stripped.partition("=")[0])] if "=" in stripped else []
        if inside and key == names:
            return number
        if inside and key and key == names[: len(key)]:
            best = number
    return best


def _names(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _override(raw: dict[str, Any], name: str, value: str) -> None:
    keys = name.removeprefix("RECALLD_").lower().split("__")
    kind: Any = Config
    for key in keys:
        hints = get_type_hints(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else {}
        if key not in hints:
            raise ConfigError(f"{name}: unknown key '{'.'.join(keys)}'")
        kind = hints[key]
    table = raw
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):  # another variable gave the whole section, and not as a table
            raise ConfigError(f"{name}: {key} is not a table, but {table!r}")
    table[keys[-1]] = _value_of(value, kind)


def _value_of(value: str, kind: Any) -> Any:
    """A TOML value where it is one (numbers, booleans, lists, quoted strings), else, and for a text's key, the text itself."""
    try:
        found = tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return value
    return value if kind is str and not isinstance(found, str) else found
