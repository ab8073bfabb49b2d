"""`recalld page`: read, write, remove pages of the wiki, and see their history."""

from __future__ import annotations

import sys
from typing import IO

import click

from ...protocol.messages.capture import (
    DeletePage,
    PageDeleted,
    PageHistory,
    PageLog,
    PageText,
    PageWritten,
    Place,
    ReadPage,
    WritePage,
)
from .context import Cli, Failed, clean, complete, json_option, one_line, print_json, working_folder

PAGE_MS = 15_000

project_option = click.option("--project", default="", help="The project, when it is not the one of this folder.")


def here(project: str = "") -> Place:
    """Where this command is run."""
    return Place(cwd=working_folder(), project=project)


@click.group("page")
def page() -> None:
    """Pages of the wiki: markdown files under git, which agents and you write together."""


@page.command("read")
@click.argument("path")
@project_option
@json_option
@click.pass_obj
def read(cli: Cli, path: str, project: str, as_json: bool) -> None:
    """Print the page at PATH (relative to the project: decisions/use-ninja)."""
    reply = cli.ask("writer", ReadPage(path=path, place=here(project)), PAGE_MS)
    assert isinstance(reply, PageText)
    if as_json:
        print_json(complete(reply))
    elif not reply.not_found:
        click.echo(clean(reply.text) if sys.stdout.isatty() else reply.text, nl=not reply.text.endswith("\n"))
    if reply.not_found:
        raise Failed(f"there is no page {reply.path} in project {reply.project.name or '(none here)'}")


@page.command("write")
@click.argument("path")
@click.option(
    "--file", type=click.File("r", encoding="utf-8"), default="-", help="Take the text from here. [default: stdin]"
)
@click.option("--title", default="")
@click.option("--kind", default="", help="decision, gotcha, procedure, concept, rule, note …")
@click.option("--tag", "tags", multiple=True, help="Repeatable.")
@click.option(
    "--relation", "relations", multiple=True, metavar="KIND=PAGE", help="causes=…, fixes=…, contradicts=… (repeatable)."
)
@click.option("--supersedes", default="", metavar="PAGE", help="The page that this one replaces.")
@click.option("--pin", "pinned", is_flag=True, help="Show it in every briefing of the project.")
@click.option("--expires", default="", metavar="DATE")
@click.option(
    "--expect", "expect_hash", default="", metavar="HASH", help="Write only over this version (see `page read --json`)."
)
@click.option("--create", "create_only", is_flag=True, help="Write only when there is no such page.")
@click.option("--everywhere", is_flag=True, help="A page that holds in every project.")
@project_option
@json_option
@click.pass_obj
def write(
    cli: Cli, path: str, file: IO[str], title: str, kind: str, tags: tuple[str, ...], relations: tuple[str, ...],
    supersedes: str, pinned: bool, expires: str, expect_hash: str, create_only: bool, everywhere: bool, project: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Write the page at PATH. A page that a person edited is only replaced with --expect."""
    related: dict[str, tuple[str, ...]] = {}
    for each in relations:
        name, sign, target = each.partition("=")
        if not sign or not target:
            raise click.UsageError(f"--relation {each}: write it as KIND=PAGE")
        related[name] = (*related.get(name, ()), target)
    message = WritePage(
        path=path, body=file.read(), place=here(project), title=title, kind=kind, tags=tags, relations=related,
        pinned=pinned, expires=expires, supersedes=supersedes, expect_hash=expect_hash, create_only=create_only,
        scope="global" if everywhere else "project",
    )  # fmt: skip
    reply = cli.ask("writer", message, PAGE_MS)
    assert isinstance(reply, PageWritten)
    if as_json:
        print_json(complete(reply))
    if reply.twin:
        raise Failed(
            f"nothing was written: {reply.twin} seems to be the same page; write that one, or give another title"
        )
    if not as_json:
        removed = f"; {reply.redacted} secrets removed" if reply.redacted else ""
        done = "created" if reply.created else "wrote"
        click.echo(one_line(f"{done} {reply.file} (project {reply.project.name}{removed})"), err=True)


@page.command("rm")
@click.argument("path")
@click.option("--expect", "expect_hash", default="", metavar="HASH", help="Remove only this version.")
@project_option
@json_option
@click.pass_obj
def rm(cli: Cli, path: str, expect_hash: str, project: str, as_json: bool) -> None:
    """Remove the page at PATH. Its versions stay in git."""
    reply = cli.ask("writer", DeletePage(path=path, place=here(project), expect_hash=expect_hash), PAGE_MS)
    assert isinstance(reply, PageDeleted)
    if as_json:
        print_json(complete(reply))
    elif reply.existed:
        click.echo(one_line(f"removed {reply.path} (project {reply.project.name})"), err=True)
    else:
        click.echo(one_line(f"there was no page {reply.path} in project {reply.project.name}"), err=True)


@page.command("log")
@click.argument("path")
@click.option("-n", "limit", default=20, show_default=True)
@project_option
@json_option
@click.pass_obj
def log(cli: Cli, path: str, limit: int, project: str, as_json: bool) -> None:
    """Print the versions of the page at PATH, newest first."""
    reply = cli.ask("writer", PageLog(path=path, place=here(project), limit=limit), PAGE_MS)
    assert isinstance(reply, PageHistory)
    if as_json:
        print_json(complete(reply))
        return
    for version in reply.versions:
        click.echo(one_line(f"{version.commit[:10]}  {version.at}  {version.author}: {version.subject}"))
    if not reply.versions:
        raise Failed(f"the wiki's history has no page {reply.path} in project {reply.project.name or '(none here)'}")
