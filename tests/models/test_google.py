"""The client of Gemini models against a double that is made of the types of `google-genai`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, FerruleError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.telemetry.names import provider_and_model
from ferrule.models.client import Capabilities, ModelClient, ModelOptions, ToolSpec
from ferrule.models.google.addresses import GEMINI_URL, GoogleCredentials
from ferrule.models.google.client import EMPTY_TEXT, OTHERS_SIGNATURE, Google
from ferrule.models.google.schemas import describe_ignored, find_ignored
from ferrule.models.http.transport import Transport
from ferrule.models.key_check import check_key
from ferrule.models.prices import find_price
from ferrule.models.registry import create_model_client
from ferrule.models.scripted import Step, calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
)
from ferrule.tools.decorator import tool

pytest.importorskip(
    "google.genai", reason="`google-genai` is not installed: its types say what is legal"
)

from google_double import (
    DESCRIPTION,
    FINISH,
    SIGNATURE,
    check_request,
    encode_step,
    events_of,
    google_routes,
    make_answer,
    respell,
    stream_answer,
)

from provider_double import (
    EVENT_STREAM_HEADERS,
    ProviderDouble,
    RequestRefused,
    encode_event,
)

NEWER = "gemini-3.8-flash"
OLDER = "gemini-2.5-flash"
WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.mark.proves("model-client.encoded-once")
class TestGoogleConforms(ModelClientConformance):
    object_arguments = True
    string_arguments = False
    pieces_before_text = 1

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return Google(NEWER, base_url=url, api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        parts: list[dict[str, Any]] = []
        if said.reasoning:
            parts.append({"text": "".join(said.reasoning), "thought": True})
        if said.text:
            parts.append({"text": "".join(said.text)})
        for call in said.calls:
            given = call.arguments
            arguments = json.loads(given) if isinstance(given, str) else given
            made = {"name": call.name, "args": arguments} | ({"id": call.id} if call.id else {})
            parts.append({"functionCall": made})
        answer = make_answer(parts, FINISH[said.stop], said.usage.input, said.usage.output)
        return stream_answer(answer) if streamed else Reply(json=answer)


Told = tuple[ModelAnswered, list[dict[str, Any]], list[tuple[str, str]]]


def ask(
    *steps: Step,
    model: str = NEWER,
    sink: RecordingSink | None = None,
    tools: Sequence[ToolSpec] = (ADD,),
    history: Sequence[Message] = HELLO,
    options: ModelOptions | None = None,
    allow: bool = True,
    schema: Mapping[str, Any] | None = None,
) -> Told:
    """The answer, the requests as JSON, and the notices of the exchange."""

    async def story() -> Told:
        async with asyncio.timeout(20), ProviderDouble(steps, google_routes(model)) as server:
            client = Google(model, base_url=server.url, api_key="k")
            exchange = client.open("Be brief.", tools, options or ModelOptions())
            try:
                answer = await exchange.ask(history, tools=allow, sink=sink, schema=schema)
            finally:
                await client.close()
            assert server.refusals == []
            return answer, server.requests, exchange.notices

    return asyncio.run(story())


def exchanged(
    replies: Sequence[Reply], sink: RecordingSink | None = None, **asked: Any
) -> tuple[ModelAnswered, list[Request], list[tuple[str, str]]]:
    """What the client makes of replies, the requests, and the notices."""

    async def story() -> tuple[ModelAnswered, list[Request], list[tuple[str, str]]]:
        left = list(replies)
        waits = Transport(sleep=_no_wait)
        async with asyncio.timeout(20), HttpDouble(lambda request: left.pop(0)) as server:
            client = Google(NEWER, base_url=server.url, api_key="k", transport=waits)
            exchange = client.open("", [ADD], ModelOptions())
            try:
                answer = await exchange.ask(HELLO, sink=sink, **asked)
            finally:
                await waits.close()
            return answer, server.requests, exchange.notices

    return asyncio.run(story())


async def _no_wait(seconds: float) -> None:
    return None


def failed(reply: Reply, sink: RecordingSink | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        exchanged([reply] * 4, sink)
    return raised.value


def answer_of(
    parts: list[dict[str, Any]], finish: str = "STOP", *, streamed: bool, **more: Any
) -> Reply:
    answer = make_answer(parts, finish, 9, 7, **more)
    return stream_answer(answer) if streamed else Reply(json=answer)


def sink_if(streamed: bool) -> RecordingSink | None:
    return RecordingSink() if streamed else None


# ---- what is sent

CONVERSATION: list[Message] = [
    UserMessage("1+2?"),
    AssistantMessage("I will add.", (ToolCall("c1", "math::add", '{"a":1,"b":2}'),)),
    ToolMessage("c1", "math::add", "3 ☃"),
    AssistantMessage("It is 3."),
    UserMessage("Sure?"),
]


@asynccontextmanager
async def sdk(reply: Reply) -> AsyncIterator[tuple[Any, list[Request]]]:
    """Google's own client of a server that gives one reply, and the requests that it makes."""
    from google import genai
    from google.genai import types

    async with (
        asyncio.timeout(20),
        HttpDouble(lambda request: reply) as server,
        httpx.AsyncClient() as connections,
    ):
        options = types.HttpOptions(
            base_url=server.url, api_version="v1beta", httpx_async_client=connections
        )
        client = genai.Client(api_key="k", http_options=options)
        yield client.aio.models, server.requests
        client.close()


