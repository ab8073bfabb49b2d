"""Requests about messages between projects. Who gets one is decided when its entry is applied, not here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from ...memory import redact
from ...memory.capture import ledger
from ...memory.recall.tokens import fold
from ...protocol.envelope import Conflict, Invalid
from ...protocol.messages.capture import (
    Letter,
    MessageCancel,
    MessageDone,
    MessageList,
    MessagePop,
    Messages,
    MessagesCancelled,
    MessageSend,
    Place,
    ProjectRef,
)
from .places import GLOBAL
from .recorder import now_ms
from .records import captured, letters
from .records import pages as page_records
from .wiki.files import folder_of
from .wikipages import refuse_guess

if TYPE_CHECKING:
    from .ingest import Ingest

BODY_BYTES = 16_384
SUBJECT_CHARS = 200
LIST_MAX = 200
LISTED_CHARS = 400
"""Of a body in a list: a full inbox would be four megabytes."""


class Mail:
    """Handlers; all state is the ingest's."""

    def __init__(self, ingest: Ingest) -> None:
        self._in = ingest

    async def send(self, message: MessageSend) -> MessageDone:
        """Raises Invalid for a sender that is only guessed, an unknown recipient, too long a body; Conflict when it is full."""
        project, place = await self._placed(message.place)
        body, in_body = self._clean(message.body.strip())
        subject, in_subject = self._clean(" ".join(message.subject.split()))
        if not body:
            raise Invalid("a message needs a body")
        if len(body.encode()) > BODY_BYTES:
            raise Invalid(f"the message is longer than {BODY_BYTES} bytes: write a page, and send its path")
        to_project = await self._recipient(message.to_project)
        if to_project == project.name:
            raise Invalid("that is this project itself: leave a handoff, or write a page")
        at_ms = now_ms()
        letter = Letter(
            id=_id_of(project.name, place, body, message.replay_key or str(at_ms)),
            to_project=to_project,
            from_project=project.name,
            at_ms=at_ms,
            body=body,
            subject=subject[:SUBJECT_CHARS],
            from_agent=place.host,
            from_session=place.session,
        )
        granted = await self._in.recorder.put(
            ledger.Mailed(
                op="send", at_ms=at_ms, id=letter.id, place=place, letter=letter, replay_key=message.replay_key
            )
        )
        if not isinstance(granted, Letter):
            raise Conflict(f"the inbox of project {to_project} is full: {letters.INBOX_MAX} messages wait there")
        return MessageDone(letter=granted, project=project, redacted=in_body + in_subject)

    async def listed(self, message: MessageList) -> Messages:
        """What waits for this project, or what it sent; long bodies cut. A project that is only guessed has no mail."""
        await self._in.recorder.catch_up()
        project = await self._in.places.of(message.place)
        if project.guessed or not project.name:
            return Messages(items=(), project=project)
        read = letters.inbox if message.box == "inbox" else letters.outbox
        items = await self._in.db.read(read, project.name, max(1, min(message.limit, LIST_MAX)))
        waiting = await self._in.db.read(letters.waiting, project.name)
        return Messages(items=tuple(map(_short, items)), project=project, waiting=waiting)

    async def pop(self, message: MessagePop) -> MessageDone:
        """Raises Invalid when the project is only guessed: a message would be taken from whom it was sent to."""
        project, place = await self._placed(message.place)
        entry = ledger.Mailed(op="pop", at_ms=now_ms(), id=message.id, place=place, replay_key=message.replay_key)
        granted = await self._in.recorder.put(entry)
        return MessageDone(letter=granted if isinstance(granted, Letter) else None, project=project)

    async def cancel(self, message: MessageCancel) -> MessagesCancelled:
        """Raises Invalid when the project is only guessed."""
        project, place = await self._placed(message.place)
        entry = ledger.Mailed(op="cancel", at_ms=now_ms(), id=message.id, place=place, replay_key=message.replay_key)
        granted = await self._in.recorder.put(entry)
        return MessagesCancelled(count=granted if isinstance(granted, int) else 0, project=project)

    async def _placed(self, place: Place) -> tuple[ProjectRef, Place]:
        project = await self._in.places.of(place)
        refuse_guess(project)
        if project.name == GLOBAL:
            raise Invalid("name one project: nobody works in all of them")
        return project, msgspec.structs.replace(place, project=project.name)

    async def _recipient(self, name: str) -> str:
        """The project that is meant: one that sessions were captured in, or that has pages. Raises Invalid."""
        roots = await self._in.db.read(captured.project_roots)
        match = name if name in roots else next((each for each in sorted(roots) if fold(each) == fold(name)), "")
        if match:
            return match
        if name and name != GLOBAL:
            pages = await self._in.db.read(page_records.pages_of, self._in.index.root, folder_of(name))
            if pages:
                return name
        known = ", ".join(sorted(roots)[:20]) or "none yet"
        raise Invalid(f"there is no project '{name}' here; known projects: {known}")

    def _clean(self, text: str) -> tuple[str, int]:
        clean, found = redact.redact(text, self._in.intake.extra, self._in.intake.allow)
        return clean, sum(found.values())


def _id_of(project: str, place: Place, body: str, key: str) -> str:
    digest = hashlib.blake2b("\0".join((project, place.session, body, key)).encode(), digest_size=6)
    return f"m-{digest.hexdigest()}"


def _short(letter: Letter) -> Letter:
    if len(letter.body) <= LISTED_CHARS:
        return letter
    return msgspec.structs.replace(letter, body=letter.body[:LISTED_CHARS], cut=True)
