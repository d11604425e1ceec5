"""What a small model does beside all built-in tools where no tool is needed, nothing should be
changed, or two steps are asked for (`make eval-small`).

    python evals/small.py                        # local:smollm2, the reported half
    python evals/small.py --half development --verbose
    python evals/small.py --model local:gemma3-270m --no-model

Nothing is executed: a call is counted when it is asked for, as with every permission open. The row
*same code without the model* has a constant in place of every vector and takes the first text that
a grammar allows. Greedy, so that anybody gets the same rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from run import SYSTEM, specs

from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.local.client import Local
from ferrule.models.registry import create_model_client
from ferrule.models.tool_modes.selection import open_exchange

HERE = Path(__file__).parent
OPTIONS = ModelOptions(temperature=0.0, max_tokens=1, timeout=300.0)
_FIRST = re.compile(r'root ::= ("(?:[^"\\]|\\.)*")')


class WithoutModel(Local):
    """The same code with nothing of the model in it."""

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        return [[1.0] for _ in texts]

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        first = _FIRST.match(grammar)
        return json.loads(first[1]) if first else "7,"


async def ask(client: Any, mode: str, text: str, offered: Sequence[ToolSpec]) -> list[str]:
    """Return the tools that are called for a request, each answered by `done`."""
    exchange, _ = await open_exchange(client, mode, SYSTEM, offered, OPTIONS)
    history: list[Message] = [UserMessage(text)]
    called: list[str] = []
    for _ in range(3):
        # Words are not what is counted: they are cut short by `max_tokens`.
        answer = await exchange.ask(history)
        if not answer.calls:
            break
        called += [call.tool for call in answer.calls]
        history.append(AssistantMessage("", answer.calls))
        history += [ToolMessage(call.id, call.tool, "done") for call in answer.calls]
    return called


def requests_of(data: dict[str, Any], kind: str) -> list[tuple[str, list[str] | None]]:
    """Return the requests of a kind, each with the tools that are expected, if that matters."""
    if kind == "no_change":
        return [(text.format(f=f), None) for text in data[kind] for f in data["files"]]
    if kind == "talk":
        return [(text, []) for text in data[kind]]
    return [(row["request"], row["tools"]) for row in data[kind]]


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="local:smollm2")
    parser.add_argument("--half", choices=["development", "reported", "both"], default="reported")
    parser.add_argument("--mode", default="constrained")
    parser.add_argument("--kinds", default="no_change,talk,two_steps")
    parser.add_argument("--no-model", action="store_true", help="the same code without the model")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    data = yaml.safe_load((HERE / "small_requests.yaml").read_text())
    offered = specs(examples=True)
    changing = {s.name for s in offered if s.side_effect not in ("none", "read")}
    client: Any = create_model_client(given.model, n_ctx=8192)
    if given.no_model:
        client = WithoutModel(n_ctx=8192, tool_modes=client.tool_modes)
    name = "same code without the model" if given.no_model else given.model
    for kind in given.kinds.split(","):
        rows = requests_of(data, kind)
        # Phrasings are halved, not their copies with other files.
        width = len(data["files"]) if kind == "no_change" else 1
        rest = {"development": 0, "reported": 1}.get(given.half)
        rows = [row for place, row in enumerate(rows) if rest in (None, place // width % 2)]
        right = 0
        for text, expected in rows:
            called = await ask(client, given.mode, text, offered)
            is_right = not changing & set(called) if expected is None else called == expected
            right += is_right
            if given.verbose and not is_right:
                click.echo(f"  {text!r} -> {called}", err=True)
        click.echo(f"| {name} | {kind} | {given.half} | {right} of {len(rows)} |")
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
