"""actors/query: questions on a real index, in process and through the actor's sockets."""

import asyncio
import contextlib
import os
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest
from recalld.actors.base import Env
from recalld.actors.query import recall as steps
from recalld.actors.query.actor import QueryActor
from recalld.actors.query.filters import place_of
from recalld.actors.query.offline import answer_offline
from recalld.actors.query.ranking import ranking_params
from recalld.memory.capture.events import Event
from recalld.protocol.client import Peer
from recalld.protocol.config import Config, ConfigError
from recalld.protocol.config import Recall as RecallConfig
from recalld.protocol.envelope import Invalid, TimedOut
from recalld.protocol.messages import QueryRequest
from recalld.protocol.messages.recall import (
    Ambiguous,
    Answer,
    Caught,
    DescribeIndex,
    Filters,
    IndexReport,
    Neighbours,
    NoteText,
    NotFound,
    ReadNote,
    Recall,
    Recent,
    Related,
    WaitFor,
)
from recalld.protocol.sockets import bind

from .asking import desk, ended
from .indexing import Index

FILES = {
    "projects/heron.md": "---\ntags: [work/lab]\ndate: 2026-03-01\n---\n# Heron\n\nHeron is led by [[Ana Lima]].\n\n"
    "It splits GPU time fairly among teams.\n",
    "people/ana.md": "---\ntitle: Ana Lima\ntype: person\n---\nAna Lima lives in Porto and likes kites.\n",
    "decisions/db.md": "---\ntitle: Database choice\ntags: [storage]\ndate: 2026-01-10\n"
    "superseded_by: '[[db2]]'\n---\nUse Postgres.\n",
    "decisions/db2.md": "---\ntitle: Database choice, second\ntags: [storage]\ndate: 2026-02-10\n---\nUse SQLite instead.\n",
    "日本.md": "# 日本\n\n東京で会議をした。\n",
}


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path)
    made.write_all(FILES)
    yield made
    with contextlib.suppress(Exception):
        made.close()


@pytest.fixture
async def asked(index):
    index.embed()
    async with desk(index) as made:
        yield made


def text_of(hit):
    return Path(hit.file).read_text()


async def test_a_hit_says_where_it_comes_from(asked, index):
    """Path, file, vault, title and lines are given, and the passage is the file's own text on those lines."""
    answer = await asked.ask("who leads Heron", k=3, explain=True)
    hit = answer.hits[0]
    assert (hit.path, hit.vault, hit.title) == ("projects/heron.md", "lab", "Heron")
    lines = text_of(hit).split("\n")
    assert "\n".join(lines[hit.lines[0] - 1 : hit.lines[1]]) == hit.passage
    assert hit.sentence
    assert hit.sentence in hit.passage
    assert hit.streams
    assert "fused" in hit.factors
    assert hit.why
    assert answer.degraded == ()
    assert answer.revision == index.revision


async def test_a_link_brings_the_note_that_answers(asked):
    """A note with none of the question's words comes in through the link of one that has them."""
    hits = {hit.path: hit for hit in (await asked.ask("Heron", streams=("text", "graph"), k=5)).hits}
    assert "graph" in hits["people/ana.md"].streams


@pytest.mark.parametrize("stream", ["text", "vector"])
async def test_each_stream_answers_alone(asked, stream):
    """With only one stream asked for, that one answers and no other is named."""
    answer = await asked.ask("kites in Porto", streams=(stream,))
    assert answer.hits[0].path == "people/ana.md"
    assert {name for hit in answer.hits for name in hit.streams} == {stream}


async def test_a_name_alone_is_found_by_the_entity_stream(asked):
    """A title in the question brings its note without any full text or vectors."""
    assert await asked.paths("tell me about Ana Lima", streams=("entity",)) == ["people/ana.md"]


