"""The yardstick: a tool loop written by hand over the same HTTP client, without gate, journal or
checks.

It offers the same tools and says much the same beforehand, so that the server reads as much.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from ferrule.models.http.transport import Transport

SYSTEM = (
    "You are a careful assistant. Use the tools when you need facts or effects; do not invent "
    "what a tool could tell you."
)


def spec(name: str) -> dict[str, Any]:
    """A tool as the loop sends it."""
    texts = (
        {"text": {"type": "string", "default": ""}}
        if name == "swallow"
        else {"n": {"type": "integer", "default": 0}}
    )
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Look at a number.",
            "parameters": {
                "type": "object",
                "properties": {**texts, "i": {"type": "integer", "default": 0}},
            },
        },
    }


HEADERS = {"content-type": "application/json"}


async def run(
    transport: Transport,
    base_url: str,
    prompt: str,
    tools: dict[str, Callable[..., Any]],
    *,
    stream: bool = False,
) -> str:
    """One question to its answer; blocking tools of a round run in asyncio's default threads."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": prompt},
    ]
    specs = [spec(name) for name in tools]
    while True:
        body = json.dumps(
            {"model": "stub", "messages": messages, "tools": specs, "stream": stream}
        ).encode()
        url = f"{base_url}/chat/completions"
        message = await (
            _streamed(transport, url, body) if stream else _whole(transport, url, body)
        )
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return message["content"]
        messages += await asyncio.gather(*(_call(tools, call) for call in calls))


async def _call(tools: dict[str, Callable[..., Any]], call: dict[str, Any]) -> dict[str, Any]:
    handler = tools[call["function"]["name"]]
    arguments = json.loads(call["function"]["arguments"])
    if asyncio.iscoroutinefunction(handler):
        value = await handler(**arguments)
    else:
        value = await asyncio.to_thread(handler, **arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": str(value)}


async def _whole(transport: Transport, url: str, body: bytes) -> dict[str, Any]:
    response = await transport.post(url, body, HEADERS)
    return json.loads(response.body)["choices"][0]["message"]


async def _streamed(transport: Transport, url: str, body: bytes) -> dict[str, Any]:
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    buffer = b""
    async with transport.stream(url, body, HEADERS) as response:
        async for chunk in response:
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                choices = json.loads(line[6:])["choices"]
                if choices:
                    _fold(choices[0]["delta"], text, calls)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
    if calls:
        for call in calls.values():
            call["function"]["arguments"] = "".join(call["function"]["arguments"])
        message["tool_calls"] = [calls[i] for i in sorted(calls)]
    return message


def _fold(delta: dict[str, Any], text: list[str], calls: dict[int, dict[str, Any]]) -> None:
    if delta.get("content"):
        text.append(delta["content"])
    for piece in delta.get("tool_calls") or ():
        call = calls.get(piece["index"])
        if call is None:
            function = {"name": piece["function"]["name"], "arguments": []}
            calls[piece["index"]] = call = {
                "id": piece["id"],
                "type": "function",
                "function": function,
            }
        call["function"]["arguments"].append(piece["function"].get("arguments") or "")