def test_a_conversation_is_sent_as_the_sdk_sends_it() -> None:
    from google.genai import types

    _, [ours], _ = ask(says("Yes."), model=OLDER, history=CONVERSATION)

    async def story() -> dict[str, Any]:
        async with sdk(encode_step(says("Yes."), 1, False)) as (models, requests):
            called = types.FunctionCall(id="c1", name="math_add", args={"a": 1, "b": 2})
            answered = types.FunctionResponse(id="c1", name="math_add", response={"output": "3 ☃"})
            add = types.FunctionDeclaration(
                name="math_add",
                description="Add two numbers.",
                parameters_json_schema=json.loads(ADD.schema),
            )
            part = types.Part
            await models.generate_content(
                model=OLDER,
                contents=[
                    types.Content(role="user", parts=[part(text="1+2?")]),
                    types.Content(
                        role="model", parts=[part(text="I will add."), part(function_call=called)]
                    ),
                    types.Content(role="user", parts=[part(function_response=answered)]),
                    types.Content(role="model", parts=[part(text="It is 3.")]),
                    types.Content(role="user", parts=[part(text="Sure?")]),
                ],
                config=types.GenerateContentConfig(
                    system_instruction=types.Content(parts=[part(text="Be brief.")]),
                    tools=[types.Tool(function_declarations=[add])],
                ),
            )
            return requests[0].json()

    # The SDK spells some members in the other way that the API reads.
    assert ours == respell(asyncio.run(story()))


def test_the_sdk_reads_what_the_double_streams() -> None:
    step = calls(("math_add", {"a": 1, "b": 2}, "c1"), text="I will add ☃.", usage=Usage(1000, 7))

    async def story() -> tuple[str, Any, Any]:
        async with sdk(encode_step(step, 1, False, streamed=True)) as (models, _):
            text, called, finish = "", None, None
            async for one in await models.generate_content_stream(model=NEWER, contents="1+2?"):
                for part in one.candidates[0].content.parts:
                    text += part.text or ""
                    called = part.function_call or called
                finish = one.candidates[0].finish_reason
            return text, called.args, finish.value

    assert asyncio.run(story()) == ("I will add ☃.", {"a": 1, "b": 2}, "STOP")


def test_the_double_refuses_what_google_would_refuse() -> None:
    hi = {"role": "user", "parts": [{"text": "hi"}]}
    good: dict[str, Any] = {"contents": [hi]}
    check_request(good)
    called = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    for wrong in (
        {"model": "m"},
        {"generationConfig": {"top_p": 0.5}},
        {"contents": [hi, hi]},
        {"contents": [{"role": "user", "parts": [{"text": " "}]}]},
        {"contents": [hi, called]},
        {"contents": [hi, called, hi]},
        {"cachedContent": "cachedContents/x", "tools": []},
        {"tools": [{"functionDeclarations": [{"name": "3d"}]}]},
        {"generationConfig": {"responseJsonSchema": {}}},
    ):
        with pytest.raises((RequestRefused, ValueError)):
            check_request({**good, **wrong})


