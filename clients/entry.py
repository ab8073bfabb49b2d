"""
The ``recalld`` program. ``recalld mcp`` is started by agents, which wait for it, so that it does not pass through the
command line's imports; everything else does.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Console script."""
    if sys.argv[1:2] == ["mcp"] and not {"-h", "--help"} & set(sys.argv):
        from . import mcp_bridge

        sys.exit(mcp_bridge.main(sys.argv[2:]))
    from .cli.main import main as command_line

    command_line()
