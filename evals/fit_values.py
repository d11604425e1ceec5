"""Fits the weights of `ferrule_local.small_models.value_ranking`, and says how good they are.

    python evals/fit_values.py            # writes the weights; no model
    python evals/fit_values.py --cross    # writes nothing: fitted without a fifth of the functions, tried on them

Development halves only (`bfcl.entries`), and the tasks of evals/tasks.yaml: every text parameter of
every call is one example, whose right answers are those that the leaderboard's checker takes. A
conditional log-linear model, by AdaGrad with an L2 penalty in a fixed order: the same examples give
the same weights. Features that fewer than `MIN_TOOLS` functions have are left out, and functions
with many entries count less by entry. Pure Python, some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import bfcl
import click
import small
import yaml
from one_step import specs as built_in_specs

from ferrule.models.client import ToolSpec
from ferrule.models.tool_modes.text import parameter_schema
from ferrule.tools.word_stems import content_stems
from ferrule_local.small_models import value_ranking
from ferrule_local.small_models.request import Request
from ferrule_local.small_models.slots import Slot, read_slots
from ferrule_local.small_models.value_ranking import Candidate, RequestView, find_candidates

CATEGORIES = (
    "simple",
    "multiple",
    "live_simple",
    "live_multiple",
    "parallel",
    "parallel_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
MIN_TOOLS = 12
EPOCHS = 5
RATE = 0.15
PENALTY = 0.005
LEAST_WEIGHT = 0.03
PARTS = 5
WHOLE_CALLS = ("simple", "multiple", "live_simple", "live_multiple", "parallel")
"""Categories whose requests are tried as a whole by `--cross`."""
OUT = Path(value_ranking.__file__).with_name("value_weights.json")


@dataclass(frozen=True)
class Example:
    """One slot of one request: its candidates, and which of them are right."""

    category: str
    entry: int
    tool: str
    slot: Slot
    candidates: list[Candidate]
    right: list[bool]


def plain(value: Any) -> Any:
    """Return a value as the leaderboard's checker compares it."""
    if isinstance(value, str):
        return re.sub(r"[ ,./\-_*^]", "", value).lower().replace("'", '"')
    return value


def sources() -> Iterator[tuple[str, int, str, ToolSpec, dict[str, list[Any]]]]:
    """Yield category, entry, request, tool, and what its arguments may be."""
    for category in CATEGORIES:
        name = bfcl.CATEGORIES.get(category, category)
        for entry, row in enumerate(bfcl.entries(bfcl.wheel(), name, "development")):
            called = next(iter(row["answers"][0]))
            spec = next((s for s in bfcl.specs(row["functions"]) if s.name == called), None)
            allowed: dict[str, list[Any]] = defaultdict(list)
            for answer in row["answers"]:
                for parameter, values in answer.get(called, {}).items():
                    allowed[parameter] += values
            if spec is not None:
                yield category, entry, row["request"], spec, allowed
    tools = {spec.name: spec for spec in built_in_specs(examples=False)}
    tasks = cast("list[dict[str, Any]]", yaml.safe_load(bfcl_folder("tasks.yaml").read_text()))
    for entry, task in enumerate(tasks):
        given = task["arguments"]
        allowed = {
            name: value["any"] if isinstance(value, dict) and "any" in value else [value]
            for name, value in given.items()
        }
        yield "one_step", entry, task["request"], tools[task["tool"]], allowed


def bfcl_folder(name: str) -> Path:
    return Path(__file__).parent / name


def examples() -> Iterator[Example]:
    for category, entry, text, spec, allowed in sources():
        slots = read_slots(parameter_schema(spec))
        named = frozenset(word for slot in slots for word in content_stems(slot.name))
        request = Request(text, frozenset(content_stems(spec.api_name)), named)
        view = RequestView(request)
        for slot, right in texts_of(slots, allowed):
            siblings = slots if slot in slots else [slot, *slots]
            candidates = find_candidates(slot, view, siblings)
            wanted = {plain(value) for value in right if isinstance(value, str)}
            marks = [
                "" in right or not right
                if one.value is None
                else plain(one.value.value) in wanted and one.value.value != ""
                for one in candidates
            ]
            yield Example(category, entry, spec.name, slot, candidates, marks)


def texts_of(
    slots: Sequence[Slot], allowed: Mapping[str, list[Any]]
) -> Iterator[tuple[Slot, list[Any]]]:
    """Yield the text slots with what is right for them, those inside objects and lists too."""
    for slot in slots:
        right = allowed.get(slot.name, [])
        if slot.kind == "string":
            yield slot, right
        elif slot.kind == "array" and slot.item is not None and slot.item.kind == "string":
            lists = [cast("list[Any]", value) for value in right if isinstance(value, list)]
            single = [value[0] for value in lists if len(value) == 1]
            if single and slot.required:
                yield slot.item, single
        elif slot.kind == "object":
            for value in right[:1]:
                if isinstance(value, dict):
                    inner = cast("dict[str, list[Any]]", value)
                    yield from texts_of(read_slots(slot.schema), inner)


