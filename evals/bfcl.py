"""How often a small model makes the right call for the requests of the Berkeley Function Calling Leaderboard.

    python evals/bfcl.py                          # simple and multiple, development half, every way
    python evals/bfcl.py --levers                 # what each part of the constrained way is worth
    python evals/bfcl.py --half held-out --modes constrained

The questions, the answers and the judge (`ast_checker`) are those of the PyPI package `bfcl-eval` (Patil et al. 2025, "The Berkeley
Function Calling Leaderboard"); the development half are the even-numbered entries, and nothing is fitted to the other half.
`peers` is what frameworks send to the same server: the tools in the request's `tools` field, with `tool_choice` auto and required.
`schema` is the reply forced by a JSON Schema without the profile for small models. Nothing is executed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, cast

import click

from ferrule.core.errors import ProviderError
from ferrule.core.messages import UserMessage
from ferrule.models.local import Local
from ferrule.models.openai_chat import OpenAIChat
from ferrule.models.ways import choose, constrained, fill
from ferrule.models.ways.ladder import open_exchange
from ferrule.models.wire import ModelOptions, ToolSpec
from ferrule.store import paths
from ferrule.tools.names import wire_names

PACKAGE = "bfcl-eval==2026.3.23"
CATEGORIES = {"simple": "simple_python", "multiple": "multiple"}
SYSTEM = "You are a careful assistant."
TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"}
OPTIONS = ModelOptions(temperature=0.0, max_tokens=256, timeout=300.0)

Said = tuple[str, str]
"""A called tool and its arguments as JSON."""


def wheel() -> Path:
    """The package, from the cache or the package index."""
    folder = paths.cache() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    if not (known := sorted(folder.glob("bfcl_eval-*.whl"))):
        fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder), PACKAGE]
        subprocess.run(fetch, check=True)
        known = sorted(folder.glob("bfcl_eval-*.whl"))
    return known[-1]


def judge_of(package: Path) -> Callable[..., dict[str, Any]]:
    """The leaderboard's own checker. What it needs for Java and JavaScript, and its list of models, is left out."""
    sys.path.insert(0, str(package))
    left_out: dict[str, dict[str, Any]] = {
        "constants.model_config": {
            "MODEL_CONFIG_MAPPING": {"small": types.SimpleNamespace(underscore_to_dot=False)}
        },
        "eval_checker.ast_eval.type_convertor.java_type_converter": {"java_type_converter": None},
        "eval_checker.ast_eval.type_convertor.js_type_converter": {"js_type_converter": None},
    }
    for name, members in left_out.items():
        module = types.ModuleType(f"bfcl_eval.{name}")
        vars(module).update(members)
        sys.modules[module.__name__] = module
    checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
    python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON

    def judge(
        functions: Any, called: str, arguments: dict[str, Any], answers: Any, category: str
    ) -> dict[str, Any]:
        return checker(functions, [{called: arguments}], answers, python, category, "small")

    return judge


def entries(package: Path, category: str, half: str) -> list[dict[str, Any]]:
    """Rows with `request`, `functions`, `answers`."""
    with zipfile.ZipFile(package) as archive:

        def rows(name: str) -> list[dict[str, Any]]:
            text = archive.read(f"bfcl_eval/data/{name}.json").decode()
            return [json.loads(line) for line in text.splitlines() if line.strip()]

        answers = {row["id"]: row["ground_truth"] for row in rows(f"possible_answer/BFCL_v4_{category}")}
        found = [
            {
                "request": " ".join(one["content"] for one in row["question"][0] if one["role"] == "user"),
                "functions": row["function"],
                "answers": answers[row["id"]],
            }
            for row in rows(f"BFCL_v4_{category}")
        ]
    return found[0 if half == "development" else 1 :: 2]


