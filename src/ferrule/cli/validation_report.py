"""Report problems of files: a line each for a person, or one JSON object for a program.

Exit code 0: nothing is wrong (warnings are shown, and count only with `--strict`); 1: something is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from .terminal import encode_json as encode_json
from .terminal import escape_invisible

if TYPE_CHECKING:
    from ferrule.extensions.checks.tool_cases import CaseOutcome
    from ferrule.extensions.checks.tool_file import Problem

FORMAT = 1
_PROBLEM = {
    "type": "object",
    "properties": {
        "level": {"enum": ["error", "warning"]},
        "file": {"type": "string", "description": "Relative to the workspace."},
        "line": {"type": "integer", "minimum": 0, "description": "From 1; 0: no line is known."},
        "column": {
            "type": "integer",
            "minimum": 0,
            "description": "From 1; 0: no column is known.",
        },
        "message": {"type": "string"},
        "hint": {"type": "string"},
    },
    "required": ["level", "file", "line", "column", "message", "hint"],
    "additionalProperties": False,
}
_OUTCOME = {
    "type": "object",
    "properties": {
        "tool": {"type": "string"},
        "kind": {"enum": ["test", "example"]},
        "where": {"type": "string"},
        "name": {"type": "string"},
        "passed": {"type": "boolean"},
        "said": {"type": "string", "description": "What was wrong; empty if nothing was."},
        "asked": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Built-ins that ran.",
        },
    },
    "required": ["tool", "kind", "where", "name", "passed", "said", "asked"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Report of `ferrule validate`, `ferrule tools check` and `ferrule tools test`",
    "type": "object",
    "properties": {
        "v": {"const": FORMAT},
        "ok": {"type": "boolean", "description": "Whether the exit code is 0."},
        "files": {"type": "array", "items": {"type": "string"}},
        "problems": {"type": "array", "items": _PROBLEM},
        "outcomes": {"type": "array", "items": _OUTCOME},
    },
    "required": ["v", "ok", "files", "problems", "outcomes"],
    "additionalProperties": False,
}
"""JSON Schema of what `--json` prints; `ferrule validate --schema` shows it."""


def print_report(
    files: Sequence[str],
    problems: Iterable[Problem],
    outcomes: Iterable[CaseOutcome] = (),
    *,
    as_json: bool,
    strict: bool = False,
) -> int:
    """Print a report and return the exit code.

    Args:
        files: The files that were checked.
        problems: What is wrong with them.
        outcomes: Results of the tests and examples that ran.
        as_json: Print one JSON object (`SCHEMA`).
        strict: Count warnings as errors.
    """
    problem_list = list(problems)
    outcome_list = list(outcomes)
    failing = [one for one in problem_list if strict or one.level == "error"]
    failed_cases = [one for one in outcome_list if not one.passed]
    ok = not failing and not failed_cases
    if as_json:
        content = {
            "v": FORMAT,
            "ok": ok,
            "files": list(files),
            "problems": [asdict(one) for one in problem_list],
            "outcomes": [asdict(one) for one in outcome_list],
        }
        click.echo(encode_json(content, indent=2))
    else:
        _print_lines(files, problem_list, outcome_list)
    return 0 if ok else 1


def _print_lines(
    files: Sequence[str], problems: list[Problem], outcomes: list[CaseOutcome]
) -> None:
    for problem in problems:
        click.echo(escape_invisible(str(problem)))
    for outcome in outcomes:
        mark = "ok  " if outcome.passed else "FAIL"
        ran = f" (ran {', '.join(outcome.asked)})" if outcome.asked else ""
        click.echo(escape_invisible(f"{mark} {outcome.tool}: {outcome.kind} {outcome.name}{ran}"))
        if outcome.said:
            click.echo(escape_invisible(f"     {outcome.where}: {outcome.said}"))
    errors = sum(one.level == "error" for one in problems)
    failed = sum(not one.passed for one in outcomes)
    parts = [
        format_count(len(files), "file"),
        format_count(errors, "error"),
        format_count(len(problems) - errors, "warning"),
    ]
    if outcomes:
        parts.append(f"{len(outcomes) - failed} of {len(outcomes)} cases passed")
    click.echo(", ".join(parts), err=True)


def format_count(number: int, what: str) -> str:
    """Format a number of things: `1 file`, `2 files`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
