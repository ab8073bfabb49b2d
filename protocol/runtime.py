"""
Where things are: data folder, runtime folder, sockets.

Socket paths must stay below 104 bytes (macOS): a longer runtime folder is replaced by a short hashed one in /tmp, owned
by the user and 0700.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

SOCKETS = ("control", "writer", "events", "embedder", "query", "mcp")
MAX_SOCKET_PATH_BYTES = 103


class RuntimeFolderError(Exception):
    """Raised when a folder cannot be used: owned by somebody else, not a folder, nowhere to be found."""


class Paths(msgspec.Struct, frozen=True):
    """Every place that recalld uses. Making a Paths touches nothing."""

    data: Path
    runtime: Path

    @property
    def config(self) -> Path:
        return self.data / "config.toml"

    @property
    def database(self) -> Path:
        return self.data / "recalld.sqlite"

    @property
    def journal(self) -> Path:
        return self.data / "journal"

    @property
    def wiki(self) -> Path:
        return self.data / "wiki"

    @property
    def spool(self) -> Path:
        return self.data / "spool"

    @property
    def dead_letters(self) -> Path:
        return self.data / "spool" / "dead"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def lock(self) -> Path:
        return self.runtime / "lock"

    def socket(self, name: str) -> Path:
        """The path of ``<name>.sock``."""
        return self.runtime / f"{name}.sock"


def locate(data: str | None = None, runtime: str | None = None, environ: Mapping[str, str] | None = None) -> Paths:
    """
    Paths from arguments, else ``RECALLD_DATA`` / ``RECALLD_RUNTIME``, else the platform's folders.

    An agent may start a client with almost no environment, so the default runtime folder depends on the data folder
    and the uid alone when XDG_RUNTIME_DIR is unset: ``/run/user/<uid>`` where it exists, else the data folder.

    Raises RuntimeFolderError when a home folder is needed and there is none, or a path is not UTF-8.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    data_dir = _absolute(data or env.get("RECALLD_DATA") or _default_data(home, env))
    chosen = runtime or env.get("RECALLD_RUNTIME")
    runtime_dir = _absolute(chosen) if chosen else _default_runtime(data_dir, home, env)
    return Paths(data_dir, _short_enough(runtime_dir))


def _absolute(path: str | Path) -> Path:
    try:
        found = Path(path).expanduser().absolute()
    except RuntimeError:  # a uid without an entry in passwd and without HOME, as in containers
        raise RuntimeFolderError("there is no home folder: set HOME, or say --data FOLDER") from None
    try:
        str(found).encode()  # it travels in JSON
    except UnicodeEncodeError:
        raise RuntimeFolderError(f"{os.fsencode(found)!r} is not UTF-8: choose another folder") from None
    return found


def _default_data(home: Path, env: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "recalld"
    return Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "recalld"


def _default_runtime(data_dir: Path, home: Path, env: Mapping[str, str]) -> Path:
    # One daemon per data folder: another data folder than the default gets sockets of its own.
    suffix = "" if data_dir == _default_data(home, env) else "-" + _digest(data_dir)
    base = env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.path.isdir(base) and os.access(base, os.W_OK):
        return Path(base) / f"recalld{suffix}"
    return data_dir / "run"


def _short_enough(runtime: Path) -> Path:
    longest = max(len(os.fsencode(runtime / f"{name}.sock")) for name in SOCKETS)
    if longest <= MAX_SOCKET_PATH_BYTES:
        return runtime
    return Path(f"/tmp/recalld-{os.getuid()}-{_digest(runtime)}")


def open_standard_streams() -> None:
    """
    Make sure that descriptors 0, 1 and 2 are open, and that text can be written whatever it contains.

    Whoever starts us with a closed one (an init script, ``>&-``) would have the next socket or file take its place, and
    what is printed, or a child's log, would end up there.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
            os.set_inheritable(opened, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as we live
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as we live
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _digest(path: Path) -> str:
    return hashlib.blake2b(os.fsencode(path), digest_size=5).hexdigest()


def make_private(folder: Path) -> None:
    """
    Create ``folder`` with mode 0700, or check that it is ours and closed to others (tightening the mode when it is ours).

    Raises RuntimeFolderError when it belongs to another user or is not a real folder (a planted symlink).
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise RuntimeFolderError(f"{folder.parent} is not a folder") from None
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    info = folder.lstat()
    if not folder.is_dir() or (folder.is_symlink() and info.st_uid != os.getuid()):
        raise RuntimeFolderError(f"{folder} is not a folder")
    if info.st_uid != os.getuid():
        raise RuntimeFolderError(f"{folder} belongs to uid {info.st_uid}, not to you: choose another with --runtime")
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
