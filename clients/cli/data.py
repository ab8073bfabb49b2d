"""Commands for the data itself: backup and restore, export, reindex, compact, purge."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from ...protocol.envelope import ProtocolError
from ...protocol.messages.capture import DeletePage, Place, Purged, PurgeProject, PurgeSession, SessionList, Sessions
from ...protocol.messages.index import Backup, Maintain, Maintained, Reindex
from ...protocol.runtime import make_private
from ..process import temporary
from .context import Cli, Failed, console, json_option, print_json

LONG_MS = 3_600_000
POLL_S = 0.2
TICKS_WITHOUT_WORK = 10
"""Beats come once a second: a work that has not shown up after so many looks has ended already."""
CANONICAL = ("wiki", "journal", "eval", "config.toml", "recalld.sqlite", "spool")


@contextlib.contextmanager
def daemon(cli: Cli) -> Iterator[None]:
    """The daemon that runs, or one for the time of the block."""
    if cli.status(1000) is not None:
        yield
        return
    if not cli.paths.data.is_dir():
        raise Failed(f"there is nothing in {cli.paths.data}")
    with temporary(cli.paths):
        yield


@click.command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--with-index", is_flag=True, help="Put the index in, too; it can be rebuilt without.")
@json_option
@click.pass_obj
def backup(cli: Cli, file: str, with_index: bool, as_json: bool) -> None:
    """
    Write FILE (.tar.gz): the wiki with its history, the journal, the configuration, your questions and verdicts.

    The daemon goes on meanwhile. Watched folders are yours and are not in it.
    """
    with daemon(cli):
        reply = cli.ask("writer", Backup(target=os.path.abspath(file), with_index=with_index), LONG_MS)
    assert isinstance(reply, Maintained)
    if as_json:
        print_json({"file": os.path.abspath(file), **reply.report})
    else:
        click.echo(f"wrote {file}: {_told(reply.report)}", err=True)


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--force", is_flag=True, help="Move what is there aside first.")
@click.pass_obj
def restore(cli: Cli, file: str, force: bool) -> None:
    """Put a backup back. The daemon must be stopped; the index is rebuilt at its next start if the backup has none."""
    if cli.status(1000) is not None:
        raise Failed("the daemon runs: `recalld stop` first")
    there = [name for name in CANONICAL if _holds_something(cli.paths.data / name)]
    if there and not force:
        raise Failed(f"{cli.paths.data} already holds {', '.join(there)}: --force moves them aside")
    make_private(cli.paths.data)
    incoming = cli.paths.data / f".restore-{os.getpid()}"
    make_private(incoming)
    try:
        with tarfile.open(file, "r:gz") as archive:
            _extract(archive, incoming)
        found = [name for name in CANONICAL if (incoming / name).exists()]
        if not found:
            raise Failed(f"{file} is not a backup of recalld")
        aside = cli.paths.data / f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}"
        for name in (*CANONICAL, "recalld.sqlite-wal", "recalld.sqlite-shm"):
            if (cli.paths.data / name).exists():
                make_private(aside)
                os.replace(cli.paths.data / name, aside / name)
        for name in found:
            os.replace(incoming / name, cli.paths.data / name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Failed(f"{file} could not be restored: {error}") from None
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    click.echo(f"restored {', '.join(found)}; start the daemon: `recalld up`", err=True)
    if there:
        click.echo(f"what was there lies in {aside}", err=True)


def _extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack files and folders below ``folder``. Raises TarError for anything that would lie, or point, elsewhere."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    # Python 3.11 has the filter from 3.11.4 on; Debian 12 has 3.11.2.
    for member in archive:
        if not (member.isfile() or member.isdir()) or member.name.startswith("/") or ".." in member.name.split("/"):
            raise tarfile.ExtractError(f"'{member.name}' is neither a file nor a folder of a backup")
        member.mode = 0o700 if member.isdir() or member.mode & 0o100 else 0o600
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        archive.extract(member, folder)


def _holds_something(path: Path) -> bool:
    return path.is_file() or (path.is_dir() and any(path.iterdir()))


@click.command("export")
@click.argument("folder", type=click.Path(file_okay=False))
@click.pass_obj
def export(cli: Cli, folder: str) -> None:
    """
    Copy the memory to FOLDER as plain files: pages as markdown, events and handoffs as JSON lines.

    For reading elsewhere, or for leaving. Watched folders are yours already and are not copied.
    """
    target = Path(folder)
    if _holds_something(target):
        raise Failed(f"{folder} is not empty")
    if not cli.paths.wiki.is_dir() and not cli.paths.journal.is_dir():
        raise Failed(f"there is no memory in {cli.paths.data} yet")
    make_private(target)
    pages = lines = 0
    if cli.paths.wiki.is_dir():
        shutil.copytree(cli.paths.wiki, target / "pages", ignore=_not_exported)
        pages = sum(1 for _ in (target / "pages").rglob("*.md"))
    if cli.paths.journal.is_dir():
        make_private(target / "journal")
        for source in sorted(cli.paths.journal.glob("*.jsonl")):
            data = source.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]  # the last line may be on its way
            (target / "journal" / source.name).write_bytes(whole)
            lines += whole.count(b"\n")
    click.echo(f"wrote {folder}: {pages} pages, {lines} journal lines", err=True)


def _not_exported(folder: str, names: list[str]) -> set[str]:
    """The repository, what is ours alone, and links: a link would bring in what is not of the wiki."""
    return {
        name
        for name in names
        if name == ".git" or name.startswith(".recalld-") or os.path.islink(os.path.join(folder, name))
    }


@click.command("reindex")
@click.pass_obj
def reindex(cli: Cli) -> None:
    """
    Rebuild the index from files and journal, beside the old one, while the daemon answers from that.

    Nothing is lost by it: the index is derived. For when `recalld doctor` says that it is damaged.
    """
    with daemon(cli):
        before = _upkeep(cli)[1]
        cli.ask("writer", Reindex())
        click.echo(_watch(cli, before), err=True)


@click.command("compact")
@json_option
@click.pass_obj
def compact(cli: Cli, as_json: bool) -> None:
    """
    Remove from the index what nothing refers to any more, and give its space back.

    Text of deleted notes is gone from the file afterwards; `--as-of` no longer finds versions past the limits in [history].
    The wiki's git history is packed; nothing of it is removed.
    """
    with daemon(cli):
        reply = cli.ask("writer", Maintain(what="compact"), LONG_MS)
    assert isinstance(reply, Maintained)
    if as_json:
        print_json(reply.report)
    else:
        click.echo(_told(reply.report), err=True)


@click.command("purge")
@click.option("--project", default="", help="Everything of this project: sessions, handoffs, messages, pages.")
@click.option("--everything", is_flag=True, help="The whole data folder. The daemon must be stopped.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(cli: Cli, project: str, everything: bool, yes: bool) -> None:
    """
    Forget for good: from journal, database, wiki and the wiki's git history. One session: `recalld session purge`.

    Watched folders are never touched. Copies that you made (backups, git remotes) are yours to delete.
    """
    if bool(project) == everything:
        raise click.UsageError("say --project NAME or --everything")
    if everything:
        _purge_everything(cli, yes)
        return
    if project in (".", "..") or "/" in project:
        # It is joined to the wiki's folder here, and made into a name there: both must mean the same.
        raise Failed(f"'{project}' is not the name of a project: projects are the folders of {cli.paths.wiki}")
    with daemon(cli):
        sessions = cli.ask("writer", SessionList(place=Place(project=project), all_projects=False, limit=100_000))
        assert isinstance(sessions, Sessions)
        folder = cli.paths.wiki / project
        pages = sorted(folder.rglob("*.md")) if folder.is_dir() else []
        if not sessions.items and not pages:
            raise Failed(f"there is nothing of a project '{project}'")
        if not yes:
            click.confirm(f"Forget {len(sessions.items)} sessions and {len(pages)} pages of {project}?", abort=True)
        for session in sessions.items:
            reply = cli.ask("writer", PurgeSession(session=session.id), LONG_MS)
            assert isinstance(reply, Purged)
        cli.ask("writer", PurgeProject(project=project), LONG_MS)
        for page in pages:
            path = page.relative_to(folder).as_posix()
            with contextlib.suppress(ProtocolError):  # a session page that went with its session
                cli.ask("writer", DeletePage(path=path, place=Place(project=project)), LONG_MS)
        cli.ask("writer", Maintain(what="compact"), LONG_MS)
    click.echo(f"forgot {len(sessions.items)} sessions and {len(pages)} pages of {project}", err=True)
    if len(pages) > len(sessions.items):
        click.echo("pages that agents or you wrote stay in the wiki's git history; sessions do not", err=True)


def _purge_everything(cli: Cli, yes: bool) -> None:
    if cli.status(1000) is not None:
        raise Failed("the daemon runs: `recalld stop` first")
    if not cli.paths.data.is_dir():
        raise Failed(f"there is nothing in {cli.paths.data}")
    ours = [cli.paths.data / name for name in (*CANONICAL, "models", "logs", "run", "lock")]
    ours += [*cli.paths.data.glob("recalld.sqlite*"), *cli.paths.data.glob("before-restore-*")]
    there = sorted({path for path in ours if path.exists()})
    if not yes:
        click.confirm(f"Delete recalld's memory in {cli.paths.data} ({len(there)} entries)?", abort=True)
    for path in there:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with contextlib.suppress(OSError):
        cli.paths.data.rmdir()  # unless something of the user's lies there
    click.echo(f"deleted the memory in {cli.paths.data}", err=True)


def _upkeep(cli: Cli) -> tuple[str, str]:
    """(what long work runs now, how the last one ended), as the writer last told."""
    facts = cli.need_daemon().actors["writer"].vitals.facts
    return facts.get("upkeep", ""), facts.get("last_upkeep", "")


def _watch(cli: Cli, before: str) -> str:
    """Show the writer's long work until it has ended; how it ended."""
    out = console(stderr=True)
    idle = 0
    with out.status("working") if out.is_terminal else contextlib.nullcontext() as shown:
        while idle < TICKS_WITHOUT_WORK:
            state, last = _upkeep(cli)
            if not state and last != before:
                return last
            idle = 0 if state else idle + 1
            if shown is not None and state:
                shown.update(state)
            time.sleep(POLL_S)
    return _upkeep(cli)[1] or "done"


def _told(report: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in report.items()) or "nothing to do"