@pytest.mark.parametrize("fault", ["down", "silent", "other model"])
async def test_an_embedder_that_fails_costs_one_stream(asked, fault, monkeypatch):
    """Down, silent or with another model: the rest answers, and the answer says that vectors are missing."""
    monkeypatch.setattr("recalld.actors.query.answers.EMBED_BUDGET_MS", 50)
    asked.embedder.fault = fault
    answer = await asked.ask("kites in Porto") if fault != "silent" else await _silent(asked)
    assert answer.hits[0].path == "people/ana.md"
    assert answer.degraded == ("vector",)
    assert "vector" in answer.note


async def test_a_question_that_is_given_up_leaves_nothing_behind(asked, monkeypatch):
    """Its reader's thread goes on for a moment and finds probes to embed; nobody waits for them any more."""
    errors, started, release = [], threading.Event(), threading.Event()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    prepare = steps.prepare

    def slowly(*arguments):
        found = prepare(*arguments)
        assert found.question.probes
        started.set()
        assert release.wait(30)
        return found

    monkeypatch.setattr(steps, "prepare", slowly)
    async with anyio.create_task_group() as group:
        group.start_soon(asked.ask, "What is the phone extension of Ana Lima?")
        await anyio.to_thread.run_sync(started.wait)
        group.cancel_scope.cancel()
    calls = asked.embedder.calls
    release.set()
    monkeypatch.setattr(steps, "prepare", prepare)
    assert (await asked.ask("kites in Porto")).hits[0].path == "people/ana.md"
    assert asked.embedder.calls == calls + 1
    assert errors == []


async def _silent(asked):
    ask = asked.embedder.ask

    async def until_budget(body, *, budget_ms, trace=""):
        with anyio.move_on_after(budget_ms / 1000):
            return await ask(body, budget_ms=budget_ms)
        raise TimedOut("no answer")

    asked.embedder.ask = until_budget
    return await asked.ask("kites in Porto")


@pytest.mark.parametrize(
    ("down", "check"),
    [
        ("embedder", lambda a: a.degraded == ("vector",)),
        ("writer", lambda a: a.read_only and a.degraded == ()),
        ("watcher", lambda a: a.stale_for_ms > 0 and "recent changes" in a.note),
    ],
)
async def test_what_is_down_is_told(asked, index, down, check):
    """Each missing actor shows in the answer as the table of degradation says, and the note is still found."""
    index.sweep()
    index.write("extra.md", "one more")
    asked.up.discard(down)
    answer = await asked.ask("kites in Porto")
    assert answer.hits[0].path == "people/ana.md"
    assert check(answer)


async def test_a_change_is_seen_by_the_next_question(asked, index):
    """No wait and no poll: what was committed before the question is in its answer; what was removed is not."""
    await asked.ask("zeppelin")
    index.write("new.md", "A zeppelin landed.")
    assert (await asked.paths("zeppelin", streams=("text",)))[0] == "new.md"
    index.drop("new.md")
    assert await asked.paths("zeppelin", streams=("text",)) == []


async def test_questions_are_embedded_once(asked):
    """The embedding of a question is kept: asking again does not ask the embedder."""
    await asked.ask("kites in Porto")
    calls = asked.embedder.calls
    await asked.ask("kites in  Porto ")
    assert asked.embedder.calls == calls


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(folder="Decisions"), {"decisions/db.md", "decisions/db2.md"}),
        (Filters(tags=("#Work",)), {"projects/heron.md"}),
        (Filters(tags=("storage",), until="2026-01-31"), {"decisions/db.md"}),
        (Filters(since="2026-03-01", until="2026-03-01"), {"projects/heron.md"}),
        (Filters(kinds=("Person",)), {"people/ana.md"}),
        (Filters(vaults=("LAB",), folder="people/"), {"people/ana.md"}),
    ],
)
async def test_filters_compare_folded(asked, filters, expected):
    """Folder, tag (with those nested below), dates, kind and vault limit who may answer, whatever the case."""
    found = await asked.paths("Heron Ana database choice use led", filters=filters, k=20)
    assert set(found) == expected


