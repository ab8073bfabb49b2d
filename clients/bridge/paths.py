"""Where the daemon's socket is, without the packages that ``protocol.runtime`` needs; a test holds both to one answer."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def socket_path(environ: Mapping[str, str], data: str = "", runtime: str = "") -> str:
    """Where ``mcp.sock`` is: the same answer as ``protocol.runtime.locate``, which needs packages that are not here."""
    default = _default_data(environ)
    data = data_folder(environ, data)
    chosen = runtime or environ.get("RECALLD_RUNTIME")
    base = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if chosen:
        folder = _absolute(chosen)
    elif os.path.isdir(base) and os.access(base, os.W_OK):
        folder = _plain(f"{base}/recalld") + ("" if data == _plain(default) else "-" + _digest(data))
    else:
        folder = f"{data}/run"
    if len(os.fsencode(f"{folder}/embedder.sock")) > 103:  # the longest of the sockets' names; macOS takes 103 bytes
        folder = f"/tmp/recalld-{os.getuid()}-{_digest(folder)}"
    return f"{folder}/mcp.sock"


def data_folder(environ: Mapping[str, str], data: str = "") -> str:
    """Where the data folder is: the same answer as ``protocol.runtime.locate``."""
    return _absolute(data or environ.get("RECALLD_DATA") or _default_data(environ))


def _default_data(environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    if sys.platform == "darwin":
        return f"{home}/Library/Application Support/recalld"
    return (environ.get("XDG_DATA_HOME") or f"{home}/.local/share") + "/recalld"


def _absolute(path: str) -> str:
    return _plain(os.path.join(os.getcwd(), os.path.expanduser(path)))


def _plain(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def _digest(path: str) -> str:
    from hashlib import blake2b  # slow to import, and seldom needed

    return blake2b(os.fsencode(path), digest_size=5).hexdigest()
