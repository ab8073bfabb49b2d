"""`recalld events` and `recalld spool`: what hooks sent, and what could not be delivered yet."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import click

from ...protocol.envelope import ProtocolError, Unavailable
from ...protocol.messages.capture import EventPage, EventRow, SessionEvents
from .context import Cli, Failed, clean, complete, json_option, one_line, print_json

POLL_S = 0.5
TEXT_CHARS = 160


@click.command("events")
@click.option("--session", default="", help="Only of this session (its beginning is enough).")
@click.option("--kind", "kinds", multiple=True, help="Only of this kind: user-prompt, post-tool-use … (repeatable).")
@click.option("--query", default="", help="Only those that contain one of these words.")
@click.option("-n", "limit", default=20, show_default=True, help="The last so many.")
@click.option("--follow", is_flag=True, help="Go on printing what comes in, until Ctrl-C.")
@json_option
@click.pass_obj
def events(cli: Cli, session: str, kinds: tuple[str, ...], query: str, limit: int, follow: bool, as_json: bool) -> None:
    """Print captured events, oldest first."""

    def ask(after_seq: int, count: int, offset: int = 0) -> EventPage:
        reply = cli.ask(
            "writer",
            SessionEvents(session=session, kinds=kinds, query=query, after_seq=after_seq, limit=count, offset=offset),
        )
        assert isinstance(reply, EventPage)
        return reply

    total = ask(0, 1).total
    page = ask(0, limit, max(0, total - limit))
    seen = 0
    if not page.items and not follow:
        click.echo("no such events: `recalld install AGENT` sets up an agent's hooks", err=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for row in page.items:
                seen = max(seen, row.seq)
                print_json(complete(row)) if as_json else print_row(row)
            if not follow:
                return
            if not page.items:
                time.sleep(POLL_S)
            try:
                page = ask(seen, 200)
            except ProtocolError as error:
                click.echo(f"recalld: {error.text}; trying again", err=True)
                time.sleep(2 * POLL_S)
                page = EventPage(items=())


def print_row(row: EventRow) -> None:
    """One event on one line."""
    what = row.command or ", ".join(row.paths) or " ".join(row.text.split())
    tool = f" {row.tool}" if row.tool else ""
    outcome = f" [{row.outcome}]" if row.outcome else ""
    head = f"{row.at}  {row.host} {row.project or '-'} {row.kind}{tool}{outcome}"
    click.echo(f"{one_line(head)}  {one_line(what[:TEXT_CHARS])}")


@click.command("spool")
@click.option("--retry", is_flag=True, help="Put refused events back, to be taken in once more.")
@json_option
@click.pass_obj
def spool(cli: Cli, retry: bool, as_json: bool) -> None:
    """Show events that wait for the daemon, and those that it refused, with the reason."""
    folder, dead = cli.paths.spool, cli.paths.dead_letters
    waiting = sorted(path.name for path in folder.glob("*.json")) if folder.is_dir() else []
    refused: list[dict[str, str]] = []
    for path in sorted(dead.glob("*.json")) if dead.is_dir() else ():
        reason = path.with_name(path.name + ".reason")
        refused.append({"file": str(path), "reason": reason.read_text().strip() if reason.exists() else "unknown"})
    if retry:
        for each in refused:
            name = os.path.basename(each["file"])
            os.replace(each["file"], folder / name)
            (dead / f"{name}.reason").unlink(missing_ok=True)
    delivered: Any = None
    held = ""
    with contextlib.suppress(Unavailable, Failed, KeyError):
        status = cli.status(1000)
        if status is not None:
            vitals = status.actors["writer"].vitals
            delivered, held = int(vitals.figures.get("spool_delivered", 0)), vitals.facts.get("spool_held", "")
    if as_json:
        print_json({"waiting": len(waiting), "refused": refused, "delivered": delivered, "folder": str(folder)})
        return
    click.echo(
        f"{len(waiting)} waiting, {len(refused)} refused" + ("" if delivered is None else f", {delivered} delivered")
    )
    if delivered is None and waiting:
        click.echo("the daemon does not run: they are taken in when it does", err=True)
    if held:
        click.echo(clean(held), err=True)
    for each in refused:
        click.echo(f"{each['file']}: {clean(each['reason'])}" + (" (put back)" if retry else ""))
