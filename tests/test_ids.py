"""memory/ids.py and the links of memory/recall/catalog.py: compact forms that hold what plain sets would."""

from hypothesis import given
from hypothesis import strategies as st
from recalld.memory import ids
from recalld.memory.recall.catalog import FEW_IN, Notes
from recalld.memory.recall.types import Edge

names = st.lists(st.sampled_from("abc"), max_size=3)
steps = st.lists(st.tuples(st.sampled_from(["file", "file", "strike"]), names, st.integers(1, 40)), max_size=120)


@given(steps)
def test_names_lead_where_sets_would(steps):
    index, model = {}, {}
    for what, some, note in steps:
        getattr(ids, what)(index, some, note)
        for name in some:
            if what == "file":
                model.setdefault(name, set()).add(note)
            else:
                model.get(name, set()).discard(note)
    assert {name: list(held) for name, held in index.items()} == {
        name: sorted(held) for name, held in model.items() if held
    }


def test_more_than_a_few_ids_are_kept_by_eight_bytes():
    index = {}
    for note in range(1000, 0, -1):
        ids.file(index, ("tag",), note)
    assert list(index["tag"]) == list(range(1, 1001))
    assert index["tag"].itemsize == 8
    for note in range(1, 1001):
        ids.strike(index, ("tag", "unknown"), note)
    assert index == {}


links = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["wikilink", "supersedes"])), max_size=4)
changes = st.lists(st.tuples(st.integers(1, 2 * FEW_IN + 5), links, st.booleans()), max_size=120)


@given(changes)
def test_in_links_are_the_out_links_seen_from_the_other_end(changes):
    """Also of a note that many link to, whose links are kept in another form, and of one that goes."""
    notes, model = Notes(), {}
    for source, wanted, drop in changes:
        edges = [Edge(source, target, kind) for target, kind in wanted if target != source]
        notes.link(source, edges)
        model[source] = list(dict.fromkeys(edges))
        if drop:
            notes.drop(source)
            model[source] = []
            model = {each: [edge for edge in out if edge.target != source] for each, out in model.items()}
    everything = [edge for out in model.values() for edge in out]
    for note in range(1, 2 * FEW_IN + 6):
        assert list(notes.out_edges(note)) == model.get(note, [])
        assert sorted(notes.in_edges(note), key=repr) == sorted((e for e in everything if e.target == note), key=repr)
        newer = {edge.source for edge in everything if edge.target == note and edge.kind == "supersedes"}
        assert set(notes.newer(note)) == newer


def test_a_hub_loses_its_links_one_by_one():
    notes = Notes()
    for source in range(2, 3 * FEW_IN):
        notes.link(source, [Edge(source, 1, "wikilink")])
    assert len(notes.in_edges(1)) == 3 * FEW_IN - 2
    for source in range(2, 3 * FEW_IN):
        notes.link(source, ())
    assert notes.in_edges(1) == ()