async def test_filters_that_make_no_sense_are_refused(asked):
    """An unknown vault or a date that is none is an error that names it, not an empty answer."""
    for filters in (Filters(vaults=("nope",)), Filters(since="soon")):
        with pytest.raises(Invalid):
            await asked.ask("x", filters=filters)


async def test_superseded_notes_are_marked(asked):
    """The replaced decision names what replaced it and stands behind it."""
    answer = await asked.ask("what is the current database choice")
    paths = [hit.path for hit in answer.hits]
    assert paths.index("decisions/db2.md") < paths.index("decisions/db.md")
    old = answer.hits[paths.index("decisions/db.md")]
    assert old.superseded_by.path == "decisions/db2.md"


async def test_near_duplicates_are_one_hit(asked, index):
    """Copies of a note are folded into one hit that lists the others."""
    text = "The quick brown fox jumps over the lazy dog beside the river while twelve owls watch from the old bridge."
    index.write_all({"fox1.md": text, "fox2.md": text, "fox3.md": text})
    index.embed()
    answer = await asked.ask("quick brown fox river owls")
    foxes = [hit for hit in answer.hits if hit.path.startswith("fox")]
    assert len(foxes) == 1
    assert {foxes[0].path, *foxes[0].also} == {"fox1.md", "fox2.md", "fox3.md"}


async def test_the_sentence_alone(asked):
    """With ``sentence_only`` passage and lines are those of the sentence."""
    hit = (await asked.ask("how is GPU time split", sentence_only=True)).hits[0]
    assert hit.passage == "It splits GPU time fairly among teams."
    assert text_of(hit).split("\n")[hit.lines[0] - 1] == hit.passage


@pytest.mark.parametrize("query", ["", "   ", "?", "*", '"', "the of and", "x" * 100_000, "\0", "𝔘𝔫𝔦 ﷽", "a AND (b OR"])
async def test_any_question_has_an_answer(asked, query):
    """No input is an error: the worst is an answer without hits."""
    assert isinstance(await asked.ask(query), Answer)


async def test_a_spent_budget_is_said(asked):
    """With no time at all the question fails with a timeout and nothing hangs."""
    with pytest.raises(TimedOut):
        await asked.ask("Heron", budget_ms=0)


async def test_without_an_index_the_answer_says_what_to_do(tmp_path):
    """No database: an answer without hits, degraded, with the command that makes one; it is found when it comes."""
    later = Index(tmp_path / "x")
    later.close()
    for file in later.paths.data.iterdir():
        file.unlink()
    async with desk(later) as asked:
        answer = await asked.ask("anything")
        assert answer.hits == ()
        assert "index" in answer.degraded
        assert "recalld" in answer.note
        again = Index(tmp_path / "x")
        again.write("a.md", "kites")
        assert await asked.paths("kites") == ["a.md"]
        again.close()


async def test_events_answer_where_no_note_does(asked, index):
    """A question that no note answers gets the captured events that match."""
    event = Event(
        id="e1", kind="user-prompt", host="claude", session="s1", at_ms=1_790_000_000_000, text="fix the flux capacitor"
    )
    index.conn.execute(
        "INSERT INTO events (seq, event_id, session, host, kind, at_ms, project, event) VALUES (1,'e1','s1','claude',?,?,?,?)",
        (event.kind, event.at_ms, "p", msgspec.msgpack.encode(event)),
    )
    index.conn.execute("INSERT INTO event_fts (rowid, body) VALUES (1, ?)", (event.text,))
    answer = await asked.ask("flux capacitor", streams=("text",))
    assert not answer.known
    assert [(raw.session, raw.text) for raw in answer.raw_events] == [("s1", "fix the flux capacitor")]


def test_the_database_alone_answers(index):
    """Without a daemon full text, names and links answer, read-only, saying that vectors and daemon are missing."""
    before = sorted(os.listdir(index.paths.data))
    index.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    index.close()
    answer = answer_offline(index.paths, Config(), Recall(query="kites in Porto", k=1))
    assert [hit.path for hit in answer.hits] == ["people/ana.md"]
    assert set(answer.degraded) == {"daemon", "vector"}
    assert answer.read_only
    assert set(os.listdir(index.paths.data)) <= set(before)


