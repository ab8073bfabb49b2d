"""
What the status screen says, as pure functions of what the daemon told. Nothing here knows of widgets or sockets.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ...protocol.messages.control import ActorStatus, Status
from ..problems import newest, problem_of, span, standing

STATE_STYLE = {"RUNNING": "green", "STARTING": "cyan", "STOPPING": "cyan", "BACKOFF": "yellow", "COOLING": "bold red"}
BAR_CELLS = 24
LAG_WORTH_SAYING_MS = 100.0


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """What changed between two looks. Per second; ``left_s`` is the time until all vectors are there, 0 when unknown."""

    events_s: float = 0.0
    recalls_s: float = 0.0
    vectors_s: float = 0.0
    left_s: float = 0.0
    latencies_ms: tuple[float, ...] = ()
    """Median recall latency at each look, oldest first."""


def rates(before: Status | None, now: Status, seconds: float, history: Sequence[float] = ()) -> Rates:
    """The rates between two looks that lie ``seconds`` apart."""
    latencies = (*history, figure(now, "query", "recall_p50_ms"))[-60:]
    if before is None or seconds <= 0:
        return Rates(latencies_ms=latencies)

    def per_second(actor: str, name: str) -> float:
        return max(0.0, figure(now, actor, name) - figure(before, actor, name)) / seconds

    done_s = max(0.0, figure(before, "writer", "pending_vectors") - figure(now, "writer", "pending_vectors")) / seconds
    left = figure(now, "writer", "pending_vectors")
    return Rates(
        events_s=per_second("writer", "events_total"),
        recalls_s=per_second("query", "recalls_total"),
        vectors_s=done_s,
        left_s=left / done_s if done_s > 0 else 0.0,
        latencies_ms=latencies,
    )


def figure(status: Status, actor: str, name: str) -> float:
    """A figure that an actor told with its last beat, 0 when it did not."""
    return status.actors[actor].vitals.figures.get(name, 0.0) if actor in status.actors else 0.0


def headline(status: Status | None) -> Text:
    """One line: is all well?"""
    if status is None:
        return Text.from_markup("[bold red]recalld does not answer[/]  waiting for it …")
    health = f"[yellow]degraded: {', '.join(status.degraded)}[/]" if status.degraded else "[green]all well[/]"
    paused = "  [cyan]indexing is paused[/]" if status.paused else ""
    return Text.from_markup(f"[bold]recalld {status.version}[/]  {health}{paused}  up {span(status.uptime_s)}")


def advice(status: Status | None) -> list[str]:
    """What is wrong, and what to do about it; nothing when all is well."""
    if status is None:
        return [
            "The supervisor is gone. A service starts again by itself; else: recalld up",
            "Recall in agents goes on, degraded; hook events wait in the spool.",
        ]
    lines = []
    for name, actor in status.actors.items():
        if actor.state == "COOLING":
            reason = actor.vitals.facts.get("last_error") or actor.why or actor.last_exit
            lines.append(f"{name} was given up on for now: {reason}. Press r to try again; log: recalld logs {name}")
        elif actor.state == "BACKOFF":
            lines.append(f"{name} crashed ({actor.last_exit}) and is started again")
        told = problem_of(name, actor)
        if problem := actor.vitals.facts.get("problem"):
            lines.append(f"{name}: {problem}")
        elif told is not None and told.is_current and actor.state == "RUNNING":
            lines.append(str(told))
    lines += standing(status)
    if waiting := int(figure(status, "writer", "spool_waiting")):
        lines.append(f"{waiting} hook events wait in the spool: recalld spool")
    if dead := int(figure(status, "writer", "dead_letters")):
        lines.append(f"{dead} hook events could not be read: recalld spool")
    if problems := int(figure(status, "writer", "problems")):
        lines.append(f"{problems} notes could not be read as they stand: recalld doctor")
    return lines


def processes(status: Status) -> Table:
    """Each process with its state and memory."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for column in ("process", "state", "gen", "restarts", "up", "lag", "memory", "doing"):
        table.add_column(
            column, justify="right" if column in ("gen", "restarts", "lag", "memory") else "left", no_wrap=True
        )
    for name, actor in status.actors.items():
        table.add_row(name, *_process(actor))
    return table


def _process(actor: ActorStatus) -> tuple[str, ...]:
    vitals = actor.vitals
    lag = f"{vitals.lag_ms:.0f} ms"
    return (
        f"[{STATE_STYLE.get(actor.state, 'dim')}]{actor.state}[/]",
        str(actor.generation),
        str(actor.restarts),
        span(actor.uptime_s) if actor.pid else "",
        f"[yellow]{lag}[/]" if vitals.lag_ms > LAG_WORTH_SAYING_MS else lag,
        f"{vitals.rss_bytes / 1e6:.0f} MB",
        escape(vitals.busy_op),
    )


def index_line(status: Status, now: Rates) -> Text:
    """Notes, passages, and how far the vectors are."""
    notes, chunks = int(figure(status, "writer", "notes")), int(figure(status, "writer", "chunks"))
    pending = int(figure(status, "writer", "pending_vectors"))
    if not notes:
        return Text.from_markup("[dim]no notes yet: recalld add FOLDER[/]")
    text = f"{notes:,} notes, {chunks:,} passages"
    if not pending:
        return Text.from_markup(f"{text}, all with vectors")
    done = max(0.0, 1 - pending / max(1, chunks))
    filled = int(done * BAR_CELLS)
    bar = "█" * filled + "░" * (BAR_CELLS - filled)
    left = f", {span(now.left_s)} left" if now.left_s else ""
    return Text.from_markup(f"{text}  {bar} {done:.0%} embedded, {pending:,} wait{left}")


def queue_lines(status: Status) -> list[str]:
    """Every queue that holds something, held much, or refused; 'queues are empty' otherwise."""
    lines = []
    for name, actor in status.actors.items():
        for key, queue in actor.vitals.queues.items():
            if queue.depth or queue.refused or queue.peak * 2 > queue.limit:
                refused = f", refused {queue.refused}" if queue.refused else ""
                lines.append(f"{name} {key}: {queue.depth}/{queue.limit} (peak {queue.peak}, {queue.policy}{refused})")
    return lines or ["queues are empty"]


def activity_line(status: Status, now: Rates) -> str:
    """Rates, latency, sessions and handoffs."""
    p50 = figure(status, "query", "recall_p50_ms")
    sessions, handoffs = int(figure(status, "writer", "sessions_live")), int(figure(status, "writer", "handoffs_open"))
    return (
        f"{now.recalls_s:.1f} recalls/s (p50 {p50:.0f} ms)   {now.events_s:.1f} events/s   "
        f"{sessions} live sessions, {handoffs} open handoffs"
    )


def past_problem(status: Status) -> list[str]:
    """The newest problem that is over, for a dim line; what is of now stands in ``advice``."""
    problem = newest(status)
    return [f"last error, {problem}"] if problem is not None and not problem.is_current else []


def recent_lines(status: Status, limit: int = 5) -> list[str]:
    """The last recalls, newest last."""
    return list(status.actors["query"].vitals.recent[-limit:]) if "query" in status.actors else []
