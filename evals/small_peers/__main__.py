"""Ask the questions of the reported half through other frameworks: `make lab NAME=eval-small-peers`.

    PYTHONPATH=evals python -m small_peers --sample 12
    PYTHONPATH=evals python -m small_peers --models local:smollm2 --choices auto --kinds simple

One llama.cpp server, started as Ferrule starts it; the frameworks are told its address and nothing
else, and send their tools in the `tools` field. `auto` leaves it to the model whether it calls,
`required` has the server force a call. Greedy; the judge is the one of `bfcl.py`. Environments go to
`$FERRULE_BENCH_ENVS` or `<tmp>/ferrule-bench-envs`, and are made once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bfcl
import click
import small
from bfcl_report import Rows, line_of

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks/peers"))

from envs import make, python  # noqa: E402  a script of the standard library, not of a package

FRAMEWORKS = {
    "pydantic-ai": (("pydantic-ai-slim[openai]==2.68.0",), "pydantic_ai_calls.py"),
    "langchain": (("langchain-openai",), "langchain_calls.py"),
}
KINDS = ("simple", "multiple", "live_simple", "irrelevance", "live_irrelevance")
QUIET = {"LANGSMITH_TRACING": "false", "PYDANTIC_AI_NO_UPDATE_CHECK": "1"}


class Framework:
    """A process of a framework that answers a line with a line."""

    def __init__(self, name: str, url: str, choice: str) -> None:
        _, script = FRAMEWORKS[name]
        self._process = subprocess.Popen(
            [str(python(f"small-{name}")), str(HERE / script), url, choice],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **QUIET},
            text=True,
        )

    def ask(self, row: dict[str, Any]) -> tuple[list[bfcl.Said], str]:
        """Return the calls for a request, and the error if there was one."""
        offered = bfcl.specs(row["functions"])
        functions = [
            {
                "name": one.api_name,
                "description": one.description,
                "parameters": json.loads(one.schema),
            }
            for one in offered
        ]
        line = {"system": bfcl.SYSTEM, "request": row["request"], "functions": functions}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        names = {one.api_name: one.name for one in offered}
        said = [(names.get(name, name), arguments) for name, arguments in reply["calls"]]
        return said, reply.get("error", "")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def ask_kind(given: argparse.Namespace, model: str, way: str, kind: str, framework: Framework):
    """Ask what was not asked yet, and print the row."""
    source = small.BerkeleyKind(kind, "reported")
    rows: Rows = given.rows
    key = ("reported", kind, f"{model} {way}")
    done = rows.known(key)
    errors: set[str] = set()
    for entry in small.spread_entries(len(source.rows), given.sample or None):
        if entry in done:
            continue
        row = source.rows[entry]
        said, error = framework.ask(row)
        if error:
            errors.add(error)
        rows.add(key, entry, bfcl.judge_calls(said, row, kind, source.judge), 0.0)
    click.echo(small.shown(line_of(key, rows.known(key), timed=False)))
    for error in sorted(errors):
        click.echo(f"  {error}", err=True)


async def ask_model(given: argparse.Namespace, model: str) -> None:
    client = small.client_of(model, "alone")
    address, _ = await client.connect_server()
    for name in given.frameworks.split(","):
        for choice in given.choices.split(","):
            framework = Framework(name, f"{address}/v1", choice)
            for kind in given.kinds.split(","):
                await asyncio.to_thread(ask_kind, given, model, f"{name} {choice}", kind, framework)
            framework.close()
    await client.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="local:smollm2,local:gemma3-270m")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--choices", default="auto,required")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sample", type=int, default=12, help="entries of each kind; 0: all")
    parser.add_argument("--record", type=Path, help="a working file: what it holds is not asked")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    given.rows = Rows(given.record)
    for name in given.frameworks.split(","):
        click.echo(f"{name}: {make(f'small-{name}', FRAMEWORKS[name][0], False)}", err=True)
    for model in given.models.split(","):
        asyncio.run(ask_model(given, model))


if __name__ == "__main__":
    main()
