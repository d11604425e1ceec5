"""A server's tools as tools of a run: `server__tool`, decided on by the gate like all others.

A tool of a server does something outside, as far as anybody can tell: it is `external` with risk
`medium`, so a person is asked. What it says of itself can only make that stricter
(`destructiveHint`: risk `high`), unless the person said that this server is believed (`hints`):
then one that only reads is `read` and `low`, and one that is idempotent may be retried.

Resources and prompts are two tools, `server__resources` and `server__prompts`: without arguments
they list, with arguments they read. They read what the server chooses to give and are `external`
too. If the server has a tool of that name, the tool keeps it.

The class of a failure is decided here, since only here is it known whether the server was reached;
the dispatcher counts the attempts. Keys of `tool_policies` are the names that the server gives; its
resources and prompts have its `policy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ferrule.connectors.bounded_schemas import make_arguments
from ferrule.connectors.json_values import list_or_empty, mapping_or_empty
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolDefinitionError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context
from ferrule.tools.definition import Arguments, Loading, Output, Risk, SideEffect, Tool
from ferrule.tools.reliability import Reliability

from .connection import RequestFailed
from .definitions import Manifest, ToolDefinition, clean_text
from .results import prompt_value, resource_value, result_value
from .server_client import ServerClient
from .spec import McpServer

CONTEXT_PARAMETER = "ferrule context"
"""The parameter in which handlers get the context; no sensible schema has such a property."""
TIMEOUT = 30.0
"""Seconds that one attempt may take if no policy says otherwise (requirement 004, part 6)."""
_NAME_SHOWN = 80
_LEFT_OUT_SHOWN = 20
_GRACE_SECONDS = 10.0
"""Seconds that the dispatcher waits beyond the handler's own timeout, whose message says more."""
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
    """Return what a tool of a server is called in rules, journals and the catalog."""
    return f"{server}__{tool}"


def make_tools(client: ServerClient, manifest: Manifest) -> tuple[Tool, ...]:
    """Return the tools of a server that are offered, sorted by name."""
    server = client.server
    made = [
        _server_tool(client, definition)
        for definition in manifest.tools
        if is_selected(server, definition.name)
    ]
    names = {definition.name for definition in manifest.tools}
    if manifest.resources and "resources" not in names and is_selected(server, "resources"):
        made.append(
            _list_and_read_tool(
                client,
                "resources",
                f"Resources of the MCP server `{server.name}`: lists them, or reads one.",
                _RESOURCES,
                _read_resources,
            )
        )
    if manifest.prompts and "prompts" not in names and is_selected(server, "prompts"):
        made.append(
            _list_and_read_tool(
                client,
                "prompts",
                f"Prompts of the MCP server `{server.name}`: lists them, or gets one.",
                _PROMPTS,
                _get_prompts,
            )
        )
    return tuple(sorted(made, key=lambda tool: tool.name))


def is_selected(server: McpServer, tool: str) -> bool:
    """Return whether the person wants a tool, by the server's own name for it."""
    return (server.only is None or tool in server.only) and tool not in server.without


def _server_tool(client: ServerClient, definition: ToolDefinition) -> Tool:
    server = client.server
    effect = classify_tool(server, definition)
    policy = server.policies.policy_for(definition.name)
    own = server.policies.tools.get(definition.name)
    if own is not None and (own.max_attempts or 1) > 1:
        # Attempts that a person wrote down for this tool say that calling it again does no harm.
        effect = effect._replace(idempotent=True)
    is_repeatable = effect.idempotent or effect.side_effect is SideEffect.READ
    call_policy = _CallPolicy(client, policy, is_repeatable)

    async def call(**values: Any) -> Any:
        context = values.pop(CONTEXT_PARAMETER)
        return await call_policy.run(
            definition.name, context, lambda: _call_server(client, definition, values, context)
        )

    made = _make_tool(
        server,
        definition.name,
        _description(server, definition),
        make_arguments(definition.name, definition.schema),
        call,
        call_policy,
        effect,
    )
    origin = {"server": server.name, "tool": definition.name, "hash": definition.hash}
    return replace(made, output=_output(definition), annotations={"mcp": origin})


