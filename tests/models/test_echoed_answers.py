"""Whatever a server answers, the next request is one that its provider takes.

The answers are made of what was seen and of what could be: names that no provider allows, empty
texts, arguments that are `null`, text, a list or broken JSON. The next request is held against the
request types of the providers' own packages, and against the rules that these do not state.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ferrule import Agent, Limits, Storage, tool
from ferrule.core.errors import FerruleError
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.cohere.client import Cohere
from ferrule.models.google.client import Google
from ferrule.models.http.transport import Transport
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.storage import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ollama_double import MODEL_DETAILS

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
IDS = st.sampled_from(["c1", "c1", "c2", "", None, "x" * 64, "functions.add:0", "größe"])
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@tool(side_effect="read", risk="safe")
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@dataclass(frozen=True)
class Said:
    """A part of an answer. `text` is a text or a thought, the rest belongs to a call."""

    kind: Literal["text", "thought", "call"]
    text: str = ""
    id: Any = None
    name: Any = None
    arguments: str = ""
    value: Any = None
    signature: str = ""


SAID = st.one_of(
    st.builds(Said, st.just("text"), TEXTS),
    st.builds(Said, st.just("thought"), TEXTS, signature=st.sampled_from(["", "c2ln", "c2lnbmVk"])),
    st.builds(Said, st.just("call"), TEXTS, IDS, NAMES, ARGUMENTS, JSON, st.just("c2ln")),
)
ANSWERS = st.lists(SAID, min_size=1, max_size=4)


def texts_of(answer: list[Said], kind: str = "text") -> str:
    return "".join(one.text for one in answer if one.kind == kind)


def calls_of(answer: list[Said]) -> list[Said]:
    return [one for one in answer if one.kind == "call"]


def chat_call(call: Said) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def chat_answer(answer: list[Said]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": texts_of(answer)}
    message["reasoning_content"] = texts_of(answer, "thought")
    message["tool_calls"] = [chat_call(call) for call in calls_of(answer)]
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}


def responses_answer(answer: list[Said]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    for at, one in enumerate(answer):
        item: dict[str, Any] = {"id": f"i{at}", "status": "completed"}
        if one.kind == "text":
            part: dict[str, Any] = {"type": "output_text", "text": one.text, "annotations": []}
            item |= {"type": "message", "role": "assistant", "content": [part]}
        elif one.kind == "thought":
            summary = [{"type": "summary_text", "text": one.text}]
            item = {"id": f"i{at}", "type": "reasoning", "summary": summary}
            item |= {"encrypted_content": one.signature} if one.signature else {}
        else:
            item |= {"type": "function_call", "call_id": one.id, "name": one.name}
            item["arguments"] = one.arguments
        output.append(item)
    return {"id": "r", "object": "response", "status": "completed", "output": output}


def anthropic_answer(answer: list[Said]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for one in answer:
        if one.kind == "text":
            content.append({"type": "text", "text": one.text})
        elif one.kind == "thought":
            thought = {"type": "thinking", "thinking": one.text, "signature": one.signature}
            content.append(thought)
        else:
            call = {"type": "tool_use", "id": one.id, "name": one.name, "input": one.value}
            content.append(call)
    return {"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip


def google_answer(answer: list[Said]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for one in answer:
        # Signed, since only then the parts go back as they came.
        signed = {"thoughtSignature": one.signature} if one.signature else {}
        if one.kind == "call":
            call = {"name": one.name, "args": one.value}
            call |= {} if one.id is None else {"id": one.id}
            parts.append({"functionCall": call, **signed})
        else:
            thought = {"thought": True} if one.kind == "thought" else {}
            parts.append({"text": one.text, **thought, **signed})
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def cohere_answer(answer: list[Said]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "tool_plan": texts_of(answer)}
    message["tool_calls"] = [chat_call(call) for call in calls_of(answer)]
    return {"id": "r", "finish_reason": "TOOL_CALL", "message": message}


def bedrock_answer(answer: list[Said]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    for one in answer:
        if one.kind == "text":
            content.append({"text": one.text})
        elif one.kind == "thought":
            signed = {"signature": one.signature} if one.signature else {}
            thought = {"reasoningText": {"text": one.text, **signed}}
            content.append({"reasoningContent": thought})
        else:
            call = {"toolUseId": one.id, "name": one.name, "input": one.value}
            content.append({"toolUse": call})
    message = {"role": "assistant", "content": content}
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    return {"output": {"message": message}, "stopReason": "tool_use", "usage": usage,
            "metrics": {"latencyMs": 1}}  # fmt: skip


def ollama_answer(answer: list[Said]) -> dict[str, Any]:
    calls = [{"function": {"name": one.name, "arguments": one.value}} for one in calls_of(answer)]
    message: dict[str, Any] = {"role": "assistant", "content": texts_of(answer)}
    message |= {"thinking": texts_of(answer, "thought"), "tool_calls": calls}
    return {"model": "m", "message": message, "done": True, "done_reason": "stop",
            "prompt_eval_count": 1, "eval_count": 1}  # fmt: skip


@cache
def make_adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what validates a type; making one takes seconds for large unions."""
    return TypeAdapter(kind)


