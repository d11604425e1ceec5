"""Costs: tokens and money by day, model and session, as recorded in the journal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from decimal import Decimal
from functools import partial

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.charts import Series, days_up_to, draw_columns
from ferrule.console.html import format_count
from ferrule.console.state import Console
from ferrule.console.statistics import query_statistics, statistics_owner
from ferrule.storage.statistics.spending import NANODOLLARS, DayAndModel, SpendingTotal, add_up
from ferrule.storage.statistics.tools import day_of

WINDOWS = (7, 30, 90)
"""Periods, in days, that the page offers."""
MAX_MODELS = 5
"""Models with a colour of their own, the most expensive ones."""


def routes(console: Console) -> list[BaseRoute]:
    """Return `/costs`."""
    return [Route("/costs", partial(page, console))]


async def page(console: Console, request: Request) -> Response:
    """Show what was spent in the chosen period."""
    viewer = console.require_viewer(request)
    window = _parse_window(request)
    owner = statistics_owner(viewer)
    (slots, sessions, problem), reading = await query_statistics(
        console,
        lambda numbers: (
            numbers.spending.totals_by_day_and_model(owner),
            numbers.spending.sessions(owner),
            numbers.spending.problem,
        ),
    )
    days = days_up_to(day_of(int(time.time() * 1000)), window)
    within = {slot: spent for slot, spent in slots.items() if slot.day >= days[0]}
    total = SpendingTotal()
    for spent in within.values():
        total.add(spent)
    return console.render_page(
        request,
        "costs.html",
        window=window,
        windows=WINDOWS,
        reading=reading,
        total=total,
        problem=problem,
        sessions=sessions,
        models=_most_expensive(within),
        tokens=draw_tokens(within, days),
        money=draw_costs(within, days),
        dollars=format_spending,
        amount=format_dollars,
    )


def _parse_window(request: Request) -> int:
    given = request.query_params.get("days", "")
    return int(given) if given in map(str, WINDOWS) else 30


def _most_expensive(slots: Mapping[DayAndModel, SpendingTotal]) -> dict[str, SpendingTotal]:
    """Return the totals per model, the most expensive first.

    Models without a price follow, the one with the most tokens first.
    """
    sums = add_up(slots, "model")
    return dict(
        sorted(sums.items(), key=lambda one: (one[1].usage.cost, one[1].usage.input), reverse=True)
    )


def format_spending(spent: SpendingTotal) -> str:
    """Format money, and say if part of it has no known price."""
    known = spent.dollars
    if known is None:
        return "no price known" if spent.answers else "–"
    return f"{'at least ' if spent.unpriced else ''}{format_dollars(float(known))}"


def format_dollars(value: float) -> str:
    """Format US dollars: two decimals, more for small sums."""
    if value and value < 0.01:
        return f"${Decimal(str(value)):.4f}"
    return f"${value:,.2f}"


def draw_tokens(slots: Mapping[DayAndModel, SpendingTotal], days: list[str]) -> Markup:
    """Draw tokens by day: fresh input, input from the provider's cache, and output."""
    sums = add_up(slots, "day")
    usages = [sums[day].usage if day in sums else SpendingTotal().usage for day in days]
    series = [
        Series("input", "pic-1", [max(0, one.input - one.cached) for one in usages]),
        Series("cached input", "pic-3", [min(one.cached, one.input) for one in usages]),
        Series("output", "pic-2", [one.output for one in usages]),
    ]
    return draw_columns("Tokens by day", days, series, format_tokens, whole=True)


def draw_costs(slots: Mapping[DayAndModel, SpendingTotal], days: list[str]) -> Markup:
    """Draw money by day, with a colour for each of the most expensive models.

    Returns an empty text if nothing has a price.
    """
    priced = [name for name, spent in _most_expensive(slots).items() if spent.usage.cost]
    if not priced:
        return Markup("")

    def row(names: list[str]) -> list[float]:
        return [
            sum(
                slots[DayAndModel(day, name)].usage.cost or 0
                for name in names
                if DayAndModel(day, name) in slots
            )
            / NANODOLLARS
            for day in days
        ]

    groups = [[name] for name in priced[:MAX_MODELS]] + (
        [priced[MAX_MODELS:]] if priced[MAX_MODELS:] else []
    )
    series = [
        Series(names[0] if len(names) == 1 else f"{len(names)} more", f"pic-{at}", row(names))
        for at, names in enumerate(groups, 1)
    ]
    return draw_columns("Money by day (US dollars)", days, series, format_dollars)


def format_tokens(value: float) -> str:
    """Format a number of tokens: `950`, `12.5k`, `3.2M`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return format_count(round(value))
