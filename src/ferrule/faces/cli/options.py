"""Options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_COMMON = (
    click.option(
        "-m", "--model", metavar="PROVIDER:MODEL", help="Model to use, e.g. local:smollm2, ollama:llama3.2."
    ),
    click.option(
        "-C", "--workspace", type=click.Path(file_okay=False), help="Folder to work in (default: this one)."
    ),
    click.option(
        "--mode",
        type=click.Choice(["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]),
        help="How much is allowed without asking.",
    ),
    click.option(
        "--way",
        type=click.Choice(["auto", "native", "constrained", "text", "commands"]),
        help="How tools are called.",
    ),
    click.option(
        "--allow", multiple=True, metavar="RULE", help="Permission rule, e.g. 'Bash(git diff:*)'. Repeatable."
    ),
    click.option("--deny", multiple=True, metavar="RULE", help="Permission rule that refuses. Repeatable."),
    click.option("--max-rounds", type=click.IntRange(1), help="Model answers per message (default 10)."),
    click.option("--quiet", "-q", is_flag=True, help="Only the answer and errors."),
)


def common(function: F) -> F:
    """Add the shared options to a command."""
    for option in reversed(_COMMON):
        function = option(function)
    return function
