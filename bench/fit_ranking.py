"""
Fit the confidence model, and look for better ranking parameters, on generated notes. Never on a benchmark.

    python bench/fit_ranking.py confidence [--seeds 1,2,…] [--write]    # --write: memory/recall/calibration.py
    python bench/fit_ranking.py params [--seeds 1,2,3] [--more DIR …]   # prints what helps; nothing is written

Everything goes through real daemons on the generated vaults. Held-out checks: each seed is judged by what the other seeds
gave. ``--more`` adds suites (vault/, questions.jsonl) that are none of those that are reported on.
"""

from __future__ import annotations

import argparse
import datetime
import pprint
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from recalld.memory.recall import fit
from recalld.memory.recall.confidence import Features, estimate
from recalld.memory.recall.metrics import mean, recall_at
from recalld.memory.recall.params import Model, Params

sys.path.insert(0, str(Path(__file__).parent))
import generated
from suite import Asker, daemon, note_id, questions

FALSE_ABSTAIN = {"named": 0.05, "unnamed": 0.015}
"""Shares of answerable generated questions that the model may turn away."""
GRID: dict[str, tuple[float, ...]] = {
    "dense_note": (0.3, 0.9), "dense_chunk": (0.0, 0.4), "dense_floor": (0.0, 0.2), "dense_common": (0.0, 0.4, 1.0),
    "text_weight": (0.25, 1.0),
    "text_b": (0.2, 0.6), "text_chunk_share": (0.0, 0.6), "text_framing": (0.15, 0.6, 1.0), "text_gate": (0.25, 0.45),
    "entity_weight": (0.1, 0.6), "kind_weight": (0.0, 0.1, 0.4), "graph_weight": (0.0,), "graph_seeds": (1, 5),
    "graph_decay": (0.8, 1.0), "graph_own": (0.1, 0.5), "graph_in": (0.0, 0.6), "graph_degree": (0.5,),
    "graph_second": (0.5, 0.9),
    "graph_kind": (0.0, 0.3, 1.0), "authority_strength": (0.0, 0.3, 1.0), "period_weight": (0.0, 0.6),
}  # fmt: skip

Rows = list[tuple[Mapping[str, float], bool]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("confidence", "params"))
    parser.add_argument("--seeds", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--more", nargs="*", type=Path, default=[])
    parser.add_argument("--write", action="store_true", help="store the coefficients in memory/recall/calibration.py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = []
        for seed in map(int, options.seeds.split(",")):
            places.append(Path(folder) / f"seed {seed}")
            generated.make(seed).write(places[-1])
        if options.what == "confidence":
            confidence(places, write=options.write)
        else:
            params([*places, *options.more])


def confidence(places: Sequence[Path], *, write: bool) -> None:
    """Fit on all, judge each seed by the others."""
    rows = {place.name: _features(place) for place in places}
    for held in rows:
        model = fit.fit([row for name, part in rows.items() if name != held for row in part], FALSE_ABSTAIN, "")
        judged = [(estimate(msgspec.convert(dict(f), Features), model), y) for f, y in rows[held]]
        print(
            f"held out {held}: abstains on {mean([p < 0.5 for p, y in judged if not y]):.2f} of the absent, "
            f"{mean([p < 0.5 for p, y in judged if y]):.3f} of the answerable"
        )
    total = sum(map(len, rows.values()))
    provenance = (
        f"bench/fit_ranking.py confidence, {', '.join(rows)}: {total} generated questions, {datetime.date.today()}"
    )
    model = fit.fit([row for part in rows.values() for row in part], FALSE_ABSTAIN, provenance)
    print(msgspec.json.format(msgspec.json.encode(model)).decode())
    if write:
        _write(model)


def _features(place: Path) -> Rows:
    with daemon(place / "vault") as asker:
        return [
            (asker.ask(question["question"], explain=True)[0].features, bool(question["support"]))
            for question in questions(place / "questions.jsonl")
        ]


def _write(model: Model) -> None:
    target = Path(__file__).parent.parent / "memory" / "recall" / "calibration.py"
    head = target.read_text(encoding="utf-8").split("MODEL:")[0]
    text = pprint.pformat(msgspec.to_builtins(model), width=118, sort_dicts=False)
    target.write_text(f"{head}MODEL: dict[str, Any] = {text}\n", encoding="utf-8")


def params(places: Sequence[Path]) -> None:
    """Mean of recall@5 and recall@10 for each single change, per set, against the defaults."""
    gains: dict[tuple[str, float], list[float]] = {}
    for place in places:
        with daemon(place / "vault") as asker:
            asked = [question for question in questions(place / "questions.jsonl") if question["support"]]
            base = _quality(asker, asked, {})
            print(f"{place.name}: {base:.4f}", flush=True)
            for name, values in GRID.items():
                for value in values:
                    gains.setdefault((name, value), []).append(_quality(asker, asked, {name: float(value)}) - base)
    for (name, value), found in sorted(gains.items(), key=lambda pair: -mean(pair[1])):
        default = getattr(Params(), name)
        print(f"{name:20} {default:>6} -> {value:<6} mean {mean(found):+.4f}  worst set {min(found):+.4f}")


def _quality(asker: Asker, asked: Sequence[dict[str, Any]], ranking: Mapping[str, float]) -> float:
    found = []
    for question in asked:
        answer, _ = asker.ask(question["question"], ranking=ranking)
        ids = [note_id(hit.path) for hit in answer.hits]
        found.append((recall_at(ids, question["support"], 5) + recall_at(ids, question["support"], 10)) / 2)
    return mean(found)


if __name__ == "__main__":
    main()
