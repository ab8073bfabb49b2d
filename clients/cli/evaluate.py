"""`recalld eval`: how well recall works on one's own notes, and tuning it there."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from ...memory.recall.calibration import MODEL
from ...memory.recall.gold import Gold, absent, asked_of_subjects, build, small_classes
from ...memory.recall.metrics import interval, mean
from ...memory.recall.params import Model
from ...memory.recall.tokens import fold
from ...memory.recall.tokens import stem as stem_of
from ...protocol.messages.recall import STREAMS, Answer, Recall, Stream
from . import measuring
from .context import Cli, Failed, json_option, print_json
from .folder import read_folder
from .rerank import rerank

CELLS: tuple[tuple[Stream, ...], ...] = (
    STREAMS, ("text", "entity", "vector"), ("text", "vector"), ("vector", "graph"), ("vector",), ("text",),
)  # fmt: skip
FALSE_ABSTAIN = 0.05
"""Share of answerable questions that a calibrated threshold may turn away."""


@click.group("eval")
def evaluate() -> None:
    """
    Measure and tune recall on your own notes.

    \b
    recalld eval gold ~/notes        questions from the notes themselves, frozen to a file
    recalld eval run                 how many of them recall answers
    recalld eval ablate              what each stream and parameter contributes
    recalld eval calibrate ~/notes   when an answer should say "not in the notes"
    recalld eval rerank              whether a cross-encoder makes it better, and use it only then
    """


evaluate.add_command(rerank)


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
    path = Path(out) if out else measuring.gold_path(cli)
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
    measuring.warn_small(questions)


@evaluate.command("run")
@click.argument("gold", required=False, type=click.Path())
@click.option("--streams", default="", metavar="LIST", help=f"Only these, comma-separated: {','.join(STREAMS)}.")
@json_option
@click.pass_obj
def run(cli: Cli, gold: str | None, streams: str, as_json: bool) -> None:
    """Ask every question of GOLD and say how many notes were found, per class, against the last run of the same file."""
    path, questions = measuring.read_gold(cli, gold)
    chosen: tuple[Stream, ...] = tuple(s for s in STREAMS if s in streams.split(",")) if streams else STREAMS
    with measuring.daemon(cli):
        rows = measuring.ask_all(cli, questions, chosen, {})
    cell = measuring.cell("+".join(chosen), questions, rows)
    last = measuring.last_run(cli, path, cell["cell"])
    measuring.keep(cli, {"at_ms": int(time.time() * 1000), "gold": str(path), **cell})
    if as_json:
        print_json({"gold": str(path), **cell, "last": last})
        return
    measuring.show([cell], last)
    measuring.warn_small(questions)


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
    path, questions = measuring.read_gold(cli, gold)
    cells: list[dict[str, Any]] = []
    varied = [_varied(param) for param in params]
    with measuring.daemon(cli):
        per_question: dict[str, list[dict[str, float]]] = {}
        grid: list[tuple[str, tuple[Stream, ...], dict[str, float]]] = [("+".join(s), s, {}) for s in CELLS]
        grid += [(f"{name}={value:g}", STREAMS, {name: value}) for name, values in varied for value in values]
        # Question by question, so that the daemon's small cache of embeddings serves every cell.
        for question in questions:
            for name, streams, ranking in grid:
                per_question.setdefault(name, []).append(measuring.ask(cli, question, streams, ranking))
    cells = [measuring.cell(name, questions, per_question[name]) for name, _, _ in grid]
    base = per_question["+".join(STREAMS)]
    for cell in cells:
        gains = [row["ndcg@10"] - other["ndcg@10"] for row, other in zip(per_question[cell["cell"]], base, strict=True)]
        cell["delta_ndcg@10"] = round(mean(gains), 4)
        cell["delta_interval"] = [round(value, 4) for value in interval(gains)]
    measuring.keep(cli, {"at_ms": int(time.time() * 1000), "gold": str(path), "cell": "ablation", "cells": cells})
    if as_json:
        print_json({"gold": str(path), "cells": cells})
        return
    measuring.show(cells, None)
    measuring.warn_small(questions)


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
    with measuring.daemon(cli):
        measuring.reload(cli)
        positive = sorted(_confidence(cli, question) for question in answerable)
        negative = sorted(_confidence(cli, question) for question in unanswerable)
        threshold = positive[int(FALSE_ABSTAIN * len(positive))]
        model = _shifted(msgspec.convert(MODEL, Model), threshold, folder, len(answerable), len(unanswerable))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(msgspec.json.format(msgspec.json.encode(model)))
        measuring.reload(cli)
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


def _confidence(cli: Cli, question: Gold) -> float:
    reply = cli.ask("query", Recall(query=question.question, k=measuring.K), measuring.BUDGET_MS)
    assert isinstance(reply, Answer)
    return reply.confidence


def _varied(text: str) -> tuple[str, list[float]]:
    name, _, values = text.partition("=")
    try:
        return name.strip(), [float(value) for value in values.split(",")]
    except ValueError:
        raise click.UsageError(f"--param {text}: write NAME=NUMBER,NUMBER") from None


def _shuffled(seed: int) -> Callable[[list[Gold]], list[Gold]]:
    def pick(found: list[Gold]) -> list[Gold]:
        found = list(found)
        random.Random(seed).shuffle(found)
        return found

    return pick
