"""Define `ferrule chat`, and check that the terminal and the libraries it needs are there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options

with lazy_imports():
    from ferrule.runtime import resumed_sessions

    from . import loop


@click.command()
@common_options
@click.option(
    "--resume",
    "resume_id",
    metavar="SESSION",
    help="Continue this session (its id or the beginning of it).",
)
@click.option(
    "--continue",
    "continued",
    is_flag=True,
    help="Continue the conversation that was used last in this folder.",
)
@click.option(
    "--plain",
    is_flag=True,
    help="For screen readers: whole lines, no repainting, no menus.",
)
@click.option("--reasoning", is_flag=True, help="Show the model's reasoning, if it has any.")
def chat(**options: Any) -> int:
    """Chat with a model that works in this folder.

    `/help` lists the commands. Ctrl-C stops the running tool call, and pressed again the turn;
    Ctrl-D leaves. A call that needs approval asks: once, for this session, remembered, or denied.

    \b
    Examples:
      ferrule chat
      ferrule chat --continue
      ferrule chat -m ollama:llama3.2 --mode plan
    """  # noqa: D301  click reads the mark
    import asyncio
    import sys

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("chat needs a terminal; use `ferrule run` in scripts")
    missing = [name for name in ("prompt_toolkit", "rich") if find_spec(name) is None]
    if missing:
        raise click.UsageError(
            f"chat needs {' and '.join(missing)}; install them: `pip install 'ferrule[cli]'`"
        )
    if options["continued"] and options["resume_id"]:
        raise click.UsageError("--continue and --resume exclude each other")
    if options["resume_id"]:
        resumed_sessions.refuse_session_in_use(options["resume_id"])

    return asyncio.run(loop.run_chat(options))
