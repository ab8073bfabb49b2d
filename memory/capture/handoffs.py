"""
Handoffs: what one agent leaves for the next, who may have it, and how it changes hands.

Composition, selection and transitions are pure; the writer applies a transition under compare-and-set, journals it, and a
replay of the journal gives the same state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ...protocol.messages.capture import Handoff, Place
from . import prompts
from .digest import Digest, quoted, shorten
from .events import FUTURE_MS
from .sessions import ENDS, Session

EXCERPT_CHARS = 1500
"""Of a prompt in a summary (the reference's figure)."""
MAX_FILES = 40
MAX_ITEMS = 20
ITEM_CHARS = 1000
SUMMARY_CHARS = 8000
OPEN_STATES = ("open", "offered")
DAY_MS = 86_400_000
DATED_MS = 1_577_836_800_000
"""2020-01-01: no handoff is older. One that says so was left while the clock was wrong, and how old it is nobody knows."""


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One step in a handoff's life, as it is journalled. ``session`` is who takes, is offered or gives back.

    open carries the handoff itself; expire and cancel end it; release makes an accepted or offered one open again.
    """

    op: Literal["open", "offer", "accept", "release", "cancel", "expire"]
    id: str
    at_ms: int
    session: str = ""
    host: str = ""
    handoff: Handoff | None = None
    replay_key: str = ""


def automatic_id(session: Session) -> str:
    """The id of the handoff that end number ``session.ends`` leaves: the same however often the end is processed."""
    return _id("auto", session.id, str(session.ends))


def manual_id(project: str, session: str, summary: str, key: str) -> str:
    """The id of a handoff that somebody wrote. ``key`` tells equal texts apart (the time, or the caller's replay key)."""
    return _id("manual", project, session, summary, key)


def compose(session: Session, digest: Digest, at_ms: int) -> Handoff | None:
    """
    The handoff that a session leaves by rule, None when it has nothing to say.

    Rules in the reference's order (an unanswered question, a write without a normal stop, an exit in mid-task, the last
    request), with what it cannot tell: files touched, the last failure that nothing solved, the branch.
    """
    real = [request for request in digest.requests if not prompts.is_acknowledgement(request)]
    if not real and not digest.written and not digest.failures:
        return None
    failure = next((each for each in reversed(digest.failures) if not each.solved), None)
    questions, steps = _what_is_open(session, digest, real)
    return Handoff(
        id=automatic_id(session),
        project=session.project,
        cwd=session.cwd,
        from_agent=session.host,
        from_session=session.id,
        at_ms=at_ms,
        summary=shorten(_summary(real, digest), SUMMARY_CHARS),
        automatic=True,
        branch=session.branch,
        open_questions=tuple(questions),
        next_steps=tuple(steps),
        files_touched=tuple(digest.written[-MAX_FILES:] or digest.read[-MAX_FILES:]),
        last_failure=f"{quoted(failure.what)}: {failure.telling}" if failure and failure.telling else (
            quoted(failure.what) if failure else ""
        ),
    )  # fmt: skip


def _summary(real: Sequence[str], digest: Digest) -> str:
    parts = []
    if real and real[0] == real[-1]:
        parts.append(f"Session focused on: {shorten(real[0], EXCERPT_CHARS)}")
    elif real:
        parts += [f"Started: {shorten(real[0], EXCERPT_CHARS)}", f"Last: {shorten(real[-1], EXCERPT_CHARS)}"]
    if digest.conclusion:
        parts.append(f"The agent's last word: {shorten(digest.conclusion, EXCERPT_CHARS)}")
    elif digest.summaries:
        parts.append(f"The agent's summary: {shorten(digest.summaries[-1], EXCERPT_CHARS)}")
    if digest.decisions:
        parts.append("Decided: " + "; ".join(digest.decisions[-3:]))
    return "\n".join(parts) or f"{len(digest.written)} files were changed; nothing was asked in words."


def _what_is_open(session: Session, digest: Digest, real: Sequence[str]) -> tuple[list[str], list[str]]:
    questions: list[str] = []
    steps: list[str] = []
    last = real[-1] if real else ""
    if last and prompts.is_question(last) and not digest.conclusion:
        questions.append(f"Unresolved question: {shorten(last, ITEM_CHARS)}")
    elif digest.last_was_write and not session.stopped:
        steps.append("The session ended right after a change, without a normal stop.")
        steps.append("Check the working tree before going on.")
    elif last and session.end_reason in ENDS:
        steps.append(f"Continue from (mid-task exit): {shorten(last, ITEM_CHARS)}")
    elif last:
        steps.append(f"Continue from: {shorten(last, ITEM_CHARS)}")
    for failure in [each for each in digest.failures if not each.solved][-3:]:
        telling = f": {failure.telling}" if failure.telling else ""
        steps.append(f"Not seen to work yet: {quoted(failure.what)}{telling}")
    return questions, steps


def select(candidates: Iterable[Handoff], place: Place, now_ms: int, expire_days: int) -> Handoff | None:
    """
    The handoff for whoever stands at ``place``: manual before automatic, newest first. ``candidates`` are of its project.

    None when there is no open one that fits: see ``fits``.
    """
    fitting = [each for each in candidates if fits(each, place, now_ms, expire_days)]
    return max(fitting, key=lambda each: (not each.automatic, each.at_ms, len(each.cwd), each.id), default=None)


def fits(handoff: Handoff, place: Place, now_ms: int, expire_days: int) -> bool:
    """
    Whether ``handoff`` may go to ``place``: open; for this agent, or for any; never back to the session it came from.

    Manual ones serve the whole project. An automatic one must not be older than ``expire_days``, and its folder must be
    the receiver's or one above it, on path boundaries.
    """
    if handoff.state not in OPEN_STATES:
        return False
    if handoff.to_agent and handoff.to_agent != place.host:
        return False
    if handoff.from_session and handoff.from_session == place.session:
        return False
    if not handoff.automatic:
        return True
    return not expired(handoff, now_ms, expire_days) and (not handoff.cwd or covers(handoff.cwd, place.cwd))


def expired(handoff: Handoff, now_ms: int, expire_days: int) -> bool:
    """Whether an automatic handoff is too old to be offered. Manual ones do not age, nor do those without a likely time."""
    return handoff.automatic and handoff.at_ms >= DATED_MS and now_ms - handoff.at_ms > expire_days * DAY_MS


def covers(folder: str, cwd: str) -> bool:
    """Whether ``cwd`` is ``folder`` or below it: '/repo' covers '/repo/api', never '/repo-other'."""
    base = folder.rstrip("/")
    return cwd.rstrip("/") == base or cwd.startswith(base + "/")


def may(handoff: Handoff, transition: Transition) -> bool:
    """The compare in compare-and-set: whether ``transition`` is possible in the handoff's present state."""
    match transition.op:
        case "offer" | "accept" | "cancel" | "expire":
            return handoff.state in OPEN_STATES
        case "release":
            return handoff.state == "offered" or (
                handoff.state == "accepted" and handoff.accepted_by == transition.session
            )
        case "open":
            return False


def step(handoff: Handoff, transition: Transition) -> Handoff:
    """The handoff after ``transition``; unchanged when ``may`` says no."""
    if not may(handoff, transition):
        return handoff
    match transition.op:
        case "offer":
            return msgspec.structs.replace(handoff, state="offered")
        case "accept":
            return msgspec.structs.replace(
                handoff, state="accepted", accepted_by=transition.session, accepted_at_ms=transition.at_ms
            )
        case "release":
            return msgspec.structs.replace(handoff, state="open", accepted_by="", accepted_at_ms=0)
        case "cancel":
            return msgspec.structs.replace(handoff, state="cancelled")
        case "expire":
            return msgspec.structs.replace(handoff, state="expired")
        case "open":
            return handoff


def superseded_by(new: Handoff, others: Iterable[Handoff], now_ms: int) -> list[str]:
    """Ids of open automatic handoffs from exactly the same folder that the automatic ``new`` makes obsolete at ``now_ms``."""
    if not new.automatic:
        return []
    return [each.id for each in others if _rivals(new, each) and not _later(each, new, now_ms)]


def outdated(new: Handoff, others: Iterable[Handoff], now_ms: int) -> bool:
    """Whether a later session of the same folder has left an automatic handoff already (``new`` is of an old transcript)."""
    return new.automatic and any(_rivals(new, each) and _later(each, new, now_ms) for each in others)


def _later(other: Handoff, new: Handoff, now_ms: int) -> bool:
    """Whether ``other`` is the younger one. One from the future was left while the clock was ahead: it came before."""
    return new.at_ms < other.at_ms <= now_ms + FUTURE_MS


def _rivals(new: Handoff, other: Handoff) -> bool:
    return other.automatic and other.state in OPEN_STATES and other.cwd == new.cwd and other.id != new.id


def passed_over(taken: Handoff, others: Iterable[Handoff]) -> list[str]:
    """Ids of older automatic handoffs of the same folder or above, which the accepted ``taken`` leaves without purpose."""
    return [
        each.id
        for each in others
        if each.automatic
        and each.state in OPEN_STATES
        and each.id != taken.id
        and each.at_ms <= taken.at_ms
        and covers(each.cwd, taken.cwd)
    ]


def _id(*parts: str) -> str:
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"h-{digest}"
