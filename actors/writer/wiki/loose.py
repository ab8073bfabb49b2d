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
        return "it is cut off"
    if data or inflater.unused_data:
        return "something stands behind its end"
    return "" if digest.hexdigest() == name else "its content has another hash"
