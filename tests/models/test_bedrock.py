"""The client of Bedrock's Converse API against a double that is made of botocore's service model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.telemetry.names import provider_and_model
from ferrule.models.bedrock.client import EMPTY_TEXT, Bedrock
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Transport
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

pytest.importorskip("botocore", reason="`botocore` is not installed: it signs and reads streams")

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.eventstream
import botocore.parsers
import botocore.serialize
from bedrock_double import (
    FINISH,
    STREAM_HEADERS,
    bedrock_routes,
    check_request,
    encode_events,
    encode_step,
    events_of,
    make_answer,
    make_frame,
    service,
    stream_answer,
)

from provider_double import ProviderDouble, RequestRefused

CLAUDE = "us.anthropic.claude-sonnet-5-v1:0"
OTHER = "meta.llama4-scout-17b-instruct-v1:0"
WAYS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


@pytest.mark.proves("model-client.encoded-once")
class TestBedrockConforms(ModelClientConformance):
    object_arguments = True
    string_arguments = False

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return Bedrock("m", region="eu-west-1", base_url=url, api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        blocks: list[dict[str, Any]] = []
        if said.reasoning:
            thought = {"text": "".join(said.reasoning)}
            blocks.append({"reasoningContent": {"reasoningText": thought}})
        if said.text:
            blocks.append({"text": "".join(said.text)})
        for call in said.calls:
            given = call.arguments
            arguments = json.loads(given) if isinstance(given, str) else given
            made = {"toolUseId": call.id or "?", "name": call.name, "input": arguments}
            blocks.append({"toolUse": made})
        answer = make_answer(blocks, FINISH[said.stop], said.usage.input, said.usage.output)
        if streamed:
            reply = stream_answer(answer)
            return replace(reply, pieces=[_without_ids(piece) for piece in reply.pieces])
        for block in blocks:
            if block.get("toolUse", {}).get("toolUseId") == "?":
                del block["toolUse"]["toolUseId"]
        return Reply(json=answer)


def _without_ids(frame: bytes) -> bytes:
    """A frame without the id that stands for none: the service model demands one."""
    if b'"toolUseId": "?"' not in frame:
        return frame
    start = {
        "toolUse": {"name": json.loads(frame[frame.index(b"{") : -4])["start"]["toolUse"]["name"]}
    }
    payload = json.loads(frame[frame.index(b"{") : -4]) | {"start": start}
    return make_frame("contentBlockStart", json.dumps(payload).encode())


Told = tuple[ModelAnswered, list[dict[str, Any]], list[tuple[str, str]]]


def ask(
    *steps: Step,
    model: str = CLAUDE,
    sink: RecordingSink | None = None,
    tools: Sequence[ToolSpec] = (ADD,),
    history: Sequence[Message] = HELLO,
    options: ModelOptions | None = None,
    allow: bool = True,
    schema: Mapping[str, Any] | None = None,
) -> Told:
    """The answer, the requests as JSON, and the notices of the exchange."""

    async def story() -> Told:
        async with asyncio.timeout(20), ProviderDouble(steps, bedrock_routes(model)) as server:
            client = Bedrock(model, base_url=server.url, api_key="k")
            exchange = client.open("Be brief.", tools, options or ModelOptions())
            try:
                answer = await exchange.ask(history, tools=allow, sink=sink, schema=schema)
            finally:
                await client.close()
            assert server.refusals == []
            return answer, server.requests, exchange.notices

    return asyncio.run(story())


async def _no_wait(seconds: float) -> None:
    return None


def answered(*replies: Reply, sink: RecordingSink | None = None) -> ModelAnswered:
    """What the client makes of replies."""

    async def story() -> ModelAnswered:
        left = list(replies)
        transport = Transport(sleep=_no_wait)
        async with asyncio.timeout(20), HttpDouble(lambda request: left.pop(0)) as server:
            client = Bedrock(CLAUDE, base_url=server.url, api_key="k", transport=transport)
            try:
                return await client.open("", [ADD], ModelOptions()).ask(HELLO, sink=sink)
            finally:
                await transport.close()

    return asyncio.run(story())


def failed(reply: Reply, sink: RecordingSink | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        answered(*[reply] * 4, sink=sink)
    return raised.value


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


def test_a_conversation_is_sent_as_botocore_would_send_it() -> None:
    _, [ours], _ = ask(says("Yes."), model=OTHER, history=CONVERSATION)
    used = {"toolUseId": "c1", "name": "math_add", "input": {"a": 1, "b": 2}}
    result = {"toolUseId": "c1", "content": [{"text": "3 ☃"}], "status": "success"}
    add = {
        "name": "math_add",
        "description": "Add two numbers.",
        "inputSchema": {"json": json.loads(ADD.schema)},
    }
    operation = service().operation_model("ConverseStream")
    theirs = botocore.serialize.create_serializer("rest-json").serialize_to_request(
        {
            "modelId": OTHER,
            "system": [{"text": "Be brief."}],
            "messages": [
                {"role": "user", "content": [{"text": "1+2?"}]},
                {"role": "assistant", "content": [{"text": "I will add."}, {"toolUse": used}]},
                {"role": "user", "content": [{"toolResult": result}]},
                {"role": "assistant", "content": [{"text": "It is 3."}]},
                {"role": "user", "content": [{"text": "Sure?"}]},
            ],
            "toolConfig": {"tools": [{"toolSpec": add}]},
        },
        operation,
    )
    assert ours == json.loads(theirs["body"])
    client = Bedrock(OTHER, api_key="k")
    assert f"{client.url}/converse-stream" == f"{client.base_url}{theirs['url_path']}"


def test_botocore_reads_what_the_double_streams() -> None:
    step = calls(("math_add", {"a": 1, "b": 2}, "c1"), text="I will add ☃.", usage=Usage(1000, 7))
    data = b"".join(encode_step(step, 1, False, streamed=True).pieces)

    class Raw:
        def stream(self) -> Any:
            return (data[at : at + 7] for at in range(0, len(data), 7))

    operation = service().operation_model("ConverseStream")
    shape = operation.output_shape.members["stream"]
    parser = botocore.parsers.EventStreamJSONParser()
    events = list(botocore.eventstream.EventStream(Raw(), shape, parser, "ConverseStream"))
    text = "".join(
        one["contentBlockDelta"]["delta"].get("text", "")
        for one in events
        if "contentBlockDelta" in one
    )
    assert text == "I will add ☃."
    assert events[-1]["metadata"]["usage"]["inputTokens"] == 1000


def test_the_double_refuses_what_bedrock_would_refuse() -> None:
    hi = {"role": "user", "content": [{"text": "hi"}]}
    good: dict[str, Any] = {"messages": [hi]}
    check_request(good)
    used = {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}
    for wrong in (
        {"stream": True},
        {"inferenceConfig": {"topK": 5}},
        {"messages": [hi, hi]},
        {"messages": [{"role": "user", "content": [{"text": " "}]}]},
        {"messages": [hi, {"role": "assistant", "content": [used]}, hi]},
        {"system": [{"cachePoint": {"type": "default"}}]},
    ):
        with pytest.raises(RequestRefused):
            check_request({**good, **wrong})


@WAYS
def test_a_request_is_signed_as_botocore_signs_it(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = botocore.credentials.Credentials("AKID", "secret", "token")

    async def story() -> tuple[str, Request]:
        reply = encode_step(says("3"), 1, False, streamed=streamed)
        async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
            client = Bedrock(
                CLAUDE, region="eu-west-1", base_url=server.url, credentials=credentials
            )
            try:
                exchange = client.open("", [ADD], ModelOptions())
                assert (await exchange.ask(HELLO, sink=sink_if(streamed))).text == "3"
            finally:
                await client.close()
            return server.url, server.requests[0]

    url, request = asyncio.run(story())
    sent = request.headers
    assert sent["x-amz-security-token"] == "token"
    again = botocore.awsrequest.AWSRequest(
        "POST", url + request.target, {"Content-Type": sent["content-type"]}, request.body
    )
    then = datetime.strptime(sent["x-amz-date"], "%Y%m%dT%H%M%SZ")
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: then)
    botocore.auth.SigV4Auth(credentials, "bedrock", "eu-west-1").add_auth(again)
    assert sent["authorization"] == again.headers["Authorization"]
    assert "AKID" in sent["authorization"]


def test_a_machine_without_credentials_is_told_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))

    async def story() -> None:
        client: Any = create_model_client(f"bedrock:{CLAUDE}")
        try:
            await client.open("", [], ModelOptions()).ask(HELLO)
        finally:
            await client.close()

    with pytest.raises(ProviderError) as raised:
        asyncio.run(story())
    assert raised.value.code == "unauthorized" and "aws configure" in raised.value.hint
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="region") as wrong:
        create_model_client(f"bedrock:{CLAUDE}")
    assert "AWS_REGION" in wrong.value.hint
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    assert Bedrock(CLAUDE).base_url == "https://bedrock-runtime.us-west-2.amazonaws.com"


def test_models_that_cache_prompts_get_points_and_others_none() -> None:
    point = {"cachePoint": {"type": "default"}}
    _, [request], _ = ask(says("3"), history=CONVERSATION)
    assert request["system"][1] == request["toolConfig"]["tools"][1] == point
    marked = [place for place, turn in enumerate(request["messages"]) if point in turn["content"]]
    assert (marked, request["messages"][-1]["content"][-1]) == ([4], point)
    _, [request], _ = ask(says("3"), model=OTHER, history=CONVERSATION)
    assert "cachePoint" not in json.dumps(request)


def test_a_history_of_calls_names_its_tools_where_none_are_offered() -> None:
    _, [request], _ = ask(says("3"), history=CONVERSATION, tools=())
    [named] = request["toolConfig"]["tools"]
    assert named["toolSpec"]["name"] == "math__add"


def test_empty_messages_and_odd_ids_are_spelled_as_the_api_takes_them() -> None:
    odd = ToolCall("a b/" + "x" * 90, "math::add", "{}")
    history = [UserMessage(" "), AssistantMessage("", (odd,)), ToolMessage(odd.id, odd.tool, " ")]
    _, [request], _ = ask(says("3"), history=history)
    assert request["messages"][0]["content"] == [{"text": EMPTY_TEXT}]
    used = request["messages"][1]["content"][0]["toolUse"]["toolUseId"]
    result = request["messages"][2]["content"][0]["toolResult"]
    assert used == result["toolUseId"] == "a_b_" + "x" * 60
    assert result["content"] == [{"text": EMPTY_TEXT}]


@pytest.mark.parametrize(
    ("model", "wanted", "sent"),
    [
        (CLAUDE, False, {"thinking": {"type": "disabled"}}),
        (CLAUDE, "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (
            "anthropic.claude-3-7-sonnet-20250219-v1:0",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2_048}},
        ),
        (
            "us.amazon.nova-2-lite-v1:0",
            "low",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        ("openai.gpt-oss-120b-1:0", True, {"reasoning_effort": "medium"}),
    ],
)
def test_thinking_is_set_in_the_words_of_the_models_maker(
    model: str, wanted: bool | str, sent: Any
) -> None:
    _, [request], _ = ask(says("3"), model=model, options=ModelOptions(thinking=wanted))
    assert request["additionalModelRequestFields"] == sent


def test_thinking_of_an_unknown_maker_is_refused_and_other_settings_have_their_names() -> None:
    with pytest.raises(ConfigError, match="how much to think"):
        ask(model=OTHER, options=ModelOptions(thinking="high"))
    options = ModelOptions(0.5, 9, top_p=0.25, stop=("END",), service_tier="flex")
    options = replace(options, extra={"requestMetadata": {"team": "a"}})
    schema = {"type": "object"}
    _, [request], _ = ask(says("{}"), model=OTHER, options=options, schema=schema)
    inference = {"temperature": 0.5, "maxTokens": 9, "topP": 0.25, "stopSequences": ["END"]}
    assert request["inferenceConfig"] == inference
    assert (request["serviceTier"], request["requestMetadata"]) == ({"type": "flex"}, {"team": "a"})
    shape = request["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert json.loads(shape["schema"]) == schema


# ---- what comes back


@WAYS
def test_reasoning_goes_back_as_it_came_to_the_model_that_wrote_it(streamed: bool) -> None:
    blocks: list[dict[str, Any]] = [
        {"reasoningContent": {"reasoningText": {"text": "Add ☃.", "signature": "c2ln/+=="}}},
        {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
        {"text": "I will add."},
        {"toolUse": {"toolUseId": "c1", "name": "math_add", "input": {"a": 1, "b": 2.5}}},
    ]
    answer = make_answer(blocks, "tool_use", 9, 7)
    reply = stream_answer(answer) if streamed else Reply(json=answer)
    found = answered(reply, sink=sink_if(streamed))
    assert (found.text, found.reasoning, found.stop) == ("I will add.", "Add ☃.", "calls")
    assert found.calls == (ToolCall("c1", "math::add", '{"a":1,"b":2.5}'),)

    def sent(raw: str | None) -> Any:
        said = AssistantMessage(found.text, found.calls, found.reasoning, raw)
        history = [*HELLO, said, ToolMessage("c1", "math::add", "3")]
        return ask(says("3"), history=history)[1][0]["messages"][1]["content"]

    assert sent(found.raw) == blocks
    assert sent(None) == sent(str(found.raw).replace(CLAUDE, OTHER)) == blocks[2:]


@WAYS
def test_usage_counts_what_was_read_from_the_cache_and_written_to_it(streamed: bool) -> None:
    counted = {"cacheReadInputTokens": 400, "cacheWriteInputTokens": 30}
    answer = make_answer([{"text": "3"}], "end_turn", 70, 7, **counted)
    reply = stream_answer(answer) if streamed else Reply(json=answer)
    assert answered(reply, sink=sink_if(streamed)).usage == Usage(500, 7, 400, 30)


@WAYS
@pytest.mark.parametrize("reason", ["guardrail_intervened", "content_filtered"])
def test_a_withheld_answer_ends_as_one(streamed: bool, reason: str) -> None:
    answer = make_answer([{"text": "Sorry."}], reason, 1, 1)
    reply = stream_answer(answer) if streamed else Reply(json=answer)
    found = answered(reply, sink=sink_if(streamed))
    assert (found.stop, found.text) == ("filter", "Sorry.")


@WAYS
def test_an_answer_that_bedrock_could_not_read_is_asked_for_again(streamed: bool) -> None:
    broken = make_answer([], "malformed_tool_use", 1, 1)
    fine = make_answer([{"text": "3"}], "end_turn", 1, 1)
    replies = [stream_answer(one) if streamed else Reply(json=one) for one in (broken, fine)]
    assert answered(*replies, sink=sink_if(streamed)).text == "3"


@pytest.mark.parametrize(
    ("status", "kind", "message", "code"),
    [
        (403, "AccessDeniedException", "You don't have access to the model.", "unauthorized"),
        (403, "ExpiredTokenException", "The security token is expired", "unauthorized"),
        (
            400,
            "ValidationException",
            "The provided model identifier is invalid.",
            "model_not_found",
        ),
        (400, "ValidationException", "Input is too long for requested model.", "context_overflow"),
        (400, "ValidationException", "This model doesn't support tool use.", "tools_unsupported"),
        (429, "ThrottlingException", "Too many requests, please wait.", "rate_limited"),
        (503, "ServiceUnavailableException", "Bedrock is unable to process it.", "http_503"),
    ],
)
def test_an_error_of_the_api_has_its_code(status: int, kind: str, message: str, code: str) -> None:
    headers = {"x-amzn-ErrorType": f"{kind}:http://internal.amazon.com/"}
    error = failed(Reply(status, json={"message": message}, headers=headers))
    assert (error.code, error.status) == (code, status)
    assert message in error.detail


def exception(kind: str) -> bytes:
    return make_frame(kind, b'{"message":"it broke"}', message_type="exception")


def test_an_exception_in_the_middle_of_a_stream_is_an_error() -> None:
    events = list(events_of(make_answer([{"text": "Hello"}], "end_turn", 1, 1)))[:3]
    frames = encode_events(iter(events))
    for kind, code in (
        ("throttlingException", "rate_limited"),
        ("validationException", "provider"),
    ):
        error = failed(
            Reply(200, [*frames, exception(kind)], headers=STREAM_HEADERS), RecordingSink()
        )
        assert (error.code, error.retryable, "it broke" in error.detail) == (code, False, True)
    busy = Reply(200, [exception("throttlingException")], headers=STREAM_HEADERS)
    fine = stream_answer(make_answer([{"text": "3"}], "end_turn", 1, 1))
    assert answered(busy, fine, sink=RecordingSink()).text == "3"


def test_a_broken_frame_is_an_error_and_what_came_before_it_counts() -> None:
    frames = encode_events(events_of(make_answer([{"text": "Hello"}], "end_turn", 1, 1)))
    broken = bytearray(frames[2])
    broken[-1] ^= 1
    sink = RecordingSink()
    error = failed(
        Reply(200, [frames[0], frames[1], bytes(broken), *frames[3:]], headers=STREAM_HEADERS), sink
    )
    assert (error.code, "".join(sink.pieces)) == ("not_understood", "Hel")
    late = Reply(200, [*frames, bytes(broken)], headers=STREAM_HEADERS)
    assert answered(late, sink=RecordingSink()).text == "Hello"


def test_telemetry_and_prices_know_the_provider() -> None:
    assert provider_and_model(f"bedrock:{CLAUDE}") == ("aws.bedrock", CLAUDE)
    pytest.importorskip("genai_prices", reason="`genai-prices` is not installed")
    price = find_price(f"bedrock:{CLAUDE}")
    assert price is not None and price(Usage(1000, 10))
