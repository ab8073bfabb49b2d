"""What waits for the database's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, cast

Kind = Literal["write", "read", "alone"]
"""write: in a write transaction with others; read: in a read transaction; alone: outside of any."""


class Job:
    """A function for the thread, and who waits for its result."""

    __slots__ = ("args", "error", "function", "future", "kind", "value")

    def __init__(
        self, kind: Kind, function: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any] | None
    ) -> None:
        self.kind = kind
        self.function = function
        self.args = args
        self.future = future
        self.value: Any = None
        self.error: Exception | None = None

    @property
    def name(self) -> str:
        return cast("str", getattr(self.function, "__name__", "function"))

    def settle(self) -> None:
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


def settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.settle()