def check_pairs(made: list[Any], answered: list[Any]) -> None:
    """Every call has an id of its own, and one result."""
    assert all(isinstance(one, str) and one for one in made), made
    assert len(set(made)) == len(made), made
    assert made == answered


def check_chat(request: dict[str, Any]) -> None:
    from openai.types.chat import ChatCompletionMessageParam

    make_adapter(list[ChatCompletionMessageParam]).validate_python(request["messages"])
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    check_pairs(
        [call["id"] for one in request["messages"] for call in one.get("tool_calls") or ()],
        [one["tool_call_id"] for one in request["messages"] if one["role"] == "tool"],
    )


def check_responses(request: dict[str, Any]) -> None:
    from openai.types.responses import ResponseFunctionToolCallParam, ResponseInputItemParam

    for item in request["input"]:
        if "type" in item:
            make_adapter(ResponseInputItemParam).validate_python(item)
    check_pairs(
        [item["call_id"] for item in request["input"] if item.get("type") == "function_call"],
        [
            item["call_id"]
            for item in request["input"]
            if item.get("type") == "function_call_output"
        ],
    )
    for item in request["input"]:
        if item.get("type") == "function_call":
            make_adapter(ResponseFunctionToolCallParam).validate_python(item)
            assert NAME.fullmatch(item["name"])
            assert isinstance(json.loads(item["arguments"]), dict)