def signed_calls(*ids: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": "Hm.", "thought": True}, {"text": "I will "}]
    parts.append({"text": "add."})
    for place, id in enumerate(ids):
        named = {"id": id} if id else {}
        call = {"name": "math_add", "args": {"a": place, "b": 2.5}, **named}
        parts.append({"functionCall": call})
    parts[3]["thoughtSignature"] = SIGNATURE
    return parts


def follow(
    model: str, first: Reply, history_of: Callable[[ModelAnswered], list[Message]]
) -> tuple[ModelAnswered, dict[str, Any]]:
    """An answer, and the request of the turn after it, which the double has checked."""

    async def story() -> tuple[ModelAnswered, dict[str, Any]]:
        replies = [first, encode_step(says("3"), 2, False)]
        async with asyncio.timeout(20), HttpDouble(lambda request: replies.pop(0)) as server:
            client = Google(model, base_url=server.url, api_key="k")
            try:
                streamed = "event-stream" in first.headers.get("content-type", "")
                answer = await client.open("", [ADD], ModelOptions()).ask(
                    HELLO, sink=sink_if(streamed)
                )
                # A conversation of its own, as after a resume.
                exchange = client.open("", [ADD], ModelOptions())
                await exchange.ask([*HELLO, *history_of(answer)])
            finally:
                await client.close()
            sent = server.requests[1].json()
            check_request(sent, model=model)
            return answer, sent

    return asyncio.run(story())


def results_after(answer: ModelAnswered) -> list[Message]:
    said = AssistantMessage(answer.text, answer.calls, answer.reasoning, answer.raw)
    return [said, *(ToolMessage(call.id, call.tool, "3") for call in answer.calls)]


@WAYS
@pytest.mark.parametrize("ids", [("c1", "c2"), ("", "")], ids=["named", "unnamed"])
def test_signed_calls_go_back_as_they_came_to_the_model_that_made_them(
    streamed: bool, ids: tuple[str, ...]
) -> None:
    first = answer_of(signed_calls(*ids), streamed=streamed)
    answer, sent = follow(NEWER, first, results_after)
    assert [call.arguments for call in answer.calls] == ['{"a":0,"b":2.5}', '{"a":1,"b":2.5}']
    assert len({call.id for call in answer.calls}) == 2 and all(call.id for call in answer.calls)
    assert (answer.text, answer.reasoning, answer.stop) == ("I will add.", "Hm.", "calls")
    # The pieces of a text are joined: nothing is attached to them.
    expected = signed_calls(*ids)
    expected[1:3] = [{"text": "I will add."}]
    assert sent["contents"][1] == {"role": "model", "parts": expected}
    results = [part["functionResponse"] for part in sent["contents"][2]["parts"]]
    assert [result.get("id", "") for result in results] == list(ids)


@WAYS
def test_a_signature_on_text_or_on_nothing_goes_back_too(streamed: bool) -> None:
    parts = [{"text": "Three"}, {"text": ".", "thoughtSignature": SIGNATURE}]
    parts.append({"text": "", "thoughtSignature": "bGFzdA=="})
    answer, sent = follow(
        NEWER,
        answer_of(parts, streamed=streamed),
        lambda one: [AssistantMessage(one.text, raw=one.raw), UserMessage("Sure?")],
    )
    assert answer.text == "Three."
    assert sent["contents"][1]["parts"] == parts


def test_calls_of_another_model_carry_the_signature_that_google_names_for_them() -> None:
    _, [newer], _ = ask(says("3"), history=CONVERSATION)
    _, [older], _ = ask(says("3"), model=OLDER, history=CONVERSATION)
    call = newer["contents"][1]["parts"][1]
    assert call["thoughtSignature"] == OTHERS_SIGNATURE
    assert "thoughtSignature" not in older["contents"][1]["parts"][1]
    first = answer_of(signed_calls("c1"), streamed=False)
    switched = '"vertex:gemini-3.8-flash"'

    def moved(answer: ModelAnswered) -> list[Message]:
        raw = str(answer.raw).replace(f'"google:{NEWER}"', switched)
        return results_after(replace(answer, raw=raw))

    _, sent = follow(NEWER, first, moved)
    assert sent["contents"][1]["parts"][1]["thoughtSignature"] == OTHERS_SIGNATURE


def test_a_failed_call_is_told_as_an_error() -> None:
    history = [*CONVERSATION[:2], ToolMessage("c1", "math::add", "no", success=False)]
    _, [request], _ = ask(says("3"), history=history)
    assert request["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "no"}


def test_empty_messages_are_spelled_out_since_the_api_refuses_them() -> None:
    history = [UserMessage(" "), AssistantMessage(""), UserMessage("?")]
    _, [request], _ = ask(says("3"), history=history)
    texts = [content["parts"][0]["text"] for content in request["contents"]]
    assert texts == [EMPTY_TEXT, EMPTY_TEXT, "?"]


def test_a_name_that_google_does_not_take_is_sent_as_another_one() -> None:
    odd = replace(ADD, name="3d::add", api_name="3d__add")
    taken = replace(ADD, name="_3d__add", api_name="_3d__add")
    step = calls(("__3d__add", {"a": 1, "b": 2}, "c1"))
    answer, [request], _ = ask(step, tools=[odd, taken])
    declared = request["tools"][0]["functionDeclarations"]
    assert [one["name"] for one in declared] == ["__3d__add", "_3d__add"]
    assert answer.calls[0].tool == "3d::add"
    hallucinated = [
        AssistantMessage("", (ToolCall("c1", "4d", "{}"),)),
        ToolMessage("c1", "4d", "no such tool", success=False),
    ]
    ask(says("3"), history=[*HELLO, *hallucinated])


@pytest.mark.parametrize(("model", "beside"), [(NEWER, True), (OLDER, False)])
def test_a_schema_for_the_reply_stands_beside_tools_where_the_model_takes_both(
    model: str, beside: bool
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    _, [request], _ = ask(says('{"n":3}'), model=model, schema=schema)
    assert request["generationConfig"]["responseJsonSchema"] == schema
    assert ("tools" in request) is beside


def test_a_model_that_may_not_call_keeps_its_tools_and_is_told() -> None:
    _, [request], _ = ask(says("3"), allow=False)
    mode = request["toolConfig"]["functionCallingConfig"]["mode"]
    assert (mode, len(request["tools"])) == ("NONE", 1)


@pytest.mark.parametrize(
    ("model", "wanted", "sent"),
    [
        (NEWER, None, None),
        (NEWER, False, {"thinkingLevel": "MINIMAL"}),
        (NEWER, True, {"includeThoughts": True}),
        (NEWER, "high", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        (NEWER, "max", {"includeThoughts": True, "thinkingLevel": "XHIGH"}),
        (OLDER, False, {"thinkingBudget": 0}),
        (OLDER, "low", {"includeThoughts": True, "thinkingBudget": 2_048}),
    ],
)
def test_thinking_is_set_as_each_generation_spells_it(
    model: str, wanted: bool | str | None, sent: Any
) -> None:
    _, [request], _ = ask(says("3"), model=model, options=ModelOptions(thinking=wanted))
    assert request.get("generationConfig", {}).get("thinkingConfig") == sent


def test_further_settings_join_those_that_are_there_and_hosted_tools_are_refused() -> None:
    extra = {"generationConfig": {"topK": 5}, "serviceTier": "flex"}
    _, [request], _ = ask(says("3"), options=ModelOptions(temperature=0.5, extra=extra))
    assert request["generationConfig"] == {"temperature": 0.5, "topK": 5}
    assert request["serviceTier"] == "flex"
    with pytest.raises(ConfigError, match="provider tools"):
        ask(options=ModelOptions(provider_tools=({"type": "google_search"},)))


def test_settings_have_the_names_of_the_api() -> None:
    options = ModelOptions(0.5, 9, seed=7, top_p=0.25, presence_penalty=0.125, frequency_penalty=1)
    options = replace(options, stop=("END",), top_k=3, service_tier="flex")
    _, [request], _ = ask(says("3"), options=options)
    assert request["generationConfig"] == {
        "temperature": 0.5,
        "maxOutputTokens": 9,
        "seed": 7,
        "topP": 0.25,
        "topK": 3,
        "presencePenalty": 0.125,
        "frequencyPenalty": 1,
        "stopSequences": ["END"],
    }
    assert request["serviceTier"] == "flex"


def test_cached_content_stands_for_system_text_and_tools() -> None:
    options = ModelOptions(cached_content="cachedContents/abc", temperature=0.5)
    _, [request], _ = ask(says("3"), options=options)
    assert request["cachedContent"] == "cachedContents/abc"
    assert not request.keys() & {"tools", "systemInstruction", "toolConfig"}
    # Without calls: the API allows no word about tools beside a cached content.
    _, [request], _ = ask(says("3"), options=options, allow=False)
    assert "cachedContent" not in request
    assert request.keys() >= {"tools", "systemInstruction", "toolConfig"}


def test_a_prefix_is_stored_as_it_would_be_sent() -> None:
    from google.genai import types

    async def story() -> tuple[str, list[Request]]:
        replies = [Reply(json={"name": "cachedContents/abc"}), encode_step(says("3"), 1, False)]
        async with asyncio.timeout(20), HttpDouble(lambda request: replies.pop(0)) as server:
            client = Google(NEWER, base_url=server.url, api_key="k")
            exchange = client.open("Be brief.", [ADD], ModelOptions())
            try:
                name = await exchange.store_prefix(600)
                await exchange.ask(HELLO)
            finally:
                await client.close()
            return name, server.requests

    name, [stored, asked] = asyncio.run(story())
    sent = stored.json()
    assert (name, stored.target) == ("cachedContents/abc", "/v1beta/cachedContents")
    assert (sent.pop("model"), sent.pop("ttl")) == (f"models/{NEWER}", "600s")
    types.CreateCachedContentConfig.model_validate_json(json.dumps(sent))
    _, [plain], _ = ask(says("3"))
    assert sent == {member: plain[member] for member in ("systemInstruction", "tools")}
    assert asked.json()["cachedContent"] == "cachedContents/abc"


# ---- schemas

ODD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]+$", "default": "A"},
        "kind": {"const": "x"},
        "flags": {"type": "array", "items": {"enum": [True, None]}, "uniqueItems": True},
        "next": {"$ref": "#/$defs/Node", "description": "beside"},
        "pattern": {"type": "string"},
    },
    "$defs": {"Node": {"not": {"type": "null"}}},
}


def test_what_gemini_passes_over_in_a_schema_is_found() -> None:
    assert set(find_ignored(json.dumps(ODD_SCHEMA))) == {
        *("`pattern`", "`const`", "`uniqueItems`", "`not`", "what stands beside a `$ref`"),
        "an `enum` of anything but text and numbers",
    }
    assert find_ignored(ADD.schema) == () == find_ignored("no schema")
    assert describe_ignored({"math::add": ADD.schema}) == ""
    many = describe_ignored(dict.fromkeys("abcde", '{"const":1}'))
    assert "`const` (`a`, `b`, `c` and 2 more)" in many


def test_a_schema_is_sent_unchanged_and_its_limits_are_said_once() -> None:
    odd = replace(ADD, schema=json.dumps(ODD_SCHEMA))

    async def story() -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
        steps = [says("3"), says("3"), says("{}"), says("{}")]
        async with asyncio.timeout(20), ProviderDouble(steps, google_routes(NEWER)) as server:
            client = Google(NEWER, base_url=server.url, api_key="k")
            exchange = client.open("", [odd], ModelOptions())
            for schema in (None, None, {"const": {}}, {"const": {}}):
                await exchange.ask(HELLO, schema=schema)
            await client.close()
            return server.requests, exchange.notices

    requests, notices = asyncio.run(story())
    declared = requests[0]["tools"][0]["functionDeclarations"][0]
    assert declared["parametersJsonSchema"] == ODD_SCHEMA
    assert [topic for topic, _ in notices] == ["schema", "schema"]
    assert "`math::add`" in notices[0][1] and "`the answer`" in notices[1][1]


# ---- what comes back


@WAYS
def test_usage_counts_thoughts_in_the_answer_and_what_the_cache_held(streamed: bool) -> None:
    answer = make_answer([{"text": "3"}], "STOP", 500, 7)
    answer["usageMetadata"] |= {
        "cachedContentTokenCount": 400,
        "thoughtsTokenCount": 30,
        "toolUsePromptTokenCount": 5,
    }
    reply = stream_answer(answer) if streamed else Reply(json=answer)
    found, _, _ = exchanged([reply], sink_if(streamed))
    assert found.usage == Usage(505, 37, 400, 0, 30)


@WAYS
@pytest.mark.parametrize(
    "reason",
    ["SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "OTHER", "TOO_MANY_TOOL_CALLS"],
)
def test_a_withheld_answer_ends_as_one_and_says_why(streamed: bool, reason: str) -> None:
    parts = [{"text": "How to ", "thoughtSignature": SIGNATURE}]
    reply = answer_of(parts, reason, streamed=streamed, finishMessage="because")
    sink = sink_if(streamed)
    found, _, notices = exchanged([reply], sink)
    assert (found.stop, found.text, found.raw) == ("filter", "How to ", None)
    said = sink.notices if sink else notices
    assert said == [("refused", f"Google withheld the answer ({reason}): because")]


@WAYS
def test_a_blocked_question_ends_as_a_withheld_answer(streamed: bool) -> None:
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}
    body = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 4}}
    event = [encode_event(body, named=False)]
    reply = Reply(200, event, headers=EVENT_STREAM_HEADERS) if streamed else Reply(json=body)
    sink = sink_if(streamed)
    found, _, notices = exchanged([reply], sink)
    assert (found.stop, found.text) == ("filter", "")
    [(topic, text)] = sink.notices if sink else notices
    assert topic == "refused" and "PROHIBITED_CONTENT: no" in text


