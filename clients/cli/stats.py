"""`recalld stats`: whether the links of a folder of notes can be used."""

from __future__ import annotations

import datetime
from typing import Any

import click
import msgspec

from ...memory.recall.vault_stats import Report, Thresholds, report
from .context import Cli, Failed, clean, console, json_option, print_json
from .folder import read_folder

_HELP = {
    "orphan_warn": "Percent of notes without a link to them from which it warns …",
    "orphan_fail": "… and above which it fails.",
    "degree_ok_min": "Links per note: all is well from here …",
    "degree_ok_max": "… to here.",
    "degree_warn_min": "Links per note below which it fails …",
    "degree_warn_max": "… and above which it fails.",
    "component_ok": "Percent of notes in the largest part below which it warns.",
    "stale_days": "Age in days from which a concept note is stale.",
    "stale_warn": "Percent of stale concept notes above which it warns.",
}


def _threshold_options(command: Any) -> Any:
    for field in reversed(msgspec.structs.fields(Thresholds)):
        option = f"--threshold-{field.name.replace('_', '-')}"
        command = click.option(
            option, field.name, default=float(field.default), show_default=True, metavar="N", help=_HELP[field.name]
        )(command)
    return command


@click.command("stats")
@click.argument("folder", type=click.Path())
@click.option("--today", default="", metavar="DATE", help="The day from which age is counted. [default: today]")
@_threshold_options
@json_option
@click.pass_context
def stats(ctx: click.Context, /, folder: str, today: str, as_json: bool, **limits: float) -> None:
    """
    How the notes of FOLDER hang together: orphans, links per note, parts, stale concepts; links to nothing, to several
    notes, to notes that were replaced.

    Needs no daemon. Exit code 0: all is well; 1: something to look at; 2: a figure that makes recall worse, or no notes.
    """
    cli: Cli = ctx.obj
    try:
        day = datetime.date.fromisoformat(today) if today else datetime.date.today()
    except ValueError:
        raise click.UsageError(f"--today: '{today}' is not a date (YYYY-MM-DD)") from None
    try:
        read = read_folder(folder, cli.config)
    except OSError as error:
        raise Failed(str(error), 2) from None
    found = report(folder, read.notes, read.unresolved, read.ambiguous, day, Thresholds(**limits))
    if as_json:
        print_json(found)
    else:
        _show(found)
    ctx.exit(found.exit_code)


def _show(found: Report) -> None:
    from rich.markup import escape

    out = console()
    out.print(f"{found.pages} notes in {escape(clean(found.notes_dir))}")
    colour = {"ok": "green", "warn": "yellow", "fail": "red", "n/a": "dim"}
    for metric in found.metrics:
        value = "n/a" if metric.value is None else f"{metric.value:g} {metric.unit}"
        out.print(
            f"[{colour[metric.verdict]}]{metric.verdict:5}[/] {metric.name:20} {value:16} [dim]{metric.detail}[/]"
        )
        if metric.verdict in ("warn", "fail"):
            for example in metric.examples:
                out.print(f"        [dim]{escape(clean(example))}[/]")
