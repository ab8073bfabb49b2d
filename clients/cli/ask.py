"""`recalld ask`: a question, the notes that answer it, and why."""

from __future__ import annotations

from typing import Any

import click

from ...protocol import render
from ...protocol.envelope import ProtocolError, Unavailable
from ...protocol.messages.recall import STREAMS, Answer, Filters, Hit, Recall
from .context import Cli, Failed, clean, console, json_option, print_json, working_folder


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
    """Print an answer for a person."""
    out = console()
    if not answer.known:
        out.print(f"[yellow]The notes do not seem to contain this.[/] {_escape(answer.note)}")
        if answer.hits:
            out.print("Nearest:")
    elif answer.note:
        out.print(f"[dim]{_escape(answer.note)}[/]")
    for number, hit in enumerate(answer.hits, 1):
        _show_hit(out, number, hit, explain)
    for event in answer.raw_events:
        out.print(f"[dim]{event.at} {_escape(event.host)} {_escape(event.kind)}[/] {_escape(event.text[:300])}")
    if answer.degraded:
        out.print(f"[yellow]degraded: {_escape(', '.join(answer.degraded))}[/]")
    out.print(f"[dim]{answer.took_ms:.0f} ms, confidence {answer.confidence:.2f}[/]")


def _show_hit(out: Any, number: int, hit: Hit, explain: bool) -> None:
    place = f"{hit.path}:{hit.lines[0]}-{hit.lines[1]}"
    vault = f" [dim]in {_escape(hit.vault)}[/]" if hit.vault else ""
    out.print(f"[bold]{number}. {_escape(hit.title)}[/]  [cyan]{_escape(place)}[/]{vault}")
    if hit.superseded_by is not None:
        out.print(f"   [yellow]superseded by {_escape(hit.superseded_by.title)} ({_escape(hit.superseded_by.path)})[/]")
    if hit.valid[0]:
        out.print(f"   [dim]as it stood from {hit.valid[0]} to {hit.valid[1] or 'now'}[/]")
    for line in (hit.sentence or hit.passage).strip().splitlines()[:6]:
        out.print(f"   {_escape(line)}")
    if hit.why:
        out.print(f"   [dim]because: {_escape(hit.why)}[/]")
    if hit.also:
        out.print(f"   [dim]the same in: {_escape(', '.join(hit.also))}[/]")
    if explain:
        for name, stream in hit.streams.items():
            detail = f"  {_escape(stream.detail)}" if stream.detail else ""
            out.print(
                f"   [dim]{name}: rank {stream.rank}, score {stream.score:.3f}, weight {stream.weight:.2f}{detail}[/]"
            )
        if hit.factors:
            factors = ", ".join(f"{name} {value:.2f}" for name, value in hit.factors.items())
            out.print(f"   [dim]{factors} → {hit.score:.3f}[/]")


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(clean(text))
