"""`recalld eval rerank`: whether a cross-encoder ranks this person's notes better, and switching it by that."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import msgspec

from ...memory.recall.gold import Gold
from ...memory.recall.params import params_from
from ...memory.recall.rerank import Verdict, judge, wanted
from ...protocol.envelope import TimedOut, Unavailable
from ...protocol.messages.embed import DescribeModel, ModelInfo
from ...protocol.messages.recall import STREAMS
from . import measuring
from .context import Cli, Failed, json_option, print_json

POLL_S = 0.1
TELL_S = 2.0
"""After a reload, a problem may for so long be that of the time before it."""
LOAD_S = 60.0
"""How long a cross-encoder may take to load; one of 500 MB takes some seconds."""


@click.command("rerank")
@click.argument("gold", required=False, type=click.Path())
@json_option
@click.pass_obj
def rerank(cli: Cli, gold: str | None, as_json: bool) -> None:
    """
    Ask every question of GOLD with and without the cross-encoder that `embedder.reranker` names in config.toml.

    It is used from then on if nDCG@10 is higher by more than chance (95 % interval), and not used otherwise. The outcome is
    written to reranker.json in the data folder, for this very model; a running daemon takes it up. `rerank = 0` in
    [recall.ranking] of config.toml keeps it off whatever was measured.
    """
    path, questions = measuring.read_gold(cli, gold)
    questions = [question for question in questions if question.support]
    folder = cli.config.embedder.reranker
    if not folder:
        raise Failed(
            "no reranker is configured: set `reranker` in [embedder] of config.toml to a folder with model.onnx and "
            "tokenizer.json of a cross-encoder"
        )
    target = cli.paths.data / "reranker.json"
    params = params_from(cli.config.recall.ranking)
    with measuring.daemon(cli):
        info = _loaded(cli, folder)
        without, reranked = _both_ways(cli, questions)
        verdict = msgspec.structs.replace(
            judge(_ndcg(without), _ndcg(reranked), late=sum(row["late"] > 0 for row in reranked)),
            sha256=info.reranker_sha256,
            model=folder,
            gold=str(path),
            took_ms=(_median_ms(without), _median_ms(reranked)),
            weight=params.rerank_weight,
            depth=int(params.rerank_depth),
            measured=time.strftime("%Y-%m-%d"),
        )
        target.write_bytes(msgspec.json.format(msgspec.json.encode(verdict)))
        measuring.reload(cli)
    on = wanted(params, verdict) is not None
    cells = [measuring.cell("without", questions, without), measuring.cell("reranked", questions, reranked)]
    cells[1].update({"delta_ndcg@10": verdict.difference, "delta_interval": list(verdict.interval)})
    measuring.keep(cli, {"at_ms": int(time.time() * 1000), "gold": str(path), "cell": "rerank", "cells": cells})
    if as_json:
        print_json({"file": str(target), "on": on, **msgspec.to_builtins(verdict), "cells": cells})
        return
    measuring.show(cells, None)
    click.echo(_in_words(verdict, on, params.rerank))
    measuring.warn_small(questions)


def _both_ways(cli: Cli, questions: Sequence[Gold]) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """The figures of each question without the cross-encoder, and with it."""
    without: list[dict[str, float]] = []
    reranked: list[dict[str, float]] = []
    for number, question in enumerate(questions):
        # By turns: who comes first pays for what is cached afterwards.
        for switch, rows in ((0.0, without), (2.0, reranked))[:: -1 if number % 2 else 1]:
            rows.append(measuring.ask(cli, question, STREAMS, {"rerank": switch}))
    return without, reranked


def _loaded(cli: Cli, folder: str) -> ModelInfo:
    """Have the daemon load the cross-encoder in ``folder``, and what it then says of it. Raises Failed."""
    measuring.reload(cli)
    path = str(Path(folder).expanduser())
    deadline, told = time.monotonic() + LOAD_S, time.monotonic() + TELL_S
    problem = "it is not loaded in time; `recalld logs embedder` may say why"
    while time.monotonic() < deadline:
        with contextlib.suppress(Unavailable, TimedOut):  # it may be on its way up
            info = cli.ask("embedder", DescribeModel(), measuring.BUDGET_MS)
            assert isinstance(info, ModelInfo)
            if info.reranker == folder and info.reranker_sha256:
                return info
            if path in info.reranker_problem and time.monotonic() > told:
                problem = info.reranker_problem
                break
        time.sleep(POLL_S)
    raise Failed(f"the reranker cannot be measured: {problem}")


def _ndcg(rows: Sequence[dict[str, float]]) -> list[float]:
    return [row["ndcg@10"] for row in rows]


def _median_ms(rows: Sequence[dict[str, float]]) -> float:
    return round(median(row["took_ms"] for row in rows), 1) if rows else 0.0


def _in_words(verdict: Verdict, on: bool, switch: float) -> str:
    low, high = verdict.interval
    said = (
        f"{verdict.metric} {verdict.without:.4f} without, {verdict.reranked:.4f} with the reranker "
        f"({verdict.difference:+.4f}, 95 % {low:+.4f} to {high:+.4f}) on {verdict.questions} questions; an answer takes "
        f"{verdict.took_ms[0]:.0f} ms without, {verdict.took_ms[1]:.0f} ms with it.\n"
    )
    if on != verdict.won:
        return f"{said}{verdict.why}; but config.toml sets rerank = {switch:g}: it is {'on' if on else 'off'}."
    return f"{said}The reranker is {'on' if on else 'off'} now: {verdict.why}."
