"""An event that found nobody at home: redacted here, and left as one file that the daemon takes in when it runs again."""

from __future__ import annotations

import json
import os

from recalld.memory import redact, secret_kinds
from recalld.memory.capture import tools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_STRING = 64 * 1024
EDGE = 24 * 1024
MARGIN = 4096
"""Cut from the inner edge of what is kept of a longer string: half a secret might stand there."""
MAX_DEPTH = 24
CHECK_ONE_IN = 16
"""Adding up a folder's sizes takes milliseconds: one client in so many does it for all."""


def spool(
    folder: str, wire: dict[str, Any], capture: dict[str, Any], *, sent_ms: int, max_mb: int, cut_chars: int = 0
) -> str:
    """
    Write ``wire`` as a file that appears whole or not at all; its path, or '' when the spool is full.

    ``cut_chars`` are taken off the end of a payload that is a text, once it is clean. Raises OSError when it cannot be
    written.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if _full(folder, max_mb):
        return ""
    clean = Cleaner(capture)
    payload = clean.value(tools.without_personal(wire["payload"]))
    wire = {**wire, "payload": payload[:-cut_chars] if cut_chars and isinstance(payload, str) else payload}
    name = f"{sent_ms:013d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    path = f"{folder}/{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path + ".tmp", flags, 0o600)
    try:
        data = json.dumps(wire, ensure_ascii=True).encode()
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(path + ".tmp", path)
    return path


def _full(folder: str, max_mb: int) -> bool:
    """Whether the spool has reached its size. The answer is kept as a file, looked at anew now and then."""
    mark = f"{folder}/.full"
    if os.urandom(1)[0] % CHECK_ONE_IN == 0:
        size = 0
        for entry in os.scandir(folder):
            try:
                size += entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
        if size < max_mb * 1_000_000:
            try:
                os.unlink(mark)
            except FileNotFoundError:
                pass
            return False
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return os.path.exists(mark)


class Cleaner:
    """Redacts every string in a JSON value, keys known as context. A bad pattern of the user's removes nothing here."""

    def __init__(self, capture: dict[str, Any]) -> None:
        patterns, allowed = capture.get("redact_patterns"), capture.get("redact_allow")
        try:
            self.extra = redact.compile_extra(patterns if isinstance(patterns, list) else [])
        except (redact.BadPattern, TypeError):
            # The daemon refuses to start with it and names it: until then nothing is lost that the built-in rules find.
            self.extra = ()
        self.allow = [item for item in allowed if isinstance(item, str)] if isinstance(allowed, list) else []

    def value(self, value: Any, key: str = "", depth: int = 0) -> Any:
        """``value`` with every string in it clean."""
        if depth > MAX_DEPTH:
            return None
        if isinstance(value, str):
            return self._text(value, key)
        if isinstance(value, dict):
            return {self._text(name, ""): self.value(item, name, depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, key, depth + 1) for item in value]
        return value

    def _text(self, text: str, key: str) -> str:
        if len(text) > MAX_STRING:
            head, tail = text[: EDGE + MARGIN], text[-EDGE - MARGIN :]
            return self._text(head, "")[:-MARGIN] + f"\n[… {len(text)} characters …]\n" + self._text(tail, "")[MARGIN:]
        clean = redact.redact(redact.drop_blobs(text)[0], self.extra, self.allow)[0]
        # A value whose key says that it is a secret: {"api_key": "…"} has no context inside the string.
        if key and clean == text and any(core in key.lower() for core in secret_kinds.CORES):
            said, counts = redact.redact(f'"{key}": {json.dumps(text)}', (), self.allow)
            if counts and said.startswith(f'"{key}": "[redacted:'):
                return said.split(": ", 1)[1].strip('"')
        return clean
