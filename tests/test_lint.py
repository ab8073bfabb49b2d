"""Lint: each rule by a small world, the whole over a real index; retention of session pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking import card, world
from recalld.actors.query import linting
from recalld.actors.writer.records import feedback
from recalld.memory.capture import ledger
from recalld.memory.recall import lint, retention
from recalld.memory.recall.catalog import Notes
from recalld.memory.recall.types import NOBODY, NoteCard, Tally
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages.recall import Finding, Lint

from .asking import desk
from .indexing import Index

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000


def facts(**more: object) -> lint.Facts:
    return lint.Facts(unresolved={}, ambiguous={}, problems=(), reasons=(), wiki=())._replace(**more)


def found(notes: Notes, known: lint.Facts | None = None, *, cold: bool = False) -> list[Finding]:
    return lint.findings(notes.cards.values(), notes, known or facts(), NOW_MS, cold=cold)


def kinds(findings: list[Finding]) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.kind, each.severity, each.pages) for each in findings]


def test_a_memory_in_order_has_no_findings() -> None:
    """Linked notes of different titles, a fresh rule, a pinned page that stays."""
    notes = world(
        card(1, "Gear", modified_ms=NOW_MS),
        card(2, "Axle", modified_ms=NOW_MS, kind="rule"),
        card(3, "Wheel", modified_ms=NOW_MS, pinned=True),
        links=[(1, 2), (2, 3)],
    )
    assert found(notes) == []


def test_one_title_for_several_notes() -> None:
    """Folded, within a vault and project; what recurs by nature and what is superseded is left out."""
    notes = world(
        card(1, "The Gear", path="a.md", modified_ms=NOW_MS),
        card(2, "the gear", path="b.md", modified_ms=NOW_MS),
        card(3, "The Gear", path="old.md", status="superseded", modified_ms=NOW_MS),
        card(4, "The Gear", path="c.md", project="other", modified_ms=NOW_MS),
        card(5, "Weekly", path="m1.md", kind="meeting", modified_ms=NOW_MS),
        card(6, "Weekly", path="m2.md", kind="meeting", modified_ms=NOW_MS),
        card(7, "README", path="x/README.md", modified_ms=NOW_MS),
        card(8, "README", path="y/README.md", modified_ms=NOW_MS),
        card(9, "Fix it", path="s1.md", kind="session", modified_ms=NOW_MS),
        card(10, "Fix it", path="s2.md", kind="session", modified_ms=NOW_MS),
    )
    assert kinds(found(notes)) == [("duplicate_title", "warning", ("a.md", "b.md"))]


def test_contradictions_that_somebody_declared() -> None:
    """Once per pair, and not where one of the two was superseded since."""
    notes = world(
        card(1, "A", modified_ms=NOW_MS), card(2, "B", modified_ms=NOW_MS), card(3, "C", modified_ms=NOW_MS),
        card(4, "D", modified_ms=NOW_MS, status="obsolete"),
        links=[(1, 2, "contradicts"), (2, 1, "contradicts"), (3, 4, "contradicts")],
    )  # fmt: skip
    assert kinds(found(notes)) == [
        ("contradiction", "warning", ("a.md", "b.md")),
        ("superseded_link", "warning", ("c.md", "d.md")),
    ]


def test_links_to_what_was_superseded() -> None:
    """The link of a note that takes it for current; not that of its successor, nor of one that is old itself."""
    notes = world(
        card(1, "Old", modified_ms=NOW_MS), card(2, "New", modified_ms=NOW_MS), card(3, "Reader", modified_ms=NOW_MS),
        links=[(2, 1, "supersedes"), (2, 1), (3, 1), (1, 1)],
    )  # fmt: skip
    assert kinds(found(notes)) == [("superseded_link", "warning", ("reader.md", "old.md"))]
    assert "now new.md" in found(notes)[0].text


def test_broken_links() -> None:
    """To nothing: a warning in the wiki and a hint in a person's vault; to several: always a warning."""
    notes = world(card(1, "A", modified_ms=NOW_MS), card(2, "B", vault_id=2, modified_ms=NOW_MS))
    known = facts(
        unresolved={1: ("nowhere",), 2: ("soon",)}, ambiguous={1: (("b", (2,)),)}, problems=[(2, "no YAML")], wiki={1}
    )
    assert kinds(found(notes, known)) == [
        ("ambiguous_link", "warning", ("a.md", "b.md")),
        ("unreadable", "warning", ("b.md",)),
        ("unresolved_link", "warning", ("a.md",)),
        ("unresolved_link", "info", ("b.md",)),
    ]


def test_what_feedback_says() -> None:
    """One finding a note, with every reason once."""
    notes = world(card(1, "A", modified_ms=NOW_MS))
    known = facts(reasons=[(1, "wrong", "18 teeth"), (1, "stale", ""), (1, "stale", ""), (9, "wrong", "")])
    [one] = found(notes, known)
    assert (one.kind, one.text) == ("flagged", "feedback says wrong: 18 teeth; stale")


def test_pins_and_expiry() -> None:
    """A pin does not keep what expires; what has expired is only said to be there, whatever else is wrong with it."""
    notes = world(
        card(1, "A", pinned=True, expires="2999-01-01", modified_ms=NOW_MS),
        card(2, "B", pinned=True, expires="2020-01-01", modified_ms=NOW_MS),
    )
    known = facts(unresolved={2: ("nowhere",)})
    assert kinds(found(notes, known)) == [
        ("pinned_expiring", "warning", ("a.md",)),
        ("expired", "info", ("b.md",)),
    ]


