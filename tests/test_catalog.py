"""actors/query/catalog.py and live.py: what is in memory is what the index holds, after any sequence of changes."""

import threading
import time

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recalld.actors.query import live as live_module
from recalld.actors.query.catalog import View
from recalld.actors.query.live import Live, load_notes, load_vectors
from recalld.actors.query.reader import Reader, connect
from recalld.memory.recall import authority

from .asking import desk
from .indexing import Index


@pytest.fixture
def index(tmp_path):
    made = Index(tmp_path)
    yield made
    made.close()


@pytest.fixture
async def live(index):
    made = Live(Reader(index.paths.database))
    yield made
    await made.reader.aclose()


def loaded(index):
    """A view that was loaded in one go."""
    conn = connect(index.paths.database)
    view = View()
    conn.execute("BEGIN")
    load_notes(conn, view)
    load_vectors(conn, view)
    conn.close()
    return view


def edges(view):
    """(from, to, kind) by path, of all resolved links."""
    return sorted(
        (view.cards[edge.source].path, view.cards[edge.target].path, edge.kind)
        for note in view.cards
        for edge in view.notes.out_edges(note)
    )


def picture(view):
    """Everything a view knows, by path."""
    back = sorted(
        (view.cards[edge.source].path, view.cards[edge.target].path, edge.kind)
        for note in view.cards
        for edge in view.notes.in_edges(note)
    )
    layout = view.matrix.layout if view.matrix else None
    return {
        # A touched file with the same content is no change of the index.
        "cards": {card.path: msgspec.structs.replace(card, modified_ms=0) for card in view.cards.values()},
        "edges": edges(view),
        "back": back,
        "missing": {view.cards[n].path: view.unresolved(n) for n in view.cards if view.unresolved(n)},
        "several": {view.cards[n].path: view.ambiguous(n) for n in view.cards if view.ambiguous(n)},
        "chunks": {n: view.chunks.chunks_of(n) for n in view.cards},
        "count": len(view.chunks),
        "titles": {name: set(ids) for name, ids in view.notes.titles.items()},
        "standing": {card.path: view.notes.standing(card.id) for card in view.cards.values()},
        "vectors": layout.chunks.tolist() if layout else None,
    }


def test_a_note_has_the_standing_of_its_card(index):
    """Also after it changed its kind, and none once it is gone."""
    index.write_all({"a.md": "---\ntype: decision\n---\nOne.\n", "b.md": "Two.\n"})
    view = loaded(index)
    card, other = sorted(view.cards.values(), key=lambda card: card.path)
    assert (view.notes.standing(card.id), view.notes.standing(other.id)) == (authority.factor(card), 1.0)
    assert authority.factor(card) > 1.0
    view.notes.put(msgspec.structs.replace(card, kind="note"))
    assert view.notes.standing(card.id) == 1.0
    view.notes.put(card)
    view.notes.drop(card.id)
    assert view.notes.standing(card.id) == 1.0


def test_links_are_resolved_in_both_directions(index):
    """Wikilinks by name, title and alias, markdown links by path, and typed relations become edges out and in."""
    index.write_all(
        {
            "a.md": "See [[b]], [[The C]], [[dee]], [a path](sub/e.md), [[nowhere]] and [[twin]].\n",
            "b.md": "---\nsupersedes: '[[a]]'\n---\nBack to nothing.\n",
            "c.md": "# The C\n",
            "d.md": "---\naliases: [dee]\n---\n",
            "sub/e.md": "[[a]]",
            "x/twin.md": "one",
            "y/twin.md": "two",
        }
    )
    view = loaded(index)
    assert edges(view) == [
        ("a.md", "b.md", "wikilink"),
        ("a.md", "c.md", "wikilink"),
        ("a.md", "d.md", "wikilink"),
        ("a.md", "sub/e.md", "markdown"),
        ("b.md", "a.md", "supersedes"),
        ("sub/e.md", "a.md", "wikilink"),
    ]
    a = view.find("a.md", view.vaults)[0]
    assert sorted(edge.kind for edge in view.notes.in_edges(a)) == ["supersedes", "wikilink"]
    assert view.unresolved(a) == ("nowhere",)
    ((target, several),) = view.ambiguous(a)
    assert target == "twin"
    assert sorted(view.cards[note].path for note in several) == ["x/twin.md", "y/twin.md"]


async def test_a_link_finds_its_note_when_that_comes_later(index, live):
    """A note that is written, renamed or removed changes where links of other notes lead, without their being touched."""
    index.write("a.md", "[[later]]")
    await live.refresh()
    assert edges(live.view) == []
    index.write("later.md", "here I am")
    await live.refresh()
    assert edges(live.view) == [("a.md", "later.md", "wikilink")]
    index.write("later.md", "here I am, edited")
    await live.refresh()
    assert edges(live.view) == [("a.md", "later.md", "wikilink")]
    index.move("later.md", "sub/other.md")
    await live.refresh()
    assert edges(live.view) == []
    index.move("sub/other.md", "later.md")
    await live.refresh()
    assert edges(live.view) == [("a.md", "later.md", "wikilink")]
    index.drop("later.md")
    await live.refresh()
    assert edges(live.view) == []
    assert live.view.unresolved(live.view.find("a", live.view.vaults)[0]) == ("later",)


NAMES = ["a", "b", "sub/c", "sub/d"]
TEXTS = [
    "plain words",
    "[[a]] and [[c]]",
    "[[b]] [x](../a.md)",
    "# T\n\n[[T]] [[gone]]",
    "---\nsupersedes: '[[d]]'\n---\nx",
]


