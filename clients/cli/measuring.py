"""What the commands of `recalld eval` share: asking questions whose answers are known, and the figures of that."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ...memory.recall.gold import Gold, key, small_classes
from ...memory.recall.metrics import interval, mean, ndcg_at, recall_at, reciprocal_rank
from ...protocol.messages.control import Reload
from ...protocol.messages.recall import Answer, Recall, Stream
from ..process import temporary
from .context import Cli, Failed, clean, console
from .index import settle

K = 10
BUDGET_MS = 10_000
METRICS = ("recall@5", "recall@10", "mrr", "ndcg@10")


def reload(cli: Cli) -> None:
    cli.ask("control", Reload())


@contextlib.contextmanager
def daemon(cli: Cli) -> Iterator[None]:
    """The running daemon, else one for as long as it takes; what it indexes is what is watched."""
    with contextlib.ExitStack() as stack:
        if cli.status(1000) is None:
            stack.enter_context(temporary(cli.paths))
        settle(cli, text_only=False, timeout_s=3600, show=True)
        yield


def gold_path(cli: Cli) -> Path:
    return cli.paths.data / "eval" / "gold.jsonl"


def read_gold(cli: Cli, given: str | None) -> tuple[Path, list[Gold]]:
    path = Path(given) if given else gold_path(cli)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise Failed(f"{path} does not exist: make it with `recalld eval gold FOLDER`") from None
    try:
        return path.absolute(), [msgspec.json.decode(line, type=Gold) for line in lines if line.strip()]
    except msgspec.DecodeError as error:
        raise Failed(f"{path}: {error}") from None


def ask_all(cli: Cli, questions: Sequence[Gold], streams: tuple[Stream, ...], ranking: dict[str, float]) -> list[Any]:
    return [ask(cli, question, streams, ranking) for question in questions]


def ask(cli: Cli, question: Gold, streams: tuple[Stream, ...], ranking: dict[str, float]) -> dict[str, float]:
    reply = cli.ask("query", Recall(query=question.question, k=K, streams=streams, ranking=ranking), BUDGET_MS)
    assert isinstance(reply, Answer)
    ranked = [key(hit.path) for hit in reply.hits]
    # A gold file made by hand may name notes by file name alone.
    names = [key(hit.path).rpartition("/")[2] for hit in reply.hits]
    if not set(ranked) & set(question.support) and not any("/" in each for each in question.support):
        ranked = names
    return {
        "recall@5": recall_at(ranked, question.support, 5),
        "recall@10": recall_at(ranked, question.support, 10),
        "mrr": reciprocal_rank(ranked, question.support, 10),
        "ndcg@10": ndcg_at(ranked, question.support, 10),
        "took_ms": reply.took_ms,
        "late": float("reranker" in reply.degraded),
    }


def cell(name: str, questions: Sequence[Gold], rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    groups: dict[str, list[dict[str, float]]] = {"all": []}
    for question, row in zip(questions, rows, strict=True):
        if question.support:
            groups.setdefault(question.cls, []).append(row)
            groups["all"].append(row)
    return {
        "cell": name,
        "classes": {
            cls: {
                "n": len(found),
                **{metric: round(mean([row[metric] for row in found]), 4) for metric in METRICS},
                "recall@10_interval": [round(value, 4) for value in interval([row["recall@10"] for row in found])],
            }
            for cls, found in groups.items()
            if found
        },
    }


def runs_path(cli: Cli) -> Path:
    return cli.paths.data / "eval" / "runs.jsonl"


def keep(cli: Cli, entry: dict[str, Any]) -> None:
    path = runs_path(cli)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry) + os.linesep)


def last_run(cli: Cli, gold: Path, cell: str) -> dict[str, Any] | None:
    try:
        lines = runs_path(cli).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    runs = [json.loads(line) for line in lines if line.strip()]
    return next((r for r in reversed(runs) if r["gold"] == str(gold) and r["cell"] == cell), None)


def warn_small(questions: Sequence[Gold]) -> None:
    for cls, count in small_classes(questions).items():
        click.echo(f"only {count} questions of class '{cls}': its figures are mostly chance", err=True)


def show(cells: Sequence[dict[str, Any]], last: dict[str, Any] | None) -> None:
    from rich.table import Table

    table = Table()
    for column in ("cell", "class", "n", *METRICS, "recall@10, 95 %", "against"):
        table.add_column(column, justify="left" if column in ("cell", "class") else "right")
    for cell in cells:
        for cls, row in cell["classes"].items():
            before = (last or {}).get("classes", {}).get(cls)
            against = f"{row['ndcg@10'] - before['ndcg@10']:+.4f} since the last run" if before else ""
            if "delta_ndcg@10" in cell and cls == "all":
                low, high = cell["delta_interval"]
                against = f"{cell['delta_ndcg@10']:+.4f} [{low:+.3f}, {high:+.3f}]"
            low, high = row["recall@10_interval"]
            table.add_row(
                clean(cell["cell"]), cls, str(row["n"]), *(f"{row[metric]:.4f}" for metric in METRICS),
                f"{low:.3f}-{high:.3f}", against,
            )  # fmt: skip
    console().print(table)
