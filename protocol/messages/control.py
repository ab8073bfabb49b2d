"""Messages of control: between supervisor and child (one socketpair each), and on ``control.sock``."""

from __future__ import annotations

from typing import Literal

import msgspec

from .common import Message, Ok

State = Literal["STARTING", "RUNNING", "STOPPING", "STOPPED", "BACKOFF", "COOLING"]


class QueueStat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One bounded buffer: its policy word says what happens when it is full."""

    depth: int
    peak: int
    limit: int
    policy: Literal["wait", "refuse", "shed", "spill"]
    refused: int = 0


class Vitals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child tells of itself with every beat."""

    lag_ms: float = 0.0
    rss_bytes: int = 0
    busy_op: str = ""
    busy_ms: int = 0
    queues: dict[str, QueueStat] = {}
    figures: dict[str, float] = {}
    """Counters and gauges, names with units: 'notes', 'pending_vectors', 'recalls_total', 'recall_p50_ms' …"""
    facts: dict[str, str] = {}
    """Short texts for a person: 'model', 'watch_mode', 'last_error' …"""
    recent: tuple[str, ...] = ()
    """The last things that happened here, newest last, at most 10 lines (recent recalls, sessions)."""


class Ready(Message, frozen=True, tag="ready"):
    generation: int
    pid: int


class Beat(Message, frozen=True, tag="beat"):
    """Sent from the event loop each second: a loop that does not turn does not beat."""

    vitals: Vitals


class Stop(Message, frozen=True, tag="stop"):
    grace_ms: int


class ConfigChanged(Message, frozen=True, tag="config_changed"):
    """Re-read config.toml."""


class Pause(Message, frozen=True, tag="pause"):
    """Pause or resume indexing (bulk embedding and sweeps). Recall goes on."""

    paused: bool


class PeersUp(Message, frozen=True, tag="peers_up"):
    """Which actors run now; sent on every transition, so that an actor can plan without asking."""

    up: tuple[str, ...]
    restarts: dict[str, int] = {}


FromChild = Ready | Beat
ToChild = Stop | ConfigChanged | Pause | PeersUp


class GetStatus(Message, frozen=True, tag="get_status"):
    """-> Status"""


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pid: int
    state: State
    generation: int
    restarts: int
    uptime_s: float = 0.0
    vitals: Vitals = Vitals()
    beat_age_ms: int = 0
    last_error_age_s: float = 0.0
    """Since the 'last_error' in its facts was logged; 0 = it is so now."""
    last_exit: str = ""
    """'exit 1 after 3.2 s', 'killed by SIGKILL', 'stale beat' … '' when it never ended."""
    why: str = ""
    """For COOLING and BACKOFF: what is being waited for."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int
    actor: str
    arrow: str
    """'RUNNING -> BACKOFF: exited with 1'."""


class Status(Message, frozen=True, tag="status"):
    version: str
    pid: int
    uptime_s: float
    data: str
    runtime: str
    actors: dict[str, ActorStatus]
    degraded: tuple[str, ...] = ()
    paused: bool = False
    transitions: tuple[Transition, ...] = ()
    last_error: str = ""
    last_error_age_s: float = 0.0


class StopAll(Message, frozen=True, tag="stop_all"):
    """Stop the daemon; answered before the first child is told -> Ok."""


class RestartActor(Message, frozen=True, tag="restart_actor"):
    name: str


class Reload(Message, frozen=True, tag="reload"):
    """config.toml changed: every child is told -> Ok."""


class SetPaused(Message, frozen=True, tag="set_paused"):
    paused: bool


ControlRequest = GetStatus | StopAll | RestartActor | Reload | SetPaused
ControlReply = Status | Ok
