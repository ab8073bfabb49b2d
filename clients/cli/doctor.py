"""`recalld doctor`: look at everything that may be wrong, and say what to do."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...protocol.envelope import ProtocolError
from .. import doctor as examination
from .context import Cli, clean, console, json_option, print_json

MARKS = {"ok": "[green]ok[/]  ", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]"}


@click.command("doctor")
@click.option("--fix", is_flag=True, help="Do what is safe: tighten permissions, start processes again.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is not well.")
@json_option
@click.pass_obj
def doctor(cli: Cli, fix: bool, quiet: bool, as_json: bool) -> None:
    """
    Examine the installation: folders, daemon, model, vaults, database, spool, and the agents' hooks.

    Exit code 0 when all is well, 1 with warnings, 2 when something fails.
    """
    from rich.markup import escape

    findings = []
    out = console()
    for finding in examination.examine(examination.Patient(cli.paths, Path(os.path.expanduser("~")))):
        findings.append(finding)
        if not as_json and not (quiet and finding.level == "ok"):
            _show(out, finding)
        if fix and finding.fix is not None:
            try:
                finding.fix()
                said = "[green]done[/]"
            except (OSError, ProtocolError) as error:  # the other findings are worth as much
                said = f"[red]not done:[/] {escape(clean(str(error)))}"
            if not as_json:
                out.print(f"     {said}")
    if as_json:
        rows = [
            {"level": f.level, "name": f.name, "text": f.text, "do": f.do, "fixable": f.fix is not None}
            for f in findings
        ]
        print_json({"findings": rows, "worst": _worst(findings)})
    raise click.exceptions.Exit({"ok": 0, "warn": 1, "fail": 2}[_worst(findings)])


def _worst(findings: list[examination.Finding]) -> str:
    levels = {finding.level for finding in findings}
    return next((level for level in ("fail", "warn") if level in levels), "ok")


def _show(out: object, finding: examination.Finding) -> None:
    from rich.console import Console
    from rich.markup import escape

    assert isinstance(out, Console)
    out.print(f"{MARKS[finding.level]} {escape(finding.name)}: {escape(clean(finding.text))}")
    if finding.do:
        out.print(f"     [dim]→ {escape(finding.do)}[/]")
