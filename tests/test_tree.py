"""memory/notes/tree.py and ignore.py: what changed, what counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.memory.notes.ignore import Rules
from recalld.memory.notes.tree import Breaker, Known, Plan, Scan, diff, match_moved
from recalld.protocol.messages.common import FileStat

BREAKER = Breaker(0.5, 3)


def stat(inode, mtime=1, size=1, dev=1):
    return FileStat(dev, inode, size, mtime)


def known(**files):
    return {f"{name}.md": Known(stat(inode), bytes([inode])) for name, inode in files.items()}


def scan(files=None, **kw):
    return Scan(files={f"{name}.md": value for name, value in (files or {}).items()}, **kw)


def test_nothing_changed():
    """The same stats are an empty plan."""
    assert diff(known(a=1, b=2), scan({"a": stat(1), "b": stat(2)}), breaker=BREAKER).empty


@pytest.mark.parametrize(
    ("files", "plan"),
    [
        ({"a": stat(1), "b": stat(2), "c": stat(3)}, Plan(read=("c.md",))),
        ({"a": stat(1, mtime=2), "b": stat(2)}, Plan(read=("a.md",))),
        ({"a": stat(1, size=2), "b": stat(2)}, Plan(read=("a.md",))),
        ({"a": stat(9), "b": stat(2)}, Plan(read=("a.md",))),
        ({"a": stat(1, dev=7), "b": stat(2)}, Plan(touch=("a.md",))),
        ({"a": stat(1)}, Plan(drop=("b.md",))),
        ({"a": stat(1), "x": stat(2)}, Plan(move=(("b.md", "x.md"),))),
        ({"a": stat(1), "x": stat(2, mtime=5)}, Plan(read=("x.md",), drop=("b.md",))),
        ({"a": stat(1), "b": stat(2), "link": stat(2)}, Plan(read=("link.md",))),
        ({"a": stat(1), "x": stat(2), "y": stat(2)}, Plan(read=("y.md",), move=(("b.md", "x.md"),))),
        ({"a": stat(1), "people/b": stat(2)}, Plan(read=("people/b.md",), drop=("b.md",))),
        ({"a": stat(1), "2024-01-02 b": stat(2)}, Plan(read=("2024-01-02 b.md",), drop=("b.md",))),
    ],
)
def test_diff(files, plan):
    """New, changed, remounted, removed, renamed; a rename that changes what a note is, is read."""
    assert diff(known(a=1, b=2), scan(files), breaker=BREAKER) == plan


def test_doubtful_files_are_read():
    """A file that changed while it was read is read again."""
    assert diff(known(a=1), scan({"a": stat(1)}), breaker=BREAKER, doubtful=["a.md"]) == Plan(read=("a.md",))


def test_a_partial_look_removes_what_it_looked_at_only():
    """Paths outside ``covers`` are not missed; those below a covered folder are."""
    held = {f"{path}.md": Known(stat(n), b"") for n, path in enumerate(("a", "d/x", "d/y/z", "dd/x"))}
    assert diff(held, Scan(files={}, covers=frozenset({"d"})), breaker=BREAKER).drop == ("d/x.md", "d/y/z.md")
    assert diff(held, Scan(files={}, covers=frozenset({"a.md"})), breaker=BREAKER).drop == ("a.md",)
    assert diff(held, Scan(files={}, covers=frozenset()), breaker=BREAKER).empty


def test_unreadable_is_not_absent():
    """Nothing below a folder that could not be read is removed, nor a file that could not be."""
    held = {f"{path}.md": Known(stat(n), b"") for n, path in enumerate(("a", "d/x", "d/y/z", "dd/x"))}
    plan = diff(held, Scan(files={}, unreadable=(("d/", "denied"), ("a.md", "denied"))), breaker=BREAKER)
    assert plan.drop == ("dd/x.md",)
    assert diff(held, Scan(files={}, unreadable=(("/", "denied"),), root_gone="denied"), breaker=BREAKER).drop == ()


def test_a_vanished_root_removes_nothing():
    """Neither a root that is gone nor an empty mount point is an empty vault."""
    held = known(a=1, b=2)
    for seen in (scan(root_gone="root is gone"), scan(root_dev=9)):
        plan = diff(held, seen, breaker=BREAKER)
        assert plan.empty
        assert plan.suspended
    assert diff(held, scan(root_dev=1), breaker=BREAKER).drop == ("a.md", "b.md")


def test_mass_disappearance_waits_for_a_second_sweep():
    """More than half and more than the minimum: held back once, believed when it is still so."""
    held = known(a=1, b=2, c=3, d=4, e=5)
    first = diff(held, scan({"e": stat(5)}), breaker=BREAKER)
    assert first.drop == ()
    assert "4 of 5 files vanished" in first.suspended
    again = diff(held, scan({"e": stat(5)}), breaker=BREAKER, vanished_before=first.vanished)
    assert again.drop == ("a.md", "b.md", "c.md", "d.md")
    back = diff(held, scan({name: stat(n) for n, name in enumerate("abcde", 1)}), breaker=BREAKER)
    assert back.empty
    assert not back.suspended


def test_a_moved_folder_is_no_disappearance():
    """Every file under a new folder: all moves, no breaker."""
    held = known(a=1, b=2, c=3, d=4, e=5)
    plan = diff(held, scan({f"new/{name}": stat(n) for n, name in enumerate("abcde", 1)}), breaker=BREAKER)
    assert len(plan.move) == 5
    assert plan.drop == ()


def test_a_folder_that_changes_what_its_notes_are_is_no_disappearance():
    """Files moved into a folder with a kind of its own are read there and dropped here, at once."""
    held = known(a=1, b=2, c=3, d=4, e=5)
    plan = diff(held, scan({f"people/{name}": stat(n) for n, name in enumerate("abcde", 1)}), breaker=BREAKER)
    assert (len(plan.read), plan.drop, plan.suspended) == (5, tuple(sorted(held)), "")


def test_moves_by_content():
    """A file that was written anew elsewhere and has the bytes of a vanished one was moved; each is used once."""
    held = {"a/n.md": Known(stat(1), b"h"), "b/m.md": Known(stat(2), b"h"), "e.md": Known(stat(3, size=0), b"e")}
    assert match_moved(held, held, {"x/m.md": b"h", "y.md": b"h", "z.md": b"h", "f.md": b"e"}) == {
        "x/m.md": "b/m.md", "y.md": "a/n.md",
    }  # fmt: skip
    assert match_moved(held, ["a/n.md"], {"people/n.md": b"h"}) == {}


FILES = st.dictionaries(
    st.sampled_from([f"{folder}{name}.md" for folder in ("", "d/", "d/e/") for name in "abcd"]),
    st.builds(stat, st.integers(1, 8), st.integers(1, 2)),
)


@given(FILES, FILES)
def test_a_plan_brings_known_to_seen(before, after):
    """Whatever changed, carrying out the plan leaves exactly the files that were seen, with their stats."""
    held = {path: Known(each, str(each).encode()) for path, each in before.items()}
    plan = diff(held, Scan(files=after), breaker=Breaker(1, 99))
    state = dict(before)
    for old, new in plan.move:
        assert (old in state, new in state, old in after) == (True, False, False)
        state[new] = state.pop(old)
    for path in (*plan.read, *plan.touch):
        state[path] = after[path]
    for path in plan.drop:
        del state[path]
    assert state == after


DEFAULT = (".*/", "node_modules/", "*.sync-conflict-*", "*conflicted copy*", "*.tmp.md", ".#*", "~$*")


@pytest.mark.parametrize(
    ("path", "folder", "ignored"),
    [
        (".git", True, True), ("a/.obsidian", True, True), (".trash", True, True), ("a/node_modules", True, True),
        ("n.sync-conflict-20240101-120000-ABC.md", False, True), ("n (Ana's conflicted copy).md", False, True),
        ("x.tmp.md", False, True), (".#n.md", False, True), ("~$n.md", False, True),
        ("n.md", False, False), ("a/b", True, False), ("node_modules.md", False, False), (".hidden.md", False, False),
        ("private", True, True), ("a/private", True, False), ("a/drafts", True, True), ("a/draft.md", False, False),
        ("a/keep.tmp.md", False, False), ("b/keep.tmp.md", False, True),
    ],
)  # fmt: skip
def test_ignore(path, folder, ignored):
    """Defaults, the root's ignore file, and that of a folder, which wins below it."""
    rules = Rules(DEFAULT).with_folder("", ["/private/", "drafts/"])
    if path.startswith("a/"):
        rules = rules.with_folder("a", ["!keep.tmp.md"])
    assert rules.ignores(path, folder=folder) is ignored


def test_a_bad_pattern_is_left_out():
    """One line that is no pattern leaves the others working."""
    assert Rules(["!", "*.x.md", "//", "[z-a].md"]).ignores("a.x.md", folder=False)
