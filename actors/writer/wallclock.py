"""The wall clock, and whether it may be believed (``memory.capture.clock`` decides)."""

from __future__ import annotations

import logging
import time

from ...memory.capture import clock
from ...memory.capture.clock import Clock
from ...protocol.config import Config
from .records.common import Rules

# The one that goes on while the machine sleeps: a lid that was closed is no jump of the wall clock.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

KEEP_ALL_DAYS = 36_500
"""Versions are kept for this long while the clock is not believed."""

log = logging.getLogger("recalld.writer")


def elapsed_ms() -> int:
    """A clock that nobody can set, in ms since some moment, mostly the machine's start; sleep counts."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class WallClock:
    """``is_believed`` is asked before anything is removed for its age."""

    def __init__(self) -> None:
        self._clock = clock.begin(_wall_ms(), elapsed_ms(), 0)

    def compare(self, newest_ms: int, steady_ms: int = 0) -> None:
        """Begin again, with the latest time that was ever recorded and the last that ``is_steady`` stood for (0 = none)."""
        self._set(clock.begin(_wall_ms(), elapsed_ms(), newest_ms, steady_ms))

    @property
    def is_steady(self) -> bool:
        """Whether it has gone on evenly for an hour while this process ran."""
        return self.is_believed and clock.is_steady(self._clock, elapsed_ms())

    @property
    def is_believed(self) -> bool:
        self._set(clock.look(self._clock, _wall_ms(), elapsed_ms()))
        return clock.is_believed(self._clock)

    def rules(self, config: Config) -> Rules:
        """What records obey now under ``config``."""
        keep_days = config.history.keep_days if self.is_believed else KEEP_ALL_DAYS
        return Rules(config.history.keep_versions, keep_days, config.embedder.model != "none")

    def _set(self, now: Clock) -> None:
        before, self._clock = clock.is_believed(self._clock), now
        if clock.is_believed(now) and not before:
            log.info("the clock is believed again")
        elif before and not clock.is_believed(now):
            log.warning(
                "the clock was set, or is wrong: nothing is removed for its age until it has gone on for an hour"
            )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