def _output(definition: ToolDefinition) -> Output | None:
    try:
        return definition.output
    except ToolDefinitionError:
        return None  # It was said when the server was listed; the tool works all the same.


class ToolEffect(NamedTuple):
    """What a tool does to the world, as far as its server is believed."""

    side_effect: SideEffect = SideEffect.EXTERNAL
    risk: Risk = Risk.MEDIUM
    idempotent: bool = False


def classify_tool(server: McpServer, definition: ToolDefinition) -> ToolEffect:
    """Return what a tool does to the world; see the module docstring."""
    is_destructive = definition.hint("destructiveHint")
    is_read_only = definition.hint("readOnlyHint")
    if server.hints and is_read_only is True and is_destructive is not True:
        return ToolEffect(SideEffect.READ, Risk.LOW, idempotent=True)
    risk = Risk.HIGH if is_destructive is True and is_read_only is not True else Risk.MEDIUM
    is_idempotent = server.hints and definition.hint("idempotentHint") is True
    return ToolEffect(SideEffect.EXTERNAL, risk, is_idempotent)


async def _call_server(
    client: ServerClient, definition: ToolDefinition, arguments: Mapping[str, Any], context: Context
) -> Any:
    result = await client.call(definition, arguments, context)
    return result_value(client.server.name, definition.name, result)


def _description(server: McpServer, definition: ToolDefinition) -> str:
    return f"MCP server `{server.name}` says: {definition.description}"


def _make_tool(
    server: McpServer,
    name: str,
    description: str,
    arguments: Arguments,
    handler: Callable[..., Awaitable[Any]],
    call_policy: _CallPolicy,
    effect: ToolEffect,
) -> Tool:
    return Tool(
        name=full_name(server.name, name),
        description=description,
        arguments=arguments,
        handler=handler,
        side_effect=effect.side_effect,
        risk=effect.risk,
        reliability=call_policy.reliability(),
        idempotent=effect.idempotent,
        is_async=True,
        context_parameter=CONTEXT_PARAMETER,
        loading=Loading.DEFERRED if server.deferred else Loading.ALWAYS,
        source=f"mcp {server.name}",
    )


