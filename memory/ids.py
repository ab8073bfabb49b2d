"""Name -> ids of notes, in little memory: nearly every name is one note's, and a set of one takes 216 bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

Ids = tuple[int, ...] | array  # type: ignore[type-arg]  # not subscriptable at run time in a union of Python 3.11
"""Ascending, without duplicates; eight bytes each where they are many."""
FEW = 8
"""Ids up to this many are a tuple."""


def file(index: dict[str, Ids], names: Iterable[str], note_id: int) -> None:
    """Have each of ``names`` lead to ``note_id`` as well. An array is changed in place."""
    alone = (note_id,)
    for name in names:
        ids = index.get(name)
        if ids is None:
            index[name] = alone
        elif isinstance(ids, tuple):
            if note_id not in ids:
                more = sorted((*ids, note_id))
                index[name] = tuple(more) if len(more) <= FEW else array("q", more)
        else:
            at = bisect_left(ids, note_id)
            if at == len(ids) or ids[at] != note_id:
                ids.insert(at, note_id)


def strike(index: dict[str, Ids], names: Iterable[str], note_id: int) -> None:
    """Have none of ``names`` lead to ``note_id``; a name that leads nowhere is forgotten."""
    for name in names:
        ids = index.get(name, ())
        at = bisect_left(ids, note_id)
        if at == len(ids) or ids[at] != note_id:
            continue
        if len(ids) == 1:
            del index[name]
        elif isinstance(ids, tuple):
            index[name] = ids[:at] + ids[at + 1 :]
        else:
            del ids[at]
