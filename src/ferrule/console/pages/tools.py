"""Tools: the catalog with results of calls, one tool in full, and trying one out.

A trial passes the gate like every call, in a session of its own that belongs to whoever tries it;
questions go to the same browser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ferrule.console.schema_form import build_fields, read_values
from ferrule.console.state import Console, mount_path
from ferrule.console.statistics import query_statistics, statistics_owner
from ferrule.console.tool_trials import show_trial
from ferrule.core.value_class import frozen
from ferrule.permissions.rules import PermissionRule, matches_tool
from ferrule.storage.statistics.tools import ToolUse
from ferrule.tools.definition import Tool


@frozen
class Filter:
    """Which tools to show; empty fields match everything.

    `failing` selects those that failed at least once.
    """

    words: str = ""
    source: str = ""
    effect: str = ""
    loading: str = ""
    risk: str = ""
    namespace: str = ""
    failing: str = ""

    @staticmethod
    def from_request(request: Request) -> Filter:
        given = request.query_params
        return Filter(**{one.name: given.get(one.name, "").strip()[:200] for one in fields(Filter)})

    def matches(self, tool: Tool, use: ToolUse) -> bool:
        """Return whether this tool matches."""
        text = f"{tool.full_name} {tool.description}".casefold()
        return (
            all(word in text for word in self.words.casefold().split())
            and self.source in ("", tool.source)
            and self.effect in ("", str(tool.side_effect))
            and self.loading in ("", str(tool.loading))
            and self.risk in ("", str(tool.risk))
            and self.namespace in ("", tool.namespace or "none")
            and (not self.failing or use.failures > 0)
        )


@frozen
class Row:
    """A row of the catalog."""

    tool: Tool
    use: ToolUse
    hidden: bool


def routes(console: Console) -> list[BaseRoute]:
    """Return `/tools`, `/tools/tool` (one tool), `/tools/try` and `/tools/tried` (its result)."""
    return [
        Route("/tools", partial(catalog, console)),
        Route("/tools/tool", partial(tool_page, console)),
        Route("/tools/try", partial(try_tool, console), methods=["POST"]),
        Route("/tools/tried", partial(show_trial, console)),
    ]


async def catalog(console: Console, request: Request) -> Response:
    """Show the tools that match the filter."""
    viewer = console.require_viewer(request)
    wanted = Filter.from_request(request)
    uses, reading = await query_statistics(
        console, lambda numbers: numbers.tools.tools(statistics_owner(viewer))
    )
    agent = console.assembly.agent
    every = [
        Row(tool, uses.get(tool.full_name, ToolUse()), agent.gate.is_hidden(tool))
        for tool in agent.catalog
    ]
    gone = {name: use for name, use in sorted(uses.items()) if name not in agent.catalog}
    return console.render_page(
        request,
        "tools.html",
        rows=[row for row in every if wanted.matches(row.tool, row.use)],
        wanted=wanted,
        gone=gone,
        every=len(every),
        reading=reading,
        choices=_choices(row.tool for row in every),
    )


def _choices(tools: Iterable[Tool]) -> dict[str, list[str]]:
    every = list(tools)
    return {
        "source": sorted({tool.source for tool in every}),
        "effect": sorted({str(tool.side_effect) for tool in every}),
        "loading": sorted({str(tool.loading) for tool in every}),
        "risk": sorted({str(tool.risk) for tool in every}),
        "namespace": sorted({tool.namespace or "none" for tool in every}),
    }


async def tool_page(console: Console, request: Request) -> Response:
    """Show a tool with the results of its calls, and a form to try it."""
    tool = _find_tool(console, request.query_params.get("name", ""))
    return await _render_tool(console, request, tool, {})


def _find_tool(console: Console, name: str) -> Tool:
    tool = console.assembly.agent.catalog.get(name)
    if tool is None:
        raise HTTPException(404, f"no tool named `{name[:100]}`")
    return tool


async def _render_tool(
    console: Console, request: Request, tool: Tool, more: Mapping[str, Any], *, status: int = 200
) -> Response:
    viewer = console.require_viewer(request)
    gate = console.assembly.agent.gate
    use, reading = await query_statistics(
        console, lambda numbers: numbers.tools.tool(tool.full_name, statistics_owner(viewer))
    )
    schema = tool.arguments.schema
    values: dict[str, Any] = {
        "tool": tool,
        "use": use,
        "reading": reading,
        "schema": schema,
        "hidden": gate.is_hidden(tool),
        "fields": build_fields(schema),
        "problems": [],
        "more": "",
        "reliability": _describe_reliability(tool),
        "rules": [
            rule
            for rule in (*gate.rules.deny, *gate.rules.ask, *gate.rules.allow)
            if _concerns(rule, tool)
        ],
        "api_name": console.assembly.agent.catalog.api_name(tool),
    }
    return console.render_page(request, "tool.html", status=status, **{**values, **more})


def _describe_reliability(tool: Tool) -> dict[str, str]:
    """Describe how often a call is attempted and how long it may take."""
    policy = tool.reliability
    attempts = policy.total_attempts(tool.is_repeatable)
    said = {"Attempts": f"up to {attempts}" if attempts > 1 else "1, never retried automatically"}
    said["Timeout of an attempt"] = (
        f"{policy.timeout:g} s" if policy.timeout else "the limit of the run"
    )
    if attempts > 1:
        said["Retried after"] = ", ".join(
            policy.retry_on or ("transient failures", "timeouts", "5xx")
        )
    return said


def _concerns(rule: PermissionRule, tool: Tool) -> bool:
    """Return whether a rule names this tool, or a kind of thing that it touches."""
    if rule.kind:
        return rule.kind in {touch.kind for touch in tool.touches.values()}
    return matches_tool(rule, tool.full_name)


async def try_tool(console: Console, request: Request) -> Response:
    """Call a tool with what was typed, in a session of its own, and redirect to that session.

    Input that cannot be read is shown again with its problems.
    """
    viewer = console.require_viewer(request)
    form = await request.form()
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    tool = _find_tool(console, given.get("tool", ""))
    values, typed, problems = read_values(build_fields(tool.arguments.schema), given)
    if problems:
        shown = {"fields": typed, "problems": problems, "more": given.get("more", "")}
        return await _render_tool(console, request, tool, shown, status=422)
    live = await console.open_sessions.try_tool(viewer, tool.full_name, values)
    return RedirectResponse(f"{mount_path(request)}/tools/tried?session={live.id}", status_code=303)
