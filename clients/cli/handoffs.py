"""`recalld handoff`: work that one agent leaves for the next."""

from __future__ import annotations

import click

from ...memory.capture.briefing import handoff_text
from ...memory.capture.pages import instant_of
from ...protocol.messages.capture import (
    Handoff,
    HandoffAccept,
    HandoffBegin,
    HandoffCancel,
    HandoffDone,
    HandoffList,
    Handoffs,
    Place,
)
from .context import Cli, Failed, clean, complete, json_option, one_line, print_json
from .pages import here, project_option


@click.group("handoff")
def handoff() -> None:
    """Handoffs: opened when a session ends or by an agent, offered to the next one, claimed by exactly one."""


@handoff.command("list")
@click.option("--all", "all_projects", is_flag=True, help="Of every project.")
@click.option("-n", "limit", default=20, show_default=True)
@project_option
@json_option
@click.pass_obj
def list_(cli: Cli, all_projects: bool, limit: int, project: str, as_json: bool) -> None:
    """List handoffs, open ones first."""
    reply = cli.ask("writer", HandoffList(place=here(project), all_projects=all_projects, limit=limit))
    assert isinstance(reply, Handoffs)
    if as_json:
        print_json(complete(reply.items))
        return
    for each in reply.items:
        kind = "auto" if each.automatic else "manual"
        first = (each.summary.splitlines() or [""])[0]
        whose = f"{each.id}  {instant_of(each.at_ms)}  {each.state:9} {kind:6} {each.project:16} {each.from_agent}"
        click.echo(one_line(f"{whose}: {first[:100]}"))
    if not reply.items:
        click.echo(f"no handoffs{'' if all_projects else f' in project {reply.project.name}'}", err=True)


@handoff.command("show")
@click.argument("id")
@json_option
@click.pass_obj
def show(cli: Cli, id: str, as_json: bool) -> None:
    """Print handoff ID without claiming it."""
    reply = cli.ask("writer", HandoffList(place=here(), all_projects=True, limit=500))
    assert isinstance(reply, Handoffs)
    found = [each for each in reply.items if each.id == id] or [each for each in reply.items if each.id.startswith(id)]
    if len(found) != 1:
        raise Failed(
            f"there is no handoff '{id}'" if not found else f"'{id}' may be {', '.join(each.id for each in found)}"
        )
    _print(found[0], as_json)


@handoff.command("accept")
@click.argument("id", required=False, default="")
@click.option("--host", default="you", show_default=True, help="Who takes it.")
@click.option("--session", "session_id", default="", help="In which session.")
@project_option
@json_option
@click.pass_obj
def accept(cli: Cli, id: str, host: str, session_id: str, project: str, as_json: bool) -> None:
    """Claim handoff ID, or the best open one for this folder."""
    place = Place(cwd=here().cwd, project=project, host=host, session=session_id)
    reply = cli.ask("writer", HandoffAccept(place=place, id=id))
    assert isinstance(reply, HandoffDone)
    if reply.handoff is None:
        raise Failed(
            f"handoff {id} is not open: somebody has it, or it ended" if id else "there is no open handoff here"
        )
    _print(reply.handoff, as_json)


@handoff.command("cancel")
@click.argument("id")
@click.pass_obj
def cancel(cli: Cli, id: str) -> None:
    """Withdraw the open handoff ID."""
    reply = cli.ask("writer", HandoffCancel(id=id))
    assert isinstance(reply, HandoffDone)
    if reply.handoff is None:
        raise Failed(f"there is no open handoff '{id}': see `recalld handoff list`")
    click.echo(f"handoff {reply.handoff.id} is cancelled", err=True)


@handoff.command("new")
@click.argument("summary", nargs=-1, required=True)
@click.option("--to", "to_agent", default="", help="Only for this agent (claude, codex …).")
@click.option("--question", "questions", multiple=True, help="An open question (repeatable).")
@click.option("--next", "steps", multiple=True, help="A next step (repeatable).")
@click.option("--file", "files", multiple=True, help="A file that matters (repeatable).")
@project_option
@json_option
@click.pass_obj
def new(
    cli: Cli, summary: tuple[str, ...], to_agent: str, questions: tuple[str, ...], steps: tuple[str, ...],
    files: tuple[str, ...], project: str, as_json: bool,
) -> None:  # fmt: skip
    """Leave work for the next agent in this project."""
    place = Place(cwd=here().cwd, project=project, host="you")
    message = HandoffBegin(
        summary=" ".join(summary), place=place, to_agent=to_agent, open_questions=questions, next_steps=steps,
        files_touched=files,
    )  # fmt: skip
    reply = cli.ask("writer", message)
    assert isinstance(reply, HandoffDone)
    if reply.handoff is None:
        raise Failed("the handoff was not opened")
    if as_json:
        print_json(complete(reply.handoff))
    else:
        click.echo(f"{reply.handoff.id} waits for the next agent in project {reply.project.name}", err=True)


def _print(found: Handoff, as_json: bool) -> None:
    if as_json:
        print_json(complete(found))
        return
    click.echo(
        clean(handoff_text(found)).strip().replace("it becomes yours with your first prompt.", f"state {found.state}.")
    )