def test_the_project_is_the_nearest_folder():
    """A working directory belongs to the project with the longest root above it."""
    roots = {"all": "/w", "api": "/w/api", "none": ""}
    assert place_of("/w/api/src", roots).project == "api"
    assert place_of("/w/apix", roots).project == "all"
    assert place_of("/elsewhere", roots).project == ""


def test_a_wrong_ranking_parameter_is_named():
    """An unknown key below [recall.ranking] is an error with its name."""
    with pytest.raises(ConfigError, match="nonsense"):
        ranking_params(Config(recall=RecallConfig(ranking={"nonsense": 1.0})))


# --- the actor, over its socket


@pytest.fixture
async def peer(index, short_tmp):
    """A query actor that serves on real sockets, without a supervisor and with no other actor."""
    index.embed()
    paths = msgspec.structs.replace(index.paths, runtime=short_tmp)
    listeners = {name: bind(paths.socket(name)) for name in ("query", "mcp")}
    actor = QueryActor(Env("query", Config(), paths, listeners, up={"writer", "query", "watcher"}))
    ready = anyio.Event()
    running = asyncio.create_task(actor.run(ready.set))
    await ready.wait()
    connection = Peer(paths.socket("query"), "test")
    connection.actor = actor
    yield connection
    await connection.aclose()
    await ended(running)
    await actor.env.aclose()
    for listener in listeners.values():
        listener.close()


async def test_every_request_has_a_handler(peer):
    """The handlers are exactly the members of QueryRequest."""
    assert set(peer.actor.handlers) == set(QueryRequest.__args__)


async def test_recall_over_the_socket(peer):
    """A question over the socket is answered by what is up, and vitals count it."""
    answer = await peer.ask(Recall(query="kites in Porto"), budget_ms=10_000)
    assert answer.hits[0].path == "people/ana.md"
    assert answer.degraded == ("vector",)
    assert peer.actor.vitals().figures["recalls_total"] == 1


async def test_a_note_is_read_from_its_file(peer, index):
    """By path, title or end of path: the file's own lines, what links here, what it links to, what is unresolved."""
    for ref in ("people/ana.md", "people/ana", "Ana Lima", "ANA", str(index.vault / "people/ana.md")):
        note = await peer.ask(ReadNote(ref=ref), budget_ms=10_000)
        assert isinstance(note, NoteText), ref
        assert note.text == FILES["people/ana.md"].rstrip("\n")
    assert [(back.path, back.line) for back in note.backlinks] == [("projects/heron.md", 7)]
    heron = await peer.ask(ReadNote(ref="heron", line_from=5, line_to=7), budget_ms=10_000)
    assert heron.text == "# Heron\n\nHeron is led by [[Ana Lima]]."
    assert (heron.lines, heron.total_lines) == ((5, 7), 9)
    assert [link.path for link in heron.links] == ["people/ana.md"]
    assert (await peer.ask(ReadNote(ref="decisions/db"), budget_ms=10_000)).superseded_by.path == "decisions/db2.md"


async def test_long_notes_are_cut_at_a_line(peer, index):
    """Text beyond ``max_chars`` is left out at a line's end and said to be truncated."""
    index.write("long.md", "\n".join(f"line {i}" for i in range(1000)))
    note = await peer.ask(ReadNote(ref="long.md", max_chars=50), budget_ms=10_000)
    assert note.truncated
    assert note.text.split("\n")[-1] == "line 6"
    assert note.lines == (1, 7)


async def test_an_unreadable_file_is_given_from_the_index(peer, index):
    """When the file is gone from the disk the indexed text is given, on its own lines."""
    (index.vault / "projects/heron.md").unlink()
    note = await peer.ask(ReadNote(ref="heron", line_from=7, line_to=7), budget_ms=10_000)
    assert note.text == "Heron is led by [[Ana Lima]]."


