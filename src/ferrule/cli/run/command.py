"""`ferrule run`: one message worked to its end. The answer goes to standard output, all else to
standard error.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from ferrule.runtime.options import common, yes_to


@click.command()
@click.argument("prompt", nargs=-1)
@common
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object on standard output instead of the text.",
)
@click.option(
    "--json-stream",
    is_flag=True,
    help="JSON lines, one per event, as they happen (`v` is the format).",
)
@yes_to
@click.option(
    "--resume",
    "resume_id",
    metavar="SESSION",
    help="Go on with this session (an id or its beginning).",
)
@click.option(
    "-p",
    "--print",
    "print_",
    is_flag=True,
    hidden=True,
    help="One shot; that is what run does anyway.",
)
def run(prompt: tuple[str, ...], print_: bool, **options: Any) -> int:
    """Work one message to its end and print the answer.

    The prompt is the argument; what is piped into standard input joins it as context. Without a
    terminal nobody can be asked: what needs a permission is refused and said, unless a rule or
    --yes-to allows it. Exit codes: 0 done, 3 the last tool result was a failure, 4 denied, 5 limit,
    6 model unavailable, 124 time, 130 stopped.
    """
    import asyncio

    if options["as_json"] and options["json_stream"]:
        raise click.UsageError("--json and --json-stream: choose one")
    text = message(prompt)
    if not text:
        raise click.UsageError("there is nothing to do: give a prompt, or pipe one in")
    from .run import one_shot

    return asyncio.run(one_shot(text, options, session_id=options.get("resume_id")))


def message(prompt: tuple[str, ...]) -> str:
    """The prompt from the arguments and what is piped in, which is framed as context."""
    typed = " ".join(prompt).strip()
    if sys.stdin is None or sys.stdin.isatty():
        return typed
    piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if not typed or not piped:
        return typed or piped
    return f"{typed}\n\n<standard-input>\n{piped}\n</standard-input>"
