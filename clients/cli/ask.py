"""`recalld ask`: a question, the notes that answer it, and why."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ...protocol import render
from ...protocol.envelope import ProtocolError, Unavailable
from ...protocol.messages.recall import STREAMS, Answer, Filters, Hit, Recall
from .context import Cli, Failed, clean, json_option, print_json, working_folder


@click.command("ask")
@click.argument("question", nargs=-1, required=True)
@click.option("-k", "--hits", "k", default=0, help="How many notes at most. [default: recall.k]")
@click.option("--explain", is_flag=True, help="Say what each stream found and how it was weighed.")
@click.option("--streams", default="", metavar="LIST", help=f"Only these, comma-separated: {','.join(STREAMS)}.")
@click.option("--folder", default="", help="Only notes below this folder of a vault.")
@click.option("--tag", "tags", multiple=True, help="Only notes with this tag (repeatable).")
@click.option("--since", default="", metavar="DATE", help="Only notes of this day or later.")
@click.option("--until", default="", metavar="DATE", help="Only notes of this day or earlier.")
@click.option("--vault", "vaults", multiple=True, help="Only this vault (repeatable).")
@click.option("--as-of", default="", metavar="DATE", help="Answer as the notes stood then.")
@click.option("--expired", is_flag=True, help="Also notes that have expired.")
@click.option(
    "--scope",
    type=click.Choice(["all", "project", "vault", "global"]),
    default="all",
    show_default=True,
    help="What to ask: the notes of this project, of one vault, shared ones, or all.",
)
@click.option(
    "--ab", is_flag=True, help="Show vector-only, fused, and fused with graph side by side, and keep the result."
)
@json_option
@click.pass_obj
def ask(cli: Cli, /, question: tuple[str, ...], k: int, as_json: bool, ab: bool, **options: Any) -> None:
    """
    Ask your notes a question.

    Prints the notes that answer, the passage in each, and why it is there. Exit code 0 also when nothing is found; the
    answer says so.
    """
    # Bytes that are no UTF-8 reach us as lone surrogates, which cannot be sent.
    text = " ".join(question).encode(errors="replace").decode().strip()
    if not text:
        raise click.UsageError("the question is empty")
    request = Recall(
        query=text,
        k=k or cli.config.recall.k,
        streams=_streams(options["streams"]),
        filters=Filters(
            folder=options["folder"],
            tags=options["tags"],
            since=options["since"],
            until=options["until"],
            vaults=options["vaults"],
            expired=options["expired"],
        ),
        scope=options["scope"],
        cwd=working_folder(),
        as_of=options["as_of"],
        explain=options["explain"],
    )
    if ab:
        from .ab import compare

        compare(cli, request, as_json=as_json)
        return
    answer = recall(cli, request)
    if as_json:
        print_json(render.answer(answer))
    else:
        show(answer, explain=options["explain"])


def _streams(listed: str) -> tuple[Any, ...]:
    if not listed:
        return STREAMS
    chosen = tuple(part.strip() for part in listed.split(",") if part.strip())
    if unknown := [name for name in chosen if name not in STREAMS]:
        raise click.UsageError(f"there is no stream '{unknown[0]}'; there are {', '.join(STREAMS)}")
    return chosen


def recall(cli: Cli, request: Recall) -> Answer:
    """
    The answer of the daemon; without one, what the database alone gives, read-only, with ``degraded`` saying so.

    Raises Failed when there is neither daemon nor database.
    """
    try:
        reply = cli.ask("query", request, cli.config.recall.budget_ms)
    except Unavailable as error:
        reason = error.text
    except ProtocolError as error:
        if error.code in ("invalid", "conflict"):
            raise Failed(error.text, 2) from None
        reason = error.text
    else:
        if isinstance(reply, Answer):
            return reply
        raise Failed(f"the daemon answered with {type(reply).__name__}")
    if not cli.paths.database.exists():
        raise Failed("there is no index yet: start with `recalld up FOLDER` or `recalld index FOLDER`")
    # The one place where a client opens the database: when nobody else is there to ask.
    from ...actors.query.offline import answer_offline

    answer = answer_offline(cli.paths, cli.config, request)
    click.echo(f"recalld: {reason}; answering from the database alone", err=True)
    return answer


def show(answer: Answer, *, explain: bool) -> None:
    """Print an answer for a person. Without rich: importing it takes as long as the answer."""
    out = _Page()
    if not answer.known:
        out.line(out.paint(answer.note or "The notes do not seem to contain this.", fg="yellow"))
        if answer.hits:
            out.line("Nearest:")
    elif answer.note:
        out.line(out.paint(answer.note, dim=True))
    for number, hit in enumerate(answer.hits, 1):
        _show_hit(out, number, hit, explain)
    for event in answer.raw_events:
        out.line(out.paint(f"{event.at} {event.host} {event.kind}", dim=True), out.paint(event.text[:300]))
    if answer.degraded:
        out.line(out.paint(f"degraded: {', '.join(answer.degraded)}", fg="yellow"))
    out.line(out.paint(f"{answer.took_ms:.0f} ms, confidence {answer.confidence:.2f}", dim=True))


def _show_hit(out: _Page, number: int, hit: Hit, explain: bool) -> None:
    vault = out.paint(f" in {hit.vault}", dim=True) if hit.vault else ""
    place = out.paint(f"{hit.path}:{hit.lines[0]}-{hit.lines[1]}", fg="cyan")
    out.line(out.paint(f"{number}. {hit.title}", bold=True), f" {place}{vault}")
    if hit.superseded_by is not None:
        newer = hit.superseded_by
        out.line("  ", out.paint(f"superseded by {newer.title} ({newer.path})", fg="yellow"))
    if hit.valid[0]:
        out.line("  ", out.paint(f"as it stood from {hit.valid[0]} to {hit.valid[1] or 'now'}", dim=True))
    for line in (hit.sentence or hit.passage).strip().splitlines()[:6]:
        out.line("  ", out.paint(line))
    if hit.why:
        out.line("  ", out.paint(f"because: {hit.why}", dim=True))
    if hit.also:
        out.line("  ", out.paint(f"the same in: {', '.join(hit.also)}", dim=True))
    if explain:
        for name, stream in hit.streams.items():
            figures = f"rank {stream.rank}, score {stream.score:.3f}, weight {stream.weight:.2f}"
            out.line("  ", out.paint(f"{name}: {figures}{f'  {stream.detail}' if stream.detail else ''}", dim=True))
        if hit.factors:
            factors = ", ".join(f"{name} {value:.2f}" for name, value in hit.factors.items())
            out.line("  ", out.paint(f"{factors} → {hit.score:.3f}", dim=True))


class _Page:
    """Lines on stdout: in colour on a terminal unless NO_COLOR forbids it, plain elsewhere."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def paint(self, text: str, **style: Any) -> str:
        """``text`` of notes or of ours, with nothing in it that a terminal would obey but ``style``."""
        text = clean(text)
        return click.style(text, **style) if self._colour and style else text

    def line(self, *parts: str) -> None:
        click.echo(" ".join(part for part in parts if part), color=self._colour)