async def test_nothing_outside_the_vault_is_read(peer, index, tmp_path):
    """A path that leads out, by dots or by a link on disk, is not followed."""
    secret = tmp_path / "secret.md"
    secret.write_text("secret words")
    for ref in ("../secret.md", str(secret), "people/../../secret.md"):
        assert isinstance(await peer.ask(ReadNote(ref=ref), budget_ms=10_000), NotFound)
    (index.vault / "people/ana.md").unlink()
    (index.vault / "people/ana.md").symlink_to(secret)
    assert "secret" not in (await peer.ask(ReadNote(ref="people/ana.md"), budget_ms=10_000)).text


async def test_unknown_and_ambiguous_names_are_helped(peer, index):
    """A name that nothing has gets the nearest; one that several have gets all of them."""
    missing = await peer.ask(ReadNote(ref="Ana Lime"), budget_ms=10_000)
    assert isinstance(missing, NotFound)
    assert "people/ana.md" in missing.nearest
    index.write_all({"x/twin.md": "1", "y/twin.md": "2"})
    several = await peer.ask(ReadNote(ref="twin"), budget_ms=10_000)
    assert isinstance(several, Ambiguous)
    assert several.candidates == ("x/twin.md", "y/twin.md")


async def test_neighbours_say_why(peer):
    """Links in both directions, shared names and likeness bring neighbours, each with its reason."""
    found = await peer.ask(Related(ref="Ana Lima"), budget_ms=10_000)
    assert isinstance(found, Neighbours)
    assert {item.path: item.why for item in found.items}["projects/heron.md"].startswith("links to it")
    databases = await peer.ask(Related(ref="decisions/db"), budget_ms=10_000)
    assert "superseded_by" in {item.path: item.why for item in databases.items}["decisions/db2.md"]


async def test_recent_notes_come_newest_first(peer, index):
    """Notes by modification time, with filters."""
    index.later(1)
    index.write("newest.md", "x")
    found = await peer.ask(Recent(k=2), budget_ms=10_000)
    assert found.items[0].path == "newest.md"
    only = await peer.ask(Recent(k=9, filters=Filters(folder="people")), budget_ms=10_000)
    assert [item.path for item in only.items] == ["people/ana.md"]


async def test_the_index_is_described(peer, index):
    """Counts, broken and ambiguous links, problems, stale links and the graph."""
    index.write_all(
        {"w.md": "[[gone]] [[twin]] [[db]]", "x/twin.md": "1", "y/twin.md": "2", "bad.md": "---\n: [\n---\nx"}
    )
    report = await peer.ask(DescribeIndex(graph=True), budget_ms=10_000)
    assert isinstance(report, IndexReport)
    assert report.notes == len(FILES) + 4
    assert report.unresolved == (("w.md", "gone"),)
    assert report.ambiguous == (("w.md", "twin", ("x/twin.md", "y/twin.md")),)
    assert [path for path, _ in report.problems] == ["bad.md"]
    assert report.stale_links == (("w.md", "decisions/db.md"),)
    heron = next(node for node in report.graph if node.path == "projects/heron.md")
    assert [report.graph[target].path for target in heron.links] == ["people/ana.md"]
    assert report.chunks >= report.notes


async def test_waiting_for_a_revision(peer, index):
    """WaitFor answers when the revision is in memory, and times out for one that does not come."""
    index.write("new.md", "x")
    assert await peer.ask(WaitFor(revision=index.revision), budget_ms=10_000) == Caught(revision=index.revision)
    with pytest.raises(TimedOut):
        await peer.ask(WaitFor(revision=index.revision + 5), budget_ms=200)


async def test_mcp_sessions_ask_the_same_handlers(peer):
    """What an MCP session asks of recall is answered here; a request that is over its budget is a timeout."""
    answer = await peer.actor.ask(Recall(query="kites in Porto"), budget_ms=10_000)
    assert answer.hits[0].path == "people/ana.md"
    note = await peer.actor.ask(ReadNote(ref="ana"), budget_ms=10_000)
    assert isinstance(note, NoteText)
