"""What a very small model is worth with Ferrule's help, without it, and the help without the model
(`make lab NAME=eval-small`).

    python evals/small.py                                     # samples of the reported half, every row
    python evals/small.py --models local:smollm2 --sample 0   # everything (hours on two busy cores)
    python evals/small.py --half development --ways helped --kinds talk,irrelevance --verbose
    python evals/small.py --turns                             # tokens read, seconds, memory
    python evals/small.py --keep evals/results/small.jsonl --record build/small.jsonl --table docs/local-models.md

Kinds: the categories of the Berkeley leaderboard that `bfcl.py` names, and our own over all built-in
tools: one-step tasks (`one_step`: evals/tasks.yaml is development, evals/heldout.yaml reported),
`two_steps`, small talk (`talk`) and requests that ask for no change (`no_change`), all in
evals/small_requests.yaml. Entries at even places are for development, the others are reported.

Ways: `helped` (`ferrule_local.small_models`); `led`, the help for models that were not taught to write
arguments; `alone` (the reply forced by a JSON Schema, nothing else); and `no model`: the code of
`led` with a constant in place of every vector and the first text that a grammar allows. Nothing is
executed: a call is counted when it is asked for, as with every permission open. Greedy, one thread,
so that anybody gets the same rows and others get a core.
With `--record` a run goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, cast

import bfcl
import click
import yaml
from bfcl_report import Line, Rows, keep, kept, line_of, placed
from one_step import SYSTEM, judge, specs

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Exchange, ModelOptions, ToolSpec
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes import constrained
from ferrule.models.tool_modes.selection import open_exchange
from ferrule_local.client import Local
from ferrule_local.small_models.argument_filling import first_allowed_text
from ferrule_local.small_models.exchange import open_small_model_exchange

HERE = Path(__file__).parent
OPTIONS = ModelOptions(temperature=0.0, max_tokens=256, timeout=600.0)

KINDS = (
    *bfcl.CATEGORIES,
    "one_step",
    "two_steps",
    "talk",
    "no_change",
)
WAYS = {
    "helped": "helped",
    "led": "led",
    "alone": "not helped",
    "no model": "led, without a model",
}
SAMPLES = {"helped": 40, "led": 40, "alone": 8, "no model": 40}
"""Entries of a kind that are asked by default."""


TIMED_CALLS = 10


class Silence:
    """A conversation in which nothing is said. Only calls are counted, and words take longest."""

    def __init__(self) -> None:
        self.notices: list[tuple[str, str]] = []

    async def ask(self, history: Sequence[Message], **_: Any) -> ModelAnswered:
        return ModelAnswered("", stop="end")


class WithoutWords(Local):
    """A model that is asked for everything but answers in words."""

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        return Silence()


class Led(WithoutWords):
    """A model that is led to its calls, as one that was not taught to write arguments."""

    writes_arguments = False


class WithoutModel(Led):
    """The same code with nothing of the model in it."""

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [[1.0] for _ in texts]

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        return first_allowed_text(grammar) or "7,"


async def ask(client: Any, way: str, text: str, offered: Sequence[ToolSpec]) -> list[ToolCall]:
    """Return the calls that are made for a request, each answered by `done`."""
    if way == "alone":
        told = f"{SYSTEM}\n\n{constrained.constrained_prompt(offered)}"
        exchange: Any = constrained.ConstrainedExchange(client.open(told, (), OPTIONS), offered)
    else:
        exchange, _ = await open_exchange(client, "constrained", SYSTEM, offered, OPTIONS)
    history: list[Message] = [UserMessage(text)]
    made: list[ToolCall] = []
    for _ in range(3):
        try:
            answer = await exchange.ask(history)
        except ProviderError:
            break  # A reply that does not fit the schema is no call.
        if not answer.calls:
            break
        made += answer.calls
        history.append(AssistantMessage("", answer.calls))
        history += [ToolMessage(call.id, call.tool, "done") for call in answer.calls]
    return made


class OwnKind:
    """Requests over all built-in tools."""

    def __init__(self, kind: str, half: str) -> None:
        self.kind = kind
        self.offered = specs(examples=True)
        self.changing = {s.name for s in self.offered if s.side_effect not in ("none", "read")}
        self.rows = self._read(half)

    def _read(self, half: str) -> list[dict[str, Any]]:
        if self.kind == "one_step":
            file = "tasks.yaml" if half == "development" else "heldout.yaml"
            return cast("list[dict[str, Any]]", yaml.safe_load((HERE / file).read_text()))
        data = yaml.safe_load((HERE / "small_requests.yaml").read_text())
        rest = 0 if half == "development" else 1
        rows = cast("list[Any]", data[self.kind])[rest::2]
        if self.kind == "no_change":
            # Phrasings are halved, not their copies with other files.
            return [{"request": row.format(f=f)} for row in rows for f in data["files"]]
        if self.kind == "talk":
            return [{"request": row} for row in rows]
        return rows

    async def made(self, client: Any, way: str, row: dict[str, Any]) -> tuple[int, Any]:
        """Return 2 for right, 1 for the right tool, 0 else; and what was called."""
        calls = await ask(client, way, row["request"], self.offered)
        names = [call.tool for call in calls]
        if self.kind == "no_change":
            return (0 if self.changing & set(names) else 2), names
        if self.kind == "talk":
            return (0 if names else 2), names
        if self.kind == "two_steps":
            is_right = len(names) == len(row["tools"]) and all(
                name in wanted.split("|") for name, wanted in zip(names, row["tools"], strict=False)
            )
            return (2 if is_right else 0), names
        tools = {spec.name: spec for spec in self.offered}
        right_tool, right = judge(calls, row, tools)
        return 2 if right else int(right_tool), [(c.tool, c.arguments) for c in calls]


class BerkeleyKind:
    """A category of the Berkeley leaderboard."""

    def __init__(self, kind: str, half: str) -> None:
        self.kind = kind
        package = bfcl.wheel()
        self.rows = bfcl.entries(
            package, bfcl.CATEGORIES[kind], "development" if half == "development" else "held-out"
        )
        self.judge = bfcl.judge_of(package)

    async def made(self, client: Any, way: str, row: dict[str, Any]) -> tuple[int, Any]:
        """Return 2 for right, 1 for the right tools, 0 else."""
        mode = "schema" if way == "alone" else "constrained"
        return await bfcl.made_by(client, mode, row, self.kind, self.judge), row["functions"]


def spread_entries(count: int, most: int | None) -> list[int]:
    """Return the entries in an order whose every beginning is spread over all of them.

    Entries that lie together are alike. The order is that of multiples of the golden ratio.
    """
    golden = (math.sqrt(5) - 1) / 2
    order = (int(number * golden % 1 * count) for number in range(count * 10))
    return list(dict.fromkeys([*order, *range(count)]))[:most]


def client_of(model: str, way: str) -> Any:
    """Return the client of a model, for a way."""
    if way == "alone":
        return create_model_client(model, n_ctx=8192, threads=1)
    make = {"no model": WithoutModel, "led": Led}.get(way, WithoutWords)
    modes = {"constrained": open_small_model_exchange}
    return make(model.partition(":")[2], n_ctx=8192, threads=1, tool_modes=modes)


async def ask_kind(given: argparse.Namespace, model: str, way: str, kind: str, rows: Rows) -> None:
    """Ask what was not asked yet, and print the row."""
    if way == "led" and model != "local:smollm2":
        return  # Only this model has an adapter; the others are led as it is.
    source = (BerkeleyKind if kind in bfcl.CATEGORIES else OwnKind)(kind, given.half)
    key = (given.half, kind, "no model" if way == "no model" else f"{model} {way}")
    most = SAMPLES[way] if given.sample is None else given.sample or None
    if way == "helped" and kind == "no_change" and given.sample is None:
        most = None  # Harm is not sampled.
    client = client_of(model, way)
    done = rows.known(key)
    for entry in spread_entries(len(source.rows), most):
        if entry in done:
            continue
        started = time.perf_counter()
        made, called = await source.made(client, way, source.rows[entry])
        rows.add(key, entry, made, time.perf_counter() - started)
        if given.verbose and made < 2:
            click.echo(f"  {made} {source.rows[entry]['request']!r} -> {called}", err=True)
    await client.close()
    click.echo(shown(line_of(key, rows.known(key))))


def interval(right: int, asked: int) -> tuple[float, float]:
    """Return Wilson's interval (95 %) of a share, in percent."""
    z = 1.96
    share, square = right / asked, z * z / asked
    middle = (share + square / 2) / (1 + square)
    width = z * math.sqrt(share * (1 - share) / asked + square / (4 * asked)) / (1 + square)
    return 100 * max(0.0, middle - width), 100 * min(1.0, middle + width)