@pytest.mark.parametrize("in_prompt", [True, False], ids=["question", "answer"])
def test_a_run_that_google_blocks_ends_as_withheld(in_prompt: bool) -> None:
    feedback: dict[str, Any] = {"promptFeedback": {"blockReason": "SAFETY"}}
    body = feedback if in_prompt else make_answer([], "SAFETY", 1, 1)

    def answer(request: Request) -> Reply:
        return Reply(json=DESCRIPTION if request.method == "GET" else body)

    async def story() -> str:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            client = Google(NEWER, base_url=server.url, api_key="k")
            agent = Agent(client, [])
            try:
                with pytest.raises(FerruleError) as raised:
                    await agent.run("Hello")
                return raised.value.code
            finally:
                await agent.close()
                await client.close()

    assert asyncio.run(story()) == "content_filter"


@WAYS
def test_a_call_that_google_could_not_read_is_asked_for_again(streamed: bool) -> None:
    broken = answer_of([], "MALFORMED_FUNCTION_CALL", streamed=streamed, finishMessage="print(")
    fine = answer_of([{"text": "3"}], streamed=streamed)
    sink = sink_if(streamed)
    found, requests, notices = exchanged([broken, fine], sink)
    assert (found.text, len(requests)) == ("3", 2)
    [(topic, text)] = sink.notices if sink else notices
    assert topic == "retry" and "print(" in text


