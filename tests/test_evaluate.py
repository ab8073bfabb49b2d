"""`recalld eval` and `recalld ab` with a real daemon and the real model."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from harness import Daemon, running, until
from recalld.clients.cli.ab import ARMS, difference, summary
from recalld.memory.recall.params import Model
from recalld.protocol.messages.control import Reload
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


def test_a_calibration_is_taken_up_by_a_running_daemon() -> None:
    """On Reload the daemon reads calibration.json: the same question gets the confidence of that model, and when the file is
    gone, of the packaged one; a file that cannot be read changes nothing but the log."""
    question = "which workshop rebuilt the clutch of model 12"
    never = Model(named={"bias": -20.0}, unnamed={"bias": -20.0}, provenance="a test")
    with running() as daemon:
        fill(daemon)
        daemon.settle(vectors=True)
        before = daemon.recall(question)
        assert before.known
        target = daemon.paths.data / "calibration.json"

        def confidence_is(wanted: float) -> None:
            daemon.ask("control", Reload())
            until("the model is taken up", lambda: abs(daemon.recall(question).confidence - wanted) < 1e-6 or None)

        target.write_bytes(msgspec.json.encode(never))
        confidence_is(0.0)
        after = daemon.recall(question)
        assert not after.known
        assert [found.path for found in after.hits] == [found.path for found in before.hits]
        target.write_text("{", encoding="utf-8")
        confidence_is(before.confidence)
        target.write_bytes(msgspec.json.encode(never))
        confidence_is(0.0)
        target.unlink()
        confidence_is(before.confidence)


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
