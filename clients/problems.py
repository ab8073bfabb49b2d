"""The newest problem that the daemon has told of, and whether it is of now: pure, for status, the status screen and doctor."""

from __future__ import annotations

import msgspec

from ..protocol.messages.control import ActorStatus, Status

WELL_S = 600.0
"""What was logged, and not again for this long, is over."""
STANDING = ("spool_held", "wiki_packing")
"""Facts of the writer's that stand until a person acts. They are logged once: the last error does not keep them."""


class Problem(msgspec.Struct, frozen=True):
    """``age_s`` 0: it is so now."""

    actor: str
    text: str
    age_s: float
    is_current: bool

    def __str__(self) -> str:
        return f"{self.actor}{self.when}: {self.text}"

    @property
    def when(self) -> str:
        """', 3 min ago'; '' for what is so now."""
        over = "" if self.is_current else ", over since"
        return f", {span(self.age_s)} ago{over}" if self.age_s else ""


def problem_of(name: str, actor: ActorStatus) -> Problem | None:
    """What one process has told last. One that does not run is not well yet, however long ago that was."""
    text = actor.vitals.facts.get("last_error", "")
    if not text:
        return None
    age_s = actor.last_error_age_s
    return Problem(name, text, age_s, age_s < WELL_S or actor.state != "RUNNING")


def newest(status: Status) -> Problem | None:
    """The problem to name: one that is of now before one that is over, then the youngest."""
    found = [problem for name, actor in status.actors.items() if (problem := problem_of(name, actor))]
    if status.last_error:
        age_s = status.last_error_age_s
        found.append(Problem("supervisor", status.last_error, age_s, age_s < WELL_S))
    return min(found, key=lambda problem: (not problem.is_current, problem.age_s), default=None)


def standing(status: Status) -> list[str]:
    """What the writer says is so until somebody does something about it: each with what to do."""
    facts = status.actors["writer"].vitals.facts
    return [facts[name] for name in STANDING if facts.get(name)]


def span(seconds: float) -> str:
    """A duration for a person: '3 h', '40 s'."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