def fit(found: Sequence[Example]) -> dict[str, float]:
    """Return the weights."""
    tools: dict[str, set[str]] = defaultdict(set)
    entries: dict[str, set[tuple[str, int]]] = defaultdict(set)
    usable = [one for one in found if any(one.right) and not all(one.right)]
    for one in usable:
        entries[one.tool].add((one.category, one.entry))
        for candidate in one.candidates:
            for feature in candidate.features:
                tools[feature].add(one.tool)
    names = sorted(feature for feature, users in tools.items() if len(users) >= MIN_TOOLS)
    numbers = {feature: number for number, feature in enumerate(names)}
    rows = [
        (
            [[numbers[f] for f in set(c.features) if f in numbers] for c in one.candidates],
            one.right,
            1 / math.sqrt(len(entries[one.tool])),
        )
        for one in usable
    ]
    weights, squares = [0.0] * len(names), [1e-6] * len(names)
    chance = random.Random(1)
    for _ in range(EPOCHS):
        chance.shuffle(rows)
        for candidates, right, share in rows:
            for feature, slope in slopes(candidates, right, weights).items():
                slope = slope * share + PENALTY * weights[feature]
                squares[feature] += slope * slope
                weights[feature] -= RATE * slope / math.sqrt(squares[feature])
    return {
        name: round(weight, 2)
        for name, weight in zip(names, weights, strict=True)
        if abs(weight) >= LEAST_WEIGHT
    }


def slopes(
    candidates: Sequence[Sequence[int]], right: Sequence[bool], weights: Sequence[float]
) -> dict[int, float]:
    """Return the slope of the loss by feature."""
    totals = [sum([weights[feature] for feature in features]) for features in candidates]
    most = max(totals)
    shares = [math.exp(total - most) for total in totals]
    whole = sum(shares)
    good = sum(share for share, is_right in zip(shares, right, strict=True) if is_right) or 1e-12
    found: dict[int, float] = defaultdict(float)
    for features, share, is_right in zip(candidates, shares, right, strict=True):
        slope = share / whole - (share / good if is_right else 0.0)
        if abs(slope) > 1e-4:
            for feature in features:
                found[feature] += slope
    return found


def try_out(found: Sequence[Example], weights: Mapping[str, float]) -> dict[str, list[bool]]:
    """Return by category, for each example, whether its best candidate is right."""
    outcome: dict[str, list[bool]] = defaultdict(list)
    for one in found:
        totals = [sum(weights.get(f, 0.0) for f in set(c.features)) for c in one.candidates]
        is_right = bool(totals) and one.right[totals.index(max(totals))]
        outcome[one.category].append(is_right)
    return outcome


def part_of(tool: str) -> int:
    """Return the part that a function is in, where it is fitted without one of them."""
    return zlib.crc32(tool.encode()) % PARTS


def fit_without_parts(found: Sequence[Example]) -> list[dict[str, float]]:
    """Return weights for each part of the functions, fitted without them."""
    return [fit([one for one in found if part_of(one.tool) != part]) for part in range(PARTS)]


def cross_check(found: Sequence[Example], verbose: bool) -> None:
    """Print how many slots, and how many whole calls, are right where the function was not fitted."""
    outcome: dict[str, list[bool]] = defaultdict(list)
    made: dict[str, list[int]] = defaultdict(list)
    for part, weights in enumerate(fit_without_parts(found)):
        inside = [one for one in found if part_of(one.tool) == part]
        for category, right in try_out(inside, weights).items():
            outcome[category] += right
        value_ranking.load_weights = partial(dict, weights)
        for category in WHOLE_CALLS:
            made[category] += asyncio.run(try_calls(category, part, verbose))
    for category, right in outcome.items():
        click.echo(f"{category}: {sum(right)} of {len(right)} text values")
    for category, results in made.items():
        share = results.count(2) / len(results)
        click.echo(f"{category}: {share:.1%} of {len(results)} whole calls, without a model")


async def try_calls(category: str, part: int, verbose: bool) -> list[int]:
    """Return what is made of the requests for one part of the functions, as `bfcl.made_by` does."""
    client = small.client_of("local:smollm2", "no model")
    judge = bfcl.judge_of(bfcl.wheel())
    made: list[int] = []
    for row in bfcl.entries(bfcl.wheel(), bfcl.CATEGORIES.get(category, category), "development"):
        if part_of(next(iter(row["answers"][0]))) != part:
            continue
        made.append(await bfcl.made_by(client, "constrained", row, category, judge))
        if verbose and made[-1] < 2:
            said = await bfcl.asked(
                client, "constrained", row["request"], bfcl.specs(row["functions"]), bfcl.MAX_CALLS
            )
            click.echo(f"{category} {row['request']!r}\n  {said}\n  {row['answers']}", err=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cross", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show the calls that are wrong")
    given = parser.parse_args()
    found = list(examples())
    click.echo(f"{len(found)} text values, {sum(map(any, (e.right for e in found)))} reachable")
    if given.cross:
        cross_check(found, given.verbose)
        return
    weights = fit(found)
    OUT.write_text(json.dumps(weights, indent=0, sort_keys=True, ensure_ascii=False) + "\n")
    click.echo(f"{len(weights)} weights")


if __name__ == "__main__":
    main()
