"""The client of Cohere's chat API against a double that is made of the types of Cohere's SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.telemetry.names import provider_and_model
from ferrule.models.client import Capabilities, ModelClient, ModelOptions, ToolSpec
from ferrule.models.cohere.client import COHERE_URL, EMPTY_TEXT, Cohere
from ferrule.models.http.transport import Transport
from ferrule.models.prices import find_price
from ferrule.models.scripted import Step, calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
)

pytest.importorskip("cohere", reason="`cohere` is not installed: its types say what is legal")

import cohere
from cohere_double import (
    COHERE_ROUTES,
    DESCRIPTION,
    FINISH,
    check_request,
    events_of,
)

from provider_double import (
    EVENT_STREAM_HEADERS,
    ProviderDouble,
    RequestRefused,
    encode_event,
)


@pytest.mark.proves("model-client.encoded-once")
class TestCohereConforms(ModelClientConformance):
    pieces_before_text = 3

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return Cohere("m", base_url=url, api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        content = [{"type": "thinking", "thinking": "".join(said.reasoning)}] * bool(said.reasoning)
        message: dict[str, Any] = {"role": "assistant"}
        text = "".join(said.text)
        if said.calls:
            made = [
                {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                | ({"id": c.id} if c.id else {})
                for c in said.calls
            ]
            message |= {"tool_calls": made, "tool_plan": text}
        elif text:
            content.append({"type": "text", "text": text})
        message["content"] = content
        counted = {"input_tokens": said.usage.input, "output_tokens": said.usage.output}
        answer = {"id": "c1", "finish_reason": FINISH[said.stop], "message": message}
        answer["usage"] = {"tokens": counted}
        if not streamed:
            return Reply(json=answer)
        return Reply(
            200,
            [encode_event(event) for event in events_of(answer)],
            headers=EVENT_STREAM_HEADERS,
        )


Told = tuple[ModelAnswered, list[dict[str, Any]], list[tuple[str, str]]]


def ask(
    *steps: Step,
    sink: RecordingSink | None = None,
    tools: Sequence[ToolSpec] = (ADD,),
    history: Sequence[Message] = HELLO,
    options: ModelOptions | None = None,
    allow: bool = True,
    schema: Mapping[str, Any] | None = None,
) -> Told:
    """The answer, the requests as JSON, and the notices of the exchange."""

    async def story() -> Told:
        async with asyncio.timeout(20), ProviderDouble(steps, COHERE_ROUTES) as server:
            client = Cohere("command-a-03-2025", base_url=server.url, api_key="k")
            exchange = client.open("Be brief.", tools, options or ModelOptions())
            try:
                answer = await exchange.ask(history, tools=allow, sink=sink, schema=schema)
            finally:
                await client.close()
            assert server.refusals == []
            return answer, server.requests, exchange.notices

    return asyncio.run(story())


def answered(reply: Reply, sink: RecordingSink | None = None) -> ModelAnswered:
    """What the client makes of a reply."""
    return exchanged([reply], sink)[0]


def exchanged(
    replies: Sequence[Reply], sink: RecordingSink | None = None, **asked: Any
) -> tuple[ModelAnswered, list[Request], list[tuple[str, str]]]:
    async def story() -> tuple[ModelAnswered, list[Request], list[tuple[str, str]]]:
        left = list(replies)
        async with asyncio.timeout(20), HttpDouble(lambda request: left.pop(0)) as server:
            client = Cohere("m", base_url=server.url, api_key="k")
            exchange = client.open("", [ADD], ModelOptions())
            try:
                answer = await exchange.ask(HELLO, sink=sink, **asked)
            finally:
                await client.close()
            return answer, server.requests, exchange.notices

    return asyncio.run(story())


def failed(reply: Reply, sink: RecordingSink | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        answered(reply, sink)
    return raised.value


# ---- what is sent

CONVERSATION: list[Message] = [
    UserMessage("1+2?"),
    AssistantMessage("I will add.", (ToolCall("c1", "math::add", '{"a":1,"b":2}'),)),
    ToolMessage("c1", "math::add", "3 ☃"),
    AssistantMessage("It is 3."),
    UserMessage("Sure?"),
]


@asynccontextmanager
async def sdk(
    steps: Sequence[Step],
) -> AsyncIterator[tuple[cohere.AsyncClientV2, ProviderDouble]]:
    """Cohere's own client of the double."""
    async with (
        asyncio.timeout(20),
        ProviderDouble(steps, COHERE_ROUTES) as server,
        httpx.AsyncClient() as connections,
    ):
        yield (
            cohere.AsyncClientV2(api_key="k", base_url=server.url, httpx_client=connections),
            server,
        )


