"""Room for large frames and lines: what all connections of one process may have in memory of them at once."""

from __future__ import annotations

from collections import deque

import anyio

from .messages.control import QueueStat

SMALL_BYTES = 64 * 1024
"""What is smaller needs no room: a thousand of these are no more than four of the largest."""
ROOM_BYTES = 64 * 1024 * 1024
"""Four of the largest frames."""


class Room:
    """Bytes that may be held. Those who ask for more than is left wait in turn, and nobody reads from them meanwhile."""

    def __init__(self, limit: int = ROOM_BYTES) -> None:
        self._limit = limit
        self._held = 0
        self._peak = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    async def take(self, count: int) -> None:
        """Wait until ``count`` bytes are left, and hold them. More than there can be counts as all."""
        count = min(count, self._limit)
        turn = (count, anyio.Event())
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn[1].wait()
        except BaseException:
            if turn[1].is_set():
                self.give(count)
            else:
                self._waiting.remove(turn)
                self._let_in()
            raise

    def give(self, count: int) -> None:
        """Let go of what ``take`` has given."""
        self._held -= min(count, self._limit)
        self._let_in()

    def stat(self) -> QueueStat:
        """Bytes held now and at most."""
        return QueueStat(depth=self._held, peak=self._peak, limit=self._limit, policy="wait")

    def _let_in(self) -> None:
        while self._waiting and self._held + self._waiting[0][0] <= self._limit:
            count, entered = self._waiting.popleft()
            self._held += count
            self._peak = max(self._peak, self._held)
            entered.set()
