"""How sure the model must be of what it writes: right calls for each margin.

    python evals/fit_margin.py [CATEGORY ...]

`ferrule_local.small_models.written_arguments` takes a value of the model in place of one of the rules if
it prefers it by `MARGIN`. Development halves only; the right function is given, so what is judged is
the arguments. The rules have weights that were fitted without the function (`fit_values.PARTS`), and
the adapter has seen none of them: see `training.examples`. Real model, greedy; twenty minutes.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import bfcl
import click
import fit_values

from ferrule_local.client import Local
from ferrule_local.small_models import value_ranking
from ferrule_local.small_models.argument_filling import ArgumentFiller, WithoutModel
from ferrule_local.small_models.call_format import CallableTool
from ferrule_local.small_models.written_arguments import MARGIN, TaughtCall

CATEGORIES = ("simple", "multiple", "live_simple")
MARGINS = (-math.inf, 0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0, math.inf)
"""From always the model's value to always that of the rules."""


async def measure(category: str, weights: Sequence[Mapping[str, float]]) -> dict[float, int]:
    """Return how many calls of a category are right with each margin."""
    judge = bfcl.judge_of(bfcl.wheel())
    client = Local("smollm2", threads=1)
    right = dict.fromkeys(MARGINS, 0)
    rows = bfcl.entries(bfcl.wheel(), bfcl.CATEGORIES[category], "development")
    for row in rows:
        called = next(iter(row["answers"][0]))
        value_ranking.load_weights = partial(dict, weights[fit_values.part_of(called)])
        spec = next(one for one in bfcl.specs(row["functions"]) if one.name == called)
        tool = (spec.api_name, spec.description, json.loads(spec.schema))
        ruled = await ArgumentFiller(WithoutModel(), *tool).fill(row["request"])
        call = TaughtCall(client, CallableTool(*tool), row["request"])
        written = await call.write()
        preferences = await call.compare(written, ruled) if written is not None else {}
        for margin in MARGINS:
            given = dict[str, Any](ruled)
            if written is not None:
                given = call.choose(written, ruled, preferences, margin)
            said = [(called, json.dumps(given))]
            right[margin] += bfcl.judge_calls(said, row, category, judge) == 2
    await client.close()
    click.echo(f"{category}: {len(rows)} requests")
    return right


async def main() -> None:
    weights = fit_values.fit_without_parts(list(fit_values.examples()))
    for category in sys.argv[1:] or CATEGORIES:
        for margin, right in (await measure(category, weights)).items():
            shipped = "  (as it ships)" if margin == MARGIN else ""
            click.echo(f"  margin {margin:4}: {right} right{shipped}")


if __name__ == "__main__":
    asyncio.run(main())
