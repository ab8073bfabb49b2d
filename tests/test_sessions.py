"""The life of a session, step by step, without a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.capture import prompts, sessions
from recalld.memory.capture.events import Event
from recalld.memory.capture.sessions import Claim, Finish, Refresh, Release, Session, Withdraw

T = 1_796_029_200_000


def event(kind: str, at: int = 0, **more: Any) -> Event:
    return Event(
        id=f"{kind}-{at}-{more}",
        kind=kind,
        host="claude",
        session="s",
        at_ms=T + at * 1000,
        cwd="/w",
        project="w",
        **more,
    )  # type: ignore[arg-type]


def tool(at: int = 0, **more: Any) -> Event:
    return event("post-tool-use", at, tool="Bash", family="shell", command="make", **more)


def play(*happened: Event, session: Session | None = None) -> tuple[Session, list[Any]]:
    actions: list[Any] = []
    seq = session.seq if session else 0
    for each in happened:
        seq += 1
        session, more = sessions.apply(session, each, seq)
        actions += more
    assert session is not None
    return session, actions


def test_a_session_with_work_is_finished_at_its_end() -> None:
    """Start, prompt, tool, end: the first prompt claims, the end asks for one page."""
    session, actions = play(
        event("session-start"),
        event("user-prompt", 1, text="Fix the gear"),
        tool(2),
        event("session-end", 3, reason="other"),
    )
    assert actions == [Claim("s"), Finish("s", 1)]
    assert (session.title, session.prompts, session.tools, session.live) == ("Fix the gear", 1, 1, False)


@pytest.mark.parametrize(
    "between",
    [(), (event("stop", 1),), (event("notification", 1, text="hello"),), (event("user-prompt", 1, text="/clear"),),
     (event("user-prompt", 1, text="<task-notification>done</task-notification>"),)],
)  # fmt: skip
def test_an_empty_session_leaves_nothing_and_gives_back(between: tuple[Event, ...]) -> None:
    """Nobody asked and no tool ran: no page, no handoff; what it was offered is released."""
    session, actions = play(event("session-start"), *between, event("session-end", 9))
    assert session.empty
    assert actions == [Release("s")]


def test_a_resumed_session_ends_again_with_another_page() -> None:
    """Resuming withdraws the handoff of the first end; the second end covers everything."""
    done, _ = play(event("user-prompt", 0, text="Fix the gear"), event("session-end", 1))
    again, actions = play(
        event("session-start", 5, source="resume"),
        event("user-prompt", 6, text="And the axle"),
        event("session-end", 7),
        session=done,
    )
    assert actions == [Withdraw("s"), Finish("s", 2)]
    assert (again.prompts, again.resumes, again.ends) == (2, 1, 2)


def test_a_second_end_without_news_does_nothing() -> None:
    """Two hooks may report one end."""
    done, _ = play(event("user-prompt", 0, text="Fix the gear"), event("session-end", 1))
    _, actions = play(event("session-end", 2), session=done)
    assert actions == []


def test_a_prompt_after_the_end_revives_without_a_start() -> None:
    """A host that sends no start on resume is understood by its next prompt."""
    done, _ = play(event("user-prompt", 0, text="Fix the gear"), event("session-end", 1))
    session, actions = play(event("user-prompt", 60, text="Once more"), session=done)
    assert session.live
    assert actions == [Withdraw("s")]


def test_a_straggler_from_the_spool_refreshes_the_page() -> None:
    """A tool event that arrives after the end belongs into the page, and does not revive the session."""
    done, _ = play(event("user-prompt", 0, text="Fix the gear"), event("session-end", 10))
    session, actions = play(tool(5), session=done)
    assert not session.live
    assert actions == [Refresh("s")]


def test_a_session_that_came_in_backwards_is_finished() -> None:
    """The end was delivered first, the prompt only later from the spool."""
    session, actions = play(event("session-end", 10), event("user-prompt", 5, text="Fix the gear"))
    assert not session.live
    assert actions[-1] == Finish("s", 1)


AHEAD = 10 * 365 * 86_400
"""A clock that is wrong by ten years, in seconds."""


@pytest.mark.parametrize("kind", ["session-start", "user-prompt"])
def test_an_end_of_a_time_that_has_not_come_holds_nobody_back(kind: str) -> None:
    """The session ended while the clock was ahead: what arrives after the clock was set right is no straggler."""
    done, _ = play(event("user-prompt", AHEAD, text="Fix the gear"), event("session-end", AHEAD + 1))
    again = event(kind, 60, source="resume", text="Once more")
    session, actions = sessions.apply(done, again, 3, taken_ms=again.at_ms)
    assert (session.live, session.resumes) == (True, 1)
    assert actions[0] == Withdraw("s")
    ends = {sessions.end_event(each, "asked").id for each in (done, session)}
    assert len(ends) == 2, "the time of its last event is still the one that lies ahead"


@pytest.mark.parametrize(
    ("late", "taken_ms"),
    [
        (event("user-prompt", AHEAD - 5, text="Late"), T + (AHEAD + 60) * 1000),  # the clock is still ahead
        (
            event("user-prompt", 60, text="Late"),
            0,
        ),  # of an import, or of the clock that was ahead: nothing is told by it
        (event("session-start", 60, source="compact"), T + 60_000),
        (event("user-prompt", 60, text="Late", agent_id="a1"), T + 60_000),
        (event("post-tool-use", 60, tool="Bash", family="shell"), T + 60_000),
    ],
)
def test_a_straggler_is_one_whatever_the_clock(late: Event, taken_ms: int) -> None:
    """What does not revive a session after an ordinary end does not after this one."""
    done, _ = play(event("user-prompt", AHEAD - 9, text="Fix the gear"), event("session-end", AHEAD))
    session, _ = sessions.apply(done, late, 3, taken_ms)
    assert not session.live


def test_compaction_refreshes_and_goes_on() -> None:
    """The page is written, the session lives; a start with source compact is no resume."""
    session, actions = play(
        event("user-prompt", 0, text="Fix the gear"), event("pre-compact", 1), event("post-compaction", 2, text="Half done."),
        event("session-start", 3, source="compact"),
    )  # fmt: skip
    assert actions == [Claim("s"), Refresh("s")]
    assert (session.live, session.compactions, session.resumes) == (True, 1, 0)


def test_subagents_are_not_the_person() -> None:
    """A subagent's prompt and stop neither claim nor end a turn; its tools count."""
    session, actions = play(
        event("subagent-start", 0, agent_id="a1", agent_type="Explore"), event("user-prompt", 1, text="Look", agent_id="a1"),
        event("stop", 2, agent_id="a1"), tool(3, agent_id="a1"),
    )  # fmt: skip
    assert actions == []
    assert (session.prompts, session.tools, session.stopped, session.subagents) == (0, 1, False, ("a1",))


