"""`recalld install` and `recalld uninstall`: recalld in agents' own configuration files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from .. import install as installer
from .context import Cli, Failed, console

AGENTS = click.Choice(sorted(installer.HOSTS))

yes_option = click.option("--yes", "--apply", "-y", "yes", is_flag=True, help="Write without asking.")


def _chosen(agents: Sequence[str], where: installer.Setting) -> list[installer.Host]:
    if agents:
        return [installer.HOSTS[name] for name in dict.fromkeys(agents)]
    return []


def _carry_out(
    hosts: Sequence[installer.Host],
    plan: Callable[[installer.Host], list[installer.Change]],
    *,
    yes: bool,
    nothing: str,
    done: Callable[[installer.Host], str],
) -> None:
    written: set[Path] = set()
    try:
        for host in hosts:
            changes = [change for change in plan(host) if change.path not in written]
            if not changes:
                click.echo(f"{host.title}: {nothing}", err=True)
                continue
            out = console()
            for change in changes:
                out.print(change.diff(), style=None, markup=False, end="")
            if not yes:
                if not sys.stdin.isatty():
                    raise Failed(f"nothing was written: to write this for {host.title}, run it again with --yes")
                if not click.confirm(f"Write this for {host.title}?", err=True):
                    continue
            for change in changes:
                change.apply()
                if change.after is None or change.before is not None:
                    installer.forget_backup(change)
                written.add(change.path)
            click.echo(f"{host.title}: {done(host)}", err=True)
    except installer.InstallError as error:
        raise Failed(str(error)) from None


@click.command("install")
@click.argument("agents", nargs=-1, type=AGENTS)
@yes_option
@click.option("--no-hooks", is_flag=True, help="MCP only: recall, but no capture of sessions.")
@click.option("--no-mcp", is_flag=True, help="Hooks only: capture of sessions, but no recall.")
@click.option("--python-only", is_flag=True, help="No /bin/sh script before the hook client, where nc could serve one.")
@click.option(
    "--command-hooks",
    is_flag=True,
    help="Hooks start a program each time, also where the agent could call the MCP entry.",
)
@click.pass_obj
def install(
    cli: Cli, agents: tuple[str, ...], yes: bool, no_hooks: bool, no_mcp: bool, python_only: bool, command_hooks: bool
) -> None:
    """
    Attach recalld to AGENTS: an MCP entry for recall, hooks to capture sessions.

    Shows what it would change first. Your own entries and comments stay, a backup is left beside each file, and
    `recalld uninstall` gives everything back. Without AGENTS it lists the ones that are on this machine.
    """
    where = replace(installer.setting(paths=cli.paths, quick=not python_only), tool_hooks=not command_hooks)
    hosts = _chosen(agents, where)
    if not hosts:
        _list(where)
        return

    def plan(host: installer.Host) -> list[installer.Change]:
        targets = installer.targets(host, where, mcp=not no_mcp, hooks=not no_hooks)
        if where.wrapper and host.hooks and not no_hooks:
            targets.insert(0, installer.script_target(where, cli.paths))
        return [change for target in targets if (change := installer.installing(target)) is not None]

    _carry_out(
        hosts, plan, yes=yes, nothing="everything is there already", done=lambda host: f"done. {host.afterwards}"
    )


@click.command("uninstall")
@click.argument("agents", nargs=-1, type=AGENTS)
@yes_option
@click.pass_obj
def uninstall(cli: Cli, agents: tuple[str, ...], yes: bool) -> None:
    """
    Take recalld out of AGENTS' configuration (of every agent's without AGENTS), and nothing else.

    Notes, memory and recalld's own configuration stay.
    """
    where = installer.setting(paths=cli.paths)
    hosts = _chosen(agents, where) or list(installer.HOSTS.values())

    def plan(host: installer.Host) -> list[installer.Change]:
        targets = [
            target
            for target in installer.targets(host, installer.as_installed(host, where))
            if not agents or not _shared(target, host, where, agents)
        ]
        return [change for target in targets if (change := installer.removing(target)) is not None]

    found = hosts if agents else [host for host in hosts if plan(host)]
    if not found:
        click.echo("recalld is in no agent's configuration", err=True)
    _carry_out(found, plan, yes=yes, nothing="nothing of recalld's is there", done=lambda host: "removed")
    script = installer.script_target(where, cli.paths)
    if not any(finding.part == "hooks" and finding.state != "absent" for finding in installer.present(paths=cli.paths)):
        script.path.unlink(missing_ok=True)


def _shared(target: installer.Target, host: installer.Host, where: installer.Setting, agents: Sequence[str]) -> bool:
    """Whether another host, which stays, uses this file too (VS Code and Copilot CLI share their hooks)."""
    for other in installer.HOSTS.values():
        if other.name == host.name or other.name in agents:
            continue
        if any(target.path == theirs.path for theirs in installer.targets(other, where, mcp=False)):
            return any(installer.removing(theirs) for theirs in installer.targets(other, where, hooks=False))
    return False


def _list(where: installer.Setting) -> None:
    found = {host.name for host in installer.found_hosts(where)}
    states: dict[str, set[str]] = {}
    for finding in installer.present(where.home, where.environ):
        states.setdefault(finding.host, set()).add(f"{finding.part}: {finding.state}")
    for host in installer.HOSTS.values():
        words = ", ".join(sorted(states.get(host.name, ()))) if host.name in found else "not on this machine"
        click.echo(f"{host.name:15} {host.title:15} {words}")
    click.echo("\nAttach with: recalld install AGENT…", err=True)
