"""
Which events came already, so that a second copy is not journalled; and who waits for the first one's fate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ...memory.capture import events
from ...memory.capture.events import Event

LIMIT = 16_384
"""Ids of recent events: one that comes again within these is acknowledged without being journalled."""

Answer = Callable[[bytes], None]


class Seen:
    """Ids of events that are durable or on their way there. One event loop's; bounded by LIMIT and by who may wait."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, list[Answer]] = {}

    def known_as(self, event: Event) -> str:
        """The id under which ``event`` came before; '' when it did not, and from now on it did."""
        ids = self._ids
        if event.id in ids:
            return event.id
        for near in events.near_ids(event):
            if near in ids:
                return near
        ids[event.id] = None
        if len(ids) > LIMIT:
            ids.popitem(last=False)
        return ""

    def under_way(self, key: str) -> None:
        """The event with id ``key`` is not durable yet: whoever brings it again waits with it."""
        self._waiting[key] = []

    def share(self, key: str, answer: Answer) -> bool:
        """Whether the event with id ``key`` is under way; then ``answer`` is one of those that ``ended`` returns."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        waiting.append(answer)
        return True

    def ended(self, key: str, durable: bool) -> list[Answer]:
        """The fate of the event with id ``key`` is known: who waits for it. One that is not durable will come again."""
        if not durable:
            self._ids.pop(key, None)
        return self._waiting.pop(key, [])
