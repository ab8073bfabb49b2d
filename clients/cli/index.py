"""`recalld index`: bring the index up to date and wait until it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import click

from ...protocol.envelope import ProtocolError, TimedOut, Unavailable
from ...protocol.messages.control import Reload, Status
from ...protocol.messages.index import Settle, Settled
from ...protocol.messages.recall import WaitFor
from ..process import temporary
from .context import Cli, Failed, console, json_option, one_line, print_json
from .vaults import add_vaults

POLL_S = 0.1
UNWRITABLE_S = 10.0
"""A disk that was full is noticed to have room within some seconds."""
TOLD_S = 5.0


@click.command("index")
@click.argument("folder", required=False, type=click.Path())
@click.option("--text-only", is_flag=True, help="Do not wait for the vectors.")
@click.option("--timeout", "timeout_s", default=3600.0, show_default=True, help="Seconds to wait at most.")
@json_option
@click.pass_obj
def index(cli: Cli, folder: str | None, text_only: bool, timeout_s: float, as_json: bool) -> None:
    """
    Bring the index up to date and wait until it is settled: first text, then vectors.

    With FOLDER, that folder is watched from now on, too. Works with the daemon or without; without, one runs for as long
    as it takes.
    """
    if folder is not None:
        for vault in add_vaults(cli, [folder]):
            click.echo(one_line(f"watching {vault.path} as '{vault.name}'"), err=True)
    if not cli.config.vaults and not cli.paths.wiki.is_dir():
        raise Failed("no folder is watched: `recalld index FOLDER` or `recalld add FOLDER`")
    with contextlib.ExitStack() as stack:
        if cli.status(1000) is None:
            stack.enter_context(temporary(cli.paths))
        report = settle(cli, text_only=text_only, timeout_s=timeout_s, show=not as_json)
    if as_json:
        print_json(report)
    else:
        left = f", {report['failed_vectors']} passages could not be embedded" if report["failed_vectors"] else ""
        click.echo(f"{report['notes']} notes, {report['chunks']} passages, {report['vectors']} vectors{left}", err=True)
        if report["problem"]:
            click.echo(f"without vectors: {report['problem']}", err=True)


def settle(cli: Cli, *, text_only: bool, timeout_s: float, show: bool) -> dict[str, object]:
    """
    Have the watcher look at everything, then wait for text and vectors. Shows progress on a terminal.

    Raises Failed when it takes longer than ``timeout_s``.
    """
    asked_ms = int(time.time() * 1000)
    deadline = time.monotonic() + timeout_s
    cli.ask("control", Reload())
    writable_at = time.monotonic()
    with _progress(show) as advance:
        while True:
            status = cli.need_daemon()
            if _figure(status, "watcher", "all_swept_ms") >= asked_ms:
                break
            writable_at = time.monotonic() if not _figure(status, "writer", "read_only") else writable_at
            if problem := _no_notes(status, time.monotonic() - writable_at):
                raise Failed(problem)
            advance("reading notes", _figure(status, "writer", "notes"), _figure(status, "watcher", "files"))
            _pause(deadline, "the notes are not read")
        problem = ""
        while True:
            settled = _settled(cli, deadline)
            status = cli.need_daemon()
            problem = _no_vectors(cli, status)
            if text_only or problem or settled.pending_vectors == 0:
                break
            chunks = _figure(status, "writer", "chunks")
            advance("embedding passages", max(0, chunks - settled.pending_vectors), chunks)
            _pause(deadline, f"{settled.pending_vectors} passages wait for their vectors")
    with contextlib.suppress(ProtocolError):
        cli.ask("query", WaitFor(settled.revision), 10_000)
    status = _told_of(cli, settled.revision)
    return {
        "notes": int(_figure(status, "writer", "notes")),
        "chunks": int(_figure(status, "writer", "chunks")),
        "vectors": int(_figure(status, "writer", "vectors")),
        "pending_vectors": settled.pending_vectors,
        "failed_vectors": settled.failed_vectors,
        "revision": settled.revision,
        "problem": problem,
    }


def _settled(cli: Cli, deadline: float) -> Settled:
    """What the writer says; one that is restarted just now is asked again."""
    while True:
        try:
            settled = cli.ask("writer", Settle(), 30_000)
        except (Unavailable, TimedOut) as error:
            if cli.need_daemon().actors["writer"].state == "COOLING":
                raise
            _pause(deadline, f"the writer does not answer ({error})")
            continue
        assert isinstance(settled, Settled)
        return settled


def _no_notes(status: Status, unwritable_s: float) -> str:
    """Why the notes will not be read, '' when they will. ``unwritable_s``: how long the index could not be written."""
    if status.paused:
        return "indexing is paused: `recalld resume`"
    for name in ("watcher", "writer"):
        actor = status.actors[name]
        if actor.state == "COOLING":
            return f"the {name} does not start: {actor.vitals.facts.get('last_error') or actor.why}"
    if unwritable_s > UNWRITABLE_S:
        return f"the index cannot be written: {status.actors['writer'].vitals.facts.get('last_error', '')}"
    return ""


def _told_of(cli: Cli, revision: int) -> Status:
    """The first status whose figures know of ``revision``: the writer tells of itself once a second."""
    deadline = time.monotonic() + TOLD_S
    while True:
        status = cli.need_daemon()
        if _figure(status, "writer", "revision") >= revision or time.monotonic() > deadline:
            return status
        time.sleep(POLL_S)


def _no_vectors(cli: Cli, status: Status) -> str:
    """Why no vectors will come, '' when they will."""
    if cli.config.embedder.model == "none":
        return "no model is configured (embedder.model)"
    embedder = status.actors["embedder"]
    if embedder.state == "COOLING":
        return embedder.why or "the embedder does not start"
    return embedder.vitals.facts.get("problem", "")


def _figure(status: Status, actor: str, name: str) -> float:
    return status.actors[actor].vitals.figures.get(name, 0.0)


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Failed(f"{what} after the time allowed: `recalld status` shows what is waited for")
    time.sleep(POLL_S)


@contextlib.contextmanager
def _progress(show: bool) -> Iterator[_Advance]:
    """A progress bar on a terminal, nothing in a pipe."""
    out = console(stderr=True)
    if not show or not out.is_terminal:
        yield _Advance(None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=out,
        transient=True,
    ) as progress:  # fmt: skip
        yield _Advance(progress)


class _Advance:
    """One bar per step, made when the step is first heard of."""

    def __init__(self, progress: object) -> None:
        from rich.progress import Progress, TaskID

        self._progress = progress if isinstance(progress, Progress) else None
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, step: str, done: float, total: float) -> None:
        if self._progress is None:
            return
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step)
        self._progress.update(self._tasks[step], completed=int(done), total=int(total) or None)