def test_a_conversation_is_sent_as_the_sdk_sends_it() -> None:
    _, [ours], _ = ask(says("Yes."), history=CONVERSATION)
    function = {"name": "math_add", "arguments": '{"a":1,"b":2}'}

    async def story() -> dict[str, Any]:
        async with sdk([says("Yes.")]) as (client, server):
            await client.chat(
                model="command-a-03-2025",
                messages=[
                    cohere.SystemChatMessageV2(content="Be brief."),
                    cohere.UserChatMessageV2(content="1+2?"),
                    cohere.AssistantChatMessageV2(
                        tool_plan="I will add.",
                        tool_calls=[
                            cohere.ToolCallV2(
                                id="c1", function=cohere.ToolCallV2Function(**function)
                            )
                        ],
                    ),
                    cohere.ToolChatMessageV2(tool_call_id="c1", content="3 ☃"),
                    cohere.AssistantChatMessageV2(content="It is 3."),
                    cohere.UserChatMessageV2(content="Sure?"),
                ],
                tools=[
                    cohere.ToolV2(
                        function=cohere.ToolV2Function(
                            name="math_add",
                            description="Add two numbers.",
                            parameters=json.loads(ADD.schema),
                        )
                    )
                ],
            )
            return server.requests[0]

    assert ours == asyncio.run(story())


def test_the_sdk_reads_what_the_double_streams() -> None:
    step = calls(("math_add", {"a": 1, "b": 2}, "c1"), text="I will add ☃.", usage=Usage(1000, 7))

    async def story() -> tuple[str, str, str]:
        async with sdk([step]) as (client, _):
            plan = arguments = finish = ""
            user = cohere.UserChatMessageV2(content="1+2?")
            async for event in client.chat_stream(model="m", messages=[user]):
                if event.type == "tool-plan-delta":
                    plan += event.delta.message.tool_plan
                elif event.type == "tool-call-delta":
                    arguments += event.delta.message.tool_calls.function.arguments
                elif event.type == "message-end":
                    finish = event.delta.finish_reason
            return plan, arguments, finish

    assert asyncio.run(story()) == ("I will add ☃.", '{"a":1,"b":2}', "TOOL_CALL")


def test_the_double_refuses_what_cohere_would_refuse() -> None:
    good = {"model": "m", "stream": False, "messages": [{"role": "user", "content": "hi"}]}
    check_request(good)
    for wrong in (
        {"top_p": 0.5},
        {"tool_choice": "NONE"},
        {"messages": [{"role": "user", "content": " "}]},
        {"messages": [{"role": "user", "content": "hi", "name": "ann"}]},
        {"messages": [*good["messages"], {"role": "assistant", "content": "hi"}]},
        {"messages": [*good["messages"], {"role": "system", "content": "late"}]},
    ):
        with pytest.raises(RequestRefused):
            check_request({**good, **wrong})


@pytest.mark.parametrize("sink", [None, RecordingSink()], ids=["whole", "streamed"])
def test_thinking_goes_back_with_its_calls_to_the_model_that_wrote_it(
    sink: RecordingSink | None,
) -> None:
    thought = Step("I will add.", (ToolCall("c1", "math_add", "{}"),), "Add ☃.", Usage(9, 9))
    first, _, _ = ask(thought, sink=sink)
    assert (first.text, first.reasoning) == ("I will add.", "Add ☃.")
    result = ToolMessage("c1", "math::add", "3")

    def sent(raw: str | None) -> dict[str, Any]:
        message = AssistantMessage(first.text, first.calls, first.reasoning, raw)
        _, [request], _ = ask(says("3"), history=[*HELLO, message, result])
        return request["messages"][2]

    assert sent(first.raw)["content"] == [{"type": "thinking", "thinking": "Add ☃."}]
    other = str(first.raw).replace("cohere:command-a-03-2025", "cohere:command-r")
    assert "content" not in sent(other)
    assert "content" not in sent(None)


