"""`recalld hook`: what the hooks do, looked at without doing it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click
import msgspec

from ...memory import redact
from ...memory.capture import events, projects
from ...protocol import place
from ..hooking import gate, letter
from .context import Cli, Failed, clean, json_option, print_json


@click.group("hook")
def hook() -> None:
    """Look at what the agents' hooks capture."""


@hook.command("check")
@click.argument("host")
@click.argument("event", default="")
@click.option("--file", "source", type=click.File("rb"), default="-", help="The payload; default is stdin.")
@json_option
@click.pass_obj
def check(cli: Cli, host: str, event: str, source: Any, as_json: bool) -> None:
    """
    Show what an event of HOST would store, and why. Stores nothing.

    Takes the JSON payload that the agent would give its hook:

    \b
      echo '{"hook_event_name":"UserPromptSubmit","prompt":"hi","cwd":"'$PWD'"}' | recalld hook check claude
    """
    if source is sys.stdin.buffer and sys.stdin.isatty():
        raise Failed("give the payload on stdin, or with --file", exit_code=2)
    try:
        payload = msgspec.json.decode(source.read())
    except msgspec.DecodeError as error:
        raise Failed(f"the payload is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise Failed("the payload is not a JSON object")
    report = describe(cli, host, event, payload)
    if as_json:
        print_json(report)
    else:
        _show(report)


def describe(cli: Cli, host: str, event: str, payload: dict[str, Any]) -> dict[str, Any]:
    """What the hook client and the daemon would make of ``payload``. Raises Failed on a bad redaction pattern."""
    home = os.path.expanduser("~")
    facts = place.look(letter.cwd_of(payload), home)
    place.read_head(facts)
    door = gate.Gate(facts, str(cli.paths.data), os.environ)
    decision, why = door.decide(payload)
    naming = next(
        (found for marker in facts.markers if (found := gate.policy_of(marker, home, str(cli.paths.data))).project),
        None,
    )
    project = projects.resolve(facts, naming)
    capture = cli.config.capture
    try:
        extra = redact.compile_extra(capture.redact_patterns)
    except redact.BadPattern as error:
        raise Failed(str(error)) from None
    intake = events.Intake(
        extra=extra, allow=capture.redact_allow, assistant_messages=capture.assistant_messages, home=home
    )
    wire = events.Wire(
        recalld=1, host=host, event=event, cwd=facts.cwd, branch=facts.branch, head=facts.head,
        payload=gate.bare(payload) if decision == "metadata" else payload,
        disposition="metadata" if decision == "metadata" else "",
    )  # fmt: skip
    made = events.accept(wire, int(time.time() * 1000), intake)
    stored: Any = None
    if isinstance(made, events.Dropped):
        decision, why = "drop", made.reason
    elif decision != "drop":
        stored = events.settle(made, project=project.name, root=project.root, home=home)
    return {
        "decision": decision,
        "why": why,
        "marker": facts.markers[0] if facts.markers else "",
        "project": msgspec.to_builtins(project),
        "stored": None if stored is None else msgspec.to_builtins(stored),
    }


def _show(report: dict[str, Any]) -> None:
    project = report["project"]
    click.echo(f"decision  {report['decision']}: {clean(report['why'])}")
    found = (
        "only guessed, so nothing is written to it"
        if project.get("guessed")
        else f"by {project.get('found_by', 'none')}"
    )
    click.echo(f"project   {clean(project['name']) or '(none)'} ({found})")
    if report["marker"]:
        click.echo(f"marker    {clean(report['marker'])}")
    if report["stored"] is None:
        click.echo("stored    nothing")
        return
    click.echo("stored")
    for key, value in report["stored"].items():
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        click.echo(f"  {key:14} " + clean(shown).replace("\n", "\n" + " " * 17))
