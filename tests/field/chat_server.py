"""A chat completions server that answers as the test says, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ferrule import Agent
from ferrule.models.client import ModelClient
from ferrule.models.openai.chat import OpenAIChat
from ferrule.testing.http_double import HttpDouble, Reply, Request

Chunk = dict[str, Any] | str
"""A chunk as JSON, or the raw data of an event."""


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> Chunk:
    """Return one chunk of a streamed answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice], **more}


def call_chunk(
    name: str | None, arguments: Any, id: str | None = "call_1", index: int = 0
) -> Chunk:
    """Return the chunk with a call, or with a part of one."""
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": id, "type": "function", "function": function}
    return chunk({"tool_calls": [call]})


def stream(chunks: Iterable[Chunk], *, ends: bool = True) -> Reply:
    """Return a streamed answer; without `ends` the mark of its end is missing."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in chunks]
    if ends:
        texts.append("[DONE]")
    pieces = [f"data: {text}\n\n".encode() for text in texts]
    return Reply(pieces=pieces, headers={"content-type": "text/event-stream"})


def stream_call(name: str, arguments: str) -> Reply:
    """Return a streamed answer with one call."""
    return stream(
        [call_chunk(name, ""), call_chunk(None, arguments, None), chunk({}, "tool_calls")]
    )


def stream_text(text: str) -> Reply:
    """Return a streamed answer of text."""
    return stream([chunk({"role": "assistant", "content": text}), chunk({}, "stop")])


def whole(message: dict[str, Any], finish: str = "stop") -> Reply:
    """Return an answer in one piece."""
    return Reply(json={"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


async def ask(
    replies: Sequence[Reply],
    tools: Iterable[Any] = (),
    *,
    streamed: bool = True,
    connect: Callable[..., ModelClient] = OpenAIChat,
    **options: Any,
) -> tuple[Any, list[dict[str, Any]]]:
    """Run a message. Return its result and the requests, without those that only probe."""
    left = list(replies)
    requests: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        sent = request.json()
        if "report_ready" in json.dumps(sent.get("tools") or []):
            function = {"name": "report_ready", "arguments": "{}"}
            calls = [{"id": "c", "type": "function", "function": function}]
            return whole({"role": "assistant", "tool_calls": calls}, "tool_calls")
        requests.append(sent)
        return left.pop(0)

    async with HttpDouble(reply) as server:
        client = connect("gpt-x", base_url=f"{server.url}/v1", api_key="k")
        agent = Agent(client, list(tools), **options)
        session = agent.session()
        if streamed:
            session.observe(lambda _: None)
        try:
            return await session.run("go"), requests
        finally:
            await session.close()
            await agent.disconnect()
