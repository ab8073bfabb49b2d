"""Logs: one JSON object a line, one file per process, bounded."""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from ..protocol.config import Log

KEPT_FILES = 2

_encode = msgspec.json.Encoder().encode


def sendable(value: Any) -> Any:
    """A text without what UTF-8 cannot hold: bytes of file names that are not text are shown as \\udcXX. Others as they are."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


class JsonLines(logging.Formatter):
    """``{"at", "level", "actor", "logger", "text", "trace"?, "error"?}``; newlines inside are escaped by JSON."""

    def __init__(self, actor: str) -> None:
        super().__init__()
        self._actor = actor

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "actor": self._actor,
            "logger": record.name,
            "text": record.getMessage(),
        }
        if trace := getattr(record, "trace", ""):
            line["trace"] = trace
        if record.exc_info:
            line["error"] = "".join(traceback.format_exception(*record.exc_info))[-8000:]
        try:
            return _encode(line).decode()
        except UnicodeEncodeError:  # a file name that is not UTF-8
            return _encode({key: sendable(value) for key, value in line.items()}).decode()


class LastProblem(logging.Handler):
    """Remembers the newest warning or error and when it was, for status."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._at = 0.0

    @property
    def age_s(self) -> float:
        return round(time.monotonic() - self._at, 1)

    def emit(self, record: logging.LogRecord) -> None:
        self.text = sendable(record.getMessage())[:500]
        self._at = time.monotonic()


def configure(actor: str, folder: Path, settings: Log) -> LastProblem:
    """
    Send everything logged in this process to ``folder/<actor>.jsonl``; warnings also to what is returned.

    A log that cannot be written (full disk, no permission) is dropped without a sound: logging never stops an actor.
    """
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.handlers.clear()
    root.setLevel(settings.level.upper())
    formatter = JsonLines(actor)
    try:
        handler: logging.Handler = logging.handlers.RotatingFileHandler(
            folder / f"{actor}.jsonl", maxBytes=settings.max_mb * 1_000_000, backupCount=KEPT_FILES, encoding="utf-8"
        )
    except OSError:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root.addHandler(handler)
    problem = LastProblem()
    root.addHandler(problem)
    return problem


def take_up(settings: Log) -> None:
    """Go on logging by changed settings."""
    root = logging.getLogger()
    root.setLevel(settings.level.upper())
    for handler in root.handlers:
        if isinstance(handler, logging.handlers.RotatingFileHandler):
            handler.maxBytes = settings.max_mb * 1_000_000
