"""The long poll for texts that want vectors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from ...protocol.messages.index import Claimed

MAX_WAIT_MS = 10_000


class Claims:
    """Who waits for texts, and how they are woken. A wake-up is a hint: the table is what counts."""

    def __init__(self) -> None:
        self._arrived = anyio.Event()
        self.waiting = 0

    def wake(self) -> None:
        """Texts may have arrived."""
        self._arrived.set()
        self._arrived = anyio.Event()

    async def wait(self, claim: Callable[[], Awaitable[Claimed]], wait_ms: int) -> Claimed:
        """What ``claim`` gives, as soon as that is something, else after ``wait_ms`` (at most MAX_WAIT_MS)."""
        claimed = Claimed(chunks=())
        self.waiting += 1
        try:
            with anyio.move_on_after(min(wait_ms, MAX_WAIT_MS) / 1000):
                while not claimed.chunks:
                    arrived = self._arrived  # before the look: what arrives between look and wait is not missed
                    with anyio.CancelScope(shield=True):
                        claimed = await claim()
                    if not claimed.chunks:
                        await arrived.wait()
        finally:
            self.waiting -= 1
        return claimed