def standard(schema: Any) -> Any:
    """Python's names of types as JSON Schema's."""
    if isinstance(schema, list):
        return [standard(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = {key: standard(value) for key, value in cast("dict[str, Any]", schema).items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = TYPES.get(kind.lower(), kind.lower())
    return found


def specs(functions: Sequence[dict[str, Any]]) -> list[ToolSpec]:
    names = wire_names(one["name"] for one in functions)
    return [
        ToolSpec(
            one["name"], names[one["name"]], one["description"], json.dumps(standard(one["parameters"])), ()
        )
        for one in functions
    ]


async def asked(wire: Local, mode: str, text: str, offered: list[ToolSpec]) -> Said | None:
    """The first call that the model makes."""
    if mode.startswith("peers"):
        return await as_peers(wire, mode.partition(" ")[2], text, offered)
    if mode == "schema":
        exchange = constrained.ConstrainedExchange(wire, SYSTEM, offered, OPTIONS)
    else:
        exchange, _ = await open_exchange(wire, mode, SYSTEM, offered, OPTIONS)
    answer = await exchange.ask([UserMessage(text)])
    return (answer.calls[0].tool, answer.calls[0].arguments) if answer.calls else None


async def as_peers(wire: Local, choice: str, text: str, offered: list[ToolSpec]) -> Said | None:
    """Plain tool calling: the request that a framework's OpenAI client makes."""
    chat = cast(OpenAIChat, await wire._server_wire())  # pyright: ignore[reportPrivateUsage]  the same server
    functions = [
        {"name": one.wire_name, "description": one.description, "parameters": json.loads(one.schema)}
        for one in offered
    ]
    body = {
        "model": "smollm2",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}],
        "tools": [{"type": "function", "function": one} for one in functions],
        "tool_choice": choice,
        "temperature": 0,
        "max_tokens": OPTIONS.max_tokens,
    }
    url, headers = f"{chat.base_url}/chat/completions", {"content-type": "application/json"}
    response = await chat.transport.post(url, json.dumps(body).encode(), headers, timeout=300)
    message = json.loads(response.body).get("choices", [{}])[0].get("message", {})
    calls = message.get("tool_calls") or []
    if not calls:
        return None
    names = {one.wire_name: one.name for one in offered}
    called = calls[0]["function"]
    return names.get(called["name"], called["name"]), called["arguments"]


async def scored(wire: Local, mode: str, rows: Sequence[dict[str, Any]], category: str, judge: Any) -> str:
    tool = both = 0
    seconds: list[float] = []
    for row in rows:
        offered = specs(row["functions"])
        started = time.perf_counter()
        try:
            said = await asked(wire, mode, row["request"], offered)
        except ProviderError as error:
            click.echo(f"  {mode}: {error.code}: {error.detail}", err=True)
            said = None
        seconds.append(time.perf_counter() - started)
        if said is None:
            continue
        tool += any(said[0] in answer for answer in row["answers"])
        try:
            arguments = json.loads(said[1])
        except ValueError:
            continue
        both += bool(judge(row["functions"], said[0], arguments, row["answers"], category)["valid"])
    count, timed = max(len(rows), 1), seconds[1:] or seconds
    return (
        f"| {category:8} | {mode:44} | {len(rows):3} | {100 * tool / count:5.1f} % | {100 * both / count:5.1f} % "
        f"| {median(timed):6.2f} | {max(timed):6.2f} |"
    )


async def _nothing(*_: Any) -> None:
    return None


LEVERS: dict[str, list[tuple[Any, str, Any]]] = {
    "all of it": [],
    "without meaning (the model's hidden state)": [(choose, "GAIN", 0.0)],
    "without words (BM25)": [(choose, "WORDS", 0.0)],
    "without fit (pieces and slots)": [
        (choose, "MISSING", 0.0),
        (choose, "UNPLACED", 0.0),
        (choose, "LOOSE", 0.0),
    ],
    "without what the request settles alone": [
        (fill, "_sure", lambda *_: None),
        (fill, "assign", lambda *_: {}),
    ],
    "without values of the request in the grammar": [
        (fill, "_sure", lambda *_: None),
        (fill, "assign", lambda *_: {}),
        (fill, "values", lambda *_: []),
        (fill, "lists", lambda *_: []),
    ],
    "without the invented examples": [(fill, "INVENTED", ())],
}
"""What is taken away, and by setting what."""


@contextmanager
def taken_away(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    for where, name, value in changes:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--categories", default="simple,multiple")
    parser.add_argument("--modes", default="constrained,schema,commands,text,peers auto,peers required")
    parser.add_argument("--half", choices=["development", "held-out"], default="development")
    parser.add_argument("--limit", type=int, help="the first so many of each category")
    parser.add_argument("--sample", type=int, default=24, help="entries in all ways but constrained; 0: all")
    parser.add_argument("--levers", action="store_true")
    given = parser.parse_args()
    package = wheel()
    judge, wire = judge_of(package), Local(n_ctx=8192)
    click.echo(
        "| category | way | n | right tool | tool and arguments | median s | max s |\n|---|---|--:|--:|--:|--:|--:|"
    )
    try:
        for name in given.categories.split(","):
            rows = entries(package, CATEGORIES[name], given.half)[: given.limit]
            if given.levers:
                for lever, changes in LEVERS.items():
                    with taken_away(changes):
                        line = await scored(wire, "constrained", rows, name, judge)
                    click.echo(line.replace(f"{'constrained':44}", f"{lever:44}"))
                continue
            for mode in given.modes.split(","):
                step = -(-len(rows) // given.sample) if given.sample and mode != "constrained" else 1
                click.echo(await scored(wire, mode, rows[::step], name, judge))
    finally:
        await wire.close()


if __name__ == "__main__":
    asyncio.run(main())
