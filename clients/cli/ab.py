"""`recalld ask --ab` and `recalld ab`: three ways to answer, side by side, and which one a person's questions prefer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from ...protocol.messages.recall import Answer, Recall, Stream
from .context import Cli, Failed, clean, console, json_option, print_json

ARMS: dict[str, tuple[Stream, ...]] = {
    "vector": ("vector",),
    "fused": ("text", "entity", "vector"),
    "fused+graph": ("text", "entity", "graph", "vector"),
}
BEST = "fused+graph"


def log_path(cli: Cli) -> Path:
    """One JSON object a line; written by `ask --ab`, read by `ab`."""
    return cli.paths.data / "eval" / "ab.jsonl"


def compare(cli: Cli, request: Recall, *, as_json: bool) -> None:
    """Answer in each way, print them side by side, append the difference to the log."""
    from .ask import recall

    answers = {arm: recall(cli, msgspec.structs.replace(request, streams=streams)) for arm, streams in ARMS.items()}
    entry = difference(request.query, int(time.time() * 1000), answers)
    path = log_path(cli)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as out:
        out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    if as_json:
        print_json(entry)
    else:
        _show(request.query, answers, entry)


def difference(query: str, at_ms: int, answers: dict[str, Answer]) -> dict[str, Any]:
    """What the arms found, and what each one adds to vectors alone."""
    lists = {arm: [hit.path for hit in answer.hits] for arm, answer in answers.items()}
    return {
        "at_ms": at_ms,
        "query": query,
        "arms": lists,
        "new": {arm: [path for path in found if path not in lists["vector"]] for arm, found in lists.items()},
        "same_first": {arm: found[:1] == lists[BEST][:1] for arm, found in lists.items()},
        "confidence": {arm: answer.confidence for arm, answer in answers.items()},
        "degraded": sorted({name for answer in answers.values() for name in answer.degraded}),
        "preferred": "",
    }


@click.command("ab")
@click.option("--prefer", type=click.Choice(list(ARMS)), help="Which arm of the last comparison answered best.")
@json_option
@click.pass_obj
def ab(cli: Cli, prefer: str | None, as_json: bool) -> None:
    """
    What `recalld ask --ab` has shown so far: how often text and links change the answer, and which way you preferred.

    `recalld ab --prefer fused+graph` notes your verdict on the last comparison.
    """
    path = log_path(cli)
    try:
        entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise Failed('nothing has been compared yet: `recalld ask --ab "a question of yours"`') from None
    if prefer:
        entries[-1]["preferred"] = prefer
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
        fresh = path.with_suffix(".tmp")
        fresh.write_text(lines, encoding="utf-8")
        fresh.replace(path)
    found = summary(entries)
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(f"{found['comparisons']} comparisons, {found['judged']} with your verdict")
    for arm, row in found["arms"].items():
        out.print(
            f"{arm:12} preferred {row['preferred']:3}   first hit as in {BEST}: {row['same_first']:.0%}   "
            f"hits that vectors alone did not find: {row['new']:.1f} a question   confidence {row['confidence']:.2f}"
        )
    if found["winner"]:
        out.print(f"[green]{found['winner']} wins on your questions[/]")
    elif not found["judged"]:
        out.print("[dim]say which one was right with `recalld ab --prefer ARM` after a comparison[/]")


def summary(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all comparisons; ``winner`` is the arm preferred most often, '' on a tie or without verdicts."""
    total = max(1, len(entries))
    arms = {
        arm: {
            "preferred": sum(entry["preferred"] == arm for entry in entries),
            "same_first": sum(bool(entry["same_first"].get(arm)) for entry in entries) / total,
            "new": sum(len(entry["new"].get(arm, ())) for entry in entries) / total,
            "confidence": sum(entry["confidence"].get(arm, 0.0) for entry in entries) / total,
        }
        for arm in ARMS
    }
    counts = sorted(((row["preferred"], arm) for arm, row in arms.items()), reverse=True)
    winner = counts[0][1] if counts[0][0] > counts[1][0] else ""
    judged = sum(bool(entry["preferred"]) for entry in entries)
    return {"comparisons": len(entries), "judged": judged, "arms": arms, "winner": winner}


def _show(query: str, answers: dict[str, Answer], entry: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(clean(query)), title_justify="left")
    table.add_column("#", justify="right")
    for arm in ARMS:
        table.add_column(arm)
    for rank in range(max(len(answer.hits) for answer in answers.values())):
        cells = []
        for arm, answer in answers.items():
            if rank >= len(answer.hits):
                cells.append("")
                continue
            hit = answer.hits[rank]
            new = " [green]new[/]" if hit.path in entry["new"][arm] else ""
            graph = " [cyan]by a link[/]" if "linked" in hit.why or hit.why.startswith("links to") else ""
            cells.append(f"{escape(clean(hit.title))}{new}{graph}")
        table.add_row(str(rank + 1), *cells)
    out = console()
    out.print(table)
    if entry["degraded"]:
        out.print(f"[yellow]degraded: {', '.join(entry['degraded'])}[/]")
    out.print("[dim]which one was right? `recalld ab --prefer ARM`[/]")
