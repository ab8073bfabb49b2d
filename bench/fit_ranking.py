"""
Fit the confidence models, and search ranking parameters, on generated notes. Never on a benchmark.

    python bench/fit_ranking.py confidence --seeds 4,5,6,7 --write     # memory/recall/calibration.py
    python bench/fit_ranking.py params --seeds 1,2,3 [--more DIR …]    # prints what helps; nothing is written

Both use the package's own parser, tokenizer, model and ranking, in one process. Held-out checks: each seed is scored with
what the other seeds gave. ``--more`` adds folders in the form of a suite (vault/, questions.jsonl) that are none of those
that are reported on.
"""

from __future__ import annotations

import argparse
import datetime
import pprint
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from recalld.memory.recall.confidence import Features
from recalld.memory.recall.metrics import recall_at
from recalld.memory.recall.params import Model, Params
from recalld.memory.recall.rank import rank

sys.path.insert(0, str(Path(__file__).parent))
import generated
from workbench import Case, Workbench

NAMED = ("cosine", "coverage", "attributes", "absent_words", "residue", "lift", "elsewhere", "residue_gap")
UNNAMED = ("cosine", "spread")
RIDGE = 0.02
UNKNOWN_NAMED, UNKNOWN_UNNAMED = -3.0, -12.0
"""A name that occurs nowhere decides; in generated notes it does so in every case, so there is nothing to fit."""
FALSE_ABSTAIN = {"named": 0.04, "unnamed": 0.015}
"""Share of answerable generated questions that the threshold may turn away, per model."""