@pytest.mark.parametrize(
    ("more", "days", "kind"),
    [
        ({"kind": "focus"}, 8, "stale_focus"),
        ({"kind": "focus"}, 7, ""),
        ({"kind": "slot", "path": "slots/current-focus.md"}, 8, "stale_focus"),
        ({"kind": "slot", "path": "slots/style.md"}, 30, ""),
        ({"kind": "slot", "path": "slots/style.md"}, 31, "stale_focus"),
        ({"kind": "rule"}, 366, "old_rule"),
        ({"kind": "rule", "status": "obsolete"}, 366, ""),
        ({"kind": "decision"}, 4000, ""),
    ],
)
def test_what_grows_old(more: dict[str, object], days: int, kind: str) -> None:
    """A focus in a week, another slot in a month, a rule in a year; a decision never."""
    notes = world(card(1, "A", modified_ms=NOW_MS - days * DAY_MS, **more))
    assert [each.kind for each in found(notes)] == ([kind] if kind else [])


def session(age_days: float, tally: Tally = NOBODY) -> NoteCard:
    return card(1, "S", kind="session", modified_ms=int(NOW_MS - age_days * DAY_MS), feedback=tally)


def test_retention_is_the_references() -> None:
    """An unused session page goes cold after about 80 days; links, and who found it helpful, keep it warm."""
    assert retention.score(session(80), NOW_MS, []) > retention.COLD
    assert retention.score(session(81), NOW_MS, []) < retention.COLD
    assert retention.score(session(81), NOW_MS, [NOW_MS]) == pytest.approx(0.198 + 0.6 * 0.6931, abs=1e-3)
    assert retention.score(session(81, Tally(helpful=1)), NOW_MS, []) > retention.COLD
    assert retention.score(session(12, Tally(wrong=1, helpful=4)), NOW_MS, []) < retention.COLD


@given(st.floats(-10, 5000), st.integers(0, 50), st.integers(0, 50), st.lists(st.integers(0, NOW_MS), max_size=5))
def test_retention_falls_with_age(age: float, helpful: int, against: int, links: list[int]) -> None:
    """Never negative, and a day later never more."""
    tally = Tally(helpful=helpful, not_helpful=against)
    today = retention.score(session(age, tally), NOW_MS, links)
    assert 0 <= retention.score(session(age, tally), NOW_MS + DAY_MS, links) <= today


def test_cold_sessions_on_request() -> None:
    """Only session pages of the wiki that nobody pinned, and only when they are asked for."""
    long_ago = NOW_MS - 200 * DAY_MS
    notes = world(
        card(1, "S", path="p/sessions/s.md", kind="session", modified_ms=long_ago),
        card(2, "T", path="p/sessions/t.md", kind="session", modified_ms=long_ago, pinned=True),
        card(3, "U", path="p/sessions/u.md", kind="session", modified_ms=NOW_MS),
        card(4, "V", path="p/notes/v.md", modified_ms=long_ago),
        card(5, "W", path="w.md", kind="session", modified_ms=long_ago, vault_id=2),
    )
    assert found(notes, facts(wiki={1})) == []
    assert kinds(found(notes, facts(wiki={1}), cold=True)) == [("cold_session", "info", ("p/sessions/s.md",))]


async def test_over_a_real_index(tmp_path: Path) -> None:
    """Links, problems and feedback come from the index; a vault or kinds narrow it down; counts are of all."""
    index = Index(tmp_path)
    index.write_all(
        {
            "a.md": "# Gear\n\nSee [[nowhere]], [[twice]] and [[old]].\n",
            "b.md": "# Gear\n\nAnother one.\n",
            "x/twice.md": "# One\n",
            "y/twice.md": "# Two\n",
            "old.md": "---\nsuperseded_by: '[[b]]'\n---\n# Old gear\n",
            "bad.md": "---\ntitle: [\n---\nText.\n",
        }
    )
    [standing] = feedback.find(index.conn, ["b.md"])
    entry = ledger.Judged(hash=standing.hash.hex(), signal="wrong", at_ms=1, reason="18 teeth", host="codex")
    index.run(feedback.judge, entry)
    async with desk(index) as asked:
        view = asked.live.view
        report = linting.lint(index.conn, view, Lint())
        assert report.counts == {
            "ambiguous_link": 1, "duplicate_title": 1, "flagged": 1, "superseded_link": 1, "unreadable": 1,
            "unresolved_link": 1,
        }  # fmt: skip
        assert (report.warnings, report.notes) == (5, 6)
        assert {each.vault for each in report.findings} == {"lab"}
        assert "18 teeth" in next(each.text for each in report.findings if each.kind == "flagged")
        few = linting.lint(index.conn, view, Lint(vault="lab", kinds=("unresolved_link", "flagged"), limit=1))
        assert ([each.kind for each in few.findings], few.counts) == (["flagged"], {"flagged": 1, "unresolved_link": 1})
        assert linting.lint(index.conn, view, Lint(project="none")).notes == 0
        with pytest.raises(Invalid, match="known vaults: lab"):
            linting.lint(index.conn, view, Lint(vault="nope"))
    index.close()
