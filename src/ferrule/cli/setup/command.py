"""Define `ferrule setup`."""

from __future__ import annotations

import click

from ferrule.cli.confirmation import has_terminal
from ferrule.runtime.lazy_imports import lazy_imports

with lazy_imports():
    from . import dialogue


@click.command()
@click.option("-m", "--model", default="", help="The model to use, as provider:model.")
@click.option("--yes", is_flag=True, help="Take the first of the list without asking.")
def setup(model: str, yes: bool) -> int:
    """Choose the model that is used when none is named.

    Lists what was found: providers whose key is in the environment, a running Ollama, servers on
    this machine, the embedded model. The key of the chosen one is checked by one request that costs
    nothing, and the model is written into your own settings. Keys are never written.

    \b
    Examples:
      ferrule setup
      ferrule setup --model ollama:llama3.2 --yes
    """  # noqa: D301  click reads the mark
    import asyncio

    if not model and not yes and not has_terminal():
        raise click.UsageError("there is no terminal to ask at; name a `--model`, or pass `--yes`")
    chosen = asyncio.run(dialogue.run_setup(model, yes=yes))
    return 0 if chosen else 4
