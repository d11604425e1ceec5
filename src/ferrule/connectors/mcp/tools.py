"""From what a server offers to tools of a run: `server__tool`, judged by the gate like all others.

A tool of a server does something outside, as far as anybody can tell: `external`, risk `medium`, so
a person is asked. What it says of itself can only make that stricter (`destructiveHint`: risk
`high`), unless the person said that this server is believed (`hints`): then one that only reads is
`read` and `low`, and one that is idempotent may be tried again.

Resources and prompts are two tools, `server__resources` and `server__prompts`: without arguments
they list, with one they read. They read what the server chooses to give and are `external` too.
Where a tool of the server has that name, it keeps it.

Which class a failure is of is decided here, since only here is known whether the server was
reached; the dispatcher's shell counts the attempts. Keys of `tool_policies` are the names that the
server gives; its resources and prompts have its `policy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ferrule.connectors.schemas import arguments_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.definition import Arguments, Loading, Risk, SideEffect, Tool
from ferrule.tools.reliability import Reliability

from .connection import Failure
from .definitions import Definition, Manifest, clean
from .results import prompt_value, resource_value, value_of
from .server import Live
from .spec import McpServer

CONTEXT = "ferrule context"
"""The parameter that handlers get the context under: no argument of a schema with sense is called
that.
"""
TIMEOUT = 30.0
"""Seconds that one attempt may take where no policy says otherwise (requirement 004, part 6)."""
_GRACE = 10.0
"""Seconds that the shell gives beyond the handler's own bound, which says more."""
_RESOURCES = {
    "type": "object",
    "properties": {
        "uri": {
            "type": "string",
            "description": "Of the resource to read. Without it: a list of them.",
        }
    },
    "additionalProperties": False,
}
_PROMPTS = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "description": "Of the prompt to get. Without it: a list of them.",
        },
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "additionalProperties": False,
}


def full_name(server: str, tool: str) -> str:
    """What a tool of a server is called in rules, journals and the catalog."""
    return f"{server}__{tool}"


def make_tools(live: Live, manifest: Manifest) -> tuple[Tool, ...]:
    """The tools of a server that are offered, sorted by name."""
    server = live.server
    made = [_tool(live, one) for one in manifest.tools if chosen(server, one.name)]
    names = {one.name for one in manifest.tools}
    if manifest.resources and "resources" not in names and chosen(server, "resources"):
        made.append(
            _extra(
                live,
                "resources",
                f"Resources of the MCP server `{server.name}`: lists them, or reads one.",
                _RESOURCES,
                _read_resources,
            )
        )
    if manifest.prompts and "prompts" not in names and chosen(server, "prompts"):
        made.append(
            _extra(
                live,
                "prompts",
                f"Prompts of the MCP server `{server.name}`: lists them, or gets one.",
                _PROMPTS,
                _get_prompts,
            )
        )
    return tuple(sorted(made, key=lambda tool: tool.name))


def chosen(server: McpServer, tool: str) -> bool:
    """Whether the person wants a tool of a server, by the server's own name for it."""
    return (server.only is None or tool in server.only) and tool not in server.without


def _tool(live: Live, one: Definition) -> Tool:
    server = live.server
    side_effect, risk, idempotent = judged(server, one)
    policy = server.policies.of(one.name)
    plan = _Plan(live, policy, idempotent or side_effect is SideEffect.READ)

    async def call(**values: Any) -> Any:
        context = values.pop(CONTEXT)
        return await plan.run(one.name, context, lambda: _called(live, one, values, context))

    return _assembled(
        server,
        one.name,
        _described(server, one),
        arguments_of(one.name, one.schema),
        call,
        plan,
        side_effect,
        risk,
        idempotent,
        {"mcp": {"server": server.name, "tool": one.name, "hash": one.hash}},
    )


def judged(server: McpServer, one: Definition) -> tuple[SideEffect, Risk, bool]:
    """Side effect, risk and whether a tool is idempotent, from what the server says of it: see the
    top of this file.
    """
    destructive, reads = one.hint("destructiveHint"), one.hint("readOnlyHint")
    if server.hints and reads is True and destructive is not True:
        return SideEffect.READ, Risk.LOW, True
    risk = Risk.HIGH if destructive is True and reads is not True else Risk.MEDIUM
    return SideEffect.EXTERNAL, risk, server.hints and one.hint("idempotentHint") is True


async def _called(live: Live, one: Definition, values: Mapping[str, Any], context: Context) -> Any:
    result = await live.call(one, values, context)
    return value_of(live.server.name, one.name, result)


def _described(server: McpServer, one: Definition) -> str:
    return f"MCP server `{server.name}` says: {one.description}"


