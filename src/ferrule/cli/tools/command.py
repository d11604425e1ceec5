"""`ferrule tools list|show|call`: list tools, show one, and call one through the gate.

The commands on tool files are in `files`, `openapi_import` and `promote`.
"""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from ferrule.cli.rows import print_row
from ferrule.cli.terminal import encode_json as encode_json
from ferrule.cli.terminal import escape_invisible
from ferrule.core.calls import parse_json
from ferrule.core.similar_names import suggest_names
from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, yes_to_option
from ferrule.storage.trust import TrustStore
from ferrule.tools.definition import Loading

from .files import check, new, test
from .openapi_import import import_
from .promote import promote

with lazy_imports():
    from ferrule.cli import live_output, terminal_agent
    from ferrule.cli.run import one_shot
    from ferrule.core import events
    from ferrule.engine import live_events
    from ferrule.models.openai import strict_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ferrule.core.calls import ToolResult
    from ferrule.engine.agent import Agent
    from ferrule.tools.definition import Tool


@click.group(cls=CommandGroup)
def tools() -> None:
    """List, show and call tools; check, test and write tool files.

    \b
    Examples:
      ferrule tools list
      ferrule tools show read_file
      ferrule tools call read_file path=README.md
    """  # noqa: D301  click reads the mark


for _command in (check, test, new, promote, import_):
    tools.add_command(_command)


@tools.command("list")
@common_options
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def list_tools(as_json: bool, **options: Any) -> None:
    """List the tools: name, side effect, risk, first line of the description.

    Those that the model does not get come last: people, scripts and agent files can use them.
    """
    catalog = terminal_agent.assemble_at_terminal(options, needs_model=False).agent.catalog
    if as_json:
        rows = [
            {
                "name": tool.full_name,
                "side_effect": tool.side_effect,
                "risk": tool.risk,
                "description": tool.description,
                "source": tool.source,
                "loading": tool.loading,
            }
            for tool in catalog
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max((len(tool.full_name) for tool in catalog), default=0)
    withheld = [tool for tool in catalog if tool.loading is Loading.INTERNAL]
    offered = [tool for tool in catalog if tool.loading is not Loading.INTERNAL]
    _print_tools(offered, width)
    if withheld:
        click.echo("\nnot offered to the model (`--tool-profile all` offers what ships):")
        _print_tools(withheld, width)


def _print_tools(shown: Iterable[Tool], width: int) -> None:
    for tool in shown:
        first = tool.description.splitlines()[0]
        print_row(f"{tool.full_name:{width}}  {tool.side_effect:8} {tool.risk:8} ", first)


@tools.command()
@click.argument("name")
@common_options
def show(name: str, **options: Any) -> None:
    """Show a tool, its schema as the model gets it, and whether it can be sent in strict mode."""
    tool = find_tool(terminal_agent.assemble_at_terminal(options, needs_model=False).agent, name)
    click.echo(
        f"{tool.full_name}  ({tool.source}; side effect {tool.side_effect}, risk {tool.risk})\n"
    )
    click.echo(escape_invisible(tool.description) + "\n")
    click.echo(encode_json(tool.arguments.schema, indent=2))
    if tool.output is not None:
        click.echo("\nresult:\n" + encode_json(tool.output.schema, indent=2))
    strict = strict_schema.compile_strict(tool.schema_json())
    click.echo(escape_invisible("\nstrict: " + "\n".join(strict.report_lines())))


@tools.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", help="All arguments as one JSON object.")
@click.option("--envelope", is_flag=True, help="Print the whole result object.")
@yes_to_option
@common_options
def call(
    name: str, arguments: tuple[str, ...], as_json: str | None, envelope: bool, **options: Any
) -> int:
    """Call a tool as a model would: with the same validation, permissions, prompt and journal.

    A value is read as JSON if it is JSON (`n=3`, `on=true`, `list=[1,2]`) and the parameter is not
    text.
    """
    import asyncio

    assembly = terminal_agent.assemble_at_terminal(options, needs_model=False)
    tool = find_tool(assembly.agent, name)
    values = parse_arguments(tool.arguments.schema, arguments, as_json)
    result = asyncio.run(_call(assembly, tool, values))
    if result.success or envelope:
        assembly.terminal.write_answer(result.to_text(envelope=envelope))
    else:
        assembly.terminal.write_message(f"{result.error_type}: {result.error_message}")
    return 0 if result.success else one_shot.CALL_EXIT_CODES.get(result.error_type, 1)


async def _call(
    assembly: terminal_agent.TerminalAssembly, tool: Tool, values: dict[str, Any]
) -> ToolResult:
    session = assembly.open_session(None)
    show = live_output.LiveOutput(assembly.terminal, session.history.find_call, live=False)

    def show_output(item: live_events.Live) -> None:
        # What the tool and its hooks print for the person. The calls that it makes itself are not
        # shown: its value is.
        if isinstance(item, live_events.Progress | events.Noticed):
            show(item)

    session.observe(show_output)
    try:
        return await session.call(tool.full_name, **values)
    finally:
        # Not `assembly.close()`, which closes the model's client: no model was used.
        await session.close()
        assembly.agent.journal.close()


def find_tool(agent: Agent, name: str) -> Tool:
    """Return a tool of an agent, or raise a usage error that says what may help."""
    tool = agent.catalog.get(name)
    if tool is None:
        raise click.UsageError(f"there is no tool `{name}`; {_suggest_step(agent, name)}")
    return tool


def _suggest_step(agent: Agent, name: str) -> str:
    root = agent.workspace.root if agent.workspace else "."
    folder = TrustStore().read(root)
    is_trusted = folder.state in ("trusted", "absent")
    if not is_trusted and any(PurePath(file).stem == name for file in folder.files):
        return "this folder has one that you have not trusted yet: `ferrule trust` shows it"
    names = agent.catalog.names()
    return suggest_names(name, names, "`ferrule tools list` shows them all", count=3, cutoff=0.5)


def parse_arguments(schema: Any, arguments: tuple[str, ...], as_json: str | None) -> dict[str, Any]:
    """Parse arguments from the command line by the types of the schema."""
    values: dict[str, Any] = {}
    if as_json:
        try:
            loaded = parse_json(as_json)
        except ValueError as error:
            raise click.UsageError(f"--json is not JSON: {error}") from error
        if not isinstance(loaded, dict):
            raise click.UsageError("--json must be an object")
        values.update(loaded)  # pyright: ignore[reportUnknownArgumentType]
    for item in arguments:
        key, equals, text = item.partition("=")
        if not equals:
            raise click.UsageError(f"cannot read {item!r}; write KEY=VALUE")
        values[key] = parse_value(schema.get("properties", {}).get(key, {}), text)
    return values


def parse_value(schema: Any, text: str) -> Any:
    """Parse a value: as JSON if the schema accepts its type, otherwise as text."""
    types = schema_types(schema)
    if types == {"string"}:
        return text
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if not types or _type_names(value) & types else text


def schema_types(schema: Any) -> set[str]:
    """Return the JSON types that a schema names at its top and in its alternatives."""
    named = schema.get("type", [])
    types = {named} if isinstance(named, str) else set(named)
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= schema_types(part)
    return types


def _type_names(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case _:
            return {"object"}
