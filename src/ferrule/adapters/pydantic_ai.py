"""Pydantic AI: an agent's tools as a toolset, and its tools and toolsets as ours.

    async with guard(agent) as guarded:
        helper = pydantic_ai.Agent("openai:gpt-5.2", toolsets=guarded.tools)
        result = await helper.run("Tidy the notes.")

    ApprovalRequired    a call waits for an approval; `metadata` is the `PendingApproval`
    ModelRetry          the arguments do not fit
    ToolFailed          any other failure
    BinaryContent       what a tool returned beside text

A run that may be interrupted has `DeferredToolRequests` among its output types; the answer goes
into the next run as `deferred_tool_results`. Other arguments than those that were asked about
(`ToolApproved(override_args=...)`) are asked about again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Unpack, cast

from pydantic import ValidationError
from pydantic_core import SchemaValidator, core_schema

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.extras import name_missing_extra
from ferrule.core.media import Media
from ferrule.engine.agent import Agent
from ferrule.tools.definition import Risk, Tool

from .converted_tools import convert_tool
from .framework_approvals import PendingApproval
from .guard import GuardedTools, GuardOptions, open_guarded_session
from .guarded_session import GuardedSession

with name_missing_extra():
    from pydantic_ai import Tool as PydanticTool
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry
    from pydantic_ai.exceptions import ToolFailed as PydanticToolFailed
    from pydantic_ai.messages import BinaryContent, ToolReturn
    from pydantic_ai.models.test import TestModel
    from pydantic_ai.tools import RunContext, ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
    from pydantic_ai.usage import RunUsage

__all__ = ["guard", "open_tools"]

FRAMEWORK = "pydantic-ai"
_ANYTHING = SchemaValidator(core_schema.any_schema())
"""Arguments are checked by the dispatcher, once, and against the whole schema."""


@asynccontextmanager
async def guard(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[GuardedTools[AbstractToolset[Any]]]:
    """Open a session of an agent and give its tools as a toolset: `toolsets=guarded.tools`.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        yield GuardedTools(guarded.session, [GuardedToolset(guarded)])


class GuardedToolset(AbstractToolset[Any]):
    """The tools of a guarded session."""

    def __init__(self, guarded: GuardedSession) -> None:
        self._guarded = guarded

    @property
    def id(self) -> str:
        return f"ferrule-{self._guarded.session.id}"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=_define(name, tool),
                max_retries=ctx.max_retries,
                args_validator=_ANYTHING,
            )
            for name, tool in self._guarded.tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        approved = True if ctx.tool_call_approved else None
        outcome = await self._guarded.call(
            name, tool_args, ctx.tool_call_id or "", approved=approved
        )
        if isinstance(outcome, PendingApproval):
            self._guarded.remember_asked(outcome)
            raise ApprovalRequired(metadata=outcome.to_json())
        return await self._to_return(outcome)

    async def _to_return(self, result: ToolResult) -> Any:
        if result.error_type in (ErrorType.VALIDATION_FAILED, ErrorType.PARSE_ERROR):
            raise ModelRetry(result.to_text())
        if not result.success:
            raise PydanticToolFailed(result.to_text())
        value = result.to_text() if result.notes else result.data
        media = await self._guarded.load_media(result)
        if not media:
            return value
        return [value, *(BinaryContent(data, media_type=one.mime) for one, data in media)]


def _define(name: str, tool: Tool) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description=tool.description,
        parameters_json_schema={"type": "object", **tool.arguments.schema},
        return_schema=None if tool.output is None else dict(tool.output.schema),
        sequential=tool.parallel is not True,
        metadata={"side_effect": str(tool.side_effect), "risk": str(tool.risk)},
    )


# ---- inward


@asynccontextmanager
async def open_tools(
    *sources: AbstractToolset[Any] | PydanticTool[Any] | Callable[..., Any], deps: Any = None
) -> AsyncGenerator[list[Tool]]:
    """Give Pydantic AI's toolsets, tools and functions as tools of ours.

    Toolsets are entered, and left at the end. A tool that wants an approval there has high risk
    here, so that somebody is asked.

    Args:
        *sources: Toolsets, tools and functions, such as Pydantic AI's agents take.
        deps: What their tools find as `RunContext.deps`.

    Raises:
        ToolDefinitionError: A name or a schema cannot be used.
    """
    toolsets: list[AbstractToolset[Any]] = [
        cast("AbstractToolset[Any]", one) for one in sources if isinstance(one, AbstractToolset)
    ]
    single = [one for one in sources if not isinstance(one, AbstractToolset)]
    if single:
        toolsets.append(FunctionToolset(single))
    context = RunContext[Any](deps=deps, model=TestModel(), usage=RunUsage())
    async with AsyncExitStack() as stack:
        tools: list[Tool] = []
        for toolset in toolsets:
            await stack.enter_async_context(toolset)
            found = await toolset.get_tools(context)
            tools += [_convert(tool, context) for tool in found.values()]
        yield tools


def _convert(tool: ToolsetTool[Any], context: RunContext[Any]) -> Tool:
    about = tool.tool_def
    approved = about.kind == "unapproved"

    async def run(**arguments: Any) -> Any:
        call = replace(context, tool_name=about.name, tool_call_approved=approved)
        try:
            values = tool.args_validator.validate_python(arguments, context=None)
            value = await tool.toolset.call_tool(about.name, values, call, tool)
        except (ModelRetry, ValidationError) as error:
            raise RetryCall(str(error)) from error
        except PydanticToolFailed as error:
            raise ToolFailed(ErrorType.TOOL_ERROR, error.message) from error
        except (ApprovalRequired, CallDeferred) as error:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"`{about.name}` waits for a run of Pydantic AI, and there is none here",
            ) from error
        return _to_value(value)

    return convert_tool(
        about.name,
        about.description,
        about.parameters_json_schema,
        run,
        source="pydantic-ai",
        risk=Risk.HIGH if approved else Risk.SAFE,
    )


def _to_value(value: Any) -> Any:
    if isinstance(value, ToolReturn):
        value = value.return_value
    if isinstance(value, BinaryContent):
        return Media(value.data)
    if isinstance(value, (list, tuple)):
        return [_to_value(one) for one in cast("Sequence[Any]", value)]
    return value