def cell(line: Line) -> str:
    """Return a share with its interval and the number that was asked."""
    low, high = interval(line.made.count("2"), line.asked)
    return f"{line.both:.0f} % ({low:.0f}-{high:.0f}; {line.asked})"


def shown(line: Line) -> str:
    seconds = f"{line.median:.1f} s" if line.median is not None else ""
    return f"| {line.way:24} | {line.category:16} | {line.half} | {cell(line)} | {seconds} |"


def table(lines: Sequence[Line], half: str) -> str:
    """Return a row a kind, a column a way."""
    ways = sorted(
        {line.way for line in lines},
        key=lambda way: (way == "no model", "gemma" in way, list(WAYS).index(_kind_of(way))),
    )
    rows = ["| | " + " | ".join(map(_name, ways)) + " |", "|---|" + "--:|" * len(ways)]
    for kind in KINDS:
        found = {line.way: line for line in lines if (line.half, line.category) == (half, kind)}
        if found:
            cells = [cell(found[way]) if way in found else "" for way in ways]
            rows.append(f"| {kind.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _kind_of(way: str) -> str:
    return way if way == "no model" else way.partition(" ")[2]


def _name(way: str) -> str:
    if way == "no model":
        return WAYS[way]
    model, _, kind = way.partition(" ")
    return f"`{model}` {WAYS[kind]}"


def peak_memory() -> int:
    """Return the most memory that this process had, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) // 1024


async def show_turns(model: str) -> None:
    """Print what three turns of one conversation cost: tokens read, seconds, memory."""
    begun = time.perf_counter()
    client = cast("Any", create_model_client(model, n_ctx=4096, threads=1))
    exchange = client.open(SYSTEM, (), ModelOptions(temperature=0.0, max_tokens=24, timeout=600.0))
    history: list[Message] = []
    click.echo(
        "| model | turn | tokens of the prompt | read now | seconds |\n|---|--:|--:|--:|--:|"
    )
    for turn, text in enumerate(
        ["Name a river in Europe.", "And one in Asia.", "And in Africa."], 1
    ):
        history.append(UserMessage(text))
        started = begun if turn == 1 else time.perf_counter()
        answer = await exchange.ask(history)
        used = answer.usage
        click.echo(
            f"| `{model}` | {turn} | {used.input} | {used.input - used.cached} | "
            f"{time.perf_counter() - started:.1f} |"
        )
        history.append(AssistantMessage(answer.text))
    await client.close()
    first, later = await time_calls(model)
    click.echo(
        f"\n`{model}`: the first turn includes the start. A call among all built-in tools: the first "
        f"{first:.1f} s (start, and the tools' descriptions if they were not read before), then "
        f"{median(later):.1f} s (median of {len(later)}, {min(later):.1f} to {max(later):.1f}). "
        f"{peak_memory()} MiB at most."
    )


async def time_calls(model: str) -> tuple[float, list[float]]:
    """Return the seconds of the first call after a start, and of those after it."""
    source = OwnKind("one_step", "development")
    client = client_of(model, "helped")
    taken: list[float] = []
    for entry in spread_entries(len(source.rows), TIMED_CALLS):
        started = time.perf_counter()
        await source.made(client, "helped", source.rows[entry])
        taken.append(time.perf_counter() - started)
    await client.close()
    return taken[0], taken[1:]


def write(given: argparse.Namespace) -> None:
    """Bring rows together, and write the page's tables. No model."""
    if given.record is not None:
        found = Rows(given.record)
        keys = {(row["half"], row["category"], row["way"]) for row in found.rows}
        keep([line_of(key, found.known(key)) for key in sorted(keys)], given.keep)
    if given.table is not None:
        lines, page = kept(given.keep), given.table.read_text()
        page = placed(page, "reported", table(lines, "reported"))
        given.table.write_text(page)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="local:smollm2,local:gemma3-270m")
    parser.add_argument("--half", choices=["development", "reported"], default="reported")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--sample", type=int, help="entries of each kind; 0: all")
    parser.add_argument("--record", type=Path, help="a working file: what it holds is not asked")
    parser.add_argument("--keep", type=Path, help="no model: bring the rows into this file")
    parser.add_argument("--table", type=Path, help="no model: write the tables of a page")
    parser.add_argument("--turns", action="store_true", help="what turns of a conversation cost")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    if given.keep is not None:
        write(given)
        return
    models = given.models.split(",")
    if given.turns:
        for model in models:
            if len(models) == 1:
                await show_turns(model)
            else:  # A process each: memory is counted by the process.
                again = [sys.executable, __file__, "--turns", "--models", model]
                await asyncio.to_thread(subprocess.run, again, check=True)
        return
    rows = Rows(given.record)
    for kind in given.kinds.split(","):
        for way in given.ways.split(","):
            for model in models[:1] if way == "no model" else models:
                await ask_kind(given, model, way, kind, rows)


if __name__ == "__main__":
    asyncio.run(main())
