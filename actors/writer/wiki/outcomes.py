"""What is asked of the wiki and what comes of it."""

from __future__ import annotations

import os
from typing import Literal

import msgspec


class Written(msgspec.Struct, frozen=True):
    """A page stands on the disk. ``stat`` identifies the file; ``created``: there was none before."""

    path: str
    hash: str
    stat: os.stat_result
    created: bool


class Refused(msgspec.Struct, frozen=True):
    """Nothing was written. ``hash``: of the page as it stands ('' = there is none)."""

    why: Literal["exists", "changed", "theirs", "gone"]
    hash: str


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """What a writer expects of the page as it stands."""

    hash: str = ""
    """Write only over exactly this version."""
    create_only: bool = False
    ours_only: bool = True
    """Without ``hash``: do not write over a version that came from a person."""


class Change(msgspec.Struct, frozen=True):
    """A page that waits for its commit: its blob ('' = removed) and what to say about it."""

    blob: str
    subject: str
