"""How problems of files are shown: a line each for people, one object for programs, and the exit
code that both mean.

Exit code 0: nothing is wrong (warnings are shown and count only with `--strict`); 1: something is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ferrule.extensions.checks.runs import Outcome
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
"""What `--json` prints, as JSON Schema; `ferrule validate --schema` shows it."""


def report(
    files: Sequence[str],
    problems: Iterable[Problem],
    outcomes: Iterable[Outcome] = (),
    *,
    as_json: bool,
    strict: bool = False,
) -> int:
    """Print what was found and return the exit code."""
    from .terminal import as_json as encoded

    found, ran = list(problems), list(outcomes)
    bad = any(one.level == "error" or strict for one in found) or not all(one.passed for one in ran)
    if as_json:
        shown = {
            "v": FORMAT,
            "ok": not bad,
            "files": list(files),
            "problems": [asdict(one) for one in found],
            "outcomes": [asdict(one) for one in ran],
        }
        click.echo(encoded(shown, indent=2))
    else:
        _for_people(files, found, ran)
    return 1 if bad else 0


def _for_people(files: Sequence[str], problems: list[Problem], outcomes: list[Outcome]) -> None:
    from .terminal import visible

    for one in problems:
        click.echo(visible(str(one)))
    for one in outcomes:
        ran = f" (ran {', '.join(one.asked)})" if one.asked else ""
        click.echo(
            visible(f"{'ok  ' if one.passed else 'FAIL'} {one.tool}: {one.kind} {one.name}{ran}")
        )
        if one.said:
            click.echo(visible(f"     {one.where}: {one.said}"))
    errors = sum(one.level == "error" for one in problems)
    failed = sum(not one.passed for one in outcomes)
    parts = [
        counted(len(files), "file"),
        counted(errors, "error"),
        counted(len(problems) - errors, "warning"),
    ]
    if outcomes:
        parts.append(f"{len(outcomes) - failed} of {len(outcomes)} cases passed")
    click.echo(", ".join(parts), err=True)


def counted(number: int, what: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
