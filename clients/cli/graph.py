"""`recalld graph`: a picture of how notes hang together."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...protocol.messages.recall import (
    Ambiguous,
    DescribeIndex,
    GraphNote,
    IndexReport,
    NoteText,
    NotFound,
    ReadNote,
    Recall,
)
from .. import graph as picture
from .context import Cli, Failed


@click.command("graph")
@click.argument("note", required=False)
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="A .html or .svg file.")
@click.option("--vault", default="", help="Only this vault.")
@click.option("--hops", default=2, show_default=True, help="How far around NOTE.")
@click.option("--ask", "question", default="", help="Mark the links along which this question finds its answer.")
@click.pass_obj
def graph(cli: Cli, note: str | None, out: str, vault: str, hops: int, question: str) -> None:
    """
    Draw the link graph around NOTE (a path, title or alias), or of everything.

    The page needs no network and can be sent to somebody: it contains titles, paths and links, not the notes.
    """
    if not out.endswith((".html", ".svg")):
        raise click.UsageError("--out wants a name that ends in .html or .svg")
    report = cli.ask("query", DescribeIndex(vault=vault, graph=True), 30_000)
    assert isinstance(report, IndexReport)
    notes = list(report.graph)
    marked = _recalled(cli, notes, question, vault) if question else []
    title = "All notes"
    if note:
        path = _resolve(cli, note, vault)
        centre = next((i for i, n in enumerate(notes) if n.path == path), None)
        if centre is None:
            raise Failed(f"{path} has no place in the graph")
        title = f"Around {notes[centre].title}"
        names = {notes[index].path for index in marked}
        notes = picture.around(notes, centre, hops)
        marked = [index for index, n in enumerate(notes) if n.path in names]
    spots = picture.layout(notes, marked)
    text = picture.svg(spots, title) if out.endswith(".svg") else picture.page(spots, title)
    target = Path(out)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, target)
    click.echo(f"wrote {out}: {len(spots)} notes", err=True)


def _resolve(cli: Cli, ref: str, vault: str) -> str:
    reply = cli.ask("query", ReadNote(ref=ref, vault=vault, line_to=1))
    match reply:
        case NoteText():
            return reply.path
        case Ambiguous():
            raise Failed(f"'{ref}' may be {', '.join(reply.candidates)}: give the path")
        case NotFound():
            near = f" Nearest: {', '.join(reply.nearest)}" if reply.nearest else ""
            raise Failed(f"there is no note '{ref}'.{near}")
    raise Failed(f"unexpected answer: {type(reply).__name__}")


def _recalled(cli: Cli, notes: list[GraphNote], question: str, vault: str) -> list[int]:
    """The notes that a question finds, and the links from the first hit to each of them."""
    from ...protocol.messages.recall import Answer, Filters

    answer = cli.ask("query", Recall(query=question, filters=Filters(vaults=(vault,) if vault else ())))
    assert isinstance(answer, Answer)
    index = {note.path: number for number, note in enumerate(notes)}
    hits = [index[hit.path] for hit in answer.hits if hit.path in index]
    marked = set(hits[:1])
    for hit in hits[1:]:
        chain = picture.path_between(notes, hits[0], hit)
        marked |= set(chain) if len(chain) <= 4 else {hit}
    return sorted(marked)
