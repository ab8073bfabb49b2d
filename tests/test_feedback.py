"""Feedback: what is said of a note, how long it counts, and how much."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.actors.query import documents
from recalld.actors.writer.journal import Journal
from recalld.actors.writer.opening import open_database
from recalld.actors.writer.records import capture as records
from recalld.actors.writer.records import feedback
from recalld.memory.capture import ledger
from recalld.memory.recall import authority
from recalld.memory.recall.types import Tally
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages.capture import Feedback, FeedbackNoted, Place, PurgeSession, Signal, WritePage
from recalld.protocol.messages.recall import ReadNote

from .asking import desk
from .capturing import FIRST_MS, Rig, ended, prompt, running
from .indexing import Index

COUNTS = st.integers(0, 1000)


@pytest.mark.parametrize(
    ("tally", "value"),
    [
        (Tally(), 1.0),
        (Tally(helpful=1), 1.05),
        (Tally(helpful=9), 1.05**3),
        (Tally(helpful=1, not_helpful=2), 1 / 1.05),
        (Tally(helpful=9, stale=1), 0.75),
        (Tally(wrong=3), 0.75),
    ],
)
def test_what_it_is_worth(tally: Tally, value: float) -> None:
    """A few per cent for praise and blame; a flag is not outvoted."""
    assert authority.feedback(tally) == pytest.approx(value)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_its_weight_is_bounded(helpful: int, not_helpful: int, stale: int, wrong: int) -> None:
    """However many say it, no note is lost and none is always first."""
    assert 0.75 <= authority.feedback(Tally(helpful, not_helpful, stale, wrong)) <= 1.16


FILES = {
    "a.md": "# Kite permit\n\nThe kite permit of the club is number seventeen.\n",
    "b.md": "# Kite permit\n\nThe kite permit of the club is number eighteen.\n",
}


def say(index: Index, path: str, signal: Signal, host: str = "claude", session: str = "s") -> None:
    """One judgement, as the writer applies it from its journal."""
    [found] = feedback.find(index.conn, [path])
    entry = ledger.Judged(hash=found.hash.hex(), signal=signal, at_ms=1, path=path, host=host, session=session)
    index.run(feedback.judge, entry)


async def test_a_flag_lowers_a_note_until_it_changes(tmp_path: Path) -> None:
    """The next question sees it, says why with explain, and forgets it once the note's text is another."""
    index = Index(tmp_path)
    index.write_all(FILES)
    index.embed()
    async with desk(index) as asked:
        first = (await asked.ask("kite permit number", explain=True)).hits[0]
        assert "feedback" not in first.factors
        say(index, first.path, "wrong")
        answer = await asked.ask("kite permit number", explain=True)
        flagged = next(hit for hit in answer.hits if hit.path == first.path)
        assert answer.hits[0].path != first.path
        assert flagged.factors["feedback"] == 0.75
        assert "said to be wrong" in flagged.why
        index.write(first.path, FILES[first.path].replace("club", "kite club"))
        again = next(
            hit for hit in (await asked.ask("kite permit number", explain=True)).hits if hit.path == first.path
        )
        assert "feedback" not in again.factors
        say(index, first.path, "helpful")
        say(index, first.path, "helpful", session="other")
        index.move(first.path, "moved.md")
        moved = next(
            hit for hit in (await asked.ask("kite permit number", explain=True)).hits if hit.path == "moved.md"
        )
        assert moved.factors["feedback"] == pytest.approx(1.05**2, abs=1e-3)
    async with desk(index) as asked:  # another process, which loads the index anew
        moved = next(
            hit for hit in (await asked.ask("kite permit number", explain=True)).hits if hit.path == "moved.md"
        )
        assert moved.factors["feedback"] == pytest.approx(1.05**2, abs=1e-3)
        assert not isinstance(documents.find_note(asked.live.view, ReadNote(ref="moved").ref), str)
    index.close()


def test_a_voice_has_one_word_and_a_person_the_last(tmp_path: Path) -> None:
    """A session that says more counts once; what a person says settles what was said before."""
    index = Index(tmp_path)
    index.write_all(FILES)
    [standing] = feedback.find(index.conn, ["a.md"])
    say(index, "a.md", "wrong", session="one")
    say(index, "a.md", "stale", session="one")
    say(index, "a.md", "helpful", session="two")
    assert feedback.tally(index.conn, standing.hash) == {"stale": 1, "helpful": 1}
    say(index, "a.md", "helpful", host="you", session="")
    assert feedback.tally(index.conn, standing.hash) == {"helpful": 1}
    index.close()


async def test_an_agent_judges_a_page(short_tmp: Path) -> None:
    """By the path as written or as in a hit; the reason is redacted, cut and kept; a guessed project is no hindrance."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()), host="claude", session="s-1")
        await rig.ingest.handlers[WritePage](WritePage(path="notes/gear", body="The gear has 17 teeth.", place=place))
        note = rig.ingest.handlers[Feedback]
        noted = await note(
            Feedback(path="notes/gear", signal="stale", reason=f"It is {secret} now " + "x" * 900, place=place)
        )
        assert isinstance(noted, FeedbackNoted)
        assert (noted.path, noted.vault, noted.redacted) == ("acme-widgets/notes/gear.md", "wiki", 1)
        assert noted.tally == {"stale": 1}
        absolute = str(rig.paths.wiki.resolve() / "acme-widgets/notes/gear.md")
        for path in ("acme-widgets/notes/gear", absolute):
            other = Place(cwd="/", host="codex", session="s-2")
            assert (await note(Feedback(path=path, signal="wrong", place=other))).tally == {"stale": 1, "wrong": 1}
        [(reason,)] = rig.rows("SELECT reason FROM feedback WHERE signal = 'stale'")
        assert secret not in reason
        assert len(reason) == 500
        with pytest.raises(Invalid, match="there is no note 'notes/none'"):
            await note(Feedback(path="notes/none", signal="wrong", place=place))


def _said(rig: Rig) -> list[tuple[object, ...]]:
    return rig.rows("SELECT hex(hash), voice, signal, at_ms, path, reason FROM feedback ORDER BY hash, voice")


async def test_it_is_rebuilt_from_the_journal_and_purged_with_its_session(short_tmp: Path) -> None:
    """A new index made of files and journal knows the same; a session that is purged has said nothing."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        place = Place(cwd=str(root), host="claude", session="session-one")
        await rig.send(prompt("session-one", root, "Fix"), ended("session-one", root, FIRST_MS + 1000))
        await rig.ingest.handlers[WritePage](WritePage(path="notes/gear", body="17 teeth.", place=place))
        await rig.ingest.handlers[Feedback](Feedback(path="notes/gear", signal="wrong", reason="18", place=place))
        other = Place(cwd=str(root), host="codex", session="two")
        await rig.ingest.handlers[Feedback](Feedback(path="notes/gear", signal="helpful", place=other))
        await rig.ingest.settle()
        before = _said(rig)
        assert len(before) == 2
        fresh = open_database(short_tmp / "fresh.sqlite").conn
        records.rebuild(fresh, Journal(rig.paths.journal).read())
        query = "SELECT hex(hash), voice, signal, at_ms, path, reason FROM feedback ORDER BY hash, voice"
        assert [tuple(row) for row in fresh.execute(query)] == before
        fresh.close()
        await rig.ingest.handlers[PurgeSession](PurgeSession(session="session-one"))
        assert [row[2] for row in _said(rig)] == ["helpful"]
        assert not [record for _, record in Journal(rig.paths.journal).read() if b'"reason":"18"' in record]
