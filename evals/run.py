"""How often a model calls the right tool with the right arguments: one request, all built-in tools
offered.

    python evals/run.py                                   # evals/tasks.yaml, local:smollm2
    python evals/run.py --tasks evals/heldout.yaml
    python evals/run.py --tool-modes constrained --sample 10 -o build/one-step.json

Each task is a case of `ferrule.evaluation`, worked in an empty folder by an agent that is asked
once; nothing is approved, so nothing is changed. A report that is written with `-o` compares with a
later one: `ferrule eval --compare OLD NEW`.
"""

from __future__ import annotations

import argparse
import asyncio
from itertools import product
from pathlib import Path
from typing import Any, cast

import click
import yaml
from one_step import load_tools

from ferrule import Agent, Permissions, Storage, ToolCalling
from ferrule.evaluation import (
    Case,
    CaseFile,
    EvaluationOptions,
    Target,
    TrialSetup,
    evaluate,
    format_report,
    open_agents,
)
from ferrule.evaluation.cases import Expectations, ExpectedCall

HERE = Path(__file__).parent


def read_tasks(path: Path, sample: int) -> CaseFile:
    """Read a file of tasks as cases.

    Args:
        path: The file.
        sample: How many tasks are taken, spread over the file; 0 for all.
    """
    tasks: list[dict[str, Any]] = yaml.safe_load(path.read_text())
    step = -(-len(tasks) // sample) if sample else 1
    return CaseFile(path, tuple(make_case(task) for task in tasks[::step]))


def make_case(task: dict[str, Any]) -> Case:
    """Return a task as a case: one of the calls that are right must be made, whatever it returns."""
    either = [
        ExpectedCall(task_call["tool"], arguments, succeeds=None)
        for task_call in (task, *task.get("also", ()))
        for arguments in expand(task_call["arguments"])
    ]
    return Case(
        task["request"],
        (task["request"],),
        Expectations(calls=(ExpectedCall(either=tuple(either)),), stop="any"),
        limits={"max_turns": 1},
    )


def expand(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all arguments that are meant: `{any: [...]}` stands for several values."""
    values = [
        value["any"] if isinstance(value, dict) and set(value) == {"any"} else [value]
        for value in arguments.values()
    ]
    return [dict(zip(arguments, chosen, strict=True)) for chosen in product(*values)]


def make_agent(trial: TrialSetup) -> Agent[Any, Any]:
    """Return an agent with all built-in tools that may read and nothing else."""
    return Agent(
        trial.target.model,
        load_tools(),
        tool_calling=ToolCalling(mode=cast("Any", trial.target.tool_mode)),
        workspace=trial.workspace,
        permissions=Permissions(approver=trial.approver, allow=("Read(**)",)),
        storage=Storage(journal=trial.journal),
    )


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="local:smollm2")
    parser.add_argument("--tasks", type=Path, default=HERE / "tasks.yaml")
    parser.add_argument("--tool-modes", default="constrained", help="constrained, text, commands")
    parser.add_argument("--sample", type=int, default=0, help="tasks, spread over the file; 0: all")
    parser.add_argument("-o", "--output", type=Path, help="write the report as JSON")
    given = parser.parse_args()
    targets = [Target(given.model, mode) for mode in given.tool_modes.split(",")]
    report = await evaluate(
        read_tasks(given.tasks, given.sample),
        targets,
        open_agents(make_agent),
        EvaluationOptions(at_least=0.0),
    )
    click.echo(format_report(report))
    if given.output is not None:
        given.output.write_text(report.to_json() + "\n")
    return int(report.is_unanswered)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