def check_anthropic(request: dict[str, Any]) -> None:
    from anthropic.types import MessageParam

    make_adapter(list[MessageParam]).validate_python(request["messages"])
    for message in request["messages"]:
        assert message["content"]
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "text":
                assert block["text"].strip()
            if block["type"] == "tool_use":
                assert NAME.fullmatch(block["name"]) and isinstance(block["input"], dict)
    blocks = [
        block
        for message in request["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    check_pairs(
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


def check_google(request: dict[str, Any]) -> None:
    from google.genai.types import Content

    for content in request["contents"]:
        Content.model_validate(content)
        for part in content["parts"]:
            # A signature may come with an empty text, and has to go back with it.
            assert part != {} and (part.get("text") != "" or "thoughtSignature" in part)
            if "functionCall" in part:
                assert NAME.fullmatch(part["functionCall"]["name"])
                assert isinstance(part["functionCall"]["args"], dict)
    parts = [part for content in request["contents"] for part in content["parts"]]
    made = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
    assert made == [
        part["functionResponse"]["name"] for part in parts if "functionResponse" in part
    ]


def check_cohere(request: dict[str, Any]) -> None:
    from cohere.types import ChatMessageV2

    make_adapter(list[ChatMessageV2]).validate_python(request["messages"])
    for message in request["messages"]:
        for call in message.get("tool_calls") or ():
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


def check_bedrock(request: dict[str, Any]) -> None:
    from bedrock_double import check_request

    check_request(request)
    for message in request["messages"]:
        for block in message["content"]:
            if "toolUse" in block:
                assert NAME.fullmatch(block["toolUse"]["name"])
                assert isinstance(block["toolUse"]["input"], dict)


def check_ollama(request: dict[str, Any]) -> None:
    made: list[str] = []
    answered: list[str] = []
    for message in request["messages"]:
        assert isinstance(message.get("content", ""), str)
        for call in message.get("tool_calls") or ():
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(call["function"]["arguments"], dict)
            made.append(call["function"]["name"])
        if message["role"] == "tool":
            answered.append(message["tool_name"])
    assert made == answered


Kind = tuple[
    Callable[..., Any], Callable[[list[Said]], dict[str, Any]], Callable[[dict[str, Any]], None]
]
KINDS: dict[str, Kind] = {
    "chat": (partial(OpenAIChat, api_key="k"), chat_answer, check_chat),
    "responses": (partial(OpenAIResponses, api_key="k"), responses_answer, check_responses),
    "anthropic": (partial(Anthropic, api_key="k"), anthropic_answer, check_anthropic),
    "google": (partial(Google, api_key="k"), google_answer, check_google),
    "cohere": (partial(Cohere, api_key="k"), cohere_answer, check_cohere),
    "bedrock": (
        partial(Bedrock, region="eu-west-1", api_key="k"),
        bedrock_answer,
        check_bedrock,
    ),
    "ollama": (Ollama, ollama_answer, check_ollama),
}
CASES = int(os.environ.get("FERRULE_ECHO_CASES", "12"))


async def skip_wait(seconds: float) -> None:
    """Wait for nothing between two attempts."""


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=CASES, deadline=None)
@given(answers=st.lists(ANSWERS, min_size=1, max_size=2))
@example(answers=[[Said("thought", signature="c2ln"), Said("call", id="größe", signature="c2ln")]])
def test_what_a_server_answered_goes_back_as_its_provider_takes_it(
    kind: str, answers: list[list[Said]]
) -> None:
    if kind == "bedrock":
        pytest.importorskip("botocore", reason="`botocore` is not installed: it signs requests")
    make_client, make_answer, check = KINDS[kind]
    sent: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.target == "/api/show":
            return Reply(json=MODEL_DETAILS)
        if request.method != "POST":
            return Reply(404, json={})
        sent.append(json.loads(request.body))
        return Reply(json=make_answer(answers[len(sent) % len(answers)]))

    async def story() -> None:
        async with HttpDouble(reply) as server:
            agent = Agent(
                make_client("m", base_url=server.url, transport=Transport(sleep=skip_wait)),
                [add],
                limits=Limits(max_turns=3),
                storage=Storage(journal=SqliteJournal(":memory:")),
            )
            session = agent.session()
            try:
                for _ in range(2):
                    # The model never stops calling: what was sent counts.
                    with suppress(FerruleError):
                        await session.run("go")
            finally:
                await session.close()
                await agent.disconnect()

    asyncio.run(story())
    for request in sent:
        check(request)
    assert sent


# ---- what a content filter refused

FINE = [Said("text", "Fine.")]
CALLS = [Said("call", id="c1", name="look_up", arguments="{}", value={})]
AZURE = "The response was filtered due to the prompt triggering Azure's content management policy."
FLAGGED = "Invalid prompt: it was flagged as potentially violating our usage policy."
REFUSALS: list[tuple[str, str, Reply]] = [
    ("chat", "azure", Reply(400, json={"error": {"message": AZURE, "code": "content_filter"}})),
    ("chat", "openrouter", Reply(403, json={"error": {"message": "The input was flagged"}})),
    (
        "chat",
        "withheld",
        Reply(json={"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}),
    ),
    ("responses", "prompt", Reply(400, json={"error": {"message": FLAGGED}})),
    (
        "responses",
        "withheld",
        Reply(
            json={
                "id": "r",
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "content_filter"},
                "output": [],
            }
        ),
    ),
    (
        "anthropic",
        "output",
        Reply(
            400,
            json={
                "type": "error",
                "error": {"message": "Output blocked by content filtering policy"},
            },
        ),
    ),
    ("anthropic", "withheld", Reply(json={**anthropic_answer([]), "stop_reason": "refusal"})),
    ("google", "prompt", Reply(json={"promptFeedback": {"blockReason": "SAFETY"}})),
    ("google", "withheld", Reply(json={"candidates": [{"finishReason": "SAFETY"}]})),
    ("cohere", "blocked", Reply(400, json={"message": "the input was blocked"})),
    (
        "bedrock",
        "guardrail",
        Reply(json={**bedrock_answer([]), "stopReason": "guardrail_intervened"}),
    ),
    ("ollama", "gateway", Reply(400, json={"error": "content_filter"})),
]


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [pytest.param(kind, reply, id=f"{kind}-{id}") for kind, id, reply in REFUSALS],
)
async def test_what_a_content_filter_refused_is_not_sent_again(kind: str, refusal: Reply) -> None:
    if kind == "bedrock":
        pytest.importorskip("botocore", reason="`botocore` is not installed: it signs requests")
    make_client, make_answer, check = KINDS[kind]
    sent: list[str] = []

    @tool(side_effect="read", risk="safe")
    def look_up() -> str:
        """Look it up."""
        return "SECRET-2"

    def reply(request: Request) -> Reply:
        if request.target == "/api/show":
            return Reply(json=MODEL_DETAILS)
        if request.method != "POST":
            return Reply(404, json={})
        body = request.body.decode()
        sent.append(body)
        if "SECRET" in body:
            return refusal
        is_first = "look it up" in body and not any("look it up" in one for one in sent[:-1])
        return Reply(json=make_answer(CALLS if is_first else FINE))

    async with HttpDouble(reply) as server:
        client = make_client("m", base_url=server.url, transport=Transport(sleep=skip_wait))
        agent = Agent(client, [look_up])
        async with agent.session() as session:
            assert (await session.run("hello")).text == "Fine."
            with pytest.raises(FerruleError) as refused:
                await session.run("SECRET-1")
            assert refused.value.code == "content_filter"
            assert (await session.run("something else")).text == "Fine."
            with pytest.raises(FerruleError) as refused:
                await session.run("look it up")
            assert refused.value.code == "content_filter"
            assert (await session.run("and now?")).text == "Fine."
            again = await session.run("still there?")
        await agent.disconnect()
    assert sum("SECRET" in body for body in sent) == 2
    for body in sent:
        check(json.loads(body))
    assert "hello" in sent[-1] and "look it up" in sent[-1]
    assert [one.text for one in again.messages][2:4] == [
        "[left out: the provider's content filter refused this message]",
        "[left out: the provider's content filter refused the message before]",
    ]
