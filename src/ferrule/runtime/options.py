"""Options that several commands share, declared once.

Those that stand for a setting are named as `ferrule.storage.settings.table` names them (a test
compares the two): the table itself is not loaded for help.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_RULE = "Permission rule"
_SETTINGS = (
    click.option(
        "-m",
        "--model",
        metavar="PROVIDER:MODEL",
        help="Model to use, e.g. local:smollm2, ollama:llama3.2.",
    ),
    click.option(
        "--mode",
        type=click.Choice(
            ["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
        ),
        help="How much is allowed without asking.",
    ),
    click.option(
        "--way",
        "--tool-mode",
        "tool_mode",
        type=click.Choice(["auto", "native", "constrained", "text", "commands", "none"]),
        help="How tools are called.",
    ),
    click.option(
        "--allow",
        "permissions__allow",
        multiple=True,
        metavar="RULE",
        help=f"{_RULE}, e.g. 'Bash(git diff:*)'. Repeatable.",
    ),
    click.option(
        "--ask",
        "permissions__ask",
        multiple=True,
        metavar="RULE",
        help=f"{_RULE} for what a person is asked about. Repeatable.",
    ),
    click.option(
        "--deny",
        "permissions__deny",
        multiple=True,
        metavar="RULE",
        help=f"{_RULE} that refuses. Repeatable.",
    ),
    click.option(
        "--tools/--no-tools",
        "tools__enabled",
        default=None,
        help="Whether the model gets tools at all.",
    ),
    click.option(
        "--allow-tool",
        "tools__allowed",
        multiple=True,
        metavar="TOOL",
        help="The only tools there are. Repeatable.",
    ),
    click.option(
        "--deny-tool",
        "tools__denied",
        multiple=True,
        metavar="TOOL",
        help="A tool that is left out. Repeatable.",
    ),
    click.option(
        "--pack",
        "tools__packs",
        multiple=True,
        metavar="PACK",
        help="Tools beyond the usual ones: typed, git, git_write, git_toolbox, code. Repeatable.",
    ),
    click.option(
        "--require-tool",
        "tools__required",
        multiple=True,
        metavar="TOOL",
        help="A tool that must have succeeded, or 'one|other'. Repeatable.",
    ),
    click.option(
        "--join",
        "tools__join",
        metavar="HOW",
        help="Calls side by side: all, first_success or how many must succeed.",
    ),
    click.option(
        "--safe-mode/--no-safe-mode",
        "commands__safe_mode",
        default=None,
        help="Run only a short list of programs.",
    ),
    click.option(
        "--max-rounds",
        "limits__max_rounds",
        type=click.IntRange(1),
        help="Model answers per message (default 10).",
    ),
    click.option(
        "--max-seconds",
        "limits__max_seconds",
        metavar="TIME",
        help="Time of a run, as in 90s or 5m.",
    ),
    click.option(
        "--max-tokens", "limits__max_tokens", type=click.IntRange(1), help="Tokens of a run."
    ),
    click.option(
        "--max-cost",
        "limits__max_cost",
        type=click.FloatRange(0, min_open=True),
        metavar="DOLLARS",
        help="What a run may cost.",
    ),
    click.option(
        "--max-calls",
        "limits__max_calls",
        type=click.IntRange(1),
        help="Tool calls of a run in all.",
    ),
    click.option(
        "--on-limit",
        "limits__on_limit",
        type=click.Choice(["error", "answer"]),
        help="At the round limit: an error, or one last answer without tools.",
    ),
    click.option(
        "--journal", "journal__path", type=click.Path(dir_okay=False), help="The journal's file."
    ),
)

_OTHERS = (
    click.option(
        "-C",
        "--workspace",
        type=click.Path(file_okay=False),
        help="Folder to work in (default: this one).",
    ),
    click.option("--quiet", "-q", is_flag=True, help="Only the answer, warnings and errors."),
)


def _names() -> frozenset[str]:
    @_all(_SETTINGS)
    def probe() -> None: ...

    return frozenset(str(parameter.name) for parameter in click.command()(probe).params)


def _all(options: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


SETTING_OPTIONS = _names()
"""Parameters that set a setting: its key with `__` for the dot."""


def common(function: F) -> F:
    """Add the shared options to a command."""
    return _all((*_SETTINGS[:1], *_OTHERS, *_SETTINGS[1:]))(function)


def yes_to(function: F) -> F:
    """Add `--yes-to` to a command that calls tools."""
    return click.option(
        "--yes-to",
        "yes_to",
        multiple=True,
        metavar="TOOL",
        help="Say yes to this tool where it would ask. Repeatable.",
    )(function)


def served(
    port: int,
    token_file: str = "File that holds the token; else FERRULE_TOKEN, else one is made and shown.",
) -> Callable[[F], F]:
    """Add where a server is and who may come in: `--host`, `--port`, `--url`, `--token-file`."""
    return _all(
        (
            click.option(
                "--host", default="127.0.0.1", show_default=True, help="Address to serve on."
            ),
            click.option(
                "--port",
                type=click.IntRange(0, 65_535),
                default=port,
                show_default=True,
                help="Port to serve on; 0 takes a free one.",
            ),
            click.option(
                "--url",
                default="",
                metavar="URL",
                help="How clients reach it, where a proxy with TLS stands before it.",
            ),
            click.option(
                "--token-file", type=click.Path(path_type=Path, dir_okay=False), help=token_file
            ),
        )
    )
