"""Questions about the past: every stream answers from what stood in the notes at that time."""

import datetime

import pytest
from recalld.actors.query.filters import instant_ms
from recalld.actors.query.offline import answer_offline
from recalld.protocol.config import Config
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages.recall import Recall

from .asking import desk
from .indexing import Index


def iso(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat()


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path)
    yield made
    made.close()


@pytest.fixture
def story(index):
    """Three states: launch in March; launch in April with a plan beside it; the launch note gone."""
    index.write_all(
        {"launch.md": "# Launch\n\nThe launch is in March, says [[ana]].", "ana.md": "# Ana\n\nAna is a pilot."}
    )
    index.write_all({f"other{i}.md": f"# Other {i}\n\nNothing to see in number {i}." for i in range(8)})
    index.embed()
    first = index.now_ms
    second = index.later(10)
    index.write_all(
        {"launch.md": "# Launch\n\nThe launch moved to April.", "plan.md": "# Plan\n\nFuel the [[launch]]."}
    )
    index.embed()
    third = index.later(10)
    index.drop("launch.md")
    return iso(first), iso(second), iso(third)


@pytest.mark.parametrize("streams", [("text",), ("vector",), ("text", "entity", "graph", "vector")], ids=",".join)
async def test_each_stream_sees_the_version_of_that_time(index, story, streams):
    """The same question is answered with the text that stood then, by words and by vectors alike."""
    first, second, third = story
    async with desk(index) as asked:
        for when, passage in ((first, "March"), (second, "April")):
            answer = await asked.ask("when is the launch", streams=streams, as_of=when)
            assert answer.hits[0].path == "launch.md"
            assert passage in answer.hits[0].passage
        assert "launch.md" not in await asked.paths("when is the launch", streams=streams, as_of=third)
        assert "plan.md" not in await asked.paths("fuel plan", streams=streams, as_of=first)
        assert "plan.md" in await asked.paths("fuel plan", streams=streams, as_of=second)


async def test_links_are_those_of_the_time(index, story):
    """A note that was reached through a link then is reached through it when that time is asked about."""
    first, second, _ = story
    async with desk(index) as asked:
        then = await asked.ask("launch", as_of=first, streams=("text", "entity", "graph"), explain=True)
        ana = {hit.path: hit for hit in then.hits}["ana.md"]
        assert "graph" in ana.streams
        later = await asked.ask("launch", as_of=second, streams=("text", "entity", "graph"))
        assert "ana.md" not in [hit.path for hit in later.hits]


async def test_words_that_are_only_in_the_past_are_found_there(index, story):
    """A word that no current note holds any more is found as of the time when one did."""
    async with desk(index) as asked:
        assert await asked.paths("March", streams=("text",)) == []
        assert await asked.paths("March", streams=("text",), as_of=story[0]) == ["launch.md"]


async def test_before_the_first_note_there_is_nothing(index, story):
    """A time before anything was written is an answer without hits that says why."""
    async with desk(index) as asked:
        answer = await asked.ask("launch", as_of="2001-01-01")
        assert answer.hits == ()
        assert f"does not reach back to that time: its oldest versions are of {story[0][:10]}" in answer.note


async def test_texts_of_the_past_without_vectors_are_admitted(index, story):
    """With another model they wait behind everything that is current; meanwhile an answer says what it lacks."""
    index.use_model("other")
    waiting = index.conn.execute("SELECT queued_ms > 0 FROM pending ORDER BY queued_ms").fetchall()
    assert waiting[:2] == [(0,), (0,)]
    assert waiting[2:] == [(1,)] * 10
    async with desk(index) as asked:
        answer = await asked.ask("when is the launch", as_of=story[0])
        assert "10 texts of that time still wait" in answer.note
    index.embed()
    async with desk(index) as asked:
        answer = await asked.ask("when is the launch", as_of=story[0], streams=("vector",))
        assert "wait" not in answer.note
        assert "March" in answer.hits[0].passage


async def test_an_answer_says_when_its_versions_stood(index, story):
    """With a question about a time each hit has the interval, open for what is still current; without one it has none."""
    first, second, _ = story
    async with desk(index) as asked:
        hits = (await asked.ask("launch ana", as_of=first)).hits
        stood = {hit.path: hit.valid for hit in hits}
        assert stood["launch.md"][1] == second.replace("+00:00", "Z")
        assert stood["ana.md"][1] == ""
        assert stood["ana.md"][0] == stood["launch.md"][0] == first.replace("+00:00", "Z")
        assert all(hit.valid == ("", "") for hit in (await asked.ask("launch ana")).hits)


async def test_the_present_is_not_disturbed(index, story):
    """Asking about the past leaves what is current as it is."""
    async with desk(index) as asked:
        await asked.ask("launch", as_of=story[0])
        assert await asked.paths("fuel plan", k=1) == ["plan.md"]
        assert {card.path for card in asked.live.view.cards.values()} >= {"ana.md", "plan.md"}


def test_the_past_is_answered_without_a_daemon(index, story):
    """The database alone answers as of a time too."""
    answer = answer_offline(index.paths, Config(), Recall(query="when is the launch", as_of=story[0]))
    assert "March" in answer.hits[0].passage
    assert set(answer.degraded) == {"daemon", "vector"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-31T18:00:00+00:00", datetime.datetime(2026, 3, 31, 18, tzinfo=datetime.UTC)),
        ("2026-03-31T20:00:00+02:00", datetime.datetime(2026, 3, 31, 18, tzinfo=datetime.UTC)),
        ("2026-03-31", datetime.datetime(2026, 3, 31, 23, 59, 59, 999999).astimezone()),
    ],
)
def test_a_date_means_the_end_of_its_day(text, expected):
    """Instants are taken as they are, dates as their last moment in local time."""
    assert instant_ms(text) == int(expected.timestamp() * 1000)


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "31.03.2026", ""])
def test_what_is_no_date_is_said_to_be_none(text):
    """Anything else is an invalid request that names what was given."""
    with pytest.raises(Invalid, match="ISO"):
        instant_ms(text)
