"""`recalld session` and `recalld brief`: what agents did here, and what the next one is told."""

from __future__ import annotations

import click

from ...memory.capture.pages import duration, instant_of
from ...protocol.messages.capture import (
    Brief,
    Briefing,
    EndSession,
    EventPage,
    Place,
    Purged,
    PurgeSession,
    SessionEvents,
    SessionList,
    Sessions,
)
from .context import Cli, Failed, clean, complete, json_option, one_line, print_json
from .events import print_row
from .pages import here

PURGE_MS = 600_000


@click.group("session")
def session() -> None:
    """Sessions of agents, as their hooks told of them."""


@session.command("list")
@click.option("-n", "limit", default=20, show_default=True)
@click.option("--here", "only_here", is_flag=True, help="Only those of this folder's project.")
@json_option
@click.pass_obj
def list_(cli: Cli, limit: int, only_here: bool, as_json: bool) -> None:
    """List sessions, newest first."""
    reply = cli.ask("writer", SessionList(place=here(), all_projects=not only_here, limit=limit))
    assert isinstance(reply, Sessions)
    if as_json:
        print_json(complete(reply.items))
        return
    for each in reply.items:
        state = "live" if not each.ended_ms else duration(each.last_ms - each.started_ms) or "0s"
        title = each.title or "(nothing was asked)"
        where = f"{each.id}  {each.host:9} {each.project or '-':16}"
        click.echo(one_line(f"{instant_of(each.started_ms)}  {where} {state:>8}  {title}"))
    if not reply.items:
        click.echo("no sessions yet: `recalld install AGENT` sets up an agent's hooks", err=True)


@session.command("show")
@click.argument("id", required=False, default="")
@click.option("--events", "with_events", is_flag=True, help="Print its raw events instead of its page.")
@click.option("-n", "limit", default=100, show_default=True)
@json_option
@click.pass_obj
def show(cli: Cli, id: str, with_events: bool, limit: int, as_json: bool) -> None:
    """Print the page of session ID (its beginning is enough); without ID the last one that ended here."""
    reply = cli.ask("writer", SessionEvents(session=id, place=here(), limit=limit))
    assert isinstance(reply, EventPage)
    if not reply.total:
        raise Failed(
            f"there is no session '{id}': see `recalld session list`" if id else "no session has ended here yet"
        )
    listed = cli.ask("writer", SessionList(limit=500))
    assert isinstance(listed, Sessions)
    info = next((each for each in listed.items if each.id == reply.session), None)
    page = cli.paths.wiki / info.page if info is not None and info.page else None
    if as_json:
        print_json(complete({"session": info, "events": reply.items, "total": reply.total}))
    elif page is not None and page.exists() and not with_events:
        click.echo(clean(page.read_text(encoding="utf-8", errors="replace")), nl=False)
    else:
        for row in reply.items:
            print_row(row)
        if reply.total > len(reply.items):
            click.echo(f"… {reply.total - len(reply.items)} more: -n {reply.total}", err=True)


@session.command("end")
@click.argument("id")
@click.pass_obj
def end(cli: Cli, id: str) -> None:
    """End session ID, whose agent never said that it ended: its page and handoff are written."""
    cli.ask("writer", EndSession(session=id), 60_000)
    click.echo(f"session {id} has ended", err=True)


@session.command("purge")
@click.argument("id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_obj
def purge(cli: Cli, id: str, yes: bool, as_json: bool) -> None:
    """Remove session ID for good: from journal, database, spool, wiki, and the wiki's git history."""
    if not yes:
        click.confirm(f"Remove session {id} everywhere, git history included? This cannot be undone", abort=True)
    reply = cli.ask("writer", PurgeSession(session=id), PURGE_MS)
    assert isinstance(reply, Purged)
    if as_json:
        print_json(reply.report)
        return
    for where, what in reply.report.items():
        click.echo(f"{where:10} {what}")


@click.command("brief")
@click.option("--project", default="", help="The project, when it is not the one of this folder.")
@click.option("--host", default="", help="As this agent would be told (claude, codex …).")
@click.option("--max-chars", default=4000, show_default=True, help="At most so long.")
@json_option
@click.pass_obj
def brief(cli: Cli, project: str, host: str, max_chars: int, as_json: bool) -> None:
    """Print what an agent that starts here is told. Claims nothing."""
    place = here(project)
    reply = cli.ask("writer", Brief(place=Place(cwd=place.cwd, project=project, host=host), max_chars=max_chars))
    assert isinstance(reply, Briefing)
    if as_json:
        print_json(complete(reply))
    elif reply.text:
        click.echo(clean(reply.text))
    else:
        click.echo(f"there is nothing to tell about project {reply.project.name or '(none here)'} yet", err=True)
