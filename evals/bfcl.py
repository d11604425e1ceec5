"""How often a small model makes the right call for the requests of the Berkeley Function Calling
Leaderboard.

    python evals/bfcl.py --record rows.jsonl               # simple and multiple, development half, every way
    python evals/bfcl.py --record rows.jsonl --levers      # what each part of the constrained way is worth
    python evals/bfcl.py --modes constrained --timed       # alone on the machine: seconds count
    python evals/bfcl.py --half held-out --modes constrained --record rows.jsonl

The questions, the answers and the judge (`ast_checker`) are those of the PyPI package `bfcl-eval`
(Patil et al. 2025, "The Berkeley Function Calling Leaderboard"); the development half are the
even-numbered entries, and nothing is fitted to the other half. `peers` is what frameworks send to
the same server: the tools in the request's `tools` field, with `tool_choice` auto and required.
`schema` is the reply forced by a JSON Schema without the profile for small models. Nothing is
executed.

With `--record` a run goes on where it was stopped. Questions are asked in strides, so that what
there is after any time is spread over the half.
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
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import click
from bfcl_report import (
    HEADER,
    Key,
    Line,
    Rows,
    line_of,
    shown,
)

from ferrule.core.errors import ProviderError
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Exchange, ModelOptions, ToolSpec
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.tool_modes import constrained
from ferrule.models.tool_modes.selection import open_exchange
from ferrule.storage import paths
from ferrule.tools.names import make_api_names
from ferrule_local.client import Local
from ferrule_local.small_models import argument_filling, lists, numbers, tool_choice, value_ranking
from ferrule_local.small_models.exchange import open_small_model_exchange

PACKAGE = "bfcl-eval==2026.3.23"
CATEGORIES = {
    "simple": "simple_python",
    "multiple": "multiple",
    "parallel": "parallel",
    "irrelevance": "irrelevance",
    "live_simple": "live_simple",
    "live_irrelevance": "live_irrelevance",
}
MAX_CALLS = 8
"""Calls that are taken for one request."""
SYSTEM = "You are a careful assistant."
TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "any": "string"}
OPTIONS = ModelOptions(temperature=0.0, max_tokens=256, timeout=300.0)

WAYS = {
    "constrained": "`constrained`",
    "schema": "the reply forced by a JSON Schema, nothing else",
    "commands": "`commands`",
    "text": "`text`",
    "peers auto": "`tools` field, `tool_choice: auto`",
    "peers required": "`tools` field, `tool_choice: required`",
}
"""The ways that are compared, and what the page calls them."""

Said = tuple[str, str]
"""A called tool and its arguments as JSON."""


def wheel() -> Path:
    """The package, from the cache or the package index."""
    folder = paths.cache() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    if not (known := sorted(folder.glob("bfcl_eval-*.whl"))):
        fetch = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--dest",
            str(folder),
            PACKAGE,
        ]
        subprocess.run(fetch, check=True)
        known = sorted(folder.glob("bfcl_eval-*.whl"))
    return known[-1]


def judge_of(package: Path) -> Callable[..., dict[str, Any]]:
    """The leaderboard's own checker. What it needs for Java and JavaScript, and its list of models,
    is left out.
    """
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
        functions: Any, calls: list[dict[str, Any]], answers: Any, category: str
    ) -> dict[str, Any]:
        return checker(functions, calls, answers, python, category, "small")

    return judge


def entries(package: Path, category: str, half: str) -> list[dict[str, Any]]:
    """Rows with `request`, `functions`, `answers`."""
    with zipfile.ZipFile(package) as archive:

        def rows(name: str) -> list[dict[str, Any]]:
            text = archive.read(f"bfcl_eval/data/{name}.json").decode()
            return [json.loads(line) for line in text.splitlines() if line.strip()]

        answers: dict[str, Any] = {}
        if not category.endswith("irrelevance"):
            answered = rows(f"possible_answer/BFCL_v4_{category}")
            answers = {row["id"]: row["ground_truth"] for row in answered}
        found = [
            {
                "request": " ".join(
                    one["content"] for one in row["question"][0] if one["role"] == "user"
                ),
                "functions": row["function"],
                "answers": answers.get(row["id"], []),
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
    names = make_api_names(one["name"] for one in functions)
    return [
        ToolSpec(
            one["name"],
            names[one["name"]],
            one["description"],
            json.dumps(standard(one["parameters"])),
            (),
        )
        for one in functions
    ]


async def asked(
    client: Local, mode: str, text: str, offered: list[ToolSpec], most: int = 1
) -> list[Said]:
    """The calls that the model makes, up to `most`, each answered by `done`."""
    if mode.startswith("peers"):
        return await as_peers(client, mode.partition(" ")[2], text, offered)
    if mode == "schema":
        told = f"{SYSTEM}\n\n{constrained.constrained_prompt(offered)}"
        exchange: Exchange = constrained.ConstrainedExchange(
            client.open(told, (), OPTIONS), offered
        )
    else:
        exchange, _ = await open_exchange(client, mode, SYSTEM, offered, OPTIONS)
    history: list[Message] = [UserMessage(text)]
    said: list[Said] = []
    while len(said) < most:
        answer = await exchange.ask(history)
        if not answer.calls:
            break
        said += [(call.tool, call.arguments) for call in answer.calls]
        history.append(AssistantMessage("", answer.calls))
        history += [ToolMessage(call.id, call.tool, "done") for call in answer.calls]
    return said


async def as_peers(client: Local, choice: str, text: str, offered: list[ToolSpec]) -> list[Said]:
    """Plain tool calling: the request that a framework's OpenAI client makes."""
    chat = cast(OpenAIChat, await client._start_chat())  # pyright: ignore[reportPrivateUsage]  the same server
    functions = [
        {
            "name": one.api_name,
            "description": one.description,
            "parameters": json.loads(one.schema),
        }
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
    names = {one.api_name: one.name for one in offered}
    made = [call["function"] for call in calls]
    return [(names.get(one["name"], one["name"]), one["arguments"]) for one in made]


async def made_by(client: Local, mode: str, row: dict[str, Any], category: str, judge: Any) -> int:
    """2: the right tools with the right arguments (or rightly none); 1: the right tools; 0: neither."""
    # One call too many is wrong as well, where more than one can be made.
    most = MAX_CALLS if category == "parallel" or mode == "constrained" else 1
    try:
        said = await asked(client, mode, row["request"], specs(row["functions"]), most)
    except ProviderError as error:
        click.echo(f"  {mode}: {error.code}: {error.detail}", err=True)
        return 0
    return judge_calls(said, row, category, judge)


def judge_calls(said: list[Said], row: dict[str, Any], category: str, judge: Any) -> int:
    """Return 2, 1 or 0 for calls, as `made_by` does."""
    if category.endswith("irrelevance"):
        return 0 if said else 2
    answers = row["answers"]
    wanted = sorted(name for answer in answers for name in answer)
    if not said or sorted(name for name, _ in said) != wanted:
        return 0
    try:
        calls = [{name: json.loads(arguments)} for name, arguments in said]
    except ValueError:
        return 1
    fits = judge(row["functions"], calls, answers, category)
    return 2 if fits["valid"] else 1


def in_strides(count: int, most: int | None) -> list[int]:
    """All entries, or at most so many: every 8th, then those between."""
    order = [n for start in (0, 4, 2, 6, 1, 5, 3, 7) for n in range(start, count, 8)]
    return order[:most]


async def measured(
    client: Local,
    key: Key,
    mode: str,
    entries: Sequence[dict[str, Any]],
    judge: Any,
    given: argparse.Namespace,
    rows: Rows,
) -> Line:
    """Ask what was not asked yet."""
    done = rows.known(key)
    sample = None if mode == "constrained" and not given.levers else given.sample or None
    for entry in in_strides(len(entries), sample):
        if entry not in done:
            started = time.perf_counter()
            made = await made_by(client, mode, entries[entry], key[1], judge)
            rows.add(key, entry, made, time.perf_counter() - started)
    return line_of(key, rows.known(key), timed=given.timed)


WHOLE = "nothing: all of it"


def _none(*_: object) -> None:
    return None


def _empty(*_: object) -> list[Any]:
    return []


def _unassigned(*_: object) -> dict[str, Any]:
    return {}


def _unchosen(*_: object) -> tuple[list[Any], list[Any]]:
    return [], []


LEVERS: dict[str, list[tuple[Any, str, Any]]] = {
    WHOLE: [],
    "choice: meaning (the model's hidden state)": [(tool_choice, "GAIN", 0.0)],
    "choice: words (BM25, words of one name only)": [
        (tool_choice, "WORDS", 0.0),
        (tool_choice, "DISTINCT", 0.0),
    ],
    "choice: fit of pieces and parameters": [
        (tool_choice, name, 0.0) for name in ("MISSING", "UNPLACED", "LOOSE")
    ],
    "values that a description lists": [
        (value_ranking, value_ranking.find_listed_values.__name__, _empty),
        (lists, lists.find_listed_values.__name__, _empty),
    ],
    "ranking of texts (the first piece in its place)": [
        (value_ranking, value_ranking.load_weights.__name__, dict[str, float])
    ],
    "dates": [(value_ranking, value_ranking.find_slot_dates.__name__, _empty)],
    "lists of plain words and of choices": [
        (lists, lists.read_enumerations.__name__, _empty),
        (lists, lists.read_choices.__name__, _unchosen),
    ],
    "numbers assigned together": [
        (argument_filling, argument_filling.assign_numbers.__name__, _unassigned)
    ],
    "units and what they measure": [(numbers, numbers.is_unit_for.__name__, _none)],
    "optional parameters": [
        (argument_filling, argument_filling.find_mentioned_values.__name__, _empty)
    ],
    "what the request settles alone": [(argument_filling, "_find_certain", _none)],
    "values of the request in the grammar": [
        (argument_filling, "_find_certain", _none),
        (argument_filling, argument_filling.assign_numbers.__name__, _unassigned),
        (argument_filling, argument_filling.rank_slots.__name__, _unassigned),
        *(
            (argument_filling, finds.__name__, _empty)
            for finds in (
                argument_filling.find_values,
                argument_filling.read_lists,
                argument_filling.find_named_choices,
                argument_filling.find_mentioned_values,
            )
        ),
    ],
    "the invented examples": [(argument_filling, "INVENTED", ())],
}
"""What is taken away, and by setting what."""


@contextmanager
def taken_away(changes: Sequence[tuple[Any, str, Any]]) -> Generator[None]:
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    for where, name, value in changes:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--categories", default="simple,multiple")
    parser.add_argument("--modes", default=",".join(WAYS))
    parser.add_argument("--half", choices=["development", "held-out"], default="development")
    parser.add_argument("--limit", type=int, help="the first so many of each category")
    parser.add_argument(
        "--sample",
        type=int,
        default=24,
        help="entries in all ways but the whole constrained one; 0: all",
    )
    parser.add_argument(
        "--levers", action="store_true", help="the constrained way with parts of it taken away"
    )
    parser.add_argument(
        "--record", type=Path, help="a working file: rows are added, what it holds is not asked"
    )
    parser.add_argument(
        "--timed", action="store_true", help="the machine has nothing else to do: seconds count"
    )
    return parser.parse_args()


async def ask_all(given: argparse.Namespace) -> None:
    package, rows = wheel(), Rows(given.record)
    judge, client = (
        judge_of(package),
        Local(n_ctx=8192, tool_modes={"constrained": open_small_model_exchange}),
    )
    click.echo(HEADER)
    try:
        for name in given.categories.split(","):
            questions = entries(package, CATEGORIES[name], given.half)[: given.limit]
            for lever, changes in LEVERS.items() if given.levers else ():
                with taken_away(changes):
                    key = (given.half, name, lever)
                    line = await measured(client, key, "constrained", questions, judge, given, rows)
                click.echo(shown(line))
            for mode in () if given.levers else given.modes.split(","):
                key = (given.half, name, mode)
                click.echo(shown(await measured(client, key, mode, questions, judge, given, rows)))
    finally:
        await client.close()


def main() -> None:
    asyncio.run(ask_all(arguments()))


if __name__ == "__main__":
    main()
