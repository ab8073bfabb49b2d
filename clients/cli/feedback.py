"""`recalld feedback`: say whether a note helped."""

from __future__ import annotations

import os
from typing import get_args

import click

from ...protocol import render
from ...protocol.messages.capture import Feedback, FeedbackNoted, Place, Signal
from .context import Cli, json_option, one_line, print_json
from .pages import here


@click.command("feedback")
@click.argument("path")
@click.argument("signal", type=click.Choice(get_args(Signal)))
@click.option("--reason", default="", help="What is wrong with it (at most 500 characters are kept).")
@click.option("--vault", default="", help="When a path is in several vaults.")
@json_option
@click.pass_obj
def feedback(cli: Cli, path: str, signal: Signal, reason: str, vault: str, as_json: bool) -> None:
    """
    Say that the note at PATH was helpful or not, or that it is stale or wrong.

    It weighs in recall's ranking until the note changes. What you say here settles what agents said before.
    """
    place = Place(cwd=here().cwd, host="you")
    file = os.path.realpath(path) if os.path.isfile(path) else path
    reply = cli.ask("writer", Feedback(path=file, signal=signal, reason=reason, vault=vault, place=place))
    assert isinstance(reply, FeedbackNoted)
    if as_json:
        print_json(render.plain(reply, "tally"))
        return
    secrets = f"; {reply.redacted} secrets removed from the reason" if reply.redacted else ""
    click.echo(one_line(f"{reply.vault}: {reply.path} is {signal} until it changes{secrets}"), err=True)