GRID: dict[str, tuple[float, ...]] = {
    "dense_note": (0.3, 0.5, 0.8), "dense_chunk": (0.0, 0.3), "dense_floor": (0.0, 0.2), "text_weight": (0.3, 1.0),
    "text_b": (0.2, 0.6), "text_chunk_share": (0.0, 0.6), "text_framing": (0.15, 0.6, 1.0), "text_gate": (0.25, 0.45),
    "text_gate_width": (0.05, 0.3), "entity_weight": (0.1, 0.6), "kind_weight": (0.0, 0.1, 0.4), "graph_seeds": (1, 2, 5),
    "graph_decay": (0.8, 1.0), "graph_own": (0.1, 0.5), "graph_in": (0.0, 0.6), "graph_degree": (0.25, 0.5),
    "graph_kind": (0.0, 0.3, 1.0), "authority_strength": (0.0, 0.3), "period_weight": (0.0, 0.6),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("confidence", "params"))
    parser.add_argument("--seeds", default="4,5,6,7")
    parser.add_argument("--more", nargs="*", type=Path, default=[])
    parser.add_argument("--write", action="store_true", help="store the coefficients in memory/recall/calibration.py")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    sets: dict[str, tuple[Workbench, list[Case]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            path = Path(folder) / str(seed)
            generated.make(seed).write(path)
            sets[f"seed {seed}"] = _open(path)
        for path in options.more:
            sets[path.name] = _open(path)
        if options.what == "confidence":
            confidence(sets, write=options.write)
        else:
            params(sets)


def _open(path: Path) -> tuple[Workbench, list[Case]]:
    bench = Workbench(path / "vault")
    return bench, bench.cases(path / "questions.jsonl")


def params(sets: dict[str, tuple[Workbench, list[Case]]]) -> None:
    """Mean of recall@5 and recall@10 for each single change, per set, against the defaults."""
    defaults = Params()
    base = {name: _recall(bench, cases, defaults) for name, (bench, cases) in sets.items()}
    print("defaults", {name: round(value, 4) for name, value in base.items()}, flush=True)
    for name, values in GRID.items():
        for value in values:
            changed = msgspec.structs.replace(defaults, **{name: float(value)})
            gains = [_recall(bench, cases, changed) - base[key] for key, (bench, cases) in sets.items()]
            print(f"{name:20} {value:<6} {np.mean(gains):+.4f}  worst set {min(gains):+.4f}", flush=True)


def _recall(bench: Workbench, cases: Sequence[Case], params: Params) -> float:
    total = []
    for case in cases:
        if case.support:
            ranking = rank(case.question, case.evidence, bench.notes, params, k=10)
            ids = [bench.stem(candidate.note_id) for candidate in ranking.candidates]
            total.append((recall_at(ids, case.support, 5) + recall_at(ids, case.support, 10)) / 2)
    return float(np.mean(total))


def confidence(sets: dict[str, tuple[Workbench, list[Case]]], *, write: bool) -> None:
    """Two logistic regressions, balanced classes; the bias moves so that 0.5 turns away FALSE_ABSTAIN of the answerable."""
    rows = {
        name: [
            (ranking.features, bool(case.support))
            for case in cases
            if (ranking := rank(case.question, case.evidence, bench.notes, Params(), k=10)).features is not None
        ]
        for name, (bench, cases) in sets.items()
    }
    fitted: dict[str, dict[str, float]] = {}
    for group, names, unknown in (("named", NAMED, UNKNOWN_NAMED), ("unnamed", UNNAMED, UNKNOWN_UNNAMED)):
        for held in rows:
            train = [row for name, part in rows.items() if name != held for row in part]
            weights = _fit(_pick(train, group), names, FALSE_ABSTAIN[group])
            caught, lost = _judge(_pick(rows[held], group), names, weights)
            print(f"{group:8} held out {held}: abstains {caught:.2f} of absent, {lost:.3f} of answerable")
        weights = _fit(_pick([row for part in rows.values() for row in part], group), names, FALSE_ABSTAIN[group])
        fitted[group] = {key: round(float(value), 3) for key, value in zip(("bias", *names), weights, strict=True)}
        fitted[group]["unknown"] = unknown
    model = Model(
        named=fitted["named"],
        unnamed=fitted["unnamed"],
        threshold=0.5,
        provenance=f"bench/fit_ranking.py confidence, {', '.join(sets)}, {sum(map(len, rows.values()))} questions, "
        f"{datetime.date.today()}",
    )
    print(msgspec.json.format(msgspec.json.encode(model)).decode())
    if write:
        target = Path(__file__).parent.parent / "memory" / "recall" / "calibration.py"
        head = target.read_text(encoding="utf-8").split("MODEL:")[0]
        text = pprint.pformat(msgspec.to_builtins(model), width=118, sort_dicts=False)
        target.write_text(f"{head}MODEL: dict[str, Any] = {text}\n", encoding="utf-8")


Row = tuple[Features, bool]


def _pick(rows: Sequence[Row], group: str) -> list[Row]:
    return [row for row in rows if bool(row[0].named) == (group == "named") and not row[0].unknown]


def _matrix(rows: Sequence[Row], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[getattr(f, name) for name in names] for f, _ in rows]), np.array([float(y) for _, y in rows])


def _fit(rows: Sequence[Row], names: Sequence[str], false_abstain: float) -> np.ndarray:
    x, y = _matrix(rows, names)
    mean, scale = x.mean(0), x.std(0) + 1e-6
    z = np.column_stack([np.ones(len(x)), (x - mean) / scale])
    balance = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    ridge = np.diag([0.0] + [RIDGE] * len(names))
    beta = np.zeros(z.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-z @ beta))
        gradient = z.T @ (balance * (p - y)) / len(y) + ridge @ beta
        hessian = (z * (balance * p * (1 - p))[:, None]).T @ z / len(y) + ridge
        beta = beta - np.linalg.solve(hessian, gradient)
    weights = np.r_[beta[0] - (beta[1:] / scale) @ mean, beta[1:] / scale]
    scores = weights[0] + x @ weights[1:]
    weights[0] -= np.quantile(scores[y == 1], false_abstain)
    return weights


def _judge(rows: Sequence[Row], names: Sequence[str], weights: np.ndarray) -> tuple[float, float]:
    x, y = _matrix(rows, names)
    away = weights[0] + x @ weights[1:] < 0
    return float(away[y == 0].mean()), float(away[y == 1].mean())


if __name__ == "__main__":
    main()
