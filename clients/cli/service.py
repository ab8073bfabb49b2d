"""`recalld service`: have the daemon run always."""

from __future__ import annotations

from pathlib import Path

import click

from .. import service as services
from .context import Cli, Failed, json_option, print_json


@click.group("service")
def service() -> None:
    """Run the daemon as a service of yours: started at login, restarted when it fails, started by the first client."""


def _manager() -> str:
    kind = services.manager()
    if not kind:
        raise Failed("this system has neither systemd nor launchd: start `recalld up` from what it has instead")
    return kind


@service.command("install")
@click.option("--print", "only_print", is_flag=True, help="Print the files instead of writing them.")
@click.option(
    "--kind", type=click.Choice(["systemd", "launchd"]), help="For which service manager. [default: this system's]"
)
@click.option("--no-start", is_flag=True, help="Write the files, start nothing.")
@click.pass_obj
def install(cli: Cli, only_print: bool, kind: str | None, no_start: bool) -> None:
    """Write the service definition and start it."""
    import sys

    kind = kind or _manager()
    if only_print:
        for file in services.render(kind, sys.executable, cli.paths, Path.home()):
            click.echo(f"# {file.path}\n{file.text}")
        return
    try:
        written = services.install(kind, cli.paths, Path.home(), start=not no_start)
    except (services.ServiceError, OSError) as error:
        raise Failed(str(error)) from None
    for path in written:
        click.echo(f"wrote {path}", err=True)
    if kind == "systemd":
        click.echo("To have it run without a login session too: loginctl enable-linger", err=True)


@service.command("uninstall")
@click.pass_obj
def uninstall(cli: Cli) -> None:
    """Stop the service and remove its definition. Notes, memory and configuration stay."""
    try:
        removed = services.uninstall(_manager(), cli.paths, Path.home())
    except (services.ServiceError, OSError) as error:
        raise Failed(str(error)) from None
    for path in removed:
        click.echo(f"removed {path}", err=True)
    if not removed:
        click.echo("the service is not installed", err=True)


@service.command("status")
@json_option
@click.pass_obj
def status(cli: Cli, as_json: bool) -> None:
    """Say whether the service is installed and what its manager says of it."""
    kind = services.manager()
    files = services.installed(kind, cli.paths, Path.home()) if kind else []
    words = services.state(kind) if files else "not installed"
    if as_json:
        print_json({"manager": kind, "files": [str(path) for path in files], "state": words})
    else:
        click.echo(f"{kind or 'no service manager'}: {words}")
    raise click.exceptions.Exit(0 if files else 1)
