"""How often a model calls the right tool with the right arguments: one request, all built-in tools
offered.

    python evals/run.py                                   # evals/tasks.yaml, local:smollm2
    python evals/run.py --tasks evals/heldout.yaml --verbose
    python evals/run.py --modes constrained --limit 10

A call is right if the tool is the expected one and every argument equals the expected one; an
optional argument may be left out where its default is meant, and `./x` is `x`. Seconds are per
task, the first task (which starts the model) not counted. Nothing is executed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click
import yaml
from bfcl_report import percentile

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.messages import UserMessage
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes.selection import open_exchange

HERE = Path(__file__).parent
TOOLKITS = (
    "files.tools",
    "files.browse",
    "search.search_files",
    "commands",
    "git.command",
    "tasks",
    "clock",
)
SYSTEM = "You are a careful assistant."


@dataclass
class Score:
    """Tasks so far, and how they went."""

    tasks: int = 0
    tool: int = 0
    both: int = 0
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def row(self, mode: str) -> str:
        share = [f"{100 * n / max(self.tasks, 1):5.1f} %" for n in (self.tool, self.both)]
        timed = self.seconds[1:] or self.seconds
        return (
            f"| {mode:11} | {self.tasks:5} | {share[0]:>10} | {share[1]:>18} "
            f"| {median(timed):13.2f} | {percentile(timed, 0.95):10.2f} |"
        )


def specs(*, examples: bool) -> list[ToolSpec]:
    """The built-in tools as a session offers them."""
    tools = [
        t for kit in TOOLKITS for t in importlib.import_module(f"ferrule.toolkits.{kit}").TOOLS
    ]
    return [
        ToolSpec(
            t.full_name,
            t.name,
            t.description,
            t.schema_json(),
            t.examples if examples else (),
            side_effect=t.declared_side_effect,
        )
        for t in sorted(tools, key=lambda t: t.full_name)
    ]


def fits(call: ToolCall, expected: dict[str, Any], spec: ToolSpec) -> bool:
    """Whether the arguments are the expected ones."""
    try:
        given = json.loads(call.arguments)
    except ValueError:
        return False
    properties = json.loads(spec.schema).get("properties", {})
    wanted = expected["arguments"]
    for name in {*given, *wanted}:
        default = properties.get(name, {}).get("default")
        value, want = given.get(name, default), wanted.get(name, default)
        allowed = want["any"] if isinstance(want, dict) and set(want) == {"any"} else [want]
        if _plain(value) not in [_plain(a) for a in allowed]:
            return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix("./").rstrip("/") or value
    return [_plain(v) for v in value] if isinstance(value, list) else value


def judge(
    calls: Sequence[ToolCall], task: dict[str, Any], tools: dict[str, ToolSpec]
) -> tuple[bool, bool]:
    """(right tool, right tool and arguments). Several calls are judged by the first."""
    if not calls:
        return False, False
    call = calls[0]
    answers = [a for a in (task, *task.get("also", ())) if a["tool"] == call.tool]
    return bool(answers), any(fits(call, a, tools[call.tool]) for a in answers)


async def run(
    client: ModelClient, mode: str, tasks: Sequence[dict[str, Any]], offered: Sequence[ToolSpec]
) -> Score:
    score = Score()
    tools = {spec.name: spec for spec in offered}
    options = ModelOptions(temperature=0.0, max_tokens=160, timeout=300.0)
    for task in tasks:
        # A session of its own: what was said before must not help or hurt.
        exchange, _ = await open_exchange(client, mode, SYSTEM, offered, options)
        started = time.perf_counter()
        try:
            answer = await exchange.ask([UserMessage(task["request"])])
            calls, said = answer.calls, answer.text
        except ProviderError as error:
            calls, said = (), f"{error.code}: {error.detail}"
        score.seconds.append(time.perf_counter() - started)
        tool, both = judge(calls, task, tools)
        score.tasks, score.tool, score.both = score.tasks + 1, score.tool + tool, score.both + both
        if not both:
            made = f"{calls[0].tool} {calls[0].arguments}" if calls else f"no call: {said[:80]!r}"
            score.failures.append(
                f"{'arguments' if tool else 'tool':9} {task['request']!r} -> {made}"
            )
    return score


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="local:smollm2")
    parser.add_argument("--path", help="the GGUF file, for `local:`")
    parser.add_argument("--context", type=int, default=8192, help="window in tokens, for `local:`")
    parser.add_argument("--tasks", type=Path, default=HERE / "tasks.yaml")
    parser.add_argument(
        "--modes", default="constrained,text", help="of constrained, text, commands"
    )
    parser.add_argument("--limit", type=int)
    parser.add_argument(
        "--sample",
        type=int,
        default=12,
        help="tasks in the other ways, spread over the file; 0: all",
    )
    parser.add_argument(
        "--no-examples", action="store_true", help="without the tools' example requests"
    )
    parser.add_argument(
        "--at-least", type=float, help="exit with 1 if constrained is below this many percent"
    )
    parser.add_argument("--verbose", action="store_true", help="show what went wrong")
    given = parser.parse_args()
    tasks = yaml.safe_load(given.tasks.read_text())[: given.limit]
    local = {"n_ctx": given.context, **({"path": given.path} if given.path else {})}
    client = create_model_client(given.model, **(local if given.model.startswith("local:") else {}))
    offered = specs(examples=not given.no_examples)
    click.echo(
        f"{given.tasks.name}: {len(tasks)} tasks, {len(offered)} tools offered, model "
        f"{client.model}\n"
    )
    click.echo(
        "| mode        | tasks | right tool | tool and arguments | median s/task | p95 s/task |"
    )
    click.echo(
        "|-------------|------:|-----------:|-------------------:|-------------:|-----------:|"
    )
    short = False
    try:
        for mode in given.modes.split(","):
            # A small model answers in prose at length: ten times the seconds, for what a sample
            # shows as well.
            step = -(-len(tasks) // given.sample) if given.sample and mode != "constrained" else 1
            score = await run(client, mode, tasks[::step], offered)
            click.echo(score.row(mode))
            if given.verbose:
                click.echo("\n".join(f"  {f}" for f in score.failures), err=True)
            if mode == "constrained" and given.at_least is not None:
                short = 100 * score.both / max(score.tasks, 1) < given.at_least
    finally:
        await client.close()
    return int(short)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
