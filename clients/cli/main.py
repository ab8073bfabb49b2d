"""
The ``recalld`` command. Families of commands live beside this file and are imported when they are used: an answer at the
prompt should not wait for code that it does not run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ...protocol.envelope import ProtocolError
from ...protocol.runtime import RuntimeFolderError, open_standard_streams
from ...protocol.version import VERSION
from .context import Cli, Failed, clean

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module beside this one, what it is for)
    "up": ("daemon", "Run the daemon here, watching these folders too."),
    "stop": ("daemon", "Stop the daemon."),
    "restart": ("daemon", "Restart one of the daemon's processes."),
    "pause": ("daemon", "Pause indexing; recall goes on."),
    "resume": ("daemon", "Resume indexing."),
    "add": ("vaults", "Watch a folder of notes."),
    "remove": ("vaults", "Stop watching a folder and forget its notes."),
    "list": ("vaults", "List the watched folders."),
    "ask": ("ask", "Ask your notes a question."),
    "feedback": ("feedback", "Say whether a note was helpful, stale or wrong."),
    "index": ("index", "Bring the index up to date and wait for it."),
    "stats": ("stats", "Show how a folder's notes hang together."),
    "lint": ("lint", "Show what is wrong with notes and pages, by rule."),
    "eval": ("evaluate", "Measure and tune recall on your notes."),
    "ab": ("ab", "Say which way of answering your questions prefer."),
    "status": ("status", "Show processes, queues, index and problems."),
    "mcp": ("daemon", "Attach an agent: MCP over stdio."),
    "page": ("pages", "Read, write and remove pages of the wiki."),
    "session": ("sessions", "List, show, end and purge agents' sessions."),
    "handoff": ("handoffs", "List, show, accept, cancel and open handoffs."),
    "message": ("messages", "Send, list, read and withdraw messages between projects."),
    "brief": ("sessions", "Print what an agent that starts here is told."),
    "events": ("events", "Print captured events; --follow goes on."),
    "spool": ("events", "Show events that wait for the daemon."),
    "import": ("transcripts", "Import past transcripts of Claude Code or Codex."),
    "backup": ("data", "Write a backup while the daemon runs."),
    "restore": ("data", "Put a backup back."),
    "export": ("data", "Copy the memory as plain files."),
    "reindex": ("data", "Rebuild the index from files."),
    "compact": ("data", "Give back the space of what was deleted."),
    "purge": ("data", "Forget for good."),
    "doctor": ("doctor", "Examine the installation and say what to do."),
    "install": ("install", "Attach recalld to coding agents."),
    "uninstall": ("install", "Take recalld out of agents' configuration."),
    "hook": ("hook", "Look at what the agents' hooks capture."),
    "model": ("model", "List, change, download or build the embedding model."),
    "graph": ("graph", "Draw how notes hang together."),
    "logs": ("logs", "Print what the processes wrote."),
    "metrics": ("logs", "Print metrics in Prometheus' format."),
    "completion": ("completion", "Print a completion script for your shell."),
    "top": ("top", "Watch the daemon on a screen."),
    "service": ("service", "Run the daemon as a service: systemd or launchd."),
}

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Recall", ("ask", "feedback", "index", "stats", "lint", "eval", "ab", "model", "graph")),
    ("Notes and pages", ("add", "remove", "list", "page")),
    (
        "Agents",
        ("install", "uninstall", "mcp", "hook", "session", "handoff", "message", "brief", "events", "spool", "import"),
    ),
    ("Daemon", ("up", "stop", "restart", "pause", "resume", "status", "top", "service", "doctor", "logs", "metrics")),
    ("Data", ("backup", "restore", "export", "reindex", "purge", "compact", "completion")),
)


class Commands(click.Group):
    """A group whose commands are imported on use and listed by what they are for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".{COMMANDS[cmd_name][0]}", __package__)
        found: click.Command = next(
            value for value in vars(module).values() if isinstance(value, click.Command) and value.name == cmd_name
        )
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of a pipe has gone (`recalld events | head`): nothing is wrong, and there is nobody to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise click.exceptions.Exit(0) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS:
            rows = [(name, COMMANDS[name][1]) for name in names if name in COMMANDS]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else " `recalld --help` lists them."
            raise click.UsageError(f"There is no command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--data", metavar="FOLDER", help="Where recalld keeps its files. [env: RECALLD_DATA]")
@click.option("--runtime", metavar="FOLDER", help="Where its sockets are. [env: RECALLD_RUNTIME]")
@click.version_option(VERSION, prog_name="recalld")
@click.pass_context
def recalld(ctx: click.Context, data: str | None, runtime: str | None) -> None:
    """
    A memory for AI coding agents, on your own machine.

    recalld watches folders of markdown notes and answers questions from them, remembers what agents did, and hands
    work from one agent to the next. It needs no API key and sends nothing anywhere.

    \b
    Start:    recalld up ~/notes          (leave it running; or: recalld service install)
    Ask:      recalld ask "what did we decide about retries?"
    Attach:   recalld install claude      (or codex, gemini, cursor …)
    """
    ctx.obj = Cli.at(data, runtime)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point. Exit codes: 0 done, 1 not done (a sentence on stderr says why), 2 wrong usage."""
    open_standard_streams()
    try:
        words = None if arguments is None else list(arguments)
        # Without standalone mode the code of click's Exit is what main returns.
        sys.exit(recalld.main(args=words, prog_name="recalld", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except (Failed, ProtocolError) as error:
        click.echo(clean(f"recalld: {error}"), err=True)
        sys.exit(getattr(error, "exit_code", 1))
    except (OSError, RuntimeFolderError) as error:
        # A disk that is full, a folder that may not be written: the system's own words name it.
        if os.environ.get("RECALLD_DEBUG"):
            raise
        click.echo(clean(f"recalld: {error}"), err=True)
        sys.exit(1)
