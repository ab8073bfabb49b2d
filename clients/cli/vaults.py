"""Commands for the watched folders. They live in config.toml, whose comments and order are kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click
import tomlkit
from tomlkit.items import AoT

from ...protocol.config import VaultConfig
from ...protocol.envelope import ProtocolError
from ...protocol.messages.control import Reload
from ...protocol.runtime import make_private
from .context import Cli, Failed, json_option, one_line, print_json


def add_vaults(cli: Cli, folders: Iterable[str]) -> list[VaultConfig]:
    """
    Add folders to config.toml and tell a running daemon; those that are there already are left alone.

    Returns what was added. Raises Failed for a path that is not a folder, or lies inside another watched one.
    """
    known = {_real(vault.path) for vault in cli.config.vaults}
    added: list[VaultConfig] = []
    for folder in folders:
        root = _real(folder)
        if not os.path.isdir(root):
            raise Failed(f"{folder} is not a folder")
        if root in known:
            continue
        for other in known:
            if root.startswith(other + os.sep):
                raise Failed(f"{folder} lies inside {other}, which is watched already")
            if other.startswith(root + os.sep):
                raise Failed(f"{other}, which is watched already, lies inside {folder}: remove it first")
        if root == str(cli.paths.data) or str(cli.paths.data).startswith(root + os.sep):
            raise Failed(f"{folder} contains recalld's own files ({cli.paths.data})")
        known.add(root)
        added.append(VaultConfig(path=root, name=_free_name(cli, added, root)))
    if added:
        _edit(cli, add=added)
    return added


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _free_name(cli: Cli, added: list[VaultConfig], root: str) -> str:
    taken = {vault.name or Path(vault.path).name for vault in (*cli.config.vaults, *added)}
    base = Path(root).name or "notes"
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1000))) if name not in taken)


def _edit(cli: Cli, add: Iterable[VaultConfig] = (), drop: str = "") -> None:
    """Rewrite the vaults of config.toml, atomically, and have a running daemon take them up."""
    make_private(cli.paths.data)
    try:
        text = cli.paths.config.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = "# recalld's configuration. Every key: docs/configuration.md\n"
    document = tomlkit.parse(text)
    vaults = document.get("vaults")
    if not isinstance(vaults, AoT):
        vaults = tomlkit.aot()
        document["vaults"] = vaults
    for index in reversed(range(len(vaults))):
        if drop and _real(str(vaults[index]["path"])) == drop:
            del vaults[index]
    for vault in add:
        table = tomlkit.table()
        table["path"] = vault.path
        table["name"] = vault.name
        vaults.append(table)
    if not vaults:
        del document["vaults"]
    temporary = cli.paths.config.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(tomlkit.dumps(document), encoding="utf-8")
    temporary.chmod(0o600)
    os.replace(temporary, cli.paths.config)
    cli.__dict__.pop("config", None)
    try:
        cli.ask("control", Reload())
    except ProtocolError:
        pass  # no daemon: the next one reads the file


@click.command("add")
@click.argument("folder", type=click.Path())
@click.pass_obj
def add(cli: Cli, folder: str) -> None:
    """Watch FOLDER: its markdown notes become findable. A running daemon takes it up at once. Nothing in it is changed."""
    added = add_vaults(cli, [folder])
    if not added:
        click.echo(one_line(f"{folder} is watched already"), err=True)
        return
    running = cli.status(1000) is not None
    hint = "" if running else " (the daemon does not run: `recalld up`)"
    click.echo(one_line(f"watching {added[0].path} as '{added[0].name}'{hint}"), err=True)


@click.command("remove")
@click.argument("folder", type=click.Path())
@click.pass_obj
def remove(cli: Cli, folder: str) -> None:
    """Stop watching FOLDER (a path or a vault's name). Its notes leave the index; the files stay as they are."""
    root = _real(folder)
    for vault in cli.config.vaults:
        if folder == vault.name or root == _real(vault.path):
            _edit(cli, drop=_real(vault.path))
            click.echo(one_line(f"no longer watching {vault.path}"), err=True)
            return
    known = ", ".join(vault.name or vault.path for vault in cli.config.vaults) or "none"
    raise Failed(f"{folder} is not watched (watched: {known})")


@click.command("list")
@json_option
@click.pass_obj
def list_(cli: Cli, as_json: bool) -> None:
    """List the watched folders."""
    rows = [
        {"name": vault.name or Path(vault.path).name, "path": vault.path, "present": os.path.isdir(vault.path)}
        for vault in cli.config.vaults
    ]
    if as_json:
        print_json({"vaults": rows})
        return
    if not rows:
        click.echo("no folder is watched: `recalld add FOLDER`", err=True)
    for row in rows:
        there = "" if row["present"] else "  (not there now)"
        click.echo(one_line(f"{row['name']}\t{row['path']}{there}"))
