"""`recalld eval`: how well recall works on one's own notes, and tuning it there."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ...memory.recall.calibration import MODEL
from ...memory.recall.gold import Gold, absent, asked_of_subjects, build, key, small_classes
from ...memory.recall.metrics import interval, mean, ndcg_at, recall_at, reciprocal_rank
from ...memory.recall.params import Model
from ...memory.recall.tokens import fold
from ...memory.recall.tokens import stem as stem_of
from ...protocol.messages.control import Reload
from ...protocol.messages.recall import STREAMS, Answer, Recall, Stream
from ..process import temporary
from .context import Cli, Failed, clean, console, json_option, print_json
from .folder import read_folder

K = 10
BUDGET_MS = 10_000
CELLS: tuple[tuple[Stream, ...], ...] = (
    STREAMS, ("text", "entity", "vector"), ("text", "vector"), ("vector", "graph"), ("vector",), ("text",),
)  # fmt: skip
FALSE_ABSTAIN = 0.05
"""Share of answerable questions that a calibrated threshold may turn away."""
METRICS = ("recall@5", "recall@10", "mrr", "ndcg@10")


@click.group("eval")
def evaluate() -> None:
    """
    Measure and tune recall on your own notes.

    \b
    recalld eval gold ~/notes        questions from the notes themselves, frozen to a file
    recalld eval run                 how many of them recall answers
    recalld eval ablate              what each stream and parameter contributes
    recalld eval calibrate ~/notes   when an answer should say "not in the notes"
    """


@evaluate.command("gold")
@click.argument("folder", type=click.Path())
@click.option("-o", "--out", type=click.Path(), help="The file. [default: eval/gold.jsonl in the data folder]")
@click.option("--per-class", default=60, show_default=True, help="Questions of each class at most.")
@click.option("--seed", default=42, show_default=True, help="The same seed picks the same questions.")
@click.option("--force", is_flag=True, help="Replace a file that is there: runs before and after cannot be compared.")
@json_option
@click.pass_obj
def gold_(cli: Cli, folder: str, out: str | None, per_class: int, seed: int, force: bool, as_json: bool) -> None:
    """Derive questions from FOLDER: titles, first paragraphs, links, replacements. Needs no daemon."""
    path = Path(out) if out else _gold_path(cli)
    if path.exists() and not force:
        raise Failed(f"{path} is there already; a frozen file keeps runs comparable (--force replaces it)")
    read = read_folder(folder, cli.config)
    questions = build(read.notes, read.chunks, per_class, _shuffled(seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(question) + b"\n" for question in questions))
    counts = {
        cls: sum(question.cls == cls for question in questions) for cls in ("title", "body", "bridge", "temporal")
    }
    report = {"file": str(path), "questions": counts, "small": small_classes(questions)}
    if as_json:
        print_json(report)
        return
    click.echo(f"{path}: {', '.join(f'{count} {cls}' for cls, count in counts.items())}")
    _warn_small(questions)


@evaluate.command("run")
@click.argument("gold", required=False, type=click.Path())
@click.option("--streams", default="", metavar="LIST", help=f"Only these, comma-separated: {','.join(STREAMS)}.")
@json_option
@click.pass_obj
def run(cli: Cli, gold: str | None, streams: str, as_json: bool) -> None:
    """Ask every question of GOLD and say how many notes were found, per class, against the last run of the same file."""
    path, questions = _questions(cli, gold)
    chosen: tuple[Stream, ...] = tuple(s for s in STREAMS if s in streams.split(",")) if streams else STREAMS
    with _daemon(cli):
        rows = _ask_all(cli, questions, chosen, {})
    cell = _cell("+".join(chosen), questions, rows)
    last = _last_run(cli, path, cell["cell"])
    _keep(cli, {"at_ms": int(time.time() * 1000), "gold": str(path), **cell})
    if as_json:
        print_json({"gold": str(path), **cell, "last": last})
        return
    _show([cell], last)
    _warn_small(questions)


@evaluate.command("ablate")
@click.argument("gold", required=False, type=click.Path())
@click.option("--param", "params", multiple=True, metavar="NAME=V1,V2", help="Vary a ranking parameter (repeatable).")
@json_option
@click.pass_obj
def ablate(cli: Cli, gold: str | None, params: tuple[str, ...], as_json: bool) -> None:
    """
    The same questions with fewer streams and with other parameters (docs/ranking.md lists them), one thing changed at a time.

    Each question is embedded once for all cells. A difference smaller than the interval is chance.
    """
    path, questions = _questions(cli, gold)
    cells: list[dict[str, Any]] = []
    varied = [_varied(param) for param in params]
    with _daemon(cli):
        per_question: dict[str, list[dict[str, float]]] = {}
        grid: list[tuple[str, tuple[Stream, ...], dict[str, float]]] = [("+".join(s), s, {}) for s in CELLS]
        grid += [(f"{name}={value:g}", STREAMS, {name: value}) for name, values in varied for value in values]
        # Question by question, so that the daemon's small cache of embeddings serves every cell.
        for question in questions:
            for name, streams, ranking in grid:
                per_question.setdefault(name, []).append(_ask(cli, question, streams, ranking))
    cells = [_cell(name, questions, per_question[name]) for name, _, _ in grid]
    base = per_question["+".join(STREAMS)]
    for cell in cells:
        gains = [row["ndcg@10"] - other["ndcg@10"] for row, other in zip(per_question[cell["cell"]], base, strict=True)]
        cell["delta_ndcg@10"] = round(mean(gains), 4)
        cell["delta_interval"] = [round(value, 4) for value in interval(gains)]
    _keep(cli, {"at_ms": int(time.time() * 1000), "gold": str(path), "cell": "ablation", "cells": cells})
    if as_json:
        print_json({"gold": str(path), "cells": cells})
        return
    _show(cells, None)
    _warn_small(questions)


@evaluate.command("calibrate")
@click.argument("folder", type=click.Path())
@click.option("--per-class", default=60, show_default=True)
@click.option("--seed", default=42, show_default=True)
@json_option
@click.pass_obj
def calibrate(cli: Cli, folder: str, per_class: int, seed: int, as_json: bool) -> None:
    """
    Find the confidence below which an answer should say that the notes do not contain it, on the notes in FOLDER.

    Asks questions that the notes answer and questions that they do not, and writes calibration.json into the data folder;
    a running daemon takes it up. Remove the file to go back to the packaged one.
    """
    read = read_folder(folder, cli.config)
    pick = _shuffled(seed)
    words = frozenset(
        stem_of(word)
        for chunks in read.chunks.values()
        for c in chunks
        for word in re.findall(r"[^\W_]+", fold(c.text))
    )
    known = [
        *build(read.notes, read.chunks, per_class, pick),
        *asked_of_subjects(read.notes, read.chunks, per_class, pick),
    ]
    answerable = [question for question in known if question.cls in ("title", "body", "subject")]
    unanswerable = absent(read.notes, words, per_class, pick)
    if len(answerable) < 20 or len(unanswerable) < 20:
        raise Failed(
            f"too few questions can be made of {folder} ({len(answerable)} answerable, {len(unanswerable)} not): "
            "the packaged calibration stays"
        )
    target = cli.paths.data / "calibration.json"
    kept = target.with_suffix(".json.old")
    if target.exists():
        target.replace(kept)
    with _daemon(cli):
        _reload(cli)
        positive = sorted(_confidence(cli, question) for question in answerable)
        negative = sorted(_confidence(cli, question) for question in unanswerable)
        threshold = positive[int(FALSE_ABSTAIN * len(positive))]
        model = _shifted(msgspec.convert(MODEL, Model), threshold, folder, len(answerable), len(unanswerable))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(msgspec.json.format(msgspec.json.encode(model)))
        _reload(cli)
    report: dict[str, Any] = {
        "file": str(target),
        "threshold_before": 0.5,
        "threshold": round(threshold, 4),
        "false_abstain": round(sum(c < threshold for c in positive) / len(positive), 4),
        "abstain_correct": round(sum(c < threshold for c in negative) / len(negative), 4),
        "before": {
            "false_abstain": round(sum(c < 0.5 for c in positive) / len(positive), 4),
            "abstain_correct": round(sum(c < 0.5 for c in negative) / len(negative), 4),
        },
    }
    if as_json:
        print_json(report)
        return
    click.echo(
        f"{target}: says 'not in the notes' to {report['abstain_correct']:.0%} of {len(negative)} questions that they do not "
        f"answer and to {report['false_abstain']:.0%} of {len(positive)} that they do "
        f"(before: {report['before']['abstain_correct']:.0%} and {report['before']['false_abstain']:.0%})"
    )


def _shifted(model: Model, threshold: float, folder: str, answerable: int, unanswerable: int) -> Model:
    """The packaged model with its bias moved so that ``threshold`` becomes 0.5."""
    bounded = min(0.999, max(0.001, threshold))
    shift = math.log(bounded / (1.0 - bounded))
    moved = [{**part, "bias": round(part["bias"] - shift, 4)} for part in (model.named, model.unnamed)]
    provenance = f"recalld eval calibrate {folder}: {answerable} answerable, {unanswerable} unanswerable questions"
    return Model(named=moved[0], unnamed=moved[1], threshold=0.5, provenance=provenance)


def _reload(cli: Cli) -> None:
    cli.ask("control", Reload())


def _confidence(cli: Cli, question: Gold) -> float:
    reply = cli.ask("query", Recall(query=question.question, k=K), BUDGET_MS)
    assert isinstance(reply, Answer)
    return reply.confidence


@contextlib.contextmanager
def _daemon(cli: Cli) -> Iterator[None]:
    """The running daemon, else one for as long as it takes; what it indexes is what is watched."""
    with contextlib.ExitStack() as stack:
        if cli.status(1000) is None:
            stack.enter_context(temporary(cli.paths))
        from .index import settle

        settle(cli, text_only=False, timeout_s=3600, show=True)
        yield


def _gold_path(cli: Cli) -> Path:
    return cli.paths.data / "eval" / "gold.jsonl"


def _questions(cli: Cli, given: str | None) -> tuple[Path, list[Gold]]:
    path = Path(given) if given else _gold_path(cli)
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise Failed(f"{path} does not exist: make it with `recalld eval gold FOLDER`") from None
    try:
        return path.absolute(), [msgspec.json.decode(line, type=Gold) for line in lines if line.strip()]
    except msgspec.DecodeError as error:
        raise Failed(f"{path}: {error}") from None


def _ask_all(cli: Cli, questions: Sequence[Gold], streams: tuple[Stream, ...], ranking: dict[str, float]) -> list[Any]:
    return [_ask(cli, question, streams, ranking) for question in questions]


def _ask(cli: Cli, question: Gold, streams: tuple[Stream, ...], ranking: dict[str, float]) -> dict[str, float]:
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
    }


def _cell(name: str, questions: Sequence[Gold], rows: Sequence[dict[str, float]]) -> dict[str, Any]:
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


def _varied(text: str) -> tuple[str, list[float]]:
    name, _, values = text.partition("=")
    try:
        return name.strip(), [float(value) for value in values.split(",")]
    except ValueError:
        raise click.UsageError(f"--param {text}: write NAME=NUMBER,NUMBER") from None


def _runs_path(cli: Cli) -> Path:
    return cli.paths.data / "eval" / "runs.jsonl"


def _keep(cli: Cli, entry: dict[str, Any]) -> None:
    path = _runs_path(cli)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry) + os.linesep)


def _last_run(cli: Cli, gold: Path, cell: str) -> dict[str, Any] | None:
    try:
        lines = _runs_path(cli).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    runs = [json.loads(line) for line in lines if line.strip()]
    return next((r for r in reversed(runs) if r["gold"] == str(gold) and r["cell"] == cell), None)


def _shuffled(seed: int) -> Callable[[list[Gold]], list[Gold]]:
    def pick(found: list[Gold]) -> list[Gold]:
        found = list(found)
        random.Random(seed).shuffle(found)
        return found

    return pick


def _warn_small(questions: Sequence[Gold]) -> None:
    for cls, count in small_classes(questions).items():
        click.echo(f"only {count} questions of class '{cls}': its figures are mostly chance", err=True)


def _show(cells: Sequence[dict[str, Any]], last: dict[str, Any] | None) -> None:
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
