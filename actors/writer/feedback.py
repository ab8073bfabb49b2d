"""Requests about feedback: which note is meant, and what was said of it, redacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...memory import redact
from ...memory.capture import ledger
from ...protocol.envelope import Invalid
from ...protocol.messages.capture import Feedback, FeedbackNoted, ProjectRef
from .recorder import now_ms
from .records import feedback as records
from .records.feedback import Standing
from .wiki.files import folder_of

if TYPE_CHECKING:
    from .ingest import Ingest

REASON_CHARS = 500


class FeedbackDesk:
    """The handler; all state is the ingest's."""

    def __init__(self, ingest: Ingest) -> None:
        self._in = ingest

    async def note(self, message: Feedback) -> FeedbackNoted:
        """Record what is said of a note. Raises Invalid when it is not clear of which."""
        project = await self._in.places.of(message.place)
        found = await self._in.db.read(records.find, _paths(message.path, project), message.vault)
        standing = _the_one(message, found)
        intake = self._in.intake
        reason, redacted = redact.redact(" ".join(message.reason.split()), intake.extra, intake.allow)
        entry = ledger.Judged(
            hash=standing.hash.hex(),
            signal=message.signal,
            at_ms=now_ms(),
            path=standing.path,
            root=standing.root,
            reason=reason[:REASON_CHARS],
            host=message.place.host,
            session=message.place.session,
        )
        await self._in.recorder.put(entry)
        tally = await self._in.db.read(records.tally, standing.hash)
        return FeedbackNoted(
            path=standing.path,
            vault=standing.vault,
            signal=message.signal,
            tally=tally,
            redacted=sum(redacted.values()),
        )


def _paths(given: str, project: ProjectRef) -> list[str]:
    """What ``given`` may be the path of: a note as recall names it, else a page of the project; '.md' may be left out."""
    given = given.strip()
    names = [given] if given.lower().endswith((".md", ".markdown")) else [f"{given}.md", given]
    if project.name and not given.startswith("/"):
        names += [f"{folder_of(project.name)}/{name}" for name in names]
    return names


def _the_one(message: Feedback, found: list[Standing]) -> Standing:
    if not found:
        where = f" in vault '{message.vault}'" if message.vault else ""
        raise Invalid(f"there is no note '{message.path}'{where}: pass the path of a hit")
    if len(found) > 1:
        names = ", ".join(sorted(each.vault for each in found))
        raise Invalid(f"'{message.path}' is in several vaults ({names}): pass vault too")
    return found[0]
