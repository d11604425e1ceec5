"""Define `ferrule chat`, and check that the terminal and the libraries it needs are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from ferrule.runtime.options import common_options


@click.command()
@common_options
@click.option(
    "--resume",
    "resume_id",
    metavar="SESSION",
    help="Continue this session (its id or the beginning of it).",
)
@click.option("--reasoning", is_flag=True, help="Show the model's reasoning, where it gives any.")
def chat(**options: Any) -> int:
    """Chat with a model that works in this folder.

    `/help` lists the commands. Ctrl-C stops the running tool call, and pressed again the turn;
    Ctrl-D leaves. A call that needs approval asks: once, for this session, remembered, or denied.
    """
    import asyncio
    import sys

    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("chat needs a terminal; use `ferrule run` in scripts")
    if find_spec("prompt_toolkit") is None:
        raise click.UsageError(
            "chat needs prompt-toolkit; install it: `pip install 'ferrule[cli]'`"
        )
    from .loop import run_chat  # needs prompt_toolkit

    return asyncio.run(run_chat(options))
