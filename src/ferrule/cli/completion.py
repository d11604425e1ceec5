"""`ferrule completion bash|zsh|fish`: the script that a shell reads."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell.

    `ferrule completion bash > ~/.local/share/bash-completion/completions/ferrule`
    """
    from .root import ferrule

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(ferrule, {}, "ferrule", "_FERRULE_COMPLETE").source())
