"""Whatever a server answers, the next request is one that its provider takes.

The answers are made of what was seen and of what could be: names that no provider allows, empty
texts, arguments that are `null`, text, a list or broken JSON. The next request is held against the
request types of the providers' own packages, and against the rules that these do not state.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ferrule import Agent, Limits, Storage, tool
from ferrule.core.errors import FerruleError
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.cohere.client import Cohere
from ferrule.models.google.client import Google
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.storage import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply, Request

NAMES = st.one_of(
    st.sampled_from(
        ["add", "functions.add", "add<|channel|>commentary", "größe", "x" * 200, "", " add ", "1"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
    st.none(),
)
TEXTS = st.sampled_from(["", " ", "\n", "Fine."])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab"{}', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=4,
)
ARGUMENTS = st.one_of(
    st.sampled_from(["", "{", '{"a":1', "null", "[1]", '"x"', '{"a":1}', "not json"]),
    JSON.map(json.dumps),
)
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@tool(side_effect="read", risk="safe")
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


def chat_answer(text: str, name: Any, arguments: Any, value: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def responses_answer(text: str, name: Any, arguments: Any, value: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
               "content": [part]}  # fmt: skip
    call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": name,
            "arguments": arguments, "status": "completed"}  # fmt: skip
    return {"id": "r", "object": "response", "status": "completed", "output": [message, call]}


def anthropic_answer(text: str, name: Any, arguments: Any, value: Any) -> dict[str, Any]:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": text},
        {"type": "tool_use", "id": "toolu_1", "name": name, "input": value},
    ]
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip


def google_answer(text: str, name: Any, arguments: Any, value: Any) -> dict[str, Any]:
    # Signed, since only then the parts go back as they came.
    call = {"functionCall": {"name": name, "args": value}, "thoughtSignature": "c2ln"}
    parts = [{"text": text}, call]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def cohere_answer(text: str, name: Any, arguments: Any, value: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "tool_plan": text, "tool_calls": [call]}
    return {"id": "r", "finish_reason": "TOOL_CALL", "message": message}


def check_chat(request: dict[str, Any]) -> None:
    from openai.types.chat import ChatCompletionMessageParam

    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(request["messages"])
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


def check_responses(request: dict[str, Any]) -> None:
    from openai.types.responses import ResponseFunctionToolCallParam

    for item in request["input"]:
        if item.get("type") == "function_call":
            TypeAdapter(ResponseFunctionToolCallParam).validate_python(item)
            assert NAME.fullmatch(item["name"])
            assert isinstance(json.loads(item["arguments"]), dict)


def check_anthropic(request: dict[str, Any]) -> None:
    from anthropic.types import MessageParam

    TypeAdapter(list[MessageParam]).validate_python(request["messages"])
    for message in request["messages"]:
        assert message["content"]
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert NAME.fullmatch(block["name"]) and isinstance(block["input"], dict)


def check_google(request: dict[str, Any]) -> None:
    from google.genai.types import Content

    for content in request["contents"]:
        Content.model_validate(content)
        for part in content["parts"]:
            assert part != {} and part.get("text") != ""
            if "functionCall" in part:
                assert NAME.fullmatch(part["functionCall"]["name"])
                assert isinstance(part["functionCall"]["args"], dict)


def check_cohere(request: dict[str, Any]) -> None:
    from cohere.types import ChatMessageV2

    TypeAdapter(list[ChatMessageV2]).validate_python(request["messages"])
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


Kind = tuple[Callable[[str], Any], Callable[..., dict[str, Any]], Callable[[dict[str, Any]], None]]
KINDS: dict[str, Kind] = {
    "chat": (
        lambda url: OpenAIChat("m", base_url=f"{url}/v1", api_key="k"),
        chat_answer,
        check_chat,
    ),
    "responses": (
        lambda url: OpenAIResponses("m", base_url=f"{url}/v1", api_key="k"),
        responses_answer,
        check_responses,
    ),
    "anthropic": (
        lambda url: Anthropic("m", base_url=url, api_key="k"),
        anthropic_answer,
        check_anthropic,
    ),
    "google": (lambda url: Google("m", base_url=url, api_key="k"), google_answer, check_google),
    "cohere": (lambda url: Cohere("m", base_url=url, api_key="k"), cohere_answer, check_cohere),
}


@pytest.mark.proves("models.echo-valid")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(text=TEXTS, name=NAMES, arguments=ARGUMENTS, value=JSON)
def test_what_a_server_answered_goes_back_as_its_provider_takes_it(
    kind: str, text: str, name: Any, arguments: str, value: Any
) -> None:
    make_client, make_answer, check = KINDS[kind]
    sent: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        sent.append(json.loads(request.body))
        return Reply(json=make_answer(text, name, arguments, value))

    async def story() -> None:
        async with HttpDouble(reply) as server:
            agent = Agent(
                make_client(server.url),
                [add],
                limits=Limits(max_turns=3),
                storage=Storage(journal=SqliteJournal(":memory:")),
            )
            try:
                await agent.run("go")
            except FerruleError:
                pass  # the model never stops calling: what was sent counts
            finally:
                await agent.disconnect()

    asyncio.run(story())
    for request in sent:
        check(request)
    assert sent