def test_a_malformed_call_behind_text_that_was_shown_is_an_error() -> None:
    broken = answer_of([{"text": "So:"}], "MALFORMED_FUNCTION_CALL", streamed=True)
    error = failed(broken, RecordingSink())
    assert (error.code, error.retryable) == ("malformed_call", False)


@WAYS
def test_parts_of_tomorrow_are_kept_and_passed_over(streamed: bool) -> None:
    ran = {"executableCode": {"language": "PYTHON", "code": "1+2"}}
    answer, sent = follow(
        NEWER,
        answer_of([ran, {"text": "3"}], streamed=streamed),
        lambda one: [AssistantMessage(one.text, raw=one.raw), UserMessage("Sure?")],
    )
    assert answer.text == "3"
    assert sent["contents"][1]["parts"] == [ran, {"text": "3"}]


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "API key not valid. Please pass a valid API key.", "unauthorized"),
        (403, "Permission denied on resource project x.", "unauthorized"),
        (404, "models/x is not found for API version v1beta", "model_not_found"),
        (
            400,
            "The input token count (2097153) exceeds the maximum number of tokens allowed "
            "(1048576).",
            "context_overflow",
        ),
        (400, "Function calling is not enabled for models/gemma-3-27b-it", "tools_unsupported"),
        (400, 'Unknown name "x"', "http_400"),
        (503, "The model is overloaded. Please try again later.", "http_503"),
    ],
)
@pytest.mark.parametrize("listed", [False, True], ids=["object", "array"])
def test_an_error_of_the_api_has_its_code(
    status: int, message: str, code: str, listed: bool
) -> None:
    body: Any = {"error": {"code": status, "message": message, "status": "X"}}
    error = failed(Reply(status, json=[body] if listed else body))
    assert (error.code, error.status) == (code, status)
    assert message in error.detail


