"""`recalld status`: what runs, what waits, what is wrong."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from ...protocol.messages.control import ActorStatus, Status
from ..problems import newest, span, standing
from .context import Cli, clean, console, json_option, print_json

COLOURS = {"RUNNING": "green", "STARTING": "cyan", "STOPPING": "cyan", "BACKOFF": "yellow", "COOLING": "red"}


@click.command("status")
@json_option
@click.pass_obj
def status(cli: Cli, as_json: bool) -> None:
    """
    Show each process, the queues, what the index holds, and what is wrong.

    Exit code 0 when all is well, 1 when something is degraded, 3 when the daemon does not run.
    """
    found = cli.status()
    if as_json:
        print_json(report(found))
    elif found is None:
        click.echo(f"{cli.how_to_start()}; data: {cli.paths.data}")
    else:
        _show(found)
    raise click.exceptions.Exit(3 if found is None else 1 if found.degraded else 0)


def report(status: Status | None) -> dict[str, Any]:
    """The JSON of `status --json`; stable names that scripts may rely on."""
    if status is None:
        return {"running": False, "actors": {}, "index": {}, "queues": {}, "degraded": ["daemon"]}
    plain: dict[str, Any] = msgspec.to_builtins(status)
    actors = {}
    queues: dict[str, Any] = {}
    for name, actor in status.actors.items():
        vitals = actor.vitals
        actors[name] = {
            "pid": actor.pid,
            "state": actor.state,
            "generation": actor.generation,
            "restarts": actor.restarts,
            "uptime_s": actor.uptime_s,
            "lag_ms": vitals.lag_ms,
            "rss_bytes": vitals.rss_bytes,
            "beat_age_ms": actor.beat_age_ms,
            "last_exit": actor.last_exit,
            "last_error": vitals.facts.get("last_error", ""),
            "last_error_age_s": actor.last_error_age_s,
            "why": actor.why,
            "figures": vitals.figures,
            "facts": vitals.facts,
        }
        queues.update({f"{name}: {key}": msgspec.to_builtins(queue) for key, queue in vitals.queues.items()})
    return {
        "running": True,
        **{key: plain[key] for key in ("version", "pid", "uptime_s", "data", "runtime")},
        "actors": actors,
        "index": index_figures(status),
        "queues": queues,
        "degraded": list(status.degraded),
        "paused": status.paused,
        **_problem(status),
        "transitions": plain.get("transitions", []),
    }


def index_figures(status: Status) -> dict[str, Any]:
    """What the index holds, as the writer last told."""
    figures = status.actors["writer"].vitals.figures
    names = (
        "notes",
        "chunks",
        "vectors",
        "pending_vectors",
        "failed_vectors",
        "problems",
        "oldest_pending_ms",
        "vaults",
    )
    return {name: int(figures.get(name, 0)) for name in names}


def _problem(status: Status) -> dict[str, Any]:
    """The newest problem: as ``last_error`` while it is of now, then as ``past_error`` with its age."""
    problem = newest(status)
    past = problem is not None and not problem.is_current
    return {
        "last_error": problem.text if problem is not None and problem.is_current else "",
        "past_error": msgspec.to_builtins(problem) if past else None,
    }


def _show(status: Status) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    health = f"[yellow]degraded: {', '.join(status.degraded)}[/]" if status.degraded else "[green]all well[/]"
    paused = ", indexing is paused" if status.paused else ""
    out.print(
        f"recalld {status.version}: {health}{paused}, up {span(status.uptime_s)}, data {escape(clean(status.data))}"
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("process", "state", "pid", "up", "restarts", "lag", "memory", ""):
        table.add_column(column, justify="right" if column in ("pid", "restarts", "lag", "memory") else "left")
    for name, actor in status.actors.items():
        table.add_row(name, *_row(actor))
    out.print(table)
    index = index_figures(status)
    pending = f", {index['pending_vectors']:,} passages wait for vectors" if index["pending_vectors"] else ""
    out.print(f"index: {index['notes']:,} notes, {index['chunks']:,} passages, {index['vectors']:,} vectors{pending}")
    if history := status.actors["writer"].vitals.facts.get("history", ""):
        out.print(f"history: {escape(clean(history))}")
    if index["problems"]:
        out.print(f"[yellow]{index['problems']} notes could not be read as they stand: `recalld doctor` names them[/]")
    for name, actor in status.actors.items():
        for key, queue in actor.vitals.queues.items():
            if queue.depth or queue.refused:
                figures = f"{queue.depth}/{queue.limit} (peak {queue.peak}, {queue.policy}, refused {queue.refused})"
                named = key if key.startswith(name) else f"{name} {key}"
                out.print(f"{escape(clean(named))}: {figures}")
    for text in standing(status):
        out.print(f"[yellow]{escape(clean(text))}[/]")
    if problem := newest(status):
        style = "yellow" if problem.is_current else "dim"
        out.print(f"[{style}]last error, {problem.actor}{problem.when}:[/] {escape(clean(problem.text))}")


def _row(actor: ActorStatus) -> tuple[str, ...]:
    from rich.markup import escape

    colour = COLOURS.get(actor.state, "white")
    vitals = actor.vitals
    doing = vitals.busy_op or (actor.why if actor.state in ("BACKOFF", "COOLING", "STOPPING") else "")
    return (
        f"[{colour}]{actor.state}[/]",
        str(actor.pid or ""),
        span(actor.uptime_s),
        str(actor.restarts),
        f"{vitals.lag_ms:.0f} ms",
        f"{vitals.rss_bytes / 1e6:.0f} MB",
        f"[dim]{escape(clean(doing))}[/]",
    )
