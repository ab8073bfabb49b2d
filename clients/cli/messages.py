"""`recalld message`: messages between projects."""

from __future__ import annotations

import sys
from typing import Literal

import click
import msgspec

from ...protocol import render
from ...protocol.messages.capture import (
    MessageCancel,
    MessageDone,
    MessageList,
    MessagePop,
    Messages,
    MessagesCancelled,
    MessageSend,
    Place,
)
from .context import Cli, Failed, clean, json_option, one_line, print_json
from .pages import here, project_option


def _place(project: str) -> Place:
    return msgspec.structs.replace(here(project), host="you")


@click.group("message")
def message() -> None:
    """Messages between projects: sent to one, read there by exactly one agent or person."""


@message.command("send")
@click.argument("to_project")
@click.argument("body", nargs=-1, required=True)
@click.option("--subject", default="", help="One line.")
@project_option
@json_option
@click.pass_obj
def send(cli: Cli, to_project: str, body: tuple[str, ...], subject: str, project: str, as_json: bool) -> None:
    """Leave BODY to whoever works in TO_PROJECT next. `-` takes it from stdin."""
    text = sys.stdin.read() if body == ("-",) else " ".join(body)
    asked = MessageSend(to_project=to_project, body=text, subject=subject, place=_place(project))
    reply = cli.ask("writer", asked)
    assert isinstance(reply, MessageDone)
    if reply.letter is None:
        raise Failed("the message was not sent")
    if as_json:
        print_json(render.letter(reply.letter))
        return
    secrets = f"; {reply.redacted} secrets removed" if reply.redacted else ""
    click.echo(one_line(f"{reply.letter.id} waits in project {reply.letter.to_project}{secrets}"), err=True)


@message.command("list")
@click.option("--sent", is_flag=True, help="What this project sent.")
@click.option("-n", "limit", default=50, show_default=True)
@project_option
@json_option
@click.pass_obj
def list_(cli: Cli, sent: bool, limit: int, project: str, as_json: bool) -> None:
    """List what waits for this project, oldest first."""
    box: Literal["inbox", "outbox"] = "outbox" if sent else "inbox"
    reply = cli.ask("writer", MessageList(place=_place(project), box=box, limit=limit))
    assert isinstance(reply, Messages)
    if as_json:
        print_json([render.letter(each) for each in reply.items])
        return
    for each in reply.items:
        other = f"to {each.to_project}" if sent else f"from {each.from_project}"
        first = each.subject or (each.body.splitlines() or [""])[0]
        click.echo(one_line(f"{each.id}  {render.instant(each.at_ms)}  {each.state:9} {other}: {first[:100]}"))
    if not reply.items:
        where = f"project {reply.project.name}" if reply.project.name else "this folder, which is in no project"
        click.echo(one_line(f"no messages {'sent by' if sent else 'for'} {where}"), err=True)


@message.command("pop")
@click.argument("id", required=False, default="")
@project_option
@json_option
@click.pass_obj
def pop(cli: Cli, id: str, project: str, as_json: bool) -> None:
    """Read message ID, or the oldest, and take it out of the inbox."""
    reply = cli.ask("writer", MessagePop(place=_place(project), id=id))
    assert isinstance(reply, MessageDone)
    if reply.letter is None:
        raise Failed(f"there is no message {id or 'waiting'} for project {reply.project.name}")
    if as_json:
        print_json(render.letter(reply.letter))
        return
    letter = reply.letter
    who = f"{letter.from_agent or 'somebody'} in project {letter.from_project}"
    click.echo(one_line(f"{letter.id} from {who}, {render.instant(letter.at_ms)}: {letter.subject}"), err=True)
    click.echo(clean(letter.body))


@message.command("cancel")
@click.argument("id", required=False, default="")
@click.option("--all", "everything", is_flag=True, help="Everything that this project sent.")
@project_option
@click.pass_obj
def cancel(cli: Cli, id: str, everything: bool, project: str) -> None:
    """Withdraw message ID, or all with --all, as far as nobody has read it."""
    if bool(id) == everything:
        raise click.UsageError("name a message, or pass --all")
    reply = cli.ask("writer", MessageCancel(place=_place(project), id=id))
    assert isinstance(reply, MessagesCancelled)
    if id and not reply.count:
        raise Failed(f"project {reply.project.name} has no unread message {id}: see `recalld message list --sent`")
    click.echo(f"withdrew {reply.count} {'message' if reply.count == 1 else 'messages'}", err=True)
