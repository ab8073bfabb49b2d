"""`recalld top`: the status screen."""

from __future__ import annotations

import sys

import click

from .context import Cli, Failed


@click.command("top")
@click.pass_obj
def top(cli: Cli) -> None:
    """
    Watch the daemon: processes, queues, indexing, recalls; ask questions, restart a process, pause indexing.

    Keys stand at the bottom; ? explains. It waits for a daemon that is away, and leaving it stops nothing.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failed("the screen needs a terminal: `recalld status` is for pipes")
    from ..tui.app import StatusApp
    from ..tui.source import Live

    StatusApp(Live(cli.paths)).run()
