"""Handoffs: what one says, who gets it, and that of any number of racers exactly one does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from recalld.memory.capture import handoffs
from recalld.memory.capture.digest import Digest, Failure
from recalld.memory.capture.handoffs import Transition
from recalld.memory.capture.sessions import Session
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages.capture import (
    Brief,
    Handoff,
    HandoffAccept,
    HandoffBegin,
    HandoffCancel,
    HandoffList,
    Place,
)

from .capturing import FIRST_MS, ended, prompt, ran, running, started

T = FIRST_MS
DAY = 86_400_000


def digest(**more: Any) -> Digest:
    empty: dict[str, Any] = {
        "requests": [], "written": [], "read": [], "commands": [], "failures": [], "decisions": [], "summaries": [],
        "tools": [], "subagents": [], "mentions": [],
    }  # fmt: skip
    return Digest(**{**empty, **more})


def session(**more: Any) -> Session:
    given: dict[str, Any] = {
        "id": "s", "host": "claude", "project": "p", "cwd": "/repo", "started_ms": T, "last_ms": T, "ended_ms": T,
        "prompts": 1, "ends": 1, "stopped": True,
    }  # fmt: skip
    return Session(**{**given, **more})


def handoff(key: str = "h", **more: Any) -> Handoff:
    given: dict[str, Any] = {"project": "p", "cwd": "/repo", "from_agent": "claude", "at_ms": T, "summary": "x"}
    return Handoff(id=key, **{**given, **more})


@pytest.mark.parametrize(
    ("requests", "state", "questions", "steps"),
    [
        (["Why does it slip?"], {}, 1, []),
        (["Fix it"], {}, 0, ["Continue from: Fix it"]),
        (["Fix it"], {"end_reason": "idle"}, 0, ["Continue from (mid-task exit): Fix it"]),
        (["Fix it", "thanks"], {}, 0, ["Continue from: Fix it"]),
        (["ok"], {}, 0, None),
    ],
)  # fmt: skip
def test_rules_of_composition(
    requests: list[str], state: dict[str, Any], questions: int, steps: list[str] | None
) -> None:
    """An open question, a mid-task exit, the last request; assent alone leaves nothing."""
    made = handoffs.compose(session(**state), digest(requests=requests), T)
    if steps is None:
        assert made is None
        return
    assert made is not None
    assert len(made.open_questions) == questions
    assert list(made.next_steps) == steps


def test_a_write_without_a_stop_warns() -> None:
    """The session ended in the middle of a change: look at the working tree."""
    made = handoffs.compose(
        session(stopped=False), digest(requests=["Fix it"], written=["a.py"], last_was_write=True), T
    )
    assert made is not None
    assert len(made.next_steps) == 2
    assert made.files_touched == ("a.py",)


def test_the_last_unsolved_failure_is_named() -> None:
    """A failure that was solved is not what the next agent must know first."""
    failures = [
        Failure(what="make a", telling="boom", followed=[]),
        Failure(what="make b", telling="bang", followed=[], solved=True),
    ]
    made = handoffs.compose(session(branch="topic"), digest(requests=["Fix it"], failures=failures), T)
    assert made is not None
    assert made.last_failure == "`make a`: boom"
    assert made.branch == "topic"


def test_manual_before_automatic_and_newest_first() -> None:
    """Age decides within a class only."""
    candidates = [handoff("old", at_ms=T), handoff("new", at_ms=T + 2), handoff("manual", at_ms=T - 5, automatic=False)]
    place = Place(cwd="/repo", host="codex", project="p")
    best = handoffs.select(candidates, place, T, 14)
    assert best is not None
    assert best.id == "manual"
    best = handoffs.select(candidates[:2], place, T, 14)
    assert best is not None
    assert best.id == "new"


@pytest.mark.parametrize(
    ("given", "place", "fits"),
    [
        ({}, {"cwd": "/repo/api"}, True),
        ({}, {"cwd": "/repo-other"}, False),
        ({"cwd": "/repo/api"}, {"cwd": "/repo"}, False),
        ({"cwd": "/repo/api", "automatic": False}, {"cwd": "/repo"}, True),
        ({"to_agent": "codex"}, {"cwd": "/repo", "host": "gemini"}, False),
        ({"to_agent": "codex"}, {"cwd": "/repo", "host": "codex"}, True),
        ({"from_session": "me"}, {"cwd": "/repo", "session": "me"}, False),
        ({"state": "accepted"}, {"cwd": "/repo"}, False),
        ({"at_ms": T - 15 * DAY}, {"cwd": "/repo"}, False),
        ({"at_ms": T - 15 * DAY, "automatic": False}, {"cwd": "/repo"}, True),
    ],
)  # fmt: skip
def test_who_a_handoff_fits(given: dict[str, Any], place: dict[str, str], fits: bool) -> None:
    """Folder on path boundaries, agent, origin, state and age."""
    assert handoffs.fits(handoff(**given), Place(**place), T, 14) is fits


def test_a_later_session_of_the_folder_supersedes() -> None:
    """Not the other way round: an imported old session must not take the place of yesterday's."""
    old, new = handoff("old", at_ms=T), handoff("new", at_ms=T + 1)
    assert handoffs.superseded_by(new, [old], T + 2) == ["old"]
    assert handoffs.superseded_by(old, [new], T + 2) == []
    assert handoffs.outdated(old, [new], T + 2)
    assert not handoffs.outdated(new, [old], T + 2)
    elsewhere = handoff("elsewhere", cwd="/other")
    assert handoffs.superseded_by(new, [elsewhere, handoff("manual", automatic=False)], T + 2) == []


