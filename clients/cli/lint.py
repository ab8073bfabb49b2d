"""`recalld lint`: what is wrong with notes and pages as a memory."""

from __future__ import annotations

from typing import get_args

import click

from ...protocol import render
from ...protocol.messages.capture import DeletePage, PageDeleted, Place
from ...protocol.messages.recall import Finding, FindingKind, Lint, LintReport
from .context import Cli, clean, console, json_option, print_json
from .pages import PAGE_MS

LINT_MS = 30_000
SHOWN = 25
"""Findings of one kind that are printed; --json and --kind give all."""


@click.command("lint")
@click.option("--vault", default="", help="Only this vault (the wiki is called wiki).")
@click.option("--project", default="", help="Only notes and pages of this project.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(get_args(FindingKind)), help="Only this kind (repeatable)."
)
@click.option("--cold", is_flag=True, help="Also session pages that nobody needs any more, by age, use and feedback.")
@click.option("--apply", "remove", is_flag=True, help="With --cold: remove those pages. Git keeps them.")
@json_option
@click.pass_context
def lint(
    ctx: click.Context,
    vault: str,
    project: str,
    kinds: tuple[FindingKind, ...],
    cold: bool,
    remove: bool,
    as_json: bool,
) -> None:
    """
    Report what misleads whoever asks: links to nothing, to several notes or to superseded ones, notes of one title,
    declared contradictions, what feedback calls stale or wrong, pins that do not keep, rules and focus pages that grew old.

    Changes nothing without --apply. Exit code 0: no warnings; 1: warnings.
    """
    cli: Cli = ctx.obj
    if remove and not cold:
        raise click.UsageError("--apply removes cold session pages: pass --cold too")
    reply = cli.ask("query", Lint(vault=vault, project=project, kinds=kinds, cold=cold), LINT_MS)
    assert isinstance(reply, LintReport)
    removed = _remove(cli, reply) if remove else []
    if as_json:
        print_json({**render.lint(reply), **({"removed": removed} if remove else {})})
    else:
        _show(reply, all_of=bool(kinds))
        if remove:
            click.echo(f"removed {len(removed)} session pages; `recalld page log PATH` has their versions", err=True)
    ctx.exit(1 if reply.warnings else 0)


def _remove(cli: Cli, report: LintReport) -> list[str]:
    removed = []
    for finding in report.findings:
        if finding.kind != "cold_session":
            continue
        project, _, path = finding.pages[0].partition("/")
        reply = cli.ask("writer", DeletePage(path=path, place=Place(project=project)), PAGE_MS)
        assert isinstance(reply, PageDeleted)
        if reply.existed:
            removed.append(finding.pages[0])
    return removed


def _show(report: LintReport, *, all_of: bool) -> None:
    from rich.markup import escape

    out = console()
    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.kind, []).append(finding)
    for kind, found in groups.items():
        colour = "yellow" if any(each.severity == "warning" for each in found) else "dim"
        out.print(f"[{colour}]{kind.replace('_', ' ')}[/] {report.counts[found[0].kind]}")
        for each in found if all_of else found[:SHOWN]:
            first, *others = each.pages
            more = f" ({', '.join(others)})" if others else ""
            out.print(f"  {escape(clean(first))}: {escape(clean(each.text + more))}", soft_wrap=True, highlight=False)
        if not all_of and len(found) > SHOWN:
            out.print(f"  [dim]… {report.counts[found[0].kind] - SHOWN} more: --kind {kind}[/]")
    if not report.findings:
        out.print(f"{report.notes} notes: nothing found")
