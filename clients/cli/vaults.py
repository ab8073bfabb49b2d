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
from .context import Cli, Failed, json_option, one_line, print_json
from .settings import editing


def add_vaults(cli: Cli, folders: Iterable[str]) -> list[VaultConfig]:
    """
    Add folders to config.toml and tell a running daemon; those that are there already are left alone.

    Returns what was added. Raises Failed for a path that is not a folder, or that shares files with another watched one or
    with recalld's own.
    """
    known = {_real(vault.path) for vault in cli.config.vaults}
    own = _real(str(cli.paths.data))
    added: list[VaultConfig] = []
    for folder in folders:
        root = _real(folder)
        if not os.path.isdir(root):
            raise Failed(f"{folder} is not a folder")
        if root in known:
            continue
        try:
            root.encode()
        except UnicodeEncodeError:
            raise Failed(f"the name of {os.fsencode(folder)!r} is not UTF-8: config.toml cannot hold it") from None
        for other in known:
            if _inside(root, other):
                raise Failed(f"{folder} lies inside {other}, which is watched already")
            if _inside(other, root):
                raise Failed(f"{other}, which is watched already, lies inside {folder}: remove it first")
        if _inside(own, root):
            raise Failed(f"{folder} contains recalld's own files ({cli.paths.data})")
        if _inside(root, own):
            raise Failed(f"{folder} lies inside recalld's own folder; the pages there are found without being watched")
        known.add(root)
        added.append(VaultConfig(path=root, name=_free_name(cli, added, root)))
    if added:
        _edit(cli, add=added)
    return added


def _name(vault: VaultConfig) -> str:
    """What answers and `recalld list` call it."""
    return vault.name or Path(vault.path).name


def _real(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _inside(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or below it; both absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _free_name(cli: Cli, added: list[VaultConfig], root: str) -> str:
    taken = {_name(vault) for vault in (*cli.config.vaults, *added)}
    base = Path(root).name or "notes"
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, 1000))) if name not in taken)


def _edit(cli: Cli, add: Iterable[VaultConfig] = (), drop: str = "") -> None:
    """
    Rewrite the vaults of config.toml, and have a running daemon take them up.

    Raises Failed when a variable of the environment overrides what was written.
    """
    with editing(cli) as document:
        vaults = _tables(document)
        for index in reversed(range(len(vaults))):
            if drop and _real(str(vaults[index]["path"])) == drop:
                del vaults[index]
        there = {_real(str(vault["path"])) for vault in vaults}
        for vault in (vault for vault in add if vault.path not in there):  # another command may have been quicker
            table = tomlkit.table()
            table["path"] = vault.path
            table["name"] = vault.name
            vaults.append(table)
        if not vaults:
            del document["vaults"]
    roots = {_real(vault.path) for vault in cli.config.vaults}
    if drop in roots or any(vault.path not in roots for vault in add):
        raise Failed("config.toml is changed, but the variable RECALLD_VAULTS overrides what it says")
    try:
        cli.ask("control", Reload())
    except ProtocolError:
        pass  # no daemon: the next one reads the file


def _tables(document: tomlkit.TOMLDocument) -> AoT:
    """The vaults as [[vaults]]; those written as one inline list are rewritten so."""
    found = document.get("vaults")
    if isinstance(found, AoT):
        return found
    tables = tomlkit.aot()
    for row in found.unwrap() if found is not None else ():
        table = tomlkit.table()
        table.update(row)
        tables.append(table)
    document.pop("vaults", None)
    document["vaults"] = tables
    return tables


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
        if folder == _name(vault) or root == _real(vault.path):
            _edit(cli, drop=_real(vault.path))
            click.echo(one_line(f"no longer watching {vault.path}"), err=True)
            return
    known = ", ".join(_name(vault) for vault in cli.config.vaults) or "none"
    raise Failed(f"{folder} is not watched (watched: {known})")


@click.command("list")
@json_option
@click.pass_obj
def list_(cli: Cli, as_json: bool) -> None:
    """List the watched folders."""
    rows = [
        {"name": _name(vault), "path": vault.path, "present": os.path.isdir(_real(vault.path))}
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