@pytest.mark.parametrize("at_once", [1, 200])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([*TEXTS, None, "move", "embed"])), max_size=12))
async def test_deltas_end_like_a_fresh_load(tmp_path_factory, monkeypatch, at_once, steps):
    """Whatever happens to the files, however many at once, the view ends as if it had been loaded at the end."""
    monkeypatch.setattr("recalld.actors.query.live.PUT_AT_ONCE", at_once)
    index = Index(tmp_path_factory.mktemp("i"))
    live = Live(Reader(index.paths.database, size=1))
    try:
        await live.refresh()
        for number, (name, what) in enumerate(steps):
            path, exists = f"{name}.md", (index.vault / f"{name}.md").exists()
            index.later(0.1)
            if what == "embed":
                index.embed()
            elif what is None or what == "move":
                if exists and what is None:
                    index.drop(path)
                elif exists:
                    index.move(path, f"moved{number}.md")
            else:
                index.write(path, what)
            if number % 2:
                await live.refresh()
        await live.refresh()
        assert not live.absent
        assert picture(live.view) == picture(loaded(index))
    finally:
        await live.reader.aclose()
        index.close()


async def test_vectors_arrive_by_delta(index, live):
    """Notes are known by their text first; their vectors join them when they are stored, without a new load."""
    index.write_all({"a.md": "apples", "b.md": "pears"})
    index.use_model()
    await live.refresh()
    view = live.view
    assert view.matrix is not None
    assert view.matrix.notes == 0
    index.embed()
    await live.refresh()
    assert live.view is view
    assert view.matrix.notes == 2
    index.write("c.md", "apples")
    await live.refresh()
    assert view.matrix.notes == 3, "a text that is known has its vector at once"


async def test_another_model_replaces_the_matrix(index, live):
    """When the model changes, vectors of the old one are no longer compared with."""
    index.write("a.md", "apples")
    index.embed()
    await live.refresh()
    assert live.view.matrix.notes == 1
    other = index.use_model("other")
    await live.refresh()
    assert (live.view.matrix.model_id, live.view.matrix.notes) == (other, 0)
    index.embed()
    await live.refresh()
    assert live.view.matrix.notes == 1


async def test_a_removed_vault_leaves_nothing(index, live):
    """After a vault is closed none of its notes, links or vectors are in memory."""
    index.write_all({"a.md": "[[b]]", "b.md": "x"})
    index.embed()
    await live.refresh()
    index.close_vault()
    await live.refresh()
    assert picture(live.view) == picture(loaded(index))
    assert not live.view.cards
    assert not live.view.vaults


async def test_catching_up_waits_for_a_revision(index, live):
    """``catch_up`` returns at once for what is known, and when a revision is committed for one that is not."""
    index.write("a.md", "x")
    await live.catch_up(index.revision)
    wanted = index.revision + 1
    done = anyio.Event()

    async def wait():
        await live.catch_up(wanted)
        done.set()

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        index.write("b.md", "y")
        with anyio.fail_after(10):
            await done.wait()
    assert "b.md" in {card.path for card in live.view.cards.values()}


async def test_a_load_goes_on_without_those_who_gave_up_waiting(index, live, monkeypatch):
    """Questions have less time than a large index takes to load: each that cut it off would have it begun anew for ever."""
    loads, gate = [], threading.Event()

    def slowly(conn, view):
        loads.append(view)
        while not gate.wait(0.01):  # SQLite at work, which a deadline interrupts
            conn.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT max(i) FROM n"
            )
        load_notes(conn, view)

    monkeypatch.setattr(live_module, "load_notes", slowly)
    index.write("a.md", "x")
    for _ in range(3):
        with anyio.move_on_after(0.3):
            await live.refreshed()
    gate.set()
    with anyio.fail_after(20):
        await live.refreshed()
    assert len(loads) == 1
    assert [card.path for card in live.view.cards.values()] == ["a.md"]


async def test_a_view_that_cannot_catch_up_answers_from_what_it_knows(index, monkeypatch):
    """While more comes in than a question's time allows to take in, the notes of before are found."""
    index.write("a.md", "The kite permit is 17.")
    index.embed()
    gate = threading.Event()

    def stuck(*_):
        assert gate.wait(20)
        return True

    async with desk(index) as asked:
        monkeypatch.setattr(live_module, "apply_changes", stuck)
        index.write("b.md", "y")
        try:
            assert await asked.paths("kite permit", budget_ms=2000) == ["a.md"]
        finally:
            gate.set()


async def test_an_index_that_vanishes_empties_the_view(index, live):
    """Without a database the view is empty and says why; when one is there again it is filled from it."""
    index.write("a.md", "x")
    await live.refresh()
    assert live.absent == ""
    index.close()
    for suffix in ("", "-wal", "-shm"):
        index.paths.database.with_name(index.paths.database.name + suffix).unlink(missing_ok=True)
    await live.refresh()
    assert "no index" in live.absent
    assert not live.view.cards
    fresh = Index(index.paths.data.parent)
    fresh.write("z.md", "x")
    await live.refresh()
    assert [card.path for card in live.view.cards.values()] == ["z.md"]
    fresh.close()


def test_ten_thousand_notes_load_without_quadratic_work(tmp_path):
    """Loading ten times as many notes costs about ten times as much, not a hundred times."""

    def seconds(count):
        index = Index(tmp_path / str(count))
        files = {
            f"d{i % 50}/n{i}.md": f"# Note {i}\n\n[[n{i // 2}]] [[n{(i * 7) % count}]] words {i}" for i in range(count)
        }
        index.write_all(files, on_disk=False)
        best = min(_timed(lambda: loaded(index)) for _ in range(3))
        index.close()
        return best

    assert seconds(4000) < 40 * seconds(400)


def _timed(function):
    started = time.perf_counter()
    function()
    return time.perf_counter() - started
