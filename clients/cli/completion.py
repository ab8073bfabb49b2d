"""`recalld completion`: tab completion for the shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

WHERE = {
    "bash": "recalld completion bash > ~/.local/share/bash-completion/completions/recalld",
    "zsh": "recalld completion zsh > ~/.zfunc/_recalld   (a folder of $fpath)",
    "fish": "recalld completion fish > ~/.config/fish/completions/recalld.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(f"{shell}: {line}" for shell, line in WHERE.items()))
@click.argument("shell", type=click.Choice(list(WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL, to be put where that shell looks."""
    kind = get_completion_class(shell)
    assert kind is not None  # the choices above are those that click knows
    command = ctx.find_root().command
    click.echo(kind(command, {}, "recalld", "_RECALLD_COMPLETE").source())
