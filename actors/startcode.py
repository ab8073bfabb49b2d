"""
Letting go of the machine code that only starting needed: 5 to 25 MB of each process.

What a library runs while it is loaded and set up (onnxruntime registers a thousand operators) stays mapped, and counts as
the process's memory, for as long as the process lives. Code is mapped from files and not written: dropping the mapping of
all of it is safe at any time, and what is still used comes back from the system's cache of the file as it is used, a
microsecond for sixteen pages. Only in the seconds after the start: done often, it would slow the first question after it.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys

SETTLED_S = (2.0, 10.0)
"""After the start. The model and the MCP SDK are usually loaded by the first time, and by the second on a busy machine."""
MADV_DONTNEED = 4


def drop_later() -> None:
    """``drop`` when the process has settled. Called on a running event loop."""
    for seconds in SETTLED_S:
        asyncio.get_running_loop().call_later(seconds, drop)


def drop() -> None:
    """Takes some milliseconds. Does nothing where there is no /proc."""
    if sys.platform != "linux":
        return
    try:
        madvise = ctypes.CDLL(None).madvise
        with open("/proc/self/smaps", encoding="utf-8", errors="surrogateescape") as maps:
            lines = maps.readlines()
    except (OSError, AttributeError):
        return
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    start = end = 0
    for line in lines:
        if not line[0].isupper():  # "7f0c2a000000-7f0c2a021000 r-xp 00001000 fe:00 26933 /usr/lib/…": a mapping
            where, rights, _offset, _device, inode, *_path = line.split()
            # Nothing that can be written: data that the loader has relocated would be lost.
            code = rights == "r-xp" and inode != "0"
            start, end = (int(each, 16) for each in where.split("-")) if code else (0, 0)
        # Pages of its own are a debugger's breakpoints, or code that was relocated: not what the file has.
        elif end and line.startswith("Anonymous:") and line.split()[1] == "0":
            madvise(start, end - start, MADV_DONTNEED)
