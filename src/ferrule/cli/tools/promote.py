"""`ferrule tools promote`: make a tool file from a command that worked in a session.

The file is only shown unless `--write` is given.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ferrule.cli.terminal import escape_invisible
from ferrule.core.calls import read_arguments
from ferrule.core.errors import ConfigError
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.storage.export.steps import CallStep, Step, StepReader

from .files import write_tool_file

with lazy_imports():
    from ferrule.cli import tool_cards
    from ferrule.extensions.checks import tool_cases
    from ferrule.extensions.checks import tool_file as tool_file_checks
    from ferrule.extensions.tool_files import tool_file
    from ferrule.runtime import assemble

    from . import command_to_tool

if TYPE_CHECKING:
    from collections.abc import Sequence


COMMANDS = ("run_command",)
"""Tools whose calls can be promoted."""
_LISTED = 20
"""How many commands are listed if several could be meant."""


@click.command()
@click.argument("session")
@click.argument("call", required=False, default="")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=WORD",
    help="Word of the command that becomes a parameter. Repeatable.",
)
@click.option("--name", default="", help="Name of the tool (default: from the command).")
@click.option(
    "--write", is_flag=True, help="Write the file to .ferrule/tools instead of only showing it."
)
@click.option(
    "-C",
    "--workspace",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="Folder to write to.",
)
def promote(
    session: str, call: str, params: tuple[str, ...], name: str, write: bool, workspace: str
) -> int:
    """Make a tool file from a command that was run in SESSION, with an example and a test.

    CALL is its number in the session or the beginning of its id; it can be left out if there is
    only one. Without --param, words that are likely to vary become parameters: paths, numbers,
    quoted text.
    """
    import asyncio

    used = _find_call(session, call)
    assert used.result is not None
    seen = command_to_tool.read_recorded_command(
        read_arguments(used.call.arguments) or {}, used.result.data
    )
    words = command_to_tool.find_parameters(seen.words, _parse_parameters(params))
    name = name or command_to_tool.suggest_name(words)
    text = asyncio.run(_make_file(name, seen, words))
    click.echo(escape_invisible(text), nl=False)
    if not write:
        click.echo(f"not written; --write saves it as .ferrule/tools/{name}.md", err=True)
        return 0
    click.echo(f"wrote {write_tool_file(Path(workspace), name, text)}", err=True)
    click.echo("hint: review and edit it, then `ferrule trust` lets it take effect", err=True)
    return 0


async def _make_file(
    name: str, seen: command_to_tool.RecordedCommand, words: Sequence[command_to_tool.Word]
) -> str:
    """Make the text of the file, check it and run its tests.

    Raises:
        ConfigError: The command holds a secret, or the file is not valid or fails its tests.
    """
    why, hidden = await command_to_tool.find_secrets(words, seen.output)
    if why:
        raise ConfigError(
            f"this command cannot be written to a file: {why}",
            hint="write the tool by hand, with `env(...)` for the secret",
        )
    if hidden:
        click.echo(
            "! its output holds what looks like a secret, so the test leaves the output out",
            err=True,
        )
    text = command_to_tool.render_tool_file(seen, words, with_output=not hidden)
    file = f".ferrule/tools/{name}.md"
    wrong = [
        str(one)
        for one in await tool_file_checks.check_tool(text.encode(), file)
        if one.level == "error"
    ]
    tool = tool_file.parse_tool(text.encode(), file) if not wrong else None
    # The tests answer `exec.run` themselves: no command runs here.
    ran: list[tool_cases.CaseOutcome] = (
        await tool_cases.run_cases(tool, tool_cases.CaseEnvironment()) if tool is not None else []
    )
    wrong += [one.said for one in ran if one.kind == "test" and not one.passed]
    if wrong:
        raise ConfigError(
            f"the generated file does not work: {wrong[0]}",
            hint="write it by hand: `ferrule tools new NAME`",
        )
    return text


def _parse_parameters(params: tuple[str, ...]) -> dict[str, str]:
    words: dict[str, str] = {}
    for param in params:
        name, equals, word = param.partition("=")
        if not equals:
            raise click.UsageError(f"--param {param!r}: write NAME=WORD")
        words[name] = word
    return words


def _find_call(session: str, call: str) -> CallStep:
    """Find the command that was named.

    Raises:
        click.UsageError: There is no such command, or it is not the only one.
    """
    story = StepReader()
    steps: list[Step] = []
    with assemble.open_journal() as store:
        for record in store.records(store.find(session).session):
            steps += story.feed(record)
    commands = [step for step in steps if isinstance(step, CallStep) and _has_succeeded(step)]
    if call.isdigit() and 0 < int(call) <= len(commands):
        return commands[int(call) - 1]
    matches = [command for command in commands if command.call.id.startswith(call)]
    if len(matches) != 1:
        raise click.UsageError(_list_commands(session, call, commands))
    return matches[0]


def _has_succeeded(step: CallStep) -> bool:
    return step.call.tool in COMMANDS and step.result is not None and step.result.success


def _list_commands(session: str, call: str, commands: list[CallStep]) -> str:
    if not commands:
        return f"no command has succeeded in the session {session}"
    request = f"there is no command `{call}` in" if call else "choose a command of"
    rows = [
        f"  {number}  {str(tool_cards.format_arguments(one.call))[:120]}"
        for number, one in enumerate(commands, 1)
    ]
    left = [f"  … {len(rows) - _LISTED} more"] if len(rows) > _LISTED else []
    return escape_invisible(
        "\n".join([f"{request} the session {session}, by its number:", *rows[:_LISTED], *left])
    )
