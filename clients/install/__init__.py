"""
recalld in other programs' configuration: what to change, what is there, how to take it out again.

``setting`` says where things are, ``targets`` which files a host needs, ``plan`` how they change; nothing is written before
``Change.apply``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...protocol.runtime import Paths, locate
from . import wrapper
from .hosts import HOSTS, Host, Setting
from .plan import Change, InstallError, Target, forget_backup, installing, read, removing

__all__ = [
    "HOSTS", "Change", "Finding", "Host", "InstallError", "Setting", "Target",
    "as_installed", "forget_backup", "found_hosts", "installing", "present",
    "removing", "script_target", "setting", "targets",
]  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """What is installed in one file of a host."""

    host: str
    part: Literal["mcp", "hooks"]
    path: Path
    state: Literal["absent", "current", "stale", "unreadable"]
    """stale: ours is there, but not as this version would write it (moved, other interpreter, other events)."""
    text: str


def setting(
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
    paths: Paths | None = None,
    *,
    quick: bool = False,
) -> Setting:
    """
    This machine's: the real interpreter, not a shim or a virtual environment's link, and our programs' folder.

    ``quick`` asks for the ``/bin/sh`` script where it can work; one that is installed already is used anyway.
    """
    env = os.environ if environ is None else environ
    where = paths or locate(environ=env)
    script = where.data / "bin" / "recalld-hook"
    return Setting(
        home=home or Path(env.get("HOME") or os.path.expanduser("~")),
        environ=env,
        python=os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
        programs=Path(__file__).resolve().parent.parent,
        options=options_for(where, env),
        wrapper=str(script) if script.exists() or (quick and wrapper.possible()) else "",
    )


def options_for(paths: Paths, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What our programs must be told: hosts start them without the variables that may have led us here."""
    plain = {"HOME": environ["HOME"]} if environ.get("HOME") else {}
    if paths == locate(environ=plain):
        return ()
    data = ("--data", str(paths.data))
    return data if paths == locate(str(paths.data), environ=plain) else (*data, "--runtime", str(paths.runtime))


def script_target(where: Setting, paths: Paths) -> Target:
    """The ``/bin/sh`` script; hooks of every host share it."""
    text = wrapper.script(where.client, str(paths.socket("events")), str(paths.config))
    return Target(paths.data / "bin" / "recalld-hook", own=text, program=True)


def targets(host: Host, where: Setting, *, mcp: bool = True, hooks: bool = True) -> list[Target]:
    """
    The files of ``host`` with our edits; edits of one file are in one target. Hooks are commands where the MCP entry, which
    others would call, is not among them.
    """
    hooking = where if mcp else replace(where, tool_hooks=False)
    found = [*(host.mcp(where) if mcp else ()), *(host.hooks(hooking) if hooks and host.hooks else ())]
    merged: dict[Path, Target] = {}
    for target in found:
        before = merged.get(target.path)
        merged[target.path] = target if before is None else Target(target.path, before.edits + target.edits)
    return list(merged.values())


def as_installed(host: Host, where: Setting) -> Setting:
    """``where`` with the kind of hooks that lies in the host's files; as it is when neither does. Raises InstallError."""
    for kind in (where, replace(where, tool_hooks=not where.tool_hooks)):
        found = host.hooks(kind) if host.hooks else []
        if all((text := read(target.path)) is not None and target.added(text) == text for target in found):
            return kind
    return where


def found_hosts(where: Setting) -> list[Host]:
    """Hosts that seem to be installed here."""
    return [host for host in HOSTS.values() if any(path.exists() for path in host.traces(where))]


def present(
    home: Path | None = None, environ: Mapping[str, str] | None = None, paths: Paths | None = None
) -> list[Finding]:
    """What recalld has in the files of every host that is installed, for a check-up. Reads only, never raises."""
    where = setting(home, environ, paths)
    findings = []
    for host in found_hosts(where):
        entries = [_finding(host, "mcp", target) for target in host.mcp(where)]
        findings += entries
        if host.hooks:
            findings += _hook_findings(host, where, can_call=any(found.state != "absent" for found in entries))
    return findings


def _hook_findings(host: Host, where: Setting, *, can_call: bool) -> list[Finding]:
    """Hooks of either kind are as they should be; those that call the MCP entry only where there is one."""
    assert host.hooks is not None
    calls, commands = (
        [_finding(host, "hooks", target) for target in host.hooks(replace(where, tool_hooks=kind))]
        for kind in (True, False)
    )
    if all(found.state == "current" for found in commands):
        return commands
    if can_call or not all(found.state == "current" for found in calls):
        return calls
    text = f"tool events call the MCP entry, which is missing, and are lost: recalld install {host.name}"
    return [replace(found, state="stale", text=text) for found in calls]


def _finding(host: Host, part: Literal["mcp", "hooks"], target: Target) -> Finding:
    try:
        text = read(target.path)
        if text is None or (not target.own and target.removed(text) == text):
            return Finding(host.name, part, target.path, "absent", f"recalld install {host.name}")
        if target.added(text) == text:
            return Finding(host.name, part, target.path, "current", "as this version writes it")
        return Finding(
            host.name, part, target.path, "stale", f"written by another version: recalld install {host.name}"
        )
    except InstallError as error:
        return Finding(host.name, part, target.path, "unreadable", str(error))
