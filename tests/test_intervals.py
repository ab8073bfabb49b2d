"""Which versions stood when: git's laid beside what the index saw."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.notes.intervals import Begin, Bounds, End, Insert, Row, Stood, apply, plan


def same(blob: str, digest: bytes) -> bool:
    return blob.encode() == digest


def changes(stood, rows, **bounds):
    return plan(stood, rows, same, Bounds(now_ms=1000, **bounds))


def test_git_fills_the_time_before_the_index():
    """A row of the same text begins with its commit; what was committed before stood until then."""
    stood = [Stood("a", 10, 20), Stood("b", 20, None)]
    assert changes(stood, [Row(b"b", 500, None)]) == [Begin(500, 20), Insert("a", 10, 20)]


def test_text_that_was_never_committed_counts_from_when_it_was_seen():
    """The last commit's text stood until the index saw another one."""
    assert changes([Stood("a", 10, None)], [Row(b"x", 500, None)]) == [Insert("a", 10, 500)]


def test_an_edit_is_older_than_its_commit():
    """A file that was changed before it was committed keeps the time of the change."""
    stood = [Stood("a", 10, 20), Stood("b", 20, None)]
    assert changes(stood, [Row(b"b", 15, None, guessed=True)]) == [Insert("a", 10, 15)]


def test_a_modification_time_that_cannot_be_true_is_not_believed():
    """Other text was committed after it: the note began with its own commit."""
    stood = [Stood("a", 10, 20), Stood("b", 20, None)]
    assert changes(stood, [Row(b"b", 5, None, guessed=True)]) == [Begin(5, 20), Insert("a", 10, 20)]
    assert changes(stood, [Row(b"b", 5, None, guessed=False)]) == []


def test_a_deleted_note_stood_until_its_deletion():
    """Without a row there is nothing to clip at but the commit that took it away."""
    assert changes([Stood("a", 10, 20)], []) == [Insert("a", 10, 20)]


def test_a_note_that_is_committed_and_not_there_stood_until_now():
    """It was taken away at an unknown time since."""
    assert changes([Stood("a", 10, None)], []) == [Insert("a", 10, 1000)]


def test_what_is_there_is_not_added_again():
    """Planning again after everything was carried out changes nothing."""
    stood = [Stood("a", 10, 20), Stood("b", 20, None)]
    assert changes(stood, [Row(b"a", 10, 20), Row(b"b", 20, None)]) == []


def test_a_renamed_note_is_not_in_two_places():
    """The index moved the row with its time: under the old path the text stood until that."""
    assert changes([Stood("a", 10, 40, "new.md")], [], cut_ms=15) == [Insert("a", 10, 15)]


def test_a_guess_gives_way_to_the_commit_that_renamed():
    """A file keeps its modification time when it is renamed; the note is under its path since the commit."""
    stood = [Stood("a", 40, None, came=True)]
    assert changes(stood, [Row(b"a", 5, None, guessed=True)]) == [Begin(5, 40)]
    assert changes(stood, [Row(b"a", 5, None)]) == []


def test_versions_beyond_the_bounds_are_left_out():
    """Those that ended too long ago; of the others, those that stood for the shortest time."""
    stood = [Stood("a", 10, 20), Stood("b", 20, 24), Stood("c", 24, 30), Stood("d", 30, None)]
    rows = [Row(b"x", 500, None)]
    assert changes(stood, rows, room=2) == [Insert("d", 30, 500), Insert("a", 10, 20)]
    assert changes(stood, rows, oldest_ms=24) == [Insert("d", 30, 500), Insert("c", 24, 30), Insert("b", 20, 24)]


def test_the_time_in_which_nobody_looked_is_filled():
    """Commits made while no daemon ran: the old row ends with the first, the new one begins with the last."""
    stood = [Stood("b", 110, 120), Stood("c", 120, None)]
    rows = [Row(b"a", 50, 200), Row(b"c", 200, None)]
    assert changes(stood, rows, blind=(100, 205)) == [End(50, 110), Insert("b", 110, 120), Begin(200, 120)]
    assert changes(stood, rows) == []
    assert changes(stood, rows, blind=(130, 205)) == []


def test_a_note_that_was_deleted_while_nobody_looked():
    """It ended with the commit that deleted it, not when that was found out."""
    stood = [Stood("a", 10, 150)]
    assert changes(stood, [Row(b"a", 10, 200)], blind=(100, 205)) == [End(10, 150)]
    assert changes([], [Row(b"a", 10, 200)], blind=(100, 205)) == []


TEXTS = "abc"


@st.composite
def histories(draw, names, kind):
    """Versions in order that do not overlap; each of another text than the one before it."""
    found, at = [], 0
    for _ in range(draw(st.integers(0, 6))):
        begin = at + draw(st.integers(0, 5))
        at = begin + draw(st.integers(1, 10))
        found.append(kind(draw(st.sampled_from(names)), begin, at))
    if found and draw(st.booleans()):
        found[-1] = found[-1]._replace(to_ms=None)
    return found


ROWS = histories([text.encode() for text in TEXTS], Row).map(
    lambda rows: [row._replace(guessed=n == 0) for n, row in enumerate(rows)]
)


@given(
    stood=histories(list(TEXTS), Stood),
    rows=ROWS,
    room=st.integers(0, 8),
    blind=st.none() | st.tuples(st.integers(0, 40), st.integers(0, 90)),
    cut=st.none() | st.integers(0, 90),
)
def test_versions_never_overlap(stood, rows, room, blind, cut):
    """However the two histories lie to each other, at each step every version ends before the next one begins."""
    there = [(row.from_ms, row.to_ms) for row in rows]
    for change in plan(stood, rows, same, Bounds(100, 0, room, blind, cut)):
        there = apply(there, change)
        assert all(until is None or since < until for since, until in there), change
        assert all(until is not None and until <= after for (_, until), (after, _) in itertools.pairwise(there))


@given(stood=histories(list(TEXTS), Stood), rows=ROWS)
def test_what_the_index_saw_stays(stood, rows):
    """Without a time in which nobody looked no row ends otherwise, and none but the first begins otherwise."""
    found = plan(stood, rows, same, Bounds(100))
    assert not any(isinstance(one, End) for one in found)
    assert all(one.old_ms == rows[0].from_ms for one in found if isinstance(one, Begin))
