"""Changing config.toml: comments and order are kept, and two commands at once both get their change in."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ...protocol.runtime import make_private
from .context import Cli, Failed

FIRST_LINE = "# recalld's configuration. Every key: docs/configuration.md\n"


@contextlib.contextmanager
def editing(cli: Cli) -> Iterator[tomlkit.TOMLDocument]:
    """
    The document to change; it is written when the block ends without an error. One command at a time.

    A config.toml that is a link (a folder of dotfiles) stays one: what it leads to is replaced. Raises Failed, OSError.
    """
    make_private(cli.paths.data)
    target = Path(os.path.realpath(cli.paths.config))
    with _alone(cli.paths.data / "config.lock"):
        try:
            document = tomlkit.parse(target.read_text(encoding="utf-8-sig"))
        except FileNotFoundError:
            document = tomlkit.parse(FIRST_LINE)
        except (TOMLKitError, UnicodeDecodeError) as error:
            raise Failed(f"{target}: {error}", 2) from None
        yield document
        _replace(target, tomlkit.dumps(document))
    cli.__dict__.pop("config", None)


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())  # a power cut must not leave an empty configuration
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
