"""`ferrule tools promote`: a command that worked in a session becomes a tool file, shown first and
written only when asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ferrule.extensions.checks.runs import Outcome
    from ferrule.storage.export.story import Used

    from .command_to_tool import Seen, Word

COMMANDS = ("run_command",)
_LISTED = 20
"""Commands that are listed where more than one could be meant."""


@click.command()
@click.argument("session")
@click.argument("call", required=False, default="")
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=WORD",
    help="A word that becomes a parameter. Repeatable.",
)
@click.option("--name", default="", help="The tool's name (default: from the command).")
@click.option(
    "--write", is_flag=True, help="Write it to .ferrule/tools instead of only showing it."
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
    """Turn a command that was run in SESSION into a tool file with parameters, an example and a
    test.

    CALL is its number in the session or the beginning of its id; without it, the only one. Without
    --param, words that look as if they vary become parameters: paths, numbers, quoted text.
    """
    import asyncio

    from ferrule.cli.terminal import visible

    from .command_to_tool import name_of, seen_of, varied
    from .files import write_new

    used = _used(session, call)
    assert used.result is not None
    seen = seen_of(json.loads(used.call.arguments), used.result.data)
    words = varied(seen.words, _pairs(params))
    name = name or name_of(words)
    text = asyncio.run(_made(name, seen, words))
    click.echo(visible(text), nl=False)
    if not write:
        click.echo(f"not written; --write puts it into .ferrule/tools/{name}.md", err=True)
        return 0
    click.echo(f"wrote {write_new(Path(workspace), name, text)}", err=True)
    click.echo("hint: read it, change it, then `ferrule trust` lets it take effect", err=True)
    return 0


async def _made(name: str, seen: Seen, words: Sequence[Word]) -> str:
    """The text of the file, proved: it is checked, and its tests pass. Raises ConfigError where it
    must not be made.
    """
    from ferrule.core.errors import ConfigError
    from ferrule.extensions.checks.runs import Bench, run_cases
    from ferrule.extensions.checks.tool_file import check_tool
    from ferrule.extensions.tool_files.tool_file import parse_tool

    from .command_to_tool import file_of, secret_in

    why, hidden = await secret_in(words, seen.output)
    if why:
        raise ConfigError(
            f"this command must not become a file: {why}",
            hint="write the tool by hand, with `env(...)` for the secret",
        )
    if hidden:
        click.echo(
            "! what it said holds what looks like a secret, so it is left out of the test", err=True
        )
    text = file_of(seen, words, with_output=not hidden)
    file = f".ferrule/tools/{name}.md"
    wrong = [str(one) for one in await check_tool(text.encode(), file) if one.level == "error"]
    tool = parse_tool(text.encode(), file) if not wrong else None
    # The test answers `exec.run` itself: no command runs for this.
    ran: list[Outcome] = await run_cases(tool, Bench()) if tool is not None else []
    wrong += [one.said for one in ran if one.kind == "test" and not one.passed]
    if wrong:
        raise ConfigError(
            f"the file that was made does not hold: {wrong[0]}",
            hint="write it by hand: `ferrule tools new NAME`",
        )
    return text


def _pairs(params: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in params:
        name, equals, word = item.partition("=")
        if not equals:
            raise click.UsageError(f"--param {item!r}: write NAME=WORD")
        found[name] = word
    return found


def _used(session: str, call: str) -> Used:
    """The call that was meant. Raises UsageError where that is not one."""
    from ferrule.runtime.assemble import journal
    from ferrule.storage.export.story import Story
    from ferrule.storage.export.story import Used as UsedStep

    story = Story()
    with journal() as store:
        records = store.records(store.find(session).session)
        steps = [step for record in records for step in story.feed(record)]
    commands = [one for one in steps if isinstance(one, UsedStep) and one.call.tool in COMMANDS]
    commands = [one for one in commands if one.result is not None and one.result.success]
    if call.isdigit() and 0 < int(call) <= len(commands):
        return commands[int(call) - 1]
    found = [one for one in commands if one.call.id.startswith(call)]
    if len(found) != 1:
        raise click.UsageError(_which(session, call, commands))
    return found[0]


def _which(session: str, call: str, commands: list[Used]) -> str:
    from ferrule.cli.live_output import arguments_of
    from ferrule.cli.terminal import visible

    if not commands:
        return f"the session {session} has run no command that ended well"
    said = f"there is no command `{call}` in" if call else "say which command of"
    rows = [
        f"  {number}  {str(arguments_of(one.call))[:120]}" for number, one in enumerate(commands, 1)
    ]
    left = [f"  … {len(rows) - _LISTED} more"] if len(rows) > _LISTED else []
    return visible(
        "\n".join([f"{said} the session {session}, by its number:", *rows[:_LISTED], *left])
    )
