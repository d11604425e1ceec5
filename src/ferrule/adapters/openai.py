"""OpenAI's SDK: an agent's tools for a loop of chat completions, or of the Responses API.

    async with guard(agent) as guarded:
        while True:
            answer = await client.chat.completions.create(
                model=..., messages=messages, tools=guarded.tools
            )
            message = answer.choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            messages += await guarded.dispatch(message)

With `guard_responses` the tools are those of the Responses API, and `dispatch(response)` returns
the input items to send after its output. A loop with the synchronous client is the same, within an
async function. `ApprovalsPending` is raised where approvals are waited for.

A tool's message holds text alone in chat completions, so pictures and the like follow the results
in a message of the user.
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
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam

__all__ = ["ApprovalsPending", "guard", "guard_responses"]

FRAMEWORK = "openai"


@asynccontextmanager
async def guard(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[LoopTools[ChatCompletionFunctionToolParam]]:
    """Open a session of an agent and give its tools for chat completions.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        tools = [_chat_tool(name, tool) for name, tool in guarded.tools.items()]
        yield LoopTools(guarded.session, tools, guarded, _read_chat, _write_chat)


@asynccontextmanager
async def guard_responses(
    agent: Agent[Any, Any], **options: Unpack[GuardOptions]
) -> AsyncGenerator[LoopTools[FunctionToolParam]]:
    """Open a session of an agent and give its tools for the Responses API.

    Raises as `guard.open_guarded_session`.
    """
    async with open_guarded_session(agent, FRAMEWORK, **options) as guarded:
        tools = [_responses_tool(name, tool) for name, tool in guarded.tools.items()]
        yield LoopTools(guarded.session, tools, guarded, _read_responses, _write_responses)


def _schema(tool: Tool) -> dict[str, Any]:
    return {"type": "object", "properties": {}, **tool.arguments.schema}


def _chat_tool(name: str, tool: Tool) -> ChatCompletionFunctionToolParam:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.description,
            "parameters": _schema(tool),
        },
    }


def _responses_tool(name: str, tool: Tool) -> FunctionToolParam:
    return {
        "type": "function",
        "name": name,
        "description": tool.description,
        "parameters": _schema(tool),
        # Strict schemas would be other schemas: each parameter is required in them.
        "strict": False,
    }


def _read_chat(message: Any) -> list[RequestedCall]:
    calls: list[Any] = message.get("tool_calls") or []
    return [
        RequestedCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in calls
        if call["type"] == "function"
    ]


async def _write_chat(guarded: GuardedSession, answered: Answered) -> list[Any]:
    messages: list[Any] = [
        {"role": "tool", "tool_call_id": call.id, "content": result.to_text()}
        for call, result in answered
    ]
    shown: list[Any] = []
    for call, result in answered:
        if result.media:
            blocks = await encode_result(guarded, "chat completions", result, _chat_text)
            shown += [{"type": "text", "text": f"What `{call.name}` returned:"}, *blocks]
    return [*messages, {"role": "user", "content": shown}] if shown else messages


def _chat_text(text: str) -> str:
    return f'{{"type":"text","text":{quote(text)}}}'


def _read_responses(response: Any) -> list[RequestedCall]:
    output: list[Any] = response.get("output") or []
    return [
        RequestedCall(item["call_id"], item["name"], item["arguments"])
        for item in output
        if item["type"] == "function_call"
    ]


async def _write_responses(guarded: GuardedSession, answered: Answered) -> list[Any]:
    items: list[Any] = []
    for call, result in answered:
        output: Any = result.to_text()
        if result.media:
            output = await encode_result(guarded, "Responses", result, _responses_text)
        items.append({"type": "function_call_output", "call_id": call.id, "output": output})
    return items


def _responses_text(text: str) -> str:
    return f'{{"type":"input_text","text":{quote(text)}}}'
