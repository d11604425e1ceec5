"""Policy: the rules in force, what was denied, and what the gate or other rules would decide."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.charts import Series, days_up_to, draw_columns
from ferrule.console.html import REFUSERS, format_count
from ferrule.console.schema_form import Field, build_fields, read_values
from ferrule.console.state import Console
from ferrule.console.statistics import query_statistics, statistics_owner
from ferrule.console.viewer import Viewer
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode, Refuser
from ferrule.engine.replay.what_if_history import (
    HistoryComparison,
    classify,
    compare_history,
    parse_rules,
)
from ferrule.engine.threads import run_blocking
from ferrule.permissions.rule_evaluation import MODES
from ferrule.storage.audit.past_calls import read_past_calls
from ferrule.storage.statistics.finished_calls import STOPPERS
from ferrule.storage.statistics.tools import day_of
from ferrule.tools.definition import Tool

DAYS = 30
DAY = 86_400_000
_COLOURS = 6
"""Colours of charts in the style sheet."""


@frozen
class Explanation:
    """What the gate would decide about a call that nobody makes."""

    verdict: str
    steps: list[str]


def routes(console: Console) -> list[BaseRoute]:
    """Return `/policy`, `/policy/fields` (tool form), `/policy/explain`, `/policy/what-if`."""
    return [
        Route("/policy", partial(page, console)),
        Route("/policy/fields", partial(form_fields, console)),
        Route("/policy/explain", partial(explain_call, console), methods=["POST"]),
        Route("/policy/what-if", partial(compare_rules, console), methods=["POST"]),
    ]


async def page(console: Console, request: Request) -> Response:
    """Show the whole page, with no question asked yet."""
    return await _render(
        console, request, tool=_find_tool(console, request.query_params.get("tool", ""))
    )


def _find_tool(console: Console, name: str) -> Tool | None:
    return console.assembly.agent.catalog.get(name) if name else None


async def _render(
    console: Console, request: Request, *, tool: Tool | None = None, status: int = 200, **more: Any
) -> Response:
    viewer = console.require_viewer(request)
    agent = console.assembly.agent
    owner = statistics_owner(viewer)
    gate = agent.gate
    (stopped, last, sandboxes), reading = await query_statistics(
        console,
        lambda numbers: (
            numbers.tools.count_stopped(owner),
            numbers.tools.list_stopped(owner),
            numbers.tools.sandboxes(owner),
        ),
    )
    names = [tool.full_name for tool in agent.catalog]
    values: dict[str, Any] = {
        "gate": gate,
        "rules": [*gate.rules.deny, *gate.rules.ask, *gate.rules.allow],
        "grants": list(gate.grants.rules) if viewer.operator else [],
        "findings": gate.rules.lint(
            names, can_grow=bool(console.assembly.settings["tools.register"])
        ),
        "reading": reading,
        "picture": draw_denied_calls(stopped),
        "last": last[:20],
        "sandboxes": sandboxes,
        "names": names,
        "tool": tool,
        "fields": build_fields(tool.arguments.schema) if tool else [],
        "problems": [],
        "more": "",
        "explained": None,
        "modes": MODES,
        "given": "",
        "keep": True,
        "mode": "",
        "compared": None,
        "outcome": classify,
        "days": DAYS,
        "wrong": "",
    }
    return console.render_page(request, "policy.html", status=status, **{**values, **more})


def draw_denied_calls(stopped: dict[str, Any]) -> Markup:
    """Draw the denied calls by day and by what denied them."""
    days = days_up_to(day_of(int(time.time() * 1000)), DAYS)
    counts = {who: [stopped[day][who] if day in stopped else 0 for day in days] for who in STOPPERS}
    shown: list[Refuser] = [who for who in STOPPERS if any(counts[who])]
    series = [
        Series(REFUSERS[who], f"pic-{at % _COLOURS + 1}", counts[who])
        for at, who in enumerate(shown)
    ]
    return draw_columns(
        "Denied calls, by day",
        days,
        series,
        lambda value: format_count(round(value)),
        whole=True,
    )


async def form_fields(console: Console, request: Request) -> Response:
    """Return the fields of a tool's arguments."""
    tool = _find_tool(console, request.query_params.get("tool", ""))
    fields: list[Field] = build_fields(tool.arguments.schema) if tool else []
    return console.render_page(
        request, "policy_fields.html", tool=tool, fields=fields, problems=[], more=""
    )


async def explain_call(console: Console, request: Request) -> Response:
    """Explain what the gate would decide about these arguments, as `ferrule policy explain` does.

    Nothing runs.
    """
    console.require_viewer(request)
    given = {
        name: value for name, value in (await request.form()).items() if isinstance(value, str)
    }
    tool = _find_tool(console, given.get("tool", ""))
    if tool is None:
        return await _render(console, request, problems=["no such tool"], status=422)
    values, fields, problems = read_values(build_fields(tool.arguments.schema), given)
    checked = tool.arguments.check(values) if not problems else None
    if checked is not None:
        problems = checked.problems
    shown: dict[str, Any] = {"fields": fields, "problems": problems, "more": given.get("more", "")}
    if checked is not None and not problems:
        gate = console.assembly.agent.gate
        shown["explained"] = Explanation(
            gate.decide(tool, checked.values).verdict, gate.explain_steps(tool, checked.values)
        )
    return await _render(console, request, tool=tool, status=422 if problems else 200, **shown)


async def compare_rules(console: Console, request: Request) -> Response:
    """Show what other rules would have decided about the calls of the last days.

    Nothing runs, and no rule is changed.
    """
    viewer = console.require_viewer(request)
    given = {
        name: value for name, value in (await request.form()).items() if isinstance(value, str)
    }
    text = given.get("rules", "")[:100_000]
    keep = bool(given.get("keep"))
    mode = given.get("mode", "")
    shown: dict[str, Any] = {"given": text, "keep": keep, "mode": mode if mode in MODES else ""}
    try:
        compared = await run_blocking(lambda: _compare(console, viewer, text, keep, shown["mode"]))
    except ConfigError as error:
        return await _render(
            console,
            request,
            status=422,
            **shown,
            wrong=" ".join(filter(None, (error.detail, error.hint))),
        )
    return await _render(console, request, **shown, compared=compared)


def _compare(
    console: Console, viewer: Viewer, text: str, keep: bool, mode: str
) -> HistoryComparison:
    agent = console.assembly.agent
    owner = statistics_owner(viewer)
    rules = parse_rules(text, root=agent.gate.context.root)
    tenant, user = owner or (None, None)
    calls = read_past_calls(
        console.journal, tenant=tenant, user=user, since=int(time.time() * 1000) - DAYS * DAY
    )
    chosen = cast("PermissionMode", mode) if mode else None
    return compare_history(calls, agent.gate, rules, agent.catalog, keep=keep, mode=chosen)
