"""`ferrule chat`: a conversation with a model that works in this folder."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from ferrule.runtime.options import common


@click.command()
@common
@click.option(
    "--resume",
    "resume_id",
    metavar="SESSION",
    help="Go on with this session (an id or its beginning).",
)
@click.option("--reasoning", is_flag=True, help="Show what the model thinks aloud, where it does.")
def chat(**options: Any) -> int:
    """Talk with a model that works in this folder.

    `/help` lists the commands. Ctrl-C stops the running call, once more the turn; Ctrl-D leaves.
    What needs a permission asks: once, for the session, remembered, or no.
    """
    import asyncio
    import sys

    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("chat needs a terminal; use `ferrule run` in scripts")
    if find_spec("prompt_toolkit") is None:
        raise click.UsageError("chat needs prompt-toolkit: `pip install 'ferrule[cli]'`")
    from .loop import converse

    return asyncio.run(converse(options))
