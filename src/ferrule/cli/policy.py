"""`ferrule policy`: why a call would be allowed, asked or refused, and whether the rules make
sense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.options import common

if TYPE_CHECKING:
    from ferrule.engine.agent import Agent


@click.group()
def policy() -> None:
    """Explain, test and check permission rules."""


@policy.command()
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", help="All arguments as one JSON object.")
@common
def explain(name: str, arguments: tuple[str, ...], as_json: str | None, **options: Any) -> int:
    """Say step by step what the gate decides about a call, without making it.

    `ferrule policy explain run_command command="git push"`; exit code 0 allow, 7 ask, 4 deny.
    """
    from .terminal import visible
    from .terminal_agent import seat
    from .tools.command import found, parsed

    agent = seat(options).agent
    tool = found(agent.catalog, name)
    checked = tool.arguments.check(parsed(tool.arguments.schema, arguments, as_json))
    if checked.problems:
        raise click.UsageError("; ".join(checked.problems))
    for line in agent.gate.trace(tool, checked.values):
        click.echo(visible(line))
    return {"allow": 0, "ask": 7, "deny": 4}[agent.gate.decide(tool, checked.values).verdict]


@policy.command()
@click.argument("file", type=click.File("r", encoding="utf-8"))
@common
def test(file: Any, **options: Any) -> int:
    """Check expectations against the rules in force.

    FILE has a line per case: `allow|ask|deny TOOL KEY=VALUE...` (quoted as a shell would); `#`
    begins a comment.
    """
    from .terminal_agent import seat

    agent = seat(options).agent
    passed = failed = 0
    for number, line in enumerate(file, 1):
        try:
            wrong = _case(agent, line)
        except (click.UsageError, ValueError) as error:
            said = error.message if isinstance(error, click.UsageError) else str(error)
            raise click.UsageError(f"{file.name}:{number}: {said}") from error
        if wrong:
            click.echo(f"{file.name}:{number}: {wrong}")
        passed, failed = passed + (wrong == ""), failed + bool(wrong)
    click.echo(f"{passed} passed, {failed} failed", err=True)
    return 1 if failed else 0


def _case(agent: Agent, line: str) -> str | None:
    """What is wrong with the expectation of a line: nothing, or None if there is none in it."""
    import shlex

    from .terminal import visible
    from .tools.command import found, parsed

    words = shlex.split(line, comments=True)
    if not words:
        return None
    if len(words) < 2 or words[0] not in ("allow", "ask", "deny"):
        raise click.UsageError("write `allow|ask|deny TOOL KEY=VALUE...`")
    tool = found(agent.catalog, words[1])
    checked = tool.arguments.check(parsed(tool.arguments.schema, tuple(words[2:]), None))
    if checked.problems:
        return visible(f"expected {words[0]}, got {'; '.join(checked.problems)}")
    decision = agent.gate.decide(tool, checked.values)
    if decision.verdict == words[0]:
        return ""
    return visible(f"expected {words[0]}, got {decision.verdict} ({decision.reason})")


@policy.command()
@common
def lint(**options: Any) -> int:
    """Report rules that can never match, are shadowed, or name no tool."""
    from .terminal_agent import seat

    agent = seat(options).agent
    findings = agent.gate.rules.lint([tool.full_name for tool in agent.catalog])
    for finding in findings:
        click.echo(finding)
    if not findings:
        click.echo("no findings", err=True)
    return 1 if findings else 0