def test_a_limit_of_requests_is_waited_for_as_google_says_in_the_body() -> None:
    message = "You exceeded your current quota, please check your plan and billing details."
    body: dict[str, Any] = {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}
    error = failed(Reply(429, json={"error": body}))
    assert (error.code, error.retryable) == ("quota", False)
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}
    error = failed(Reply(429, json={"error": {**body, "details": [delay]}}))
    assert (error.code, error.retryable, error.retry_after) == ("rate_limited", True, 7.5)


def test_an_error_in_the_middle_of_a_stream_is_one() -> None:
    events = list(events_of(make_answer([{"text": "Hello"}], "STOP", 1, 1)))[:1]
    events.append({"error": {"code": 500, "message": "it broke", "status": "INTERNAL"}})
    encoded = [encode_event(one, named=False) for one in events]
    error = failed(Reply(200, encoded, headers=EVENT_STREAM_HEADERS), RecordingSink())
    assert (error.code, error.status, error.retryable) == ("http_500", 500, False)
    assert "it broke" in error.detail


# ---- what the model can do, and where it is


def test_capabilities_are_what_name_and_server_say_of_the_model() -> None:
    def asked(reply: Reply, model: str = NEWER) -> tuple[Capabilities, str]:
        async def story() -> tuple[Capabilities, str]:
            async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
                client = Google(model, base_url=server.url, api_key="k")
                try:
                    return await client.capabilities(), server.requests[0].target
                finally:
                    await client.close()

        return asyncio.run(story())

    described = Capabilities(
        True, True, 1_048_576, True, "/v1beta/models", structured_with_tools=True
    )
    assert asked(Reply(json=DESCRIPTION)) == (described, f"/v1beta/models/{NEWER}")
    assert asked(Reply(json=DESCRIPTION), OLDER)[0] == replace(
        described, structured_with_tools=False
    )
    unknown = Capabilities(source="part of the format", structured_with_tools=False)
    assert asked(Reply(404, json={}), "gemma-4-31b-it")[0] == unknown
    refusal = {"error": {"code": 400, "message": "API key not valid. Please pass a valid one."}}
    with pytest.raises(ProviderError) as raised:
        asked(Reply(400, json=refusal))
    assert raised.value.code == "unauthorized"


