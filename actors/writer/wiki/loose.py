"""
Loose objects of a git repository: one file each, named by the hash of what is in it. Blocking.

They are read here and not by libgit2, which does not come back from a file that was cut off.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

STEP_BYTES = 1 << 20
"""What is held in memory of an object while it is looked through."""
LATE_S = 600.0
"""What was written so long before the newest one had reached the disk before whatever cut that one off."""
CUT_OFF = "it is cut off"

_FOLDER = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}")


def find(objects: Path) -> Iterator[tuple[str, Path]]:
    """The name and file of each loose object. Raises OSError where a folder cannot be listed."""
    for folder in sorted(os.listdir(objects)):
        if _FOLDER.fullmatch(folder):
            for name in sorted(os.listdir(objects / folder)):
                if _REST.fullmatch(name):
                    yield folder + name, objects / folder / name


def damage(name: str, path: Path) -> str:
    """What keeps the object ``name`` from being read from ``path``; '' when it is whole."""
    inflater, digest = zlib.decompressobj(), hashlib.sha1(usedforsecurity=False)
    try:
        with path.open("rb") as stream:
            data = stream.read(STEP_BYTES)
            while data and not inflater.eof:
                digest.update(inflater.decompress(data, STEP_BYTES))
                data = inflater.unconsumed_tail or stream.read(STEP_BYTES)
    except OSError as error:
        return error.strerror or type(error).__name__
    except zlib.error as error:
        return f"it is not what git writes: {error}"
    if not inflater.eof:
        return CUT_OFF
    if data or inflater.unused_data:
        return "something stands behind its end"
    return "" if digest.hexdigest() == name else "its content has another hash"


def set_aside_cut_off(objects: Path) -> list[str]:
    """
    Give the newest objects another name where they are cut off, as a power cut leaves them: libgit2 would look for their end
    for ever, and so it says that they are missing. Their paths below ``objects``, as they were. Raises OSError.
    """
    times = {path: path.stat().st_mtime for _, path in find(objects)}
    late = max(times.values(), default=0.0) - LATE_S
    cut_off = [
        path for path, at in times.items() if at >= late and damage(path.parent.name + path.name, path) == CUT_OFF
    ]
    for path in cut_off:
        path.rename(path.with_name(f"{path.name}.cut-off"))
    return [f"{path.parent.name}/{path.name}" for path in cut_off]
