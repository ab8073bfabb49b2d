"""
The numbers that the writer gave to models, kept in a file.

Trigger: the embedder restarts while the writer is away.
Why: answers carry the number, and the query process compares it with that of the vectors it has loaded.
Outcome: questions are still answered by meaning. A number of a database that was rebuilt fits nothing, and does no harm.
"""

from __future__ import annotations

import logging
from pathlib import Path

import anyio.to_thread
import msgspec

log = logging.getLogger("recalld.embedder")

NUMBERS = ".numbers.json"


class Numbers:
    """By SHA-256 of the model. ``path`` None: nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, int] = {}
        try:
            if path is not None:
                self._known = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s is not read: %s", path, error)

    def of(self, sha256: str) -> int:
        """The number of a model, 0 while the writer has never said it."""
        return self._known.get(sha256, 0)

    async def learn(self, sha256: str, number: int) -> None:
        """Remember; a file that cannot be written costs nothing but the memory of it."""
        if self._known.get(sha256) == number:
            return
        self._known[sha256] = number
        try:
            await anyio.to_thread.run_sync(self._write)
        except OSError as error:
            log.warning("%s is not written: %s", self._path, error)

    def _write(self) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self._path.with_suffix(".tmp")
            temporary.write_bytes(msgspec.json.encode(self._known))
            temporary.replace(self._path)
