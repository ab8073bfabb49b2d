"""What Python has no word for: a thread's priority."""

from __future__ import annotations

import os
import sys
import threading

BULK_NICE = 10
"""A nice value that any foreground work outruns, and that still gets all of an idle core."""


def run_in_background() -> None:
    """
    Lower the priority of the calling thread, for as long as it lives.

    Linux keeps a nice value per thread, whatever POSIX says of processes (setpriority(2), "C library/kernel differences").
    Elsewhere the call would slow the whole process, queries included, and is left out.
    """
    if sys.platform == "linux":
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BULK_NICE)
        except OSError:
            pass  # lower already, or not allowed in this container: only politeness is lost
