"""`ferrule policy`: explain what the permission rules decide about a call; test and lint rules."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.lazy_group import CommandGroup
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options

from .terminal import escape_invisible
from .tools.command import find_tool, parse_arguments

with lazy_imports():
    from . import terminal_agent

if TYPE_CHECKING:
    from ferrule.engine.agent import Agent


@click.group(cls=CommandGroup)
def policy() -> None:
    """Explain, test and check permission rules.

    \b
    Examples:
      ferrule policy explain run_command command="git push"
    """  # noqa: D301  click reads the mark


@policy.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", help="All arguments as one JSON object.")
@common_options
def explain(name: str, arguments: tuple[str, ...], as_json: str | None, **options: Any) -> int:
    """Explain step by step what the permission rules decide about a call, without making it.

    `ferrule policy explain run_command command="git push"`; exit code 0 allow, 7 ask, 4 deny.
    """
    agent = terminal_agent.assemble_at_terminal(options, needs_model=False).agent
    tool = find_tool(agent, name)
    checked = tool.arguments.check(parse_arguments(tool.arguments.schema, arguments, as_json))
    if checked.problems:
        raise click.UsageError("; ".join(checked.problems))
    for line in agent.gate.explain_steps(tool, checked.values):
        click.echo(escape_invisible(line))
    decision = agent.gate.decide(tool, checked.values)
    return {"allow": 0, "ask": 7, "deny": 4}[decision.verdict]


@policy.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@common_options
def test(file: Any, **options: Any) -> int:
    """Test the rules in force against a file of expected decisions.

    FILE has one case per line: `allow|ask|deny TOOL KEY=VALUE...`, quoted as in a shell; `#` starts
    a comment.
    """
    agent = terminal_agent.assemble_at_terminal(options, needs_model=False).agent
    passed = 0
    failed = 0
    for number, line in enumerate(file, 1):
        try:
            words = shlex.split(line, comments=True)
            if not words:
                continue
            failure = _test_case(agent, words)
        except click.UsageError as error:
            raise click.UsageError(f"{file.name}:{number}: {error.message}") from error
        except ValueError as error:
            raise click.UsageError(f"{file.name}:{number}: {error}") from error
        if failure:
            click.echo(escape_invisible(f"{file.name}:{number}: {failure}"))
            failed += 1
        else:
            passed += 1
    click.echo(f"{passed} passed, {failed} failed", err=True)
    return 1 if failed else 0


def _test_case(agent: Agent, words: list[str]) -> str:
    """Compare one expectation with the gate's decision. Return how they differ, or ""."""
    if len(words) < 2 or words[0] not in ("allow", "ask", "deny"):
        raise click.UsageError("cannot read this line; write `allow|ask|deny TOOL KEY=VALUE...`")
    expected, name, *arguments = words
    tool = find_tool(agent, name)
    checked = tool.arguments.check(parse_arguments(tool.arguments.schema, tuple(arguments), None))
    if checked.problems:
        return f"expected {expected}, got {'; '.join(checked.problems)}"
    decision = agent.gate.decide(tool, checked.values)
    if decision.verdict == expected:
        return ""
    return f"expected {expected}, got {decision.verdict} ({decision.reason})"


@policy.command()
@common_options
def lint(**options: Any) -> int:
    """Report rules that can never match, are shadowed, or name no tool."""
    assembly = terminal_agent.assemble_at_terminal(options, needs_model=False)
    names = [tool.full_name for tool in assembly.agent.catalog]
    can_grow = bool(assembly.settings["tools.register"])
    findings = assembly.agent.gate.rules.lint(names, can_grow=can_grow)
    for finding in findings:
        click.echo(finding)
    if not findings:
        click.echo("no findings", err=True)
    return 1 if findings else 0
