"""Runs of equal values in arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def begins(*keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a run of equal values begins here: where any of ``keys`` (one or more, as long as each other) changes."""
    found = np.empty(len(keys[0]), np.bool_)
    found[:1] = True
    np.not_equal(keys[0][1:], keys[0][:-1], out=found[1:])
    for key in keys[1:]:
        found[1:] |= key[1:] != key[:-1]
    return found
