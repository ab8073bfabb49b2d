"""
Whether the wall clock may be believed, from how it moves against a clock that cannot be set. Pure.

A machine may come up with a wrong time, or be given one: an empty battery, a broken time server, a restored snapshot, a hand
that slipped. What was recorded then has an odd time, which harms little. What is removed because its time is over is
removed for good: for that, the clock must have gone on evenly for a while.
"""

from __future__ import annotations

import msgspec

JUMP_MS = 60_000
"""A clock that is corrected in steps smaller than this is merely kept."""
STEADY_MS = 3_600_000
"""A jump is believed after an hour: a wrong time is mostly set right at the next word from a time server."""
GAP_MS = 30 * 86_400_000
"""A start this long after the newest time that is known, or before it, may be a start with a wrong clock."""


class Clock(msgspec.Struct, frozen=True):
    """How the wall clock stood at the last look. Times in ms; ``elapsed`` is of a clock that is never set."""

    ahead_ms: int
    """Wall clock less elapsed time."""
    good_ms: int | None
    """The same when it was last believed; None when it never was."""
    since_ms: int
    """Elapsed time at which it began to stand like this."""


def begin(wall_ms: int, elapsed_ms: int, newest_ms: int, steady_ms: int = 0) -> Clock:
    """
    The first look. ``newest_ms``: the latest time that was ever recorded, 0 when nothing was. ``steady_ms``: what a clock
    showed that had gone on evenly for STEADY_MS, 0 when none did; what was recorded by a clock that was ahead says nothing
    against one that goes on from there.
    """
    ahead = wall_ms - elapsed_ms
    known = [each for each in (newest_ms, steady_ms) if each]
    likely = not newest_ms or any(each - JUMP_MS <= wall_ms <= each + GAP_MS for each in known)
    return Clock(ahead, ahead if likely else None, elapsed_ms)


def look(clock: Clock, wall_ms: int, elapsed_ms: int) -> Clock:
    """The next look: a jump begins anew, and what has been steady for STEADY_MS is believed."""
    ahead = wall_ms - elapsed_ms
    if abs(ahead - clock.ahead_ms) > JUMP_MS:
        return Clock(ahead, clock.good_ms, elapsed_ms)
    steady = elapsed_ms - clock.since_ms >= STEADY_MS
    return Clock(ahead, ahead if steady or is_believed(clock) else clock.good_ms, clock.since_ms)


def is_steady(clock: Clock, elapsed_ms: int) -> bool:
    """Whether it has gone on evenly for STEADY_MS, by the last look: not merely believed for what was known of it."""
    return is_believed(clock) and elapsed_ms - clock.since_ms >= STEADY_MS


def is_believed(clock: Clock) -> bool:
    """Whether it stands as it did when it was believed: also again, after a jump away and back."""
    return clock.good_ms is not None and abs(clock.ahead_ms - clock.good_ms) <= JUMP_MS