def test_empty_messages_are_spelled_out_since_the_api_refuses_them() -> None:
    history = [UserMessage(" "), AssistantMessage(""), UserMessage("?")]
    _, [request], _ = ask(says("3"), history=history)
    contents = [message["content"] for message in request["messages"][1:]]
    assert contents == [EMPTY_TEXT, EMPTY_TEXT, "?"]


def test_a_reply_that_must_fit_a_schema_is_asked_for_without_tools() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    _, [request], _ = ask(says('{"n":3}'), schema=schema)
    assert request["response_format"] == {"type": "json_object", "json_schema": schema}
    assert "tools" not in request


def test_a_model_that_may_not_call_keeps_its_tools_and_is_told() -> None:
    _, [request], _ = ask(says("3"), allow=False)
    assert (request["tool_choice"], len(request["tools"])) == ("NONE", 1)


def test_a_model_that_knows_no_tool_choice_is_asked_again_without_tools() -> None:
    refusal = Reply(400, json={"message": "invalid request: tool_choice is not allowed here"})
    text = {"role": "assistant", "content": [{"type": "text", "text": "3"}]}
    fine = Reply(json={"id": "c", "finish_reason": "COMPLETE", "message": text})
    answer, requests, notices = exchanged([refusal, fine], tools=False)
    assert answer.text == "3"
    assert ["tools" in request.json() for request in requests] == [True, False]
    assert [topic for topic, _ in notices] == ["fallback"]


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (None, None),
        (False, {"type": "disabled"}),
        (True, {"type": "enabled"}),
        ("low", {"type": "enabled", "token_budget": 2_048}),
        ("odd", {"type": "enabled"}),
    ],
)
def test_thinking_is_set_as_cohere_spells_it(wanted: bool | str | None, sent: Any) -> None:
    _, [request], _ = ask(says("3"), options=ModelOptions(thinking=wanted))
    assert request.get("thinking") == sent


def test_settings_have_the_names_of_the_api() -> None:
    options = ModelOptions(0.5, 9, seed=7, top_p=0.25, presence_penalty=0.125, frequency_penalty=1)
    options = replace(options, stop=("END",), top_k=3)
    _, [request], _ = ask(says("3"), options=options)
    assert {**request, "k": 3, "stop_sequences": ["END"]} == request
    assert {**request, "p": 0.25, "max_tokens": 9, "seed": 7, "temperature": 0.5} == request
    assert {**request, "presence_penalty": 0.125, "frequency_penalty": 1} == request


def test_further_settings_are_passed_on_and_hosted_tools_refused() -> None:
    options = ModelOptions(extra={"safety_mode": "STRICT"})
    _, [request], _ = ask(says("3"), options=options)
    assert request["safety_mode"] == "STRICT"
    with pytest.raises(ConfigError, match="provider tools"):
        ask(options=ModelOptions(provider_tools=({"type": "web_search"},)))


# ---- what comes back


def test_usage_is_what_the_model_read_and_what_its_cache_held() -> None:
    text = {"role": "assistant", "content": [{"type": "text", "text": "3"}]}
    usage = {"billed_units": {"input_tokens": 5}, "tokens": {"input_tokens": 500.0}}
    usage |= {"cached_tokens": 400}
    reply = {"id": "c", "finish_reason": "STOP_SEQUENCE", "message": text, "usage": usage}
    found = answered(Reply(json=reply))
    assert (found.usage, found.stop) == (Usage(500, 0, 400), "end")
    billed = {**reply, "usage": {"billed_units": {"input_tokens": 5, "output_tokens": 2}}}
    assert answered(Reply(json=billed)).usage == Usage(5, 2)