# ---- one call, and whether to retry it
@frozen
class _CallPolicy:
    """The timeout and retries of one tool. `repeatable`: calling it twice does no harm."""

    client: ServerClient
    policy: Reliability
    repeatable: bool

    @property
    def seconds(self) -> float:
        return self.policy.timeout or TIMEOUT

    def reliability(self) -> Reliability:
        """Return the policy for the dispatcher. Starting a server has its own timeout."""
        return replace(
            self.policy, timeout=self.seconds + self.client.server.connect_timeout + _GRACE_SECONDS
        )

    async def run(self, name: str, context: Context, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Make one attempt.

        Raises:
            ToolFailed: Its class can be retried if another attempt makes sense.
        """
        await self.client.ensure_started(context)
        self.client.take_refusals()  # those of its start are no part of this call
        try:
            return await self._run_bounded(name, context, attempt)
        except ToolFailed as failed:
            refused = self.client.take_refusals()
            if not refused:
                raise
            message = f"{failed.message}; meanwhile {refused}"
            raise ToolFailed(
                failed.error_type, message, kind=failed.kind, data=failed.data
            ) from failed

    async def _run_bounded(
        self, name: str, context: Context, attempt: Callable[[], Awaitable[Any]]
    ) -> Any:
        server = self.client.server.name
        bound = asyncio.timeout(self.seconds)
        try:
            async with bound:
                context.timeouts.add(bound)
                return await attempt()
        except TimeoutError:
            if not bound.expired():
                raise
            self.client.start_liveness_check()
            message = f"`{name}` of server `{server}` gave no answer within {self.seconds:g} s"
            if not self.repeatable:
                message += "; it was asked to stop, but what it did so far may stand"
            raise ToolFailed(
                ErrorType.TIMEOUT, message, kind=self._kind("timeout", sent=True)
            ) from None
        except RequestFailed as failure:
            raise ToolFailed(
                _ERROR_TYPES.get(failure.kind, ErrorType.TOOL_ERROR),
                _failure_message(name, server, failure, self.repeatable),
                kind=self._kind(_RETRY_CLASSES.get(failure.kind, failure.kind), sent=failure.sent),
            ) from failure

    def _kind(self, kind: str, *, sent: bool) -> str:
        return kind if self.repeatable or not sent else "permanent"


_ERROR_TYPES = {
    "gone": ErrorType.IO_ERROR,
    "expired": ErrorType.IO_ERROR,
    "transient": ErrorType.IO_ERROR,
    "5xx": ErrorType.IO_ERROR,
    "malformed": ErrorType.PARSE_ERROR,
}
_RETRY_CLASSES = {"gone": "transient", "expired": "transient", "malformed": "permanent"}
"""Kinds of failures of a connection as the classes that retries know."""


def _failure_message(name: str, server: str, failure: RequestFailed, repeatable: bool) -> str:
    is_unknown = (
        failure.kind in ("gone", "expired", "malformed") and failure.sent and not repeatable
    )
    note = "; outcome unknown: check what it did before doing it again" if is_unknown else ""
    return f"`{name}` of server `{server}` failed: {clean_text(failure.message)[:2_000]}{note}"


# ---- resources and prompts


def _list_and_read_tool(
    client: ServerClient,
    name: str,
    description: str,
    schema: Mapping[str, Any],
    read: Callable[[ServerClient, Mapping[str, Any], Context], Awaitable[Any]],
) -> Tool:
    call_policy = _CallPolicy(client, client.server.policies.default, repeatable=True)

    async def call(**values: Any) -> Any:
        context = values.pop(CONTEXT_PARAMETER)
        return await call_policy.run(name, context, lambda: read(client, values, context))

    return _make_tool(
        client.server,
        name,
        description,
        make_arguments(name, schema),
        call,
        call_policy,
        ToolEffect(idempotent=True),
    )


async def _read_resources(
    client: ServerClient, arguments: Mapping[str, Any], context: Context
) -> Any:
    if "uri" in arguments:
        return resource_value(
            await client.request("resources/read", {"uri": arguments["uri"]}, context)
        )
    listed = await client.request("resources/list", {}, context)
    found, left_out = _sort_out(listed.get("resources"), "resource", "uri")
    shown: dict[str, Any] = {"resources": found}
    with suppress(RequestFailed):  # many servers have resources and no templates
        templates = await client.request("resources/templates/list", {}, context)
        found, more = _sort_out(templates.get("resourceTemplates"), "template", "uriTemplate")
        shown["templates"] = found
        left_out += more
    return {**shown, "left_out": left_out} if left_out else shown


async def _get_prompts(client: ServerClient, arguments: Mapping[str, Any], context: Context) -> Any:
    if "name" in arguments:
        params = {"name": arguments["name"], "arguments": arguments.get("arguments", {})}
        return prompt_value(await client.request("prompts/get", params, context))
    listed = await client.request("prompts/list", {}, context)
    found, left_out = _sort_out(listed.get("prompts"), "prompt", "name")
    return {"prompts": found, "left_out": left_out} if left_out else {"prompts": found}


def _sort_out(listed: Any, kind: str, key: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the entries of a list that can be read, and what is wrong with each other one.

    Args:
        listed: A server's list.
        kind: What an entry is, for people.
        key: The member by which an entry is read.
    """
    if listed is not None and not isinstance(listed, list):
        return [], [f"the list of {kind}s is no list"]
    good: list[Mapping[str, Any]] = []
    left_out: list[str] = []
    for number, entry in enumerate(list_or_empty(listed), 1):
        members = mapping_or_empty(entry)
        if members.get(key) and isinstance(members[key], str):
            good.append(members)
            continue
        name = members.get("name") or members.get("title")
        shown = f" {clean_text(name)[:_NAME_SHOWN]!r}" if isinstance(name, str) else ""
        left_out.append(f"{kind} {number}{shown}: it has no `{key}`")
    return good, left_out[:_LEFT_OUT_SHOWN]