def test_a_headless_session_claims_nothing() -> None:
    """`interactive` false anywhere makes the whole session headless."""
    _, actions = play(event("session-start", 0, interactive=False), event("user-prompt", 1, text="Fix the gear"))
    assert actions == []


def test_idle_sessions_are_overdue() -> None:
    """The end that never comes: by idle time, at the time of the last event."""
    session, _ = play(event("user-prompt", 0, text="Fix the gear"))
    assert sessions.overdue([session], T + 7_199_000, 7_200_000) == []
    assert sessions.overdue([session], T + 7_200_000, 7_200_000) == [session]
    end = sessions.end_event(session, "idle")
    assert (end.at_ms, end.reason) == (T, "idle")


def test_a_new_session_in_the_same_place_ends_a_quiet_one() -> None:
    """Ten minutes of silence and a start in the same folder by the same host; a lively neighbour stays."""
    quiet, _ = play(event("user-prompt", 0, text="Fix the gear"))
    start = Event(id="x", kind="session-start", host="claude", session="t", at_ms=T, cwd="/w")
    assert sessions.replaced([quiet], start, T + 600_000) == [quiet]
    assert sessions.replaced([quiet], start, T + 599_000) == []
    elsewhere = Event(id="y", kind="session-start", host="claude", session="t", at_ms=T, cwd="/w-other")
    assert sessions.replaced([quiet], elsewhere, T + 600_000) == []


@given(
    st.lists(
        st.sampled_from(["session-start", "user-prompt", "post-tool-use", "stop", "session-end", "post-compaction"]),
        max_size=30,
    )
)
def test_any_order_of_events_is_a_life(kinds: list[str]) -> None:
    """Whatever comes in whatever order: counts add up, an ended session with content was finished, replays change nothing."""
    happened = [
        event(kind, at, text="Do it" if kind == "user-prompt" else "", tool="Bash" if "tool" in kind else "")
        for at, kind in enumerate(kinds)
    ]
    if not happened:
        return
    session, actions = play(*happened)
    assert session.events == len(happened)
    assert session.ends == len({a.ends for a in actions if isinstance(a, Finish)})
    if not session.live and not session.empty:
        assert session.ends
    for seq, each in enumerate(happened, 1):
        assert sessions.apply(session, each, seq) == (session, ())


@pytest.mark.parametrize(
    ("text", "request_text"),
    [
        ("Why does it fail?", "Why does it fail?"),
        ("<ide_opened_file>a.py</ide_opened_file>\nWhy does it fail?", "Why does it fail?"),
        ("<task-notification>\ndone\n</task-notification>", ""),
        ("# Context from my IDE setup:\n\n## Open tabs\n- a.py\n\n## My request for Codex:\nFix it\n", "Fix it"),
        ("# Context from my IDE setup:\n\n## Open tabs\n- a.py", ""),
        ("dev@box:~/w$ make test", ""),
        ("/compact", ""),
        ("/review the gear change", "/review the gear change"),
        ("claude-sonnet-4.5", ""),
        ("gpt-5.1-codex", ""),
        ("pr-477", "pr-477"),
        ("[Request interrupted by user]", ""),
        ("This session is being continued from a previous conversation that ran out of context", ""),
    ],
)  # fmt: skip
def test_requests_are_told_from_scaffolding(text: str, request_text: str) -> None:
    """By shape: markup blocks, IDE context, echoed prompts, bare commands and model ids are nobody's request."""
    assert prompts.request_of(text) == request_text


def test_titles_are_one_short_line() -> None:
    """First line or sentence, cut on a word."""
    assert prompts.title_of("## Fix the gear\n\nIt slips.") == "Fix the gear"
    long = prompts.title_of("Please look into the gear " + "and the axle " * 20)
    assert len(long) <= prompts.MAX_TITLE_CHARS
    assert long.endswith("…")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("ok", True),
        ("thanks!", True),
        ("go ahead", True),
        ("好的", True),
        ("네", True),
        ("fix it", False),
        ("pr-477", False),
    ],
)
def test_acknowledgements(text: str, is_one: bool) -> None:
    """Short assent in several languages asks for nothing."""
    assert prompts.is_acknowledgement(text) is is_one
