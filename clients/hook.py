"""
The hook client: ``/abs/python -I -S /abs/clients/hook.py HOST [EVENT]``, or ``recalld-hook HOST [EVENT]``.

An agent runs it at each of its lifecycle events, with a JSON payload on stdin. It tells the daemon, or leaves the event in
the spool; at a session's start it prints the briefing in the shape the host wants. It exits 0, whatever happens, within
200 ms (250 ms with a briefing) of its own start, or of the moment when the payload is complete, where the host hands that
over later; a payload that never comes is waited for 1.5 s. It never blocks or denies anything.

Standard library only. This file is small because a program's own file is compiled at each start, and what it imports is
not: the work is in ``hooking``.
"""

from __future__ import annotations

import sys

if not __package__:  # run as a file, in a Python that knows of no packages: make our root importable as ``recalld``
    _package = type(sys)("recalld")
    _package.__path__ = [__file__.rsplit("/", 2)[0] if __file__.count("/") > 1 else ".."]
    sys.modules["recalld"] = _package

from recalld.clients.hooking.client import main

if __name__ == "__main__":
    main()
