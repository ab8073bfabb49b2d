"""What every command shares: where things are, how to reach the daemon, how to print."""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ...protocol.blocking import ask_sync
from ...protocol.config import Config, ConfigError, load
from ...protocol.envelope import Unavailable
from ...protocol.messages import AnyReply
from ...protocol.messages.common import Message
from ...protocol.messages.control import GetStatus, Status
from ...protocol.runtime import Paths, locate
from ..terminal import clean, one_line

if TYPE_CHECKING:
    from rich.console import Console

CALL_MS = 5_000


class Failed(Exception):
    """Raised when a command cannot do what it was asked; the text says why and what to do."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Cli:
    """The state of one invocation."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths

    @classmethod
    def at(cls, data: str | None, runtime: str | None) -> Cli:
        return cls(locate(data, runtime))

    @functools.cached_property
    def config(self) -> Config:
        """The configuration. Raises Failed, naming file and line."""
        try:
            return load(self.paths.config)
        except (ConfigError, OSError) as error:
            raise Failed(str(error), exit_code=2) from None

    def ask(self, actor: str, message: Message, budget_ms: int = CALL_MS) -> AnyReply:
        """One call to an actor. Raises ProtocolError (Unavailable when it is down, saying how to start it)."""
        try:
            return ask_sync(self.paths.socket(actor), message, budget_ms=budget_ms)
        except Unavailable as error:
            if actor != "control" and self.status(1000) is None:
                raise Unavailable(self.how_to_start()) from error
            raise

    def status(self, budget_ms: int = CALL_MS) -> Status | None:
        """The daemon's status, None when no daemon runs."""
        try:
            reply = self.ask("control", GetStatus(), budget_ms)
        except Unavailable:
            return None
        assert isinstance(reply, Status)
        return reply

    def need_daemon(self) -> Status:
        """The daemon's status. Raises Failed, saying how to start it, when it does not run."""
        status = self.status()
        if status is None:
            raise Failed(self.how_to_start())
        return status

    def how_to_start(self) -> str:
        """That the daemon does not run, and what starts it here."""
        from .. import service

        kind = service.manager()
        if kind and service.installed(kind, self.paths, Path.home()):
            command = " ".join(service.START[kind]).format(uid=os.getuid())
            return f"the daemon does not run, though its service is installed: `{command}`, or see `recalld service status`"
        return "the daemon does not run: start it with `recalld up` (or `recalld service install`)"


def console(*, stderr: bool = False) -> Console:
    """A rich console that obeys NO_COLOR and stays plain in a pipe."""
    from rich.console import Console

    # Rich would wrap piped output at 80 columns; a script wants whole lines.
    wide = None if (sys.stderr if stderr else sys.stdout).isatty() else 10_000
    return Console(stderr=stderr, highlight=False, soft_wrap=wide is not None, width=wide)


def working_folder() -> str:
    """The folder in which the command runs; '' when it was removed meanwhile, or its name is not UTF-8."""
    try:
        return os.getcwd().encode().decode()
    except (OSError, UnicodeEncodeError):
        return ""


def print_json(value: Any) -> None:
    """Print any message or plain value as JSON, sorted only as it is."""
    click.echo(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=None if not _pretty() else 2))


def _pretty() -> bool:
    return sys.stdout.isatty() or bool(os.environ.get("RECALLD_DEBUG"))


__all__ = ["CALL_MS", "Cli", "Failed", "clean", "console", "json_option", "one_line", "print_json", "working_folder"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def complete(value: Any) -> Any:
    """A message with every field, for scripts: on the wire fields that have their default are left out."""
    if isinstance(value, msgspec.Struct):
        return {field.name: complete(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
    if isinstance(value, list | tuple):
        return [complete(each) for each in value]
    return {key: complete(each) for key, each in value.items()} if isinstance(value, dict) else value