def test_a_handoff_from_the_future_is_the_older_one() -> None:
    """It was left while the clock was ahead: what ends under the right clock takes its place, and is not born obsolete."""
    ahead, new = handoff("ahead", at_ms=T + 400 * handoffs.DAY_MS), handoff("new", at_ms=T)
    assert handoffs.superseded_by(new, [ahead], T) == ["ahead"]
    assert not handoffs.outdated(new, [ahead], T)


def test_a_handoff_of_1970_does_not_age() -> None:
    """It was left before the clock was set: how old it is nobody knows, and it may be of this morning."""
    assert not handoffs.expired(handoff(at_ms=600_000), T, 14)
    assert handoffs.expired(handoff(at_ms=T - 15 * handoffs.DAY_MS), T, 14)


def test_transitions_compare_before_they_set() -> None:
    """Accepted is accepted; only who took it gives it back; what ended stays ended."""
    taken = handoffs.step(handoff(), Transition(op="accept", id="h", at_ms=T, session="a"))
    assert (taken.state, taken.accepted_by) == ("accepted", "a")
    assert handoffs.step(taken, Transition(op="accept", id="h", at_ms=T, session="b")) == taken
    assert handoffs.step(taken, Transition(op="release", id="h", at_ms=T, session="b")) == taken
    assert handoffs.step(taken, Transition(op="release", id="h", at_ms=T, session="a")).state == "open"
    over = handoffs.step(handoff(), Transition(op="cancel", id="h", at_ms=T))
    assert handoffs.step(over, Transition(op="accept", id="h", at_ms=T, session="a")) == over


async def test_of_fifty_racers_exactly_one_gets_it(short_tmp: Path) -> None:
    """Through the tool and by first prompts at once: one owner, everybody else nothing."""
    async with running(short_tmp) as rig:
        root = str(rig.checkout())
        begun = await rig.ingest.desk.begin(
            HandoffBegin(summary="Take over", place=Place(cwd=root, host="claude", session="from"))
        )
        assert begun.handoff is not None
        won: list[str] = []

        async def by_tool(number: int) -> None:
            done = await rig.ingest.desk.accept(
                HandoffAccept(place=Place(cwd=root, host="codex", session=f"tool-{number}"))
            )
            if done.handoff is not None:
                won.append(f"tool-{number}")

        async def by_prompt(number: int) -> None:
            name = f"prompt-{number}"
            briefing = await rig.ingest.handlers[Brief](Brief(place=Place(cwd=root, host="codex", session=name)))
            await rig.send(prompt(name, root, f"Go on {number}", FIRST_MS + number))
            if briefing.handoff:
                await rig.ingest.recorder.settle()
                [state] = (await rig.ingest.desk.list_handoffs(HandoffList(place=Place(cwd=root)))).items
                if state.accepted_by == name:
                    won.append(name)

        async with anyio.create_task_group() as group:
            for number in range(25):
                group.start_soon(by_tool, number)
                group.start_soon(by_prompt, number)
        await rig.ingest.settle()
        assert len(won) == 1
        assert rig.rows("SELECT state FROM handoffs WHERE id = ?", begun.handoff.id) == [("accepted",)]


