"""
Importing the part of the MCP SDK that serves a stream, and no more.

``import mcp`` brings an HTTP client, an HTTP server and a cryptography library, whatever one wants of it: 15 MB and a
quarter of the time, for a process that talks over Unix sockets.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from types import ModuleType

log = logging.getLogger("recalld.query.mcp")

BARE = ("mcp", "mcp.server")
"""Packages that are found and not run: what their ``__init__`` gathers is imported by its own name."""
ABSENT = ("sse_starlette",)
"""Imported by name and used only to answer HTTP; it brings a whole web server."""


def import_server() -> ModuleType:
    """``.server``, the module that speaks MCP. Blocks for half a second, the first time."""
    name = f"{__package__}.server"
    try:
        with _less():
            return importlib.import_module(name)
    except Exception as error:  # whatever a later SDK does at its import: MCP is served, with more memory
        log.warning("the MCP SDK is imported whole: %s: %s", type(error).__name__, error)
    for module in [name, *(module for module in sys.modules if module.partition(".")[0] == "mcp")]:
        sys.modules.pop(module, None)
    return importlib.import_module(name)


@contextlib.contextmanager
def _less() -> Iterator[None]:
    """Meanwhile the SDK's packages are bare. Who imports them afterwards gets them whole."""
    if any(name in sys.modules for name in BARE):
        yield
        return
    absent = [name for name in ABSENT if name not in sys.modules]
    try:
        for name in BARE:
            spec = importlib.util.find_spec(name)
            if spec is not None:
                sys.modules[name] = importlib.util.module_from_spec(spec)
        for name in absent:
            sys.modules[name] = _Absent(name)
        yield
    finally:
        for name in (*BARE, *absent):
            sys.modules.pop(name, None)


class _Absent(ModuleType):
    """Has any name, so that it can be imported from, and nothing behind it."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