def test_a_key_is_checked_by_the_list_of_models() -> None:
    def checked(reply: Reply) -> tuple[bool | None, tuple[str, ...]]:
        async def story() -> tuple[bool | None, tuple[str, ...]]:
            async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
                client = Google(NEWER, base_url=server.url, api_key="k")
                try:
                    found = await check_key(client, "/v1beta/models")
                finally:
                    await client.close()
                return found.accepted, found.models

        return asyncio.run(story())

    assert checked(Reply(json={"models": [DESCRIPTION]})) == (True, (NEWER,))
    refusal = {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}
    assert checked(Reply(400, json=refusal)) == (False, ())


def test_the_address_and_the_key_are_where_the_sdk_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="API key"):
        Google(NEWER)
    monkeypatch.setenv("GOOGLE_API_KEY", " k\n")
    assert Google(f"models/{NEWER}").url == f"{GEMINI_URL}/v1beta/models/{NEWER}"
    assert Google(NEWER).headers["x-goog-api-key"] == "k"
    monkeypatch.setenv("GEMINI_API_KEY", "mine")
    assert Google(NEWER).headers["x-goog-api-key"] == "mine"
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9/v1beta/")
    assert Google(NEWER).base_url == "http://127.0.0.1:9"
    assert "x-goog-api-key" not in Google(NEWER, api_key="").headers


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, "https://aiplatform.googleapis.com"),
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_vertex_is_where_the_sdk_finds_it(location: str | None, host: str) -> None:
    from google import genai

    ours = Google.on_vertex(NEWER, project="house", location=location)
    place = f"projects/house/locations/{location or 'global'}/publishers/google/models/{NEWER}"
    assert ours.url == f"{host}/v1beta1/{place}"
    assert (ours.model, ours.address.model_resource(NEWER)) == (f"vertex:{NEWER}", place)
    theirs: Any = genai.Client(
        enterprise=True, project="house", location=location or "global", credentials=FakeTokens()
    )
    assert theirs._api_client._http_options.base_url.rstrip("/") == host