async def test_an_offer_claims_nothing_until_the_first_prompt(short_tmp: Path) -> None:
    """Shown at the start, owned at the first prompt; an empty session gives it back for the next one."""
    async with running(short_tmp) as rig:
        root = str(rig.checkout())
        await rig.send(
            prompt("one", root, "Fix the gear"), ran("one", root, "make"), ended("one", root, FIRST_MS + 1000)
        )
        await rig.ingest.settle()

        async def state() -> tuple[str, str]:
            [item] = (await rig.ingest.desk.list_handoffs(HandoffList(place=Place(cwd=root)))).items
            return item.state, item.accepted_by

        await rig.send(started("two", root, FIRST_MS + 2000, host="codex"))
        briefing = await rig.ingest.handlers[Brief](Brief(place=Place(cwd=root, host="codex", session="two")))
        assert "Fix the gear" in briefing.text
        assert await state() == ("offered", "")
        await rig.send(ended("two", root, FIRST_MS + 3000, host="codex"))
        await rig.ingest.settle()
        assert await state() == ("open", "")

        await rig.ingest.handlers[Brief](Brief(place=Place(cwd=root, host="codex", session="three")))
        await rig.send(prompt("three", root, "What next?", FIRST_MS + 4000, host="codex"))
        await rig.ingest.settle()
        assert await state() == ("accepted", "three")


async def test_a_headless_session_swallows_nothing(short_tmp: Path) -> None:
    """It may be told, but its prompt does not claim."""
    async with running(short_tmp) as rig:
        root = str(rig.checkout())
        await rig.send(prompt("one", root, "Fix the gear"), ended("one", root, FIRST_MS + 1000))
        await rig.ingest.settle()
        await rig.ingest.handlers[Brief](Brief(place=Place(cwd=root, host="codex", session="bot")))
        await rig.send(prompt("bot", root, "Nightly run", FIRST_MS + 2000, host="codex", interactive=False))
        await rig.send(ended("bot", root, FIRST_MS + 3000, host="codex"))
        await rig.ingest.settle()
        states = {
            item.from_session: item.state
            for item in (await rig.ingest.desk.list_handoffs(HandoffList(place=Place(cwd=root)))).items
        }
        assert states == {"one": "offered"}


async def test_a_repeated_call_gets_the_first_answer(short_tmp: Path) -> None:
    """A bridge that reconnected asks again under the same key: no second handoff, no second claim."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()), host="claude", session="from")
        first = await rig.ingest.desk.begin(HandoffBegin(summary="Take over", place=place, replay_key="k1"))
        again = await rig.ingest.desk.begin(HandoffBegin(summary="Take over", place=place, replay_key="k1"))
        assert first.handoff == again.handoff
        other = Place(cwd=place.cwd, host="codex", session="to")
        taken = await rig.ingest.desk.accept(HandoffAccept(place=other, replay_key="k2"))
        repeated = await rig.ingest.desk.accept(HandoffAccept(place=other, replay_key="k2"))
        assert taken.handoff == repeated.handoff is not None


async def test_cancel_and_refusals(short_tmp: Path) -> None:
    """A cancelled one is nobody's; an empty summary and a guessed project are refused."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()), host="claude")
        begun = await rig.ingest.desk.begin(HandoffBegin(summary="Take over", place=place))
        assert begun.handoff is not None
        gone = await rig.ingest.desk.cancel(HandoffCancel(id=begun.handoff.id))
        assert gone.handoff is not None
        assert gone.handoff.state == "cancelled"
        assert (await rig.ingest.desk.accept(HandoffAccept(place=place))).handoff is None
        with pytest.raises(Invalid):
            await rig.ingest.desk.begin(HandoffBegin(summary="  ", place=place))
        with pytest.raises(Invalid):
            await rig.ingest.desk.begin(HandoffBegin(summary="Take over", place=Place(cwd="/")))


async def test_secrets_do_not_travel_in_handoffs(short_tmp: Path) -> None:
    """What an agent writes down is redacted like what it did."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    async with running(short_tmp) as rig:
        begun = await rig.ingest.desk.begin(
            HandoffBegin(
                summary=f"The token is {secret}", next_steps=(f"use {secret}",), place=Place(cwd=str(rig.checkout()))
            )
        )
        assert secret not in repr(begun)
        assert "[redacted:" in repr(begun)
        await asyncio.sleep(0)
