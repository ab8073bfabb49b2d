"""
Giving memory back, and looking for garbage less often. glibc keeps what work needed for a moment, once per thread: a third
of the query process after a load, 10 to 30 MB of the embedder between bursts of work, what the writer had cached.

Where the C library is another one, memory is not given back.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any

M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
ARENAS = 2
YOUNG = 10_000
"""
Objects that are made before the collector looks for cycles among them. A question makes that many, and hardly a cycle: looking
at each 700, as Python does, takes a twentieth of its time. Parsing notes makes many as well.
"""
MMAPPED_BYTES = 1 << 20
"""Arrays of this size are mapped by themselves, and unmapped when they are replaced. Setting it stops glibc raising it."""


def tune() -> None:
    """Once, before there are threads."""
    collect_seldom()
    if (libc := _glibc()) is not None:
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_MMAP_THRESHOLD, MMAPPED_BYTES)


def collect_seldom() -> None:
    """Look for cycles less often, where much is made that has none."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


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
