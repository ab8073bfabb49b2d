"""
recalld as a service of the user: systemd on Linux, launchd on macOS.

Definitions are rendered from templates in ``deploy``; the user edits none of them. Rendering is pure; ``install`` writes
files and asks the service manager.
"""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import escape

import msgspec

from ..protocol.runtime import Paths

LABEL = "dev.recalld.daemon"
ACTIVATED = ("control", "events", "query", "mcp")
COMMAND_S = 30.0
START = {
    "systemd": ("systemctl", "--user", "start", "recalld.service"),
    "launchd": ("launchctl", "kickstart", f"gui/{{uid}}/{LABEL}"),
}
"""What a person types to start the installed service."""


class ServiceError(Exception):
    """Raised when the service manager refuses or is not there; the text has its words and what to do."""


class Rendered(msgspec.Struct, frozen=True):
    """One file of a service definition."""

    path: Path
    text: str


def manager() -> str:
    """'launchd', 'systemd', or '' when this system has neither."""
    if sys.platform == "darwin":
        return "launchd"
    return "systemd" if shutil.which("systemctl") else ""


def render(kind: str, python: str, paths: Paths, home: Path) -> list[Rendered]:
    """The files of the service for ``kind`` ('systemd' or 'launchd')."""
    if kind == "launchd":
        return [_launchd(python, paths, home)]
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "systemd" / "user"
    # The folder that clients compute, not %t/recalld: it is another one for another data folder.
    words = {"python": python, "data": str(paths.data), "runtime": str(paths.runtime)}
    values = {name: _quoted(word) for name, word in words.items()} | {"sockets": words["runtime"].replace("%", "%%")}
    return [Rendered(folder / name, _template(f"{name}.in", values)) for name in SYSTEMD_FILES]


SYSTEMD_FILES = ("recalld.service", "recalld.socket")


def _launchd(python: str, paths: Paths, home: Path) -> Rendered:
    sockets = "".join(
        f"\t\t<key>{name}</key>\n\t\t<dict>\n\t\t\t<key>SockPathName</key>\n"
        f"\t\t\t<string>{escape(str(paths.socket(name)))}</string>\n"
        "\t\t\t<key>SockPathMode</key>\n\t\t\t<integer>384</integer>\n"
        "\t\t\t<key>SockType</key>\n\t\t\t<string>stream</string>\n\t\t</dict>\n"
        for name in ACTIVATED
    )
    values = {
        "python": escape(python),
        "data": escape(str(paths.data)),
        "runtime": escape(str(paths.runtime)),
        "sockets": sockets,
    }
    text = _template(f"{LABEL}.plist.in", values)
    plistlib.loads(text.encode())  # never write a definition that cannot be read
    return Rendered(home / "Library" / "LaunchAgents" / f"{LABEL}.plist", text)


def _template(name: str, values: dict[str, str]) -> str:
    text = (resources.files("recalld.deploy") / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return text


def _quoted(word: str) -> str:
    """A word of an ExecStart line: systemd's own quoting, with its specifiers and variables made literal."""
    literal = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{literal}"' if any(character in literal for character in " \t'\"\\;") else literal


def install(kind: str, paths: Paths, home: Path, *, start: bool = True) -> list[Path]:
    """
    Write the definition and start the service. Returns the files. Raises ServiceError, OSError.

    Files that are new are taken back when the service manager refuses: it would start them at the next login.
    """
    files = render(kind, sys.executable, paths, home)
    new = [file.path for file in files if not file.path.exists()]
    for file in files:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.path.with_name(f".{file.path.name}.{os.getpid()}.tmp")
        temporary.write_text(file.text, encoding="utf-8")
        os.replace(temporary, file.path)
    try:
        if start and kind == "systemd":
            _run("systemctl", "--user", "daemon-reload")
            _run("systemctl", "--user", "enable", "--now", "recalld.socket", "recalld.service")
        elif start:
            _run("launchctl", "bootstrap", f"gui/{os.getuid()}", str(files[0].path))
    except ServiceError:
        for path in new:
            path.unlink(missing_ok=True)
        raise
    return [file.path for file in files]


def uninstall(kind: str, paths: Paths, home: Path) -> list[Path]:
    """
    Stop the service and remove its files. Returns what was removed. Raises ServiceError, OSError.

    The files go also when the service manager cannot be asked; what it said is raised afterwards.
    """
    files = [file.path for file in render(kind, sys.executable, paths, home) if file.path.exists()]
    try:
        if files and kind == "systemd":
            _run("systemctl", "--user", "disable", "--now", "recalld.service", "recalld.socket")
        elif files:
            _run("launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}")
    finally:
        for path in files:
            path.unlink()
    if files and kind == "systemd":
        _run("systemctl", "--user", "daemon-reload")
    return files


def installed(kind: str, paths: Paths, home: Path) -> list[Path]:
    """The files of the service that are there."""
    return [file.path for file in render(kind, sys.executable, paths, home) if file.path.exists()]


def state(kind: str) -> str:
    """What the service manager says of it, in its own words."""
    if kind == "systemd":
        words = ["systemctl", "--user", "is-active", "recalld.service"]
    else:
        words = ["launchctl", "print", f"gui/{os.getuid()}/{LABEL}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    if kind == "launchd":
        lines = [line for line in lines if line.startswith(("state", "pid"))] or lines[:1]
    return ", ".join(lines) or f"exit {done.returncode}"


def _run(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServiceError(f"`{' '.join(words)}` failed: {error}") from None
    if done.returncode:
        reason = (done.stderr or done.stdout).strip() or f"exit {done.returncode}"
        raise ServiceError(f"`{' '.join(words)}` failed: {reason}")
