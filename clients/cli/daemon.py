"""Commands that run, stop and steer the daemon."""

from __future__ import annotations

import contextlib
import os
import sys
import time

import click

from ...protocol.envelope import TimedOut, Unavailable
from ...protocol.messages.control import RestartActor, SetPaused, StopAll
from ..process import start_detached
from .context import Cli, Failed
from .vaults import add_vaults

STOP_S = 30.0
POLL_S = 0.05


@click.command("up")
@click.argument("folders", nargs=-1, type=click.Path())
@click.option("--detach", is_flag=True, help="Start in the background and return when it is ready.")
@click.pass_obj
def up(cli: Cli, folders: tuple[str, ...], detach: bool) -> None:
    """
    Run the daemon in the foreground, watching FOLDERS beside those it already knows.

    Ctrl-C stops it. To have it run always, use `recalld service install`.
    """
    if cli.status(1000) is not None:
        raise Failed(f"recalld already runs for {cli.paths.data}: `recalld add` takes further folders", 4)
    _ = cli.config  # a wrong configuration is said before anything starts
    added = add_vaults(cli, folders)
    for vault in added:
        click.echo(f"watching {vault.path}", err=True)
    if detach:
        start_detached(cli.paths)
        click.echo("recalld runs in the background: `recalld status` shows it, `recalld stop` ends it", err=True)
        return
    arguments = ["--data", str(cli.paths.data), "--runtime", str(cli.paths.runtime)]
    if sys.stderr.isatty():
        click.echo(f"recalld runs on {cli.paths.data}. Ctrl-C stops it; `recalld status` shows it.", err=True)
    # The supervisor takes this process over, so that a service manager and a terminal see one and the same.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "recalld.supervisor", *arguments])


@click.command("stop")
@click.pass_obj
def stop(cli: Cli) -> None:
    """Stop the daemon and wait until it is gone."""
    try:
        status = cli.status()
    except TimedOut:
        pid = cli.paths.lock.read_text().strip()
        raise Failed(f"the daemon (pid {pid}) does not answer: `kill -9 {pid}` ends it and loses nothing") from None
    if status is None:
        click.echo("the daemon does not run", err=True)
        return
    with contextlib.suppress(Unavailable):  # it is on its way out already
        cli.ask("control", StopAll())
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        if not _runs(status.pid):
            return
        time.sleep(POLL_S)
    raise Failed(f"the daemon (pid {status.pid}) has not ended within {STOP_S:.0f} s")


def _runs(pid: int) -> bool:
    """Whether a process does more than wait for its parent to take its exit code."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except ProcessLookupError:
        return False
    except OSError:  # no /proc here, or it has just gone
        return not os.path.isdir("/proc/self")


@click.command("restart")
@click.argument("actor", type=click.Choice(["writer", "query", "embedder", "watcher"]))
@click.pass_obj
def restart(cli: Cli, actor: str) -> None:
    """Restart one process of the daemon; the others go on."""
    before = cli.need_daemon().actors[actor].generation
    cli.ask("control", RestartActor(actor))
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        now = cli.need_daemon().actors[actor]
        if now.generation > before and now.state == "RUNNING":
            click.echo(f"{actor} runs again (pid {now.pid})", err=True)
            return
        if now.generation > before and now.state == "COOLING":
            raise Failed(f"{actor} does not start: {now.vitals.facts.get('last_error') or now.why}")
        time.sleep(POLL_S)
    raise Failed(f"{actor} does not run again after {STOP_S:.0f} s: see `recalld status` and `recalld logs {actor}`")


@click.command("pause")
@click.pass_obj
def pause(cli: Cli) -> None:
    """Pause indexing (sweeps and embedding); recall goes on with what there is."""
    _set_paused(cli, True)


@click.command("resume")
@click.pass_obj
def resume(cli: Cli) -> None:
    """Resume indexing."""
    _set_paused(cli, False)


def _set_paused(cli: Cli, paused: bool) -> None:
    try:
        cli.ask("control", SetPaused(paused))
    except Unavailable:
        cli.need_daemon()
        raise


@click.command("mcp", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """
    Speak MCP on stdin and stdout, for an agent. `recalld install AGENT` writes this into the agent's configuration.

    It starts before the daemon, outlives its restarts, and answers with a degraded result while it is down.
    """
    from .. import mcp_bridge

    cli: Cli = ctx.obj
    os.environ["RECALLD_DATA"] = str(cli.paths.data)
    os.environ["RECALLD_RUNTIME"] = str(cli.paths.runtime)
    # The bridge is one file of the standard library: as a program of its own it is small and starts at once.
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(mcp_bridge.__file__), *ctx.args])
