"""The status screen in six situations, at 80 × 24, as text. `RECALLD_TEST_UPDATE=1 pytest tests/test_tui.py` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recalld.clients.tui.app import Ask, StatusApp
from recalld.clients.tui.panels import rates
from recalld.protocol.messages.control import ActorStatus, State, Status, Vitals
from recalld.protocol.messages.recall import Answer, Hit, StreamScore

SNAPSHOTS = Path(__file__).parent / "snapshots"
NAMES = ("writer", "query", "embedder", "watcher")


def actor(name: str, state: State = "RUNNING", **figures: float) -> ActorStatus:
    recent = ("12 ms  where do retries live  -> decisions/retry.md",) if name == "query" else ()
    vitals = Vitals(lag_ms=2.0, rss_bytes=60_000_000, figures=figures, recent=recent)
    why = "8 crashes within 60 s" if state == "COOLING" else ""
    return ActorStatus(pid=100, state=state, generation=1, restarts=0, uptime_s=4000, vitals=vitals, why=why)


def status(*, down: tuple[str, ...] = (), pending: int = 0, notes: int = 1200, paused: bool = False) -> Status:
    figures = {
        "writer": {
            "notes": notes,
            "chunks": notes * 2,
            "pending_vectors": pending,
            "sessions_live": 2,
            "events_total": 90,
        },
        "query": {"recalls_total": 40, "recall_p50_ms": 11},
    }
    actors = {name: actor(name, "COOLING" if name in down else "RUNNING", **figures.get(name, {})) for name in NAMES}
    return Status(
        version="1.2.3", pid=1, uptime_s=4000, data="/data", runtime="/run", actors=actors, paused=paused,
        degraded=tuple("vector" if name == "embedder" else name for name in down),
    )  # fmt: skip


class Fake:
    """A source whose answers the test sets."""

    def __init__(self, now: Status | None) -> None:
        self.now = now
        self.asked: list[object] = []
        self.refusal = ""

    async def status(self) -> Status | None:
        return self.now

    async def recall(self, question: str) -> Answer | str:
        self.asked.append(question)
        hit = Hit(
            path="decisions/retry.md", title="Retries [x]", score=1.0, lines=(3, 5), passage="Retries have a budget.",
            streams={"text": StreamScore(rank=1, score=2.0)}, why="matches 'retries'",
        )  # fmt: skip
        return Answer(hits=(hit,), took_ms=12)

    async def read(self, path: str, vault: str) -> str:
        self.asked.append(path)
        return "# Retries\n[link] [[a link]] [/red] \x1b[31m"

    async def restart(self, actor: str) -> str:
        self.asked.append(f"restart {actor}")
        return ""

    async def pause(self, paused: bool) -> str:
        self.asked.append(f"pause {paused}")
        return self.refusal

    async def log_tail(self, lines: int) -> list[str]:
        return ["info supervisor: ready after 0.40 s"]


def screen_text(app: StatusApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


SITUATIONS: dict[str, Status | None] = {
    "all_well": status(),
    "embedder_down": status(down=("embedder",), pending=300),
    "writer_down": status(down=("writer",)),
    "supervisor_lost": None,
    "indexing_60_percent": status(pending=960),
    "empty": status(notes=0),
}


@pytest.mark.parametrize("name", SITUATIONS)
async def test_snapshot(name: str) -> None:
    """The whole screen, as a person sees it."""
    app = StatusApp(Fake(SITUATIONS[name]), look_s=3600)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        seen = screen_text(app)
    path = SNAPSHOTS / f"top_{name}.txt"
    if os.environ.get("RECALLD_TEST_UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen)
    assert path.read_text() == seen


async def test_it_survives_the_daemon_and_comes_back() -> None:
    """A lost daemon is shown as lost; when it answers again the screen is as before."""
    source = Fake(status())
    app = StatusApp(source, look_s=3600)
    async with app.run_test(size=(80, 24)) as pilot:

        async def look() -> str:
            app.look()
            await app.workers.wait_for_complete()
            await pilot.pause()
            return screen_text(app)

        assert "all well" in await look()
        source.now = None
        assert "does not answer" in await look()
        source.now = status()
        assert "all well" in await look()


async def test_a_question_shows_hits_with_reasons_and_opens_the_note() -> None:
    """Without a mouse: /, the question, Enter, Enter."""
    source = Fake(status())
    app = StatusApp(source, look_s=3600)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash")
        await pilot.press(*"retries", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert isinstance(app.screen, Ask)
        seen = screen_text(app)
        assert "Retries [x]" in seen
        assert "matches 'retries' (text #1)" in seen
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        seen = screen_text(app)
        assert "# Retries" in seen
        assert "[link] [[a link]] [/red]" in seen
        assert "\x1b" not in seen
    assert source.asked == ["retries", "decisions/retry.md"]


async def test_restart_and_pause_by_keys() -> None:
    """r chooses a process, p pauses indexing and then resumes it."""
    source = Fake(status())
    app = StatusApp(source, look_s=3600)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("r", "down", "enter")
        await app.workers.wait_for_complete()
        await pilot.press("p")
        await app.workers.wait_for_complete()
        source.now = status(paused=True)
        app.look()
        await app.workers.wait_for_complete()
        await pilot.press("p")
        await app.workers.wait_for_complete()
    assert source.asked == ["restart query", "pause True", "pause False"]


async def test_a_refusal_is_shown_as_it_stands() -> None:
    """Brackets in an error are no markup, and escape sequences in it and in the log are shown."""
    source = Fake(status())
    source.refusal = "no [/x] way [red] \x1b[31m"
    app = StatusApp(source, look_s=3600)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("p")
        await app.workers.wait_for_complete()
        assert [(n.message, n.markup) for n in app._notifications] == [("no [/x] way [red] \\x1b[31m", False)]


def test_rates() -> None:
    """Rates come from counters; the time left from how fast the vectors fill in."""
    before, now = status(pending=100), status(pending=80)
    found = rates(before, now, 2.0)
    assert (found.vectors_s, found.left_s, found.events_s) == (10.0, 8.0, 0.0)
    assert rates(None, now, 0.0).vectors_s == 0.0
