"""LangChain and LangGraph: an agent's tools as LangChain's, and LangChain's tools as ours.

    async with guard(agent) as guarded:
        helper = create_agent("openai:gpt-5.2", guarded.tools, checkpointer=InMemorySaver())
        state = await helper.ainvoke({"messages": [...]}, config)

A call that waits for an approval interrupts its graph (`langgraph_interrupts`), and
`Command(resume={"decisions": [{"type": "approve"}]})` goes on. Other arguments (`edit`) than those
that were asked about are asked about again. Outside a graph nobody can be asked, and the call
fails. A node that runs again after an interrupt does not make its finished calls again.

A result is a `ToolMessage`: its text, its pictures and the like as content blocks, the result
object as `artifact`; a failure has the status `error`. Tools are asynchronous (`ainvoke`).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Unpack, cast

from pydantic import Field

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import ToolFailed
from ferrule.core.extras import name_missing_extra
from ferrule.engine.agent import Agent
from ferrule.tools.definition import Tool

from .converted_tools import convert_tool, decode_medium
from .framework_approvals import PendingApproval
from .guard import GuardedTools, GuardOptions, open_guarded_session
from .guarded_session import GuardedSession
from .langgraph_interrupts import ask_person, find_task

with name_missing_extra():
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool, ToolException

__all__ = ["convert_tools", "guard"]

FRAMEWORK = "langchain"
_CALL_ID: ContextVar[str] = ContextVar("ferrule_langchain_call", default="")


@asynccontextmanager
async def guard(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[GuardedTools[BaseTool]]:
    """Open a session of an agent and give its tools as LangChain's.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        tools = [GuardedTool.of(guarded, name, tool) for name, tool in guarded.tools.items()]
        yield GuardedTools(guarded.session, tools)


class GuardedTool(BaseTool):
    """One tool of a guarded session."""

    guarded: Any = Field(default=None, exclude=True, repr=False)
    """The `GuardedSession` that makes its calls."""

    @classmethod
    def of(cls, guarded: GuardedSession, name: str, tool: Tool) -> BaseTool:
        """Return a tool of this session."""
        return cls(
            name=name,
            description=tool.description,
            # The dispatcher checks arguments, against the whole schema.
            args_schema={"type": "object", "properties": {}, **tool.arguments.schema},
            response_format="content_and_artifact",
            handle_tool_error=True,
            metadata={"side_effect": str(tool.side_effect), "risk": str(tool.risk)},
            guarded=guarded,
        )

    async def arun(self, *args: Any, **options: Any) -> Any:
        """Run the tool, which needs the id of its call: LangChain tells it only here."""
        token = _CALL_ID.set(options.get("tool_call_id") or "")
        try:
            return await super().arun(*args, **options)
        finally:
            _CALL_ID.reset(token)

    def _run(self, **arguments: Any) -> Any:
        raise NotImplementedError(f"`{self.name}` is asynchronous: use `ainvoke` or `astream`")

    async def _arun(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        result = await self._call(_CALL_ID.get(), arguments)
        if not result.success:
            raise ToolException(result.to_text())
        guarded: GuardedSession = self.guarded
        media = await guarded.load_media(result)
        if not media:
            return result.to_text(), result.to_envelope()
        blocks: list[dict[str, Any]] = [{"type": "text", "text": result.to_text()}]
        for one, data in media:
            kind = "file" if one.media_kind == "document" else one.media_kind
            encoded = base64.b64encode(data).decode("ascii")
            blocks.append({"type": kind, "base64": encoded, "mime_type": one.mime})
        return blocks, result.to_envelope()

    async def _call(self, call_id: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make the call, or return what became of it before: the task may run again."""
        guarded: GuardedSession = self.guarded
        task = find_task()
        if not task or not call_id:
            return await self._make_call(call_id, task, arguments)
        key = guarded.key(call_id, task)
        kept = guarded.find_kept(key)
        if kept is None and key in guarded.running:
            # An interrupt of a call beside it ended the task, and not this call.
            kept = await asyncio.shield(guarded.running[key])
        if kept is not None:
            return kept
        running = asyncio.ensure_future(self._make_call(call_id, task, arguments))
        guarded.running[key] = running
        try:
            result = await running
        finally:
            del guarded.running[key]
        guarded.keep_result(key, result)
        return result

    async def _make_call(self, call_id: str, task: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make the call, and go through the approvals that it waits for."""
        guarded: GuardedSession = self.guarded
        outcome = guarded.pending.get(guarded.key(call_id, task))
        if outcome is None:
            outcome = await guarded.call(self.name, arguments, call_id, scope=task)
        while isinstance(outcome, PendingApproval):
            if not task:
                raise ToolException(
                    f"`{self.name}` needs a person's approval ({outcome.reason}), and outside a "
                    "graph nobody can be asked; allow it with a rule, or give the agent an approver"
                )
            decision = ask_person(guarded, outcome, task)
            if decision.arguments is not None:
                arguments = decision.arguments
            outcome = await guarded.call(
                self.name, arguments, call_id, scope=task, approved=decision.approved
            )
        return outcome


# ---- inward


def convert_tools(tools: Iterable[BaseTool]) -> list[Tool]:
    """Return LangChain's tools as ours. Raises ToolDefinitionError."""
    return [_convert(tool) for tool in tools]


def _convert(tool: BaseTool) -> Tool:
    async def run(**arguments: Any) -> Any:
        call = {"type": "tool_call", "id": "ferrule", "name": tool.name, "args": arguments}
        try:
            message: Any = await tool.ainvoke(call)
        except ToolException as error:
            raise ToolFailed(ErrorType.TOOL_ERROR, str(error)) from error
        if not isinstance(message, ToolMessage):
            return message
        if message.status == "error":
            raise ToolFailed(ErrorType.TOOL_ERROR, str(message.text))
        content: Any = message.content
        return content if isinstance(content, str) else [_to_part(one) for one in content]

    declared: Any = tool.tool_call_schema
    schema = cast(
        "dict[str, Any]",
        declared if isinstance(declared, dict) else declared.model_json_schema(),
    )
    return convert_tool(tool.name, tool.description, schema, run, source="langchain")


def _to_part(block: Any) -> Any:
    """Return a content block as text, a medium, or the JSON that it is."""
    if isinstance(block, Mapping):
        parts = cast("Mapping[str, Any]", block)
        if parts.get("type") == "text":
            return parts["text"]
        if "base64" in parts:
            return decode_medium(parts["base64"])
        return dict(parts)
    return block