class FakeTokens:
    """What is used of google-auth's credentials: a token for an hour, counted."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.quota_project_id = "payer"
        self.refreshed = 0

    @property
    def valid(self) -> bool:
        return self.token is not None

    def refresh(self, request: Any) -> None:
        self.refreshed += 1
        self.token = f"t{self.refreshed}"


@WAYS
def test_vertex_is_asked_with_a_token_that_is_fetched_when_it_is_needed(streamed: bool) -> None:
    tokens = FakeTokens()

    async def story() -> list[Request]:
        reply = encode_step(says("3"), 1, False, streamed=streamed)
        async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
            client = Google.on_vertex(
                NEWER, project="house", credentials=tokens, base_url=server.url
            )
            try:
                exchange = client.open("", [ADD], ModelOptions())
                for _ in range(2):
                    assert (await exchange.ask(HELLO, sink=sink_if(streamed))).text == "3"
                tokens.token = None
                await exchange.ask(HELLO, sink=sink_if(streamed))
            finally:
                await client.close()
            return server.requests

    requests = asyncio.run(story())
    sent = [request.headers["authorization"] for request in requests]
    assert sent == ["Bearer t1", "Bearer t1", "Bearer t2"]
    assert requests[0].headers["x-goog-user-project"] == "payer"
    method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
    place = f"/v1beta1/projects/house/locations/global/publishers/google/models/{NEWER}"
    assert requests[0].target == f"{place}:{method}"


def test_vertex_takes_a_key_in_place_of_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="project") as raised:
        create_model_client(f"vertex:{NEWER}")
    assert "GOOGLE_CLOUD_PROJECT" in raised.value.hint
    client: Any = create_model_client(f"vertex:{NEWER}", api_key="k")
    url = f"https://aiplatform.googleapis.com/v1beta1/publishers/google/models/{NEWER}"
    assert (client.url, client.headers["x-goog-api-key"]) == (url, "k")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "house")
    client = create_model_client(f"vertex:{NEWER}", api_key="k")
    assert client.url == url


def test_a_machine_without_credentials_is_told_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(ProviderError) as raised:
        asyncio.run(GoogleCredentials().headers())
    assert raised.value.code == "unauthorized"
    assert "gcloud auth" in raised.value.hint


def test_telemetry_and_prices_know_the_provider() -> None:
    assert provider_and_model(f"google:{NEWER}") == ("gcp.gemini", NEWER)
    assert provider_and_model(f"vertex:{NEWER}") == ("gcp.vertex_ai", NEWER)
    pytest.importorskip("genai_prices", reason="`genai-prices` is not installed")
    for provider in ("google", "vertex"):
        price = find_price(f"{provider}:{NEWER}")
        assert price is not None and price(Usage(1000, 10))


def test_a_run_with_parallel_calls_ends_well() -> None:
    @tool(side_effect="none")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    step = calls(("add", {"a": 1, "b": 2}, ""), ("add", {"a": 1, "b": 2}, ""))
    routes = google_routes(NEWER)

    async def story() -> tuple[str, list[str]]:
        steps = [step, step, says("3")]
        async with asyncio.timeout(20), ProviderDouble(steps, routes) as server:
            client = Google(NEWER, base_url=server.url, api_key="k")
            agent = Agent(client, [add], tool_calling="native")
            try:
                return (await agent.run("Add.")).text, server.refusals
            finally:
                await agent.close()
                await client.close()

    assert asyncio.run(story()) == ("3", [])
