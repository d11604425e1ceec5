"""`ferrule completion bash|zsh|fish`: print the completion script that a shell reads."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .root import ferrule


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for a shell.

    `ferrule completion bash > ~/.local/share/bash-completion/completions/ferrule`
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"no completion for `{shell}`; choose bash, zsh or fish")
    click.echo(completion_class(ferrule, {}, "ferrule", "_FERRULE_COMPLETE").source())
