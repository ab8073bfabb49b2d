"""`recalld eval` and `recalld ab` with a real daemon and the real model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import Daemon, running
from recalld.clients.cli.ab import ARMS, difference, summary
from recalld.protocol.messages.recall import Answer, Hit

pytestmark = [pytest.mark.process, pytest.mark.model, pytest.mark.slow]

SUBJECTS = (
    "engine",
    "gearbox",
    "clutch",
    "radiator",
    "battery",
    "exhaust",
    "brake",
    "suspension",
    "steering",
    "alternator",
)


def fill(daemon: Daemon) -> None:
    """Thirty notes about parts of a car; each links to the next two."""
    for number in range(30):
        part = SUBJECTS[number % 10]
        title = f"{part.title()} manual {number}"
        following = [f"[[n{(number + step) % 30:02}]]" for step in (1, 2)]
        daemon.write(
            f"n{number:02}.md",
            f"# {title}\n\nThe {part} of model {number} was rebuilt by workshop number {number * 7} using bolts of size "
            f"{number + 3} and oil of grade {number + 20}; see {following[0]} and {following[1]} for what comes next.\n",
        )


def test_gold_run_ablate_calibrate_ab() -> None:
    """Questions are derived and frozen; runs are kept and compared; cells differ by streams and parameters; a calibration is
    written and taken up; comparisons are logged and judged."""
    with running() as daemon:
        fill(daemon)
        daemon.settle(vectors=True)
        made = json.loads(daemon.cli("eval", "gold", str(daemon.vault), "--per-class", "5", "--json").stdout)
        assert made["questions"] == {"title": 5, "body": 5, "bridge": 5, "temporal": 0}
        assert made["small"] == {"title": 5, "body": 5, "bridge": 5}
        again = daemon.cli("eval", "gold", str(daemon.vault), check=False)
        assert again.returncode != 0
        assert "--force" in again.stderr

        first = json.loads(daemon.cli("eval", "run", "--json").stdout)
        assert first["last"] is None
        assert first["classes"]["body"]["recall@5"] == 1.0
        second = json.loads(daemon.cli("eval", "run", "--json").stdout)
        assert second["last"]["classes"] == first["classes"] == second["classes"]

        cells = {
            cell["cell"]: cell
            for cell in json.loads(daemon.cli("eval", "ablate", "--param", "graph_weight=0", "--json").stdout)["cells"]
        }
        assert {"text", "vector", "graph_weight=0"} <= cells.keys()
        assert cells["text+entity+graph+vector"]["delta_ndcg@10"] == 0.0
        bad = daemon.cli("eval", "ablate", "--param", "nonsense=1", check=False)
        assert bad.returncode != 0
        assert "nonsense" in bad.stderr

        report = json.loads(daemon.cli("eval", "calibrate", str(daemon.vault), "--per-class", "25", "--json").stdout)
        assert report["false_abstain"] <= 0.06
        assert Path(report["file"]).exists()

        compared = json.loads(
            daemon.cli("ask", "--ab", "--json", "which workshop rebuilt the clutch of model 12").stdout
        )
        assert set(compared["arms"]) == set(ARMS)
        daemon.cli("ab", "--prefer", "fused+graph")
        assert json.loads(daemon.cli("ab", "--json").stdout)["winner"] == "fused+graph"


def hit(path: str) -> Hit:
    return Hit(path=path, title=path, score=1.0, lines=(1, 1), passage="", streams={})


def test_difference_and_summary() -> None:
    """What each way adds to vectors alone, and who wins; a tie has no winner."""
    answers = {
        "vector": Answer(hits=(hit("a"), hit("b"))), "fused": Answer(hits=(hit("a"), hit("c"))),
        "fused+graph": Answer(hits=(hit("d"), hit("a"))),
    }  # fmt: skip
    entry = difference("q", 1, answers)
    assert entry["new"] == {"vector": [], "fused": ["c"], "fused+graph": ["d"]}
    assert entry["same_first"] == {"vector": False, "fused": False, "fused+graph": True}
    assert summary([entry])["winner"] == ""
    assert summary([{**entry, "preferred": "fused"}])["winner"] == "fused"
    assert summary([{**entry, "preferred": "fused"}, {**entry, "preferred": "vector"}])["winner"] == ""
