"""Anthropic's SDK: an agent's tools for a loop of messages.

    async with guard(agent) as guarded:
        while True:
            message = await client.messages.create(
                model=..., max_tokens=..., messages=messages, tools=guarded.tools
            )
            messages.append({"role": "assistant", "content": message.content})
            if message.stop_reason != "tool_use":
                break
            messages += await guarded.dispatch(message)

A loop with the synchronous client is the same, within an async function.
`ApprovalsPending` is raised where approvals are waited for. A failure has `is_error`;
pictures and documents are blocks of the result.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from json.encoder import encode_basestring as quote
from typing import Any, Unpack

from ferrule.core.extras import name_missing_extra
from ferrule.engine.agent import Agent
from ferrule.tools.definition import Tool

from .guard import GuardOptions, open_guarded_session
from .guarded_session import GuardedSession
from .sdk_loops import Answered, ApprovalsPending, LoopTools, RequestedCall, encode_result

with name_missing_extra():
    from anthropic.types import ToolParam

__all__ = ["ApprovalsPending", "guard"]

FRAMEWORK = "anthropic"


@asynccontextmanager
async def guard(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[LoopTools[ToolParam]]:
    """Open a session of an agent and give its tools for Anthropic's messages.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        tools = [_make_tool(name, tool) for name, tool in guarded.tools.items()]
        yield LoopTools(guarded.session, tools, guarded, _read_calls, _write_results)


def _make_tool(name: str, tool: Tool) -> ToolParam:
    return {
        "name": name,
        "description": tool.description,
        "input_schema": {"type": "object", "properties": {}, **tool.arguments.schema},
    }


def _read_calls(message: Any) -> list[RequestedCall]:
    content: Any = message.get("content") or []
    if isinstance(content, str):
        return []
    return [
        RequestedCall(block["id"], block["name"], block["input"])
        for block in content
        if block["type"] == "tool_use"
    ]


async def _write_results(guarded: GuardedSession, answered: Answered) -> list[Any]:
    blocks: list[Any] = []
    for call, result in answered:
        content: Any = result.to_text()
        if result.media:
            content = await encode_result(guarded, "Messages", result, _encode_text)
        block = {"type": "tool_result", "tool_use_id": call.id, "content": content}
        blocks.append(block if result.success else {**block, "is_error": True})
    return [{"role": "user", "content": blocks}]


def _encode_text(text: str) -> str:
    return f'{{"type":"text","text":{quote(text)}}}'
