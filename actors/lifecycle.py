"""
When a child is started, restarted, cooled and given up on: data and pure decisions, in OTP's vocabulary.

Nothing here starts or kills anything; ``supervisor.py`` does, and asks ``decide`` what to do after each exit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BOOT_FAILURE = 3
"""Exit code of an actor that could not start for a reason that a restart does not change (configuration, newer schema)."""


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One actor. Times in seconds; ``intensity`` crashes within ``period_s`` are tolerated."""

    name: str
    listens: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    start_timeout_s: float = 10.0
    beat_timeout_s: float = 10.0
    stop_grace_s: float = 5.0
    intensity: int = 8
    period_s: float = 60.0
    critical: bool = False
    """The daemon is ready when every critical child is."""


CHILDREN: tuple[ChildSpec, ...] = (
    ChildSpec(name="writer", listens=("writer", "events"), stop_grace_s=10.0, start_timeout_s=30.0, critical=True),
    ChildSpec(name="query", listens=("query", "mcp"), asks=("embedder", "writer"), start_timeout_s=30.0, critical=True),
    ChildSpec(name="embedder", listens=("embedder",), asks=("writer",), start_timeout_s=120.0),
    ChildSpec(name="watcher", asks=("writer",)),
)
"""In start order; stopped in reverse."""

ASKS: dict[str, tuple[str, ...]] = {spec.name: spec.asks for spec in CHILDREN}
"""Who may ask whom. Acyclic: a ring of actors that wait for each other cannot form."""


class Restart(msgspec.Struct, frozen=True):
    delay_s: float


class Cool(msgspec.Struct, frozen=True):
    why: str


Decision = Restart | Cool

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 30.0
STABLE_S = 5.0
"""A child that ran this long had started well; its crash says little about the next start."""
STEADY_FACTOR = 5
"""Crashes of stable generations count against a limit this many times ``intensity``: they must not end recall."""


class Crash(msgspec.Struct, frozen=True):
    """An exit that nobody asked for, at monotonic ``at``, after ``lived_s`` seconds."""

    at: float
    lived_s: float


def decide(spec: ChildSpec, crashes: Sequence[Crash], exit_code: int, now: float, jitter: float = 0.0) -> Decision:
    """
    What follows an exit that nobody asked for.

    ``crashes``: earlier crashes and this one, the last. A crash of a generation that had been stable is answered at once,
    because an agent is waiting; quick ones double the delay. ``jitter`` (0…1) adds up to a tenth of it.
    """
    if exit_code == BOOT_FAILURE:
        return Cool("it cannot start as things are")
    recent = [crash for crash in crashes if now - crash.at < spec.period_s]
    quick = [crash for crash in recent if crash.lived_s < STABLE_S]
    if len(quick) > spec.intensity or len(recent) > spec.intensity * STEADY_FACTOR:
        return Cool(f"{len(recent)} crashes within {spec.period_s:.0f} s")
    if not quick or recent[-1].lived_s >= STABLE_S or len(quick) == 1:
        return Restart(0.0)
    delay = min(FIRST_DELAY_S * 2 ** (len(quick) - 2), MAX_DELAY_S)
    return Restart(delay * (1 + jitter / 10))


def spec_of(name: str) -> ChildSpec:
    """The spec of an actor. Raises KeyError, naming the actors there are, when there is none of this name."""
    for spec in CHILDREN:
        if spec.name == name:
            return spec
    raise KeyError(f"there is no actor '{name}'; there are {', '.join(ASKS)}")