def _assembled(
    server: McpServer,
    name: str,
    description: str,
    arguments: Arguments,
    handler: Callable[..., Awaitable[Any]],
    plan: _Plan,
    side_effect: SideEffect = SideEffect.EXTERNAL,
    risk: Risk = Risk.MEDIUM,
    idempotent: bool = False,
    annotations: Mapping[str, Any] | None = None,
) -> Tool:
    return Tool(
        name=full_name(server.name, name),
        description=description,
        arguments=arguments,
        handler=handler,
        side_effect=side_effect,
        risk=risk,
        reliability=plan.reliability(),
        idempotent=idempotent,
        is_async=True,
        context_parameter=CONTEXT,
        loading=Loading.DEFERRED if server.deferred else Loading.ALWAYS,
        source=f"mcp {server.name}",
        annotations=annotations or {},
    )


# ---- one call, and whether another attempt makes sense


@dataclass(frozen=True, slots=True)
class _Plan:
    """How calls of one tool are tried. `repeatable`: doing it twice does no harm."""

    live: Live
    policy: Reliability
    repeatable: bool

    @property
    def seconds(self) -> float:
        return self.policy.timeout or TIMEOUT

    def reliability(self) -> Reliability:
        """For the shell. Starting a server has its own time."""
        return replace(
            self.policy, timeout=self.seconds + self.live.server.connect_timeout + _GRACE
        )

    async def run(self, name: str, context: Context, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """One attempt. Raises ToolFailed, of a class that can be retried if another one makes
        sense.
        """
        server = self.live.server.name
        await self.live.prepare(context)
        bound = asyncio.timeout(self.seconds)
        try:
            async with bound:
                return await attempt()
        except TimeoutError:
            if not bound.expired():
                raise
            self.live.silent()
            known = (
                "" if self.repeatable else "; it was told to stop, but what it did so far may stand"
            )
            message = (
                f"`{name}` of server `{server}` gave no answer within {self.seconds:g} s{known}"
            )
            raise ToolFailed(
                ErrorType.TIMEOUT, message, kind=self._kind("timeout", sent=True)
            ) from None
        except Failure as failure:
            raise ToolFailed(
                _ERRORS.get(failure.kind, ErrorType.TOOL_ERROR),
                _told(name, server, failure, self.repeatable),
                kind=self._kind(_CLASSES.get(failure.kind, failure.kind), sent=failure.sent),
            ) from failure

    def _kind(self, kind: str, *, sent: bool) -> str:
        return kind if self.repeatable or not sent else "permanent"


_ERRORS = {
    "gone": ErrorType.IO_ERROR,
    "transient": ErrorType.IO_ERROR,
    "5xx": ErrorType.IO_ERROR,
    "malformed": ErrorType.PARSE_ERROR,
}
_CLASSES = {"gone": "transient", "malformed": "permanent"}
"""Kinds of failures of a connection as the classes that retries know."""


def _told(name: str, server: str, failure: Failure, repeatable: bool) -> str:
    unknown = failure.kind in ("gone", "malformed") and failure.sent and not repeatable
    more = "; outcome unknown: check what it did before doing it again" if unknown else ""
    return f"`{name}` of server `{server}` failed: {clean(failure.message)[:2_000]}{more}"


# ---- resources and prompts


def _extra(
    live: Live,
    name: str,
    description: str,
    schema: Mapping[str, Any],
    read: Callable[[Live, Mapping[str, Any], Context], Awaitable[Any]],
) -> Tool:
    plan = _Plan(live, live.server.policies.default, repeatable=True)

    async def call(**values: Any) -> Any:
        context = values.pop(CONTEXT)
        return await plan.run(name, context, lambda: read(live, values, context))

    return _assembled(
        live.server, name, description, arguments_of(name, schema), call, plan, idempotent=True
    )


async def _read_resources(live: Live, values: Mapping[str, Any], context: Context) -> Any:
    if "uri" in values:
        return resource_value(await live.request("resources/read", {"uri": values["uri"]}, context))
    listed = await live.request("resources/list", {}, context)
    found: dict[str, Any] = {"resources": listed.get("resources", [])}
    try:
        templates = await live.request("resources/templates/list", {}, context)
    except Failure:
        return found  # many servers have resources and no templates
    return {**found, "templates": templates.get("resourceTemplates", [])}


async def _get_prompts(live: Live, values: Mapping[str, Any], context: Context) -> Any:
    if "name" in values:
        given = {"name": values["name"], "arguments": values.get("arguments", {})}
        return prompt_value(await live.request("prompts/get", given, context))
    listed = await live.request("prompts/list", {}, context)
    return {"prompts": listed.get("prompts", [])}
