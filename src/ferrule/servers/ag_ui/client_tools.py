"""Tools that run in the client: its calls wait until the client sends their results.

They are tools of the session like any other: their calls pass the gate, with its rules and
approvals, and are journaled. The client is told of a call once the gate has let it through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from ferrule.core.errors import ToolDefinitionError
from ferrule.engine.agent import Agent
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool

from .inputs import ClientToolSpec, InputRefused
from .interrupts import ANSWER_SECONDS

SOURCE = "ag-ui client"
"""Where these tools come from, as errors and pages name it."""
_CONTEXT = "ferrule_context"
"""The handler's own parameter; no tool of a client may have one of this name."""

AskClient = Callable[[str], Awaitable[str]]
"""Waits for the client's result of a call, by the call's id. Raises ToolFailed."""


def add_client_tools(
    agent: Agent[Any, Any], specs: Iterable[ClientToolSpec], ask: AskClient
) -> Agent[Any, Any]:
    """Return a copy of an agent that has the client's tools too.

    Raises:
        InputRefused: A tool cannot be used, or has the name of one of the agent's own.
    """
    specs = list(specs)
    if not specs:
        return agent
    copied = agent.copy()
    try:
        copied.catalog = Catalog([*agent.catalog, *(_make_tool(spec, ask) for spec in specs)])
    except ToolDefinitionError as error:
        raise InputRefused(f"`tools`: {error.detail}", code="invalid_tool") from error
    return copied


def _make_tool(spec: ClientToolSpec, ask: AskClient) -> Tool:
    properties = spec.parameters.get("properties")
    if isinstance(properties, dict) and _CONTEXT in properties:
        raise InputRefused(
            f"`tools`: `{spec.name}` has a parameter `{_CONTEXT}`, which is taken",
            code="invalid_tool",
        )

    async def call_client(**given: Any) -> str:
        context: Context = given[_CONTEXT]
        return await ask(context.call_id)

    made = define_tool(
        spec.name,
        spec.description,
        parameters={**spec.parameters, "type": "object"},
        handler=call_client,
        timeout=ANSWER_SECONDS,
    )
    return replace(made, context_parameter=_CONTEXT, source=SOURCE)
