"""Fits the weights of `ferrule_local.small_models.abstention`, and prints what each threshold does.

    python evals/fit_abstention.py            # 450 questions of each category; no model
    python evals/fit_abstention.py --taught   # beside it, how much SmolLM2 wants to call: half an hour

Development halves only (`bfcl.entries`): *simple*, *multiple*, *live_simple* and *live_multiple* have
a function that fits, *irrelevance* and *live_irrelevance* have none. Tools that may change
something are left out: `action_check` decides about them. The table is by cross-validation, in eight parts. Pure Python,
gradient descent from zero: the same figures give the same weights.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import mul
from typing import Any

import bfcl
import click
import fit_values

from ferrule.models.client import ToolSpec
from ferrule.models.tool_modes.text import parameter_schema
from ferrule_local.client import Local
from ferrule_local.small_models import value_ranking
from ferrule_local.small_models.abstention import describe_fit
from ferrule_local.small_models.action_check import may_change
from ferrule_local.small_models.call_format import CallableTool
from ferrule_local.small_models.request import Request
from ferrule_local.small_models.slots import read_slots
from ferrule_local.small_models.tool_choice import ToolChooser, ToolOffer
from ferrule_local.small_models.written_arguments import TaughtCall

CATEGORIES = (
    "simple",
    "multiple",
    "live_simple",
    "live_multiple",
    "irrelevance",
    "live_irrelevance",
)
PENALTY = 0.005
STEPS = 600
RATE = 1.0
PARTS = 8
THRESHOLDS = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65)

Row = tuple[str, tuple[float, ...]]
"""A category, and the figures of its best tool."""


def offer_of(spec: ToolSpec) -> ToolOffer:
    slots = tuple(read_slots(parameter_schema(spec)))
    return ToolOffer(spec.api_name, spec.description, slots)


async def figures_of(row: dict[str, Any], model: Local | None) -> tuple[float, ...] | None:
    """Return the figures of the best tool by words and fit; None without one, or if it changes."""
    tools = {spec.api_name: spec for spec in bfcl.specs(row["functions"])}
    chooser = ToolChooser([offer_of(spec) for spec in tools.values()])
    request = Request(row["request"])
    chooser.use_weights(chooser.compute_weights([[1.0] for _ in chooser.prompts()]))
    ranked = chooser.rank(request, [1.0])
    offer = next((offer for _, offer in ranked if offer is not None), None)
    if offer is None or may_change(tools[offer.name]):
        return None
    if model is None:
        return describe_fit(request, offer)
    spec = tools[offer.name]
    tool = CallableTool(spec.api_name, spec.description, parameter_schema(spec))
    need = await TaughtCall(model, tool, row["request"]).measure_need()
    return describe_fit(request, offer, need)


async def collect(sample: int, model: Local | None) -> list[Row]:
    """Return the figures of questions.

    How sure the values of a question are is said by weights that were fitted without its tools.
    """
    found: list[Row] = []
    weights = fit_values.fit_without_parts(list(fit_values.examples()))
    for category in CATEGORIES:
        name = bfcl.CATEGORIES.get(category, category)
        rows = bfcl.entries(bfcl.wheel(), name, "development")
        # All of them, or every fourth of the largest category, where a model is asked.
        step = 1 if model is None or category != "live_multiple" else 4
        for row in rows[:sample] if model is None else rows[::step]:
            named = [one["name"] for one in row["functions"]]
            part = fit_values.part_of(next(iter(named), ""))
            value_ranking.load_weights = partial(weights.__getitem__, part)
            figures = await figures_of(row, model)
            if figures is not None:
                found.append((category, figures))
    return found


def is_fitting(category: str) -> float:
    return 0.0 if category.endswith("irrelevance") else 1.0


def fit(rows: Sequence[Row], balanced: bool) -> tuple[list[float], float]:
    """Return weights and bias of a logistic regression with an L2 penalty.

    `balanced` lets each category weigh the same, however many questions it has.
    """
    columns = list(zip(*(figures for _, figures in rows), strict=True))
    means = [sum(column) / len(column) for column in columns]
    spreads = [
        math.sqrt(sum((value - mean) ** 2 for value in column) / len(column)) + 1e-9
        for column, mean in zip(columns, means, strict=True)
    ]
    points = [
        [(value - mean) / spread for value, mean, spread in zip(f, means, spreads, strict=True)]
        for _, f in rows
    ]
    targets = [is_fitting(category) for category, _ in rows]
    sizes = Counter(category for category, _ in rows)
    shares = [1 / sizes[category] / len(sizes) for category, _ in rows]
    if not balanced:
        shares = [1 / len(rows)] * len(rows)
    weights, bias = [0.0] * len(means), 0.0
    for _ in range(STEPS):
        errors = [
            share * (probability(weights, bias, point) - target)
            for point, target, share in zip(points, targets, shares, strict=True)
        ]
        slopes = [sum(map(mul, column, errors)) for column in zip(*points, strict=True)]
        for place, slope in enumerate(slopes):
            weights[place] -= RATE * (slope + PENALTY * weights[place])
        bias -= RATE * sum(errors)
    plain = [weight / spread for weight, spread in zip(weights, spreads, strict=True)]
    return plain, bias - sum(map(mul, plain, means))


def probability(weights: Sequence[float], bias: float, figures: Sequence[float]) -> float:
    return 1 / (1 + math.exp(-bias - sum(map(mul, weights, figures))))


def show_thresholds(rows: Sequence[Row], balanced: bool) -> None:
    """Print the share of each category that gets a call, where it was not fitted."""
    chances: list[tuple[str, float]] = []
    for part in range(PARTS):
        weights, bias = fit(
            [row for place, row in enumerate(rows) if place % PARTS != part], balanced
        )
        chances += [
            (category, probability(weights, bias, figures))
            for category, figures in rows[part::PARTS]
        ]
    click.echo("| called from | " + " | ".join(CATEGORIES) + " |")
    for threshold in THRESHOLDS:
        cells: list[str] = []
        for category in CATEGORIES:
            own = [chance for name, chance in chances if name == category]
            cells.append(f"{sum(c >= threshold for c in own) / max(1, len(own)):.0%}")
        click.echo(f"| {threshold} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=450)
    parser.add_argument("--taught", action="store_true")
    given = parser.parse_args()
    model = Local("smollm2", threads=1) if given.taught else None
    rows = asyncio.run(collect(given.sample, model))
    weights, bias = fit(rows, given.taught)
    shown = ", ".join(f"{weight:.2f}" for weight in weights)
    click.echo(f"{len(rows)} questions\n\nWEIGHTS = ({shown})\nBIAS = {bias:.2f}\n")
    show_thresholds(rows, given.taught)


if __name__ == "__main__":
    main()
