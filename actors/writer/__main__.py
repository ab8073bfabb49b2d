"""``python -m recalld.actors.writer``: started by the supervisor, never by hand."""

from __future__ import annotations

from ..base import main
from .actor import Writer

if __name__ == "__main__":
    main("writer", Writer)
