"""Command-line options that several commands share.

Options that set a setting are named after it, with `__` for the dot (a test compares them with
`ferrule.storage.settings.table`); the table itself is not loaded, so that help stays fast.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = (
    click.option(
        "-m",
        "--model",
        metavar="PROVIDER:MODEL",
        help="Model to use, e.g. local:smollm2 or ollama:llama3.2.",
    ),
    click.option(
        "--mode",
        type=click.Choice(
            [
                *("default", "acceptEdits", "sandboxed", "plan", "auto", "dontAsk"),
                "bypassPermissions",
            ]
        ),
        help="How much is allowed without asking; `sandboxed`: whatever the sandbox confines.",
    ),
    click.option(
        "--fallback",
        "model_fallbacks",
        multiple=True,
        metavar="PROVIDER:MODEL",
        help="Model to ask if the one before it fails. Repeatable.",
    ),
    click.option(
        "--option",
        "model_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Option of every request, e.g. temperature=0.2 or seed=7. Repeatable.",
    ),
    click.option(
        "--tool-mode",
        "tool_mode",
        type=click.Choice(["auto", "native", "constrained", "text", "commands", "none"]),
        help="Tool mode: how the model calls tools.",
    ),
    click.option(
        "--allow",
        "permissions__allow",
        multiple=True,
        metavar="RULE",
        help="Permission rule that allows, e.g. 'Bash(git diff:*)'. Repeatable.",
    ),
    click.option(
        "--ask",
        "permissions__ask",
        multiple=True,
        metavar="RULE",
        help="Permission rule that asks a person. Repeatable.",
    ),
    click.option(
        "--deny",
        "permissions__deny",
        multiple=True,
        metavar="RULE",
        help="Permission rule that denies. Repeatable.",
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
        help="Offer only this tool. Repeatable.",
    ),
    click.option(
        "--deny-tool",
        "tools__denied",
        multiple=True,
        metavar="TOOL",
        help="Do not offer this tool. Repeatable.",
    ),
    click.option(
        "--tool-profile",
        "tools__profile",
        type=click.Choice(["coding", "all"]),
        help="Shipped tools the model gets: one per job (coding), or all.",
    ),
    click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="NAME[.FIELD=VALUE]",
        help="Switch a plugin on, or set a field of it: typed, git.tools=write. Repeatable.",
    ),
    click.option(
        "--installed-plugins/--no-plugins",
        "plugins__installed",
        default=None,
        help="Whether plugins of other distributions are used.",
    ),
    click.option(
        "--require-tool",
        "tools__required",
        multiple=True,
        metavar="TOOL",
        help="Tool that must succeed in the run, or 'one|other'. Repeatable.",
    ),
    click.option(
        "--join",
        "tools__join",
        metavar="HOW",
        help="Parallel calls to wait for: all, first_success or how many must succeed.",
    ),
    click.option(
        "--safe-mode/--no-safe-mode",
        "commands__safe_mode",
        default=None,
        help="Run only a short list of programs.",
    ),
    click.option(
        "--max-turns",
        "limits__max_turns",
        type=click.IntRange(1),
        help="Model answers per message (default: 200; 10 for an embedded model).",
    ),
    click.option(
        "--max-seconds",
        "limits__max_seconds",
        metavar="TIME",
        help="Time limit of a run, such as 90s or 5m.",
    ),
    click.option(
        "--max-tokens", "limits__max_tokens", type=click.IntRange(1), help="Token limit of a run."
    ),
    click.option(
        "--max-cost",
        "limits__max_cost",
        type=click.FloatRange(0, min_open=True),
        metavar="DOLLARS",
        help="Cost limit of a run.",
    ),
    click.option(
        "--max-calls",
        "limits__max_calls",
        type=click.IntRange(1),
        help="Limit of tool calls in a run.",
    ),
    click.option(
        "--on-limit",
        "limits__on_limit",
        type=click.Choice(["error", "answer"]),
        help="At the turn limit: fail, or give one last answer without tools.",
    ),
    click.option(
        "--journal", "journal__path", type=click.Path(dir_okay=False), help="File of the journal."
    ),
)

_OTHERS = (
    click.option(
        "-C",
        "--workspace",
        type=click.Path(file_okay=False),
        help="Folder to work in (default: this one).",
    ),
    click.option("--quiet", "-q", is_flag=True, help="Print only the answer, warnings and errors."),
)


def _parameter_names() -> frozenset[str]:
    @_combine(_SETTINGS)
    def command() -> None: ...

    return frozenset(str(parameter.name) for parameter in click.command()(command).params)


def _combine(options: tuple[Callable[[F], F], ...]) -> Callable[[F], F]:
    """Make one decorator of several, so that help lists the options in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


SETTING_OPTIONS = _parameter_names()
"""Names of the parameters that set a setting: its key with `__` for the dot; and `plugins`."""


def common_options(function: F) -> F:
    """Add the shared options to a command."""
    return _combine((*_SETTINGS[:1], *_OTHERS, *_SETTINGS[1:]))(function)


def yes_to_option(function: F) -> F:
    """Add `--yes-to` to a command that calls tools."""
    return click.option(
        "--yes-to",
        "yes_to",
        multiple=True,
        metavar="TOOL",
        help="Approve calls of this tool without asking. Repeatable.",
    )(function)


def server_options(
    port: int,
    token_file: str = "File with the token (default: FERRULE_TOKEN, or a new one that is shown).",
) -> Callable[[F], F]:
    """Add the options of a server: `--host`, `--port`, `--url` and `--token-file`.

    Args:
        port: The default port.
        token_file: The help of `--token-file`.
    """
    return _combine(
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
                help="Address that clients use, if the server is behind a TLS proxy.",
            ),
            click.option(
                "--token-file", type=click.Path(path_type=Path, dir_okay=False), help=token_file
            ),
        )
    )
