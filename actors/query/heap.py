"""
Giving memory back. glibc keeps what a load needed for a moment, once per thread; here that would be a third of the process.

Does nothing where the C library is another one.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
ARENAS = 2
MMAPPED_BYTES = 1 << 20
"""Arrays of this size are mapped by themselves, and unmapped when they are replaced. Setting it stops glibc raising it."""


def tune() -> None:
    """Once, before there are threads."""
    if (libc := _glibc()) is not None:
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_MMAP_THRESHOLD, MMAPPED_BYTES)


def trim() -> None:
    """Return free pages to the system; takes some milliseconds and belongs on a thread."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@functools.cache
def _glibc() -> Any:
    try:
        libc = ctypes.CDLL(None)
    except OSError:
        return None
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
