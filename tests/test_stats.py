"""memory/recall/vault_stats.py and `recalld stats`."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from ranking import card, world
from recalld.clients.cli.context import Cli
from recalld.clients.cli.stats import stats
from recalld.memory.recall.vault_stats import Thresholds, report

TODAY = datetime.date(2026, 3, 1)


def test_figures() -> None:
    """Orphans, degree, main component, stale concepts, by the reference's definitions."""
    notes = world(
        card(1, "a", kind="concept", date="2020-01-01"), card(2, "b", kind="concept", date="2026-02-01"), card(3, "c"),
        card(4, "d"), links=[(1, 2), (2, 1), (1, 3), (1, 3, "embed")],
    )  # fmt: skip
    found = {m.name: (m.value, m.verdict) for m in report("x", notes, [], [], TODAY, Thresholds()).metrics}
    assert found["orphan_rate"] == (25.0, "fail")
    assert found["avg_degree"] == (0.75, "fail")
    assert found["main_component"] == (75.0, "warn")
    assert found["stale_concepts"] == (50.0, "ok")


def test_links_to_replaced_notes() -> None:
    """A note that gives a replaced one as current is named with what to link to; the replacement itself may link back."""
    notes = world(card(1, "old"), card(2, "new"), card(3, "reader"), links=[(1, 2, "superseded_by"), (3, 1), (2, 1)])
    metrics = {
        m.name: m for m in report("x", notes, [("a.md", "gone")], [("b.md", "two")], TODAY, Thresholds()).metrics
    }
    assert metrics["links_to_superseded"].examples == ("reader.md: old.md (now new.md)",)
    assert metrics["unresolved_links"].examples == ("a.md: gone",)
    assert metrics["ambiguous_links"].verdict == "warn"


@pytest.mark.parametrize(
    ("links", "verdict"), [(3, "fail"), (4, "warn"), (6, "ok"), (16, "ok"), (18, "warn"), (20, "warn")]
)
def test_degree_bands(links: int, verdict: str) -> None:
    """Two to three and eight to ten links a note warn, less and more fail, what is between is well."""
    cards = [card(n, f"n{n}") for n in range(1, 12)]
    pairs = [(a, b) for a in range(1, 12) for b in range(1, 12) if a != b][: links * 11 // 2]
    found = {m.name: m for m in report("x", world(*cards, links=pairs), [], [], TODAY, Thresholds()).metrics}
    assert found["avg_degree"].value == round((links * 11 // 2) / 11, 2)
    assert found["avg_degree"].verdict == verdict


def run(tmp_path: Path, *args: str) -> tuple[int, str]:
    cli = Cli.at(str(tmp_path / "data"), str(tmp_path / "rt"))
    result = CliRunner().invoke(stats, [*args], obj=cli)
    return result.exit_code, result.output


def test_command(tmp_path: Path) -> None:
    """Reads a folder without a daemon, creates nothing, exits with the verdict."""
    notes = tmp_path / "notes"
    (notes / ".obsidian").mkdir(parents=True)
    (notes / ".obsidian" / "x.md").write_text("[[a]]")
    (notes / "a.md").write_text("# A\n[[b]] [[missing]] ![[pic.png]]")
    (notes / "b.md").write_text("# B\n[a](a.md)")
    code, output = run(tmp_path, str(notes), "--json", "--today", "2026-03-01")
    found = json.loads(output)
    assert found["pages"] == 2
    values = {metric["name"]: metric.get("value") for metric in found["metrics"]}
    assert values["orphan_rate"] == 0.0
    assert values["unresolved_links"] == 1.0
    assert code == found["exit_code"] == 2  # one link a note is too few
    assert not (tmp_path / "data").exists()


def test_thresholds_are_options(tmp_path: Path) -> None:
    """Each one."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("[[b]]")
    (notes / "b.md").write_text("[[a]]")
    code, _ = run(tmp_path, str(notes), "--threshold-degree-ok-min", "1")
    assert code == 0