def test_citations_and_unknown_events_are_passed_over() -> None:
    text = {"role": "assistant", "content": [{"type": "text", "text": "It rains."}]}
    answer = {"id": "c", "finish_reason": "COMPLETE", "message": text, "usage": {}}
    events = [encode_event(one) for one in events_of(answer)]
    cited = {"type": "citation-start", "index": 0, "delta": {"message": {"citations": {}}}}
    news = [encode_event(cited), encode_event({"type": "of-tomorrow", "delta": {"x": 7}})]
    reply = Reply(200, [*events[:3], *news, *events[3:]], headers=EVENT_STREAM_HEADERS)
    assert answered(reply, RecordingSink()).text == "It rains."


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (401, "invalid api token", "unauthorized"),
        (498, "invalid token", "unauthorized"),
        (402, "Please add a payment method at https://dashboard.cohere.com/billing", "quota"),
        (404, "model 'x' not found, make sure the correct model ID was used", "model_not_found"),
        (400, "too many tokens: total number of tokens in the prompt", "context_overflow"),
        (400, "tools is not supported by this model", "tools_unsupported"),
        (422, "invalid request: p must be between 0.01 and 0.99", "http_422"),
    ],
)
def test_an_error_of_the_api_has_its_code(status: int, message: str, code: str) -> None:
    error = failed(Reply(status, json={"id": "x", "message": message}))
    assert (error.code, error.status) == (code, status)
    assert message in error.detail


def test_an_answer_that_failed_is_an_error_whole_or_streamed() -> None:
    start = encode_event({"type": "message-start", "id": "c", "delta": {}})
    for reason, code in (("ERROR", "provider"), ("TIMEOUT", "timeout")):
        end = {"finish_reason": reason, "error": "it broke"}
        streamed = [start, encode_event({"type": "message-end", "delta": end})]
        for reply, sink in (
            (Reply(json={"message": {"role": "assistant"}, **end}), None),
            (Reply(200, streamed, headers=EVENT_STREAM_HEADERS), RecordingSink()),
        ):
            error = failed(reply, sink)
            assert (error.code, error.retryable) == (code, False)
    broken = [start, encode_event({"message": "it broke"}, named=False)]
    error = failed(Reply(200, broken, headers=EVENT_STREAM_HEADERS), RecordingSink())
    assert error.code == "provider" and "it broke" in error.detail


# ---- what the model can do, and where it is


def test_capabilities_are_what_the_server_says_of_the_model() -> None:
    def asked(reply: Reply) -> tuple[Capabilities, str]:
        async def story() -> tuple[Capabilities, str]:
            async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
                client = Cohere("a/b", base_url=server.url, api_key="k")
                try:
                    return await client.capabilities(), server.requests[0].target
                finally:
                    await client.close()

        return asyncio.run(story())

    described = Capabilities(True, True, 288_000, source="/v1/models", structured_with_tools=False)
    assert asked(Reply(json=DESCRIPTION)) == (described, "/v1/models/a%2Fb")
    old = {**DESCRIPTION, "features": ["json_mode"]}
    assert asked(Reply(json=old))[0] == replace(described, tools=False, structured=False)
    assert asked(Reply(404, json={}))[0] == Capabilities(True, source="part of the format")
    with pytest.raises(ProviderError) as raised:
        asked(Reply(498, json={"message": "invalid token"}))
    assert raised.value.code == "unauthorized"


def test_the_address_and_the_key_are_where_the_sdk_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="API key"):
        Cohere("m")
    monkeypatch.setenv("CO_API_KEY", " k\n")
    assert Cohere("m").base_url == COHERE_URL
    assert Cohere("m").headers["Authorization"] == "Bearer k"
    monkeypatch.setenv("CO_API_URL", "http://127.0.0.1:9/cohere/v2/")
    assert Cohere("m").base_url == "http://127.0.0.1:9/cohere"
    assert "Authorization" not in Cohere("m", api_key="").headers


def test_telemetry_and_prices_know_the_provider() -> None:
    assert provider_and_model("cohere:command-a-03-2025") == ("cohere", "command-a-03-2025")
    pytest.importorskip("genai_prices", reason="`genai-prices` is not installed")
    price = find_price("cohere:command-a-03-2025")
    assert price is not None and price(Usage(1000, 10))
