"""The chat-completions model client against a server in this process, and against llama.cpp where the model
is there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Capabilities, ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Transport
from ferrule.models.openai.chat import OpenAIChat
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
    ServerCall,
)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


DONE = b"data: [DONE]\n\n"
FINISH = {"end": "stop", "calls": "tool_calls", "length": "length"}


def stream(*pieces: bytes, finish: str | None = "stop") -> Reply:
    end = [chunk({}, finish)] if finish else []
    return Reply(200, [*pieces, *end, DONE], headers={"content-type": "text/event-stream"})


def usage_of(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.input, "completion_tokens": usage.output}


def said_call(index: int, call: ServerCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    shape: dict[str, Any] = {"index": index, "type": "function", "function": function}
    return {**shape, "id": call.id} if call.id else shape


@pytest.mark.proves("model-client.encoded-once")
class TestOpenAIChatConforms(ModelClientConformance):
    object_arguments = True

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return OpenAIChat("m", base_url=f"{url}/v1", api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed: bool) -> Reply:
        if not streamed:
            calls = [said_call(i, call) for i, call in enumerate(said.calls)]
            message = {"role": "assistant", "content": "".join(said.text) or None}
            message |= {"reasoning_content": "".join(said.reasoning)} if said.reasoning else {}
            message |= {"tool_calls": calls} if calls else {}
            choice = {"index": 0, "message": message, "finish_reason": FINISH[said.stop]}
            return Reply(json={"choices": [choice], "usage": usage_of(said.usage)})
        pieces = [chunk({"role": "assistant", "content": ""})]
        pieces += [chunk({"reasoning_content": piece}) for piece in said.reasoning]
        pieces += [chunk({"content": piece}) for piece in said.text]
        for index, call in enumerate(said.calls):
            pieces += call_deltas(index, call)
        pieces += [
            chunk({}, FINISH[said.stop]),
            event({"choices": [], "usage": usage_of(said.usage)}),
            DONE,
        ]
        return Reply(200, pieces, headers={"content-type": "text/event-stream"})


def call_deltas(index: int, call: ServerCall) -> list[bytes]:
    """A call as OpenAI streams it: its head with empty arguments, then their text in pieces."""
    if not isinstance(call.arguments, str):
        return [chunk({"tool_calls": [said_call(index, call)]})]
    text = call.arguments
    head = chunk({"tool_calls": [said_call(index, ServerCall(call.name, "", call.id))]})
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
    tail = [chunk({"tool_calls": [{"index": index, "function": {"arguments": p}}]}) for p in pieces]
    return [head, *tail]


# ---- one ask, from outside

Answering = Callable[[Request], Reply]


def ask(
    *replies: Reply,
    sink: RecordingSink | None = None,
    tools: Sequence[ToolSpec] = (ADD,),
    history: Sequence[Message] = HELLO,
    options: ModelOptions | None = None,
    models: Sequence[str] = (),
    allow: bool = True,
    **more: Any,
) -> tuple[ModelAnswered, list[dict[str, Any]], list[tuple[str, str]]]:
    """The answer, the requests as JSON, and the notices of the exchange."""
    left, sent = list(replies), list[dict[str, Any]]()

    def answer(request: Request) -> Reply:
        if request.target == "/v1/models":
            return Reply(json={"data": [{"id": name} for name in models]})
        sent.append(request.json())
        return left.pop(0)

    async def story() -> tuple[ModelAnswered, list[tuple[str, str]]]:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            model_client = OpenAIChat("m", base_url=f"{server.url}/v1/", api_key="k", **more)
            exchange = model_client.open("Be brief.", tools, options or ModelOptions())
            try:
                return await exchange.ask(history, tools=allow, sink=sink), exchange.notices
            finally:
                await model_client.close()

    answered, notices = asyncio.run(story())
    return answered, sent, notices


def whole(text: str = "3", finish: str = "stop", **message: Any) -> Reply:
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    return Reply(
        json={"choices": [choice], "usage": {"prompt_tokens": 900, "completion_tokens": 2}}
    )


def folded(*deltas: Mapping[str, Any], finish: str = "tool_calls") -> tuple[ToolCall, ...]:
    """The calls that come of these elements of `tool_calls`, each in a chunk of its own."""
    pieces = [chunk({"tool_calls": [delta]}) for delta in deltas]
    return ask(stream(*pieces, finish=finish), sink=RecordingSink())[0].calls


def function(name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    fields = {"name": name, "arguments": arguments}
    return {"function": {key: value for key, value in fields.items() if value is not None}}


@pytest.mark.proves("model-client.calls.merge")
def test_a_delta_without_id_and_index_belongs_to_the_last_call() -> None:
    calls = folded(
        {"id": "a", **function("one", "")},
        function(None, '{"x":'),
        {"id": "b", **function("two", '{"y":')},
        function(None, "2}"),
        {"id": "a", **function(None, "1}")},
    )
    assert calls == (ToolCall("a", "one", '{"x":1}'), ToolCall("b", "two", '{"y":2}'))


@pytest.mark.proves("model-client.calls.merge")
def test_interleaved_indexes_stay_apart() -> None:
    calls = folded(
        {"index": 1, "id": "b", **function("two", '{"y"')},
        {"index": 0, "id": "a", **function("one", '{"x"')},
        {"index": 1, **function(None, ":2}")},
        {"index": 0, **function(None, ":1}")},
    )
    assert calls == (ToolCall("b", "two", '{"y":2}'), ToolCall("a", "one", '{"x":1}'))


@pytest.mark.proves("model-client.calls.merge")
def test_a_name_repeated_in_every_delta_is_not_doubled() -> None:
    calls = folded(
        {"index": 0, "id": "a", **function("add", '{"x":')},
        {"index": 0, "id": "a", **function("add", '{"y":')},
        {"index": 0, "id": "a", **function("add", "1}}")},
    )
    assert calls == (ToolCall("a", "add", '{"x":{"y":1}}'),)


@pytest.mark.parametrize(
    "names",
    [("math", "_add"), ("math", "math_add"), ("math_add", "")],
    ids=["pieces", "growing", "once"],
)
def test_a_name_in_pieces_is_put_together(names: tuple[str, str]) -> None:
    calls = folded(
        {"index": 0, "id": "a", **function(names[0])},
        {"index": 0, **function(names[1])},
        {"index": 0, **function(None, "{}")},
    )
    assert calls == (ToolCall("a", "math::add", "{}"),)


@pytest.mark.proves("model-client.calls.merge")
@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("arguments", ['{"a":1}', {"a": 1}])
def test_whole_calls_that_all_say_index_zero_stay_apart(with_ids: bool, arguments: Any) -> None:
    named = [{"id": "a"}, {"id": "b"}] if with_ids else [{}, {}]
    calls = folded(*({"index": 0, **id, **function("add", arguments)} for id in named))
    assert [(call.tool, call.arguments) for call in calls] == [("add", '{"a":1}')] * 2


def test_streamed_calls_that_all_say_index_zero_are_told_apart_by_their_ids() -> None:
    calls = folded(
        {"index": 0, "id": "a", **function("add", "")},
        {"index": 0, **function(None, '{"x":1}')},
        {"index": 0, "id": "b", **function("add", "")},
        {"index": 0, **function(None, '{"x":2}')},
    )
    assert calls == (ToolCall("a", "add", '{"x":1}'), ToolCall("b", "add", '{"x":2}'))


def test_whole_calls_without_index_and_id_stay_apart() -> None:
    calls = folded(function("one", ""), function("two", {"b": 2}), function("two", {"b": 3}))
    assert calls == (
        ToolCall("", "one", "{}"),
        ToolCall("", "two", '{"b":2}'),
        ToolCall("", "two", '{"b":3}'),
    )


def test_no_arguments_are_an_empty_object_unless_the_call_was_cut_off() -> None:
    opened = {"index": 0, "id": "a", **function("add", "")}
    assert folded(opened) == (ToolCall("a", "add", "{}"),)
    assert folded(opened, finish="length") == (ToolCall("a", "add", ""),)


def test_an_object_in_place_of_a_list_is_shown_as_it_came() -> None:
    calls = {"index": 0, **function("add", "{}")}
    with pytest.raises(ProviderError, match=r'has \{"index":0.* as `tool_calls`, where a list of'):
        ask(stream(chunk({"tool_calls": calls})), sink=RecordingSink())


def test_a_message_that_grows_beside_its_pieces_is_not_read() -> None:
    """Some servers (Perplexity) repeat what came so far in every chunk."""
    pieces = [
        {"delta": {"content": "it "}, "message": {"role": "assistant", "content": "it "}},
        {"delta": {"content": "rains"}, "message": {"role": "assistant", "content": "it rains"}},
        {"delta": {}, "message": {"role": "assistant", "content": "it rains."}},
    ]
    events = [event({"choices": [{"index": 0, **piece}]}) for piece in pieces]
    assert ask(stream(*events), sink=RecordingSink())[0].text == "it rains"


def test_a_piece_of_arguments_that_belongs_to_no_call_is_an_error() -> None:
    with pytest.raises(ProviderError, match="only") as raised:
        folded(
            {"index": 0, "id": "a", **function("wipe", '{"path":"/srv"')},
            {"index": 1, **function(None, ',"only":"*.tmp"')},
            {"index": 0, **function(None, "}")},
        )
    assert (raised.value.code, raised.value.retryable) == ("not_understood", False)


def test_an_error_of_a_server_can_be_printed_whatever_is_in_it() -> None:
    refusal = Reply(400, pieces=[b'{"error":{"message":"half: \\ud83d"}}'])
    with pytest.raises(ProviderError) as raised:
        ask(refusal)
    assert raised.value.detail.encode().endswith(b"half: ?")


def test_nonsense_in_a_delta_is_passed_over() -> None:
    pieces = [
        b": keep-alive\n\n",
        event({"choices": []}),
        event({"object": "ping"}),
        event([1]),
        chunk({"content": None, "tool_calls": None}),
        chunk({"content": [{"type": "text", "text": "par"}, {"type": "image"}]}),
        chunk({"content": "ts"}),
    ]
    assert ask(stream(*pieces), sink=RecordingSink())[0].text == "parts"


def test_an_emoji_cut_in_two_is_put_together_again() -> None:
    pieces = [b'"ok \\ud83d"', b'"\\ude42 and "', b'"\\ud83d"', b'"x"', b'"\\ude42"']
    events = [b'data: {"choices":[{"delta":{"content":' + piece + b"}}]}\n\n" for piece in pieces]
    listener = RecordingSink()
    answer = ask(stream(*events), sink=listener)[0]
    assert answer.text == "".join(listener.pieces) == "ok 🙂 and \ufffdx\ufffd"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_found_under_every_name(name: str) -> None:
    assert (
        ask(stream(chunk({name: "hm"}), chunk({"content": "3"})), sink=RecordingSink())[0].reasoning
        == "hm"
    )
    assert ask(whole(**{name: "hm"}))[0].reasoning == "hm"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "filter"),
        ("tool_calls", "end"),
        ("x", "end"),
    ],
)
def test_why_it_ended_is_said_in_our_words(finish: str, stop: str) -> None:
    assert ask(whole(finish=finish))[0].stop == stop
    assert ask(stream(chunk({"content": "3"}), finish=finish), sink=RecordingSink())[0].stop == stop


def test_a_server_that_stops_for_calls_but_says_stop_is_believed_about_the_calls() -> None:
    assert ask(whole(tool_calls=[said_call(0, ServerCall())]))[0].stop == "calls"


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 8}}, Usage(90, 20, 8)),
        ({"prompt_cache_hit_tokens": 8}, Usage(90, 20, 8)),
        (
            {"prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 40}},
            Usage(90, 20, 8, 40),
        ),
        ({"prompt_tokens_details": {"cache_creation_tokens": 40}}, Usage(90, 20, 0, 40)),
        (
            {"cache_creation_input_tokens": 40, "prompt_tokens_details": {"cached_tokens": None}},
            Usage(90, 20, 0, 40),
        ),
        ({"completion_tokens_details": {"reasoning_tokens": 15}}, Usage(90, 20, reasoning=15)),
        ({"prompt_tokens_details": None, "completion_tokens_details": 5}, Usage(90, 20)),
    ],
)
def test_tokens_of_the_cache_and_of_reasoning_are_counted(
    said: dict[str, Any], counted: Usage
) -> None:
    usage = {"prompt_tokens": 90, "completion_tokens": 20, **said}
    answer, *_ = ask(Reply(json={"choices": [{"message": {"content": "3"}}], "usage": usage}))
    assert answer.usage == counted


def test_a_server_that_cannot_stream_may_answer_in_one_piece() -> None:
    listener = RecordingSink()
    assert ask(whole("three"), sink=listener)[0].text == "three"
    assert listener.pieces == ["three"]


def test_done_without_a_finish_reason_is_an_end() -> None:
    assert ask(stream(chunk({"content": "3"}), finish=None), sink=RecordingSink())[0].text == "3"


def test_an_error_in_the_middle_of_a_stream_is_raised_with_its_words() -> None:
    reply = stream(
        chunk({"content": "3"}), event({"error": {"message": "gpu fell off", "code": 500}})
    )
    with pytest.raises(ProviderError, match="gpu fell off"):
        ask(reply, sink=RecordingSink())


@pytest.mark.parametrize(
    "last",
    [
        chunk({"content": "4"}, error={"message": "gpu fell off"}),
        chunk({"content": ""}, "error"),
        chunk({}, "abort"),
        event({"choices": [{"message": {"content": "more"}, "finish_reason": "stop"}]}),
    ],
)
def test_an_answer_that_was_broken_off_is_no_whole_one(last: bytes) -> None:
    with pytest.raises(ProviderError):
        ask(stream(chunk({"content": "3"}), last), sink=RecordingSink())


def test_a_message_in_place_of_deltas_and_an_older_call_are_read() -> None:
    message = {"content": "three", "function_call": {"name": "add", "arguments": "{}"}}
    reply = stream(event({"choices": [{"message": message}]}))
    answer = ask(reply, sink=RecordingSink())[0]
    assert (answer.text, [call.tool for call in answer.calls]) == ("three", ["add"])
    pieces = [chunk({"function_call": {"name": "add", "arguments": "{"}})]
    pieces.append(chunk({"function_call": {"arguments": "}"}}))
    assert [call.arguments for call in ask(stream(*pieces), sink=RecordingSink())[0].calls] == [
        "{}"
    ]


@pytest.mark.parametrize("count", [b"1e999", b"NaN", b"-1", b'"7"', b"null", b"[]", b"1e300"])
def test_a_count_that_is_none_is_zero(count: bytes) -> None:
    used = b'data: {"choices":[],"usage":{"prompt_tokens":' + count + b"}}\n\n"
    answer = ask(stream(chunk({"content": "3"}, "stop"), used), sink=RecordingSink())[0]
    assert (answer.text, answer.usage.input) == ("3", 0)


@pytest.mark.parametrize("kind", ["text/plain", "text/event-stream"])
def test_the_body_says_what_it_is_whatever_its_content_type(kind: str) -> None:
    named = {"content-type": kind}
    refusal = Reply(200, [b'\n{"error":', b'{"message":"boom here"}}'], headers=named)
    with pytest.raises(ProviderError, match="boom here"):
        ask(refusal, sink=RecordingSink())
    answer = b'{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}'
    assert ask(Reply(200, [answer], headers=named), sink=RecordingSink())[0].text == "whole"


# ---- what is sent


def test_a_conversation_is_sent_as_the_format_wants_it() -> None:
    history = [
        UserMessage("1+2?"),
        AssistantMessage("", (ToolCall("c1", "math::add", '{"a":1,"b":2}'),), "thinking"),
        ToolMessage("c1", "math::add", "3"),
        UserMessage("sure?"),
        AssistantMessage("yes", (ToolCall("c2", "what?!", "{broken"),)),
        ToolMessage("c2", "what?!", "no such tool", False),
    ]
    _, sent, _ = ask(
        whole(), history=history, options=ModelOptions(temperature=0, max_tokens=5, seed=1)
    )
    function = {"name": "math_add", "arguments": '{"a":1,"b":2}'}
    broken = {"name": "what__", "arguments": '{"invalid_arguments":"{broken"}'}
    assert sent[0] == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "1+2?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "user", "content": "sure?"},
            {
                "role": "assistant",
                "content": "yes",
                "tool_calls": [{"id": "c2", "type": "function", "function": broken}],
            },
            {"role": "tool", "tool_call_id": "c2", "content": "no such tool"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "math_add",
                    "description": "Add two numbers.",
                    "parameters": json.loads(ADD.schema),
                },
            }
        ],
        "temperature": 0,
        "max_tokens": 5,
        "seed": 1,
    }


def test_without_tools_and_options_nothing_else_is_sent() -> None:
    _, sent, _ = ask(whole(), tools=())
    assert set(sent[0]) == {"model", "messages"}


def test_a_stream_asks_for_its_usage() -> None:
    _, sent, _ = ask(stream(chunk({"content": "3"})), sink=RecordingSink())
    assert (sent[0]["stream"], sent[0]["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.proves("model-client.tools-off.keeps-cache")
def test_tools_off_keeps_the_tools_and_forbids_the_choice() -> None:
    _, sent, _ = ask(whole(), allow=False)
    assert (len(sent[0]["tools"]), sent[0]["tool_choice"]) == (1, "none")


@pytest.mark.proves("model-client.tools-off.keeps-cache")
def test_a_server_that_refuses_tool_choice_is_asked_without_tools_and_not_tried_again() -> None:
    refused = Reply(400, json={"error": {"message": "tool_choice is not allowed here"}})
    _, sent, notices = ask(refused, whole(), allow=False)
    assert ["tools" in body for body in sent] == [True, False]
    assert [topic for topic, _ in notices] == ["fallback"]


@pytest.mark.proves("model-client.tools-off.keeps-cache")
def test_a_server_that_ignores_tool_choice_is_asked_without_tools() -> None:
    answer, sent, notices = ask(
        whole("", tool_calls=[said_call(0, ServerCall())]), whole("three"), allow=False
    )
    assert (answer.text, answer.calls) == ("three", ())
    assert ["tools" in body for body in sent] == [True, False]
    assert "ignores" in notices[0][1]


def test_options_reach_the_request() -> None:
    _, sent, _ = ask(
        whole(), options=ModelOptions(thinking="low", extra={"top_k": 3, "x": {"y": "ä"}})
    )
    assert (sent[0]["reasoning_effort"], sent[0]["top_k"], sent[0]["x"]) == ("low", 3, {"y": "ä"})
    _, sent, _ = ask(whole(), options=ModelOptions(thinking=False))
    assert sent[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_examples_become_part_of_the_description() -> None:
    tool = ToolSpec("t", "t", "Does.", "{}", ({"a": 1},))
    _, sent, _ = ask(whole(), tools=(tool,))
    assert (
        sent[0]["tools"][0]["function"]["description"] == 'Does.\nExamples of arguments:\n{"a":1}'
    )


def test_a_lone_surrogate_in_the_history_does_not_stop_the_request() -> None:
    _, sent, _ = ask(whole(), history=[UserMessage("half \ud83d of it")])
    assert sent[0]["messages"][1]["content"] == "half ? of it"


# ---- refusals


def refused(status: int, body: object, **more: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        ask(Reply(status, json=body), **more)
    assert raised.value.status == status
    return raised.value


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "This model's maximum context length is 8192 tokens", "context_overflow"),
        (
            400,
            "request (6031 tokens) exceeds the available context size (4096 tokens)",
            "context_overflow",
        ),
        (413, "payload too large", "context_overflow"),
        (500, "tools param requires --jinja flag", "tools_unsupported"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice', "tools_unsupported"),
        (400, "registry.ollama.ai/library/gemma does not support tools", "tools_unsupported"),
        (404, "No endpoints found that support tool use", "http_404"),
        (404, "The model `gpt-9` does not exist", "model_not_found"),
        (403, "no", "unauthorized"),
        (418, "I am a teapot", "http_418"),
    ],
)
def test_a_refusal_has_a_stable_code(status: int, message: str, code: str) -> None:
    assert refused(status, {"error": {"message": message}}).code == code


def test_a_spent_account_is_not_asked_again() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    assert refused(429, body).code == "quota"


def test_without_tools_in_the_request_nothing_is_blamed_on_tools() -> None:
    assert refused(400, {"error": "does not support tools"}, tools=()).code == "http_400"


def test_an_unknown_model_is_told_with_the_models_that_are_there() -> None:
    error = refused(404, {"error": {"message": "model not found"}}, models=["alpha", "beta"])
    assert error.hint == "the server has: alpha, beta"


def test_a_redirect_is_not_followed_and_says_where_it_points() -> None:
    with pytest.raises(ProviderError) as raised:
        ask(Reply(307, headers={"Location": "https://elsewhere.example/v1"}))
    assert raised.value.code == "http_307"
    assert "https://elsewhere.example/v1" in raised.value.hint


# ---- truncation


def test_a_server_that_read_far_less_than_was_sent_rings_the_alarm() -> None:
    long = [UserMessage("word " * 8000)]
    _, _, notices = ask(whole(), history=long)
    assert [topic for topic, _ in notices] == ["truncated"]
    listener = RecordingSink()
    reply = stream(
        chunk({"content": "3"}), event({"choices": [], "usage": {"prompt_tokens": 2048}})
    )
    _, _, kept = ask(reply, history=long, sink=listener)
    assert [topic for topic, _ in listener.notices] == ["truncated"]
    assert kept == [], "a notice is told once"


def test_an_honest_count_rings_no_alarm() -> None:
    _, _, notices = ask(whole(), history=[UserMessage("    indented = code(  )\n" * 150)])
    assert notices == []


# ---- the model client itself


def test_openai_itself_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="needs an API key"):
        OpenAIChat("gpt-5")


def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    model_client = OpenAIChat("gpt-5")
    monkeypatch.delenv("OPENAI_API_KEY")
    assert (model_client.base_url, model_client.headers["Authorization"]) == (
        "http://127.0.0.1:9/v1",
        "Bearer secret",
    )
    assert model_client.model == "openai:gpt-5"


def capabilities(answers: Mapping[str, Any], base: str = "") -> Capabilities:
    def answer(request: Request) -> Reply:
        found = answers.get(request.target)
        return Reply(404, json={"error": "no"}) if found is None else Reply(json=found)

    async def story() -> Capabilities:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            model_client = OpenAIChat("m", base_url=base or f"{server.url}/v1", api_key="k")
            try:
                first = await model_client.capabilities()
                asked = len(server.requests)
                assert await model_client.capabilities() is first
                assert len(server.requests) == asked, "asked once"
                return first
            finally:
                await model_client.close()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            {
                "/props": {
                    "default_generation_settings": {"n_ctx": 64},
                    "chat_template_caps": {"supports_tools": False},
                }
            },
            Capabilities(
                False, True, 64, source="/props chat_template_caps", structured_with_tools=False
            ),
        ),
        (
            {
                "/props": {
                    "default_generation_settings": {},
                    "chat_template": "{% if tools %}<tool_call>{% endif %}",
                }
            },
            Capabilities(True, True, source="template markers", structured_with_tools=False),
        ),
        (
            {"/props": {"chat_template": "{{ messages }}"}},
            Capabilities(None, True, source="template markers", structured_with_tools=False),
        ),
        (
            {
                "/v1/models": {
                    "data": [{"id": "m", "supported_parameters": ["tools"], "context_length": 8}]
                }
            },
            Capabilities(True, False, 8, False, "/models"),
        ),
        (
            {"/v1/models": {"data": [{"id": "m", "max_model_len": 9}]}},
            Capabilities(context=9, source="/models"),
        ),
        ({}, Capabilities()),
    ],
    ids=["caps", "markers", "no-markers", "openrouter", "vllm", "silent"],
)
def test_capability_is_asked_of_the_server(
    answers: Mapping[str, Any], expected: Capabilities
) -> None:
    assert capabilities(answers) == expected


def test_a_provider_that_says_nothing_is_looked_up() -> None:
    async def story() -> Capabilities:
        return await OpenAIChat(
            "gpt-5-mini", base_url="https://api.openai.com/v1", api_key="k"
        ).capabilities()

    assert asyncio.run(story()) == Capabilities(
        True, True, source="provider table", structured_with_tools=True
    )


# ---- llama.cpp


@pytest.mark.model
def test_llama_cpp_is_detected_and_answers_in_a_schema(llama_url: str) -> None:
    schema = {
        "type": "object",
        "properties": {"tool": {"enum": ["read_file"]}},
        "required": ["tool"],
        "additionalProperties": False,
    }

    async def story() -> tuple[Capabilities, ModelAnswered, ModelAnswered, RecordingSink]:
        model_client, listener = (
            OpenAIChat("smollm2", base_url=f"{llama_url}/v1", api_key=""),
            RecordingSink(),
        )
        try:
            exchange = model_client.open(
                "You call tools.", [], ModelOptions(temperature=0, max_tokens=24, seed=1)
            )
            asked = [UserMessage("Read notes.txt")]
            whole = await exchange.ask(asked, schema=schema)
            return (
                await model_client.capabilities(),
                whole,
                await exchange.ask(asked, schema=schema, sink=listener),
                listener,
            )
        finally:
            await model_client.close()

    found, whole, streamed, listener = asyncio.run(story())
    assert found == Capabilities(
        False, True, 4096, source="/props chat_template_caps", structured_with_tools=False
    )
    assert json.loads(whole.text) == {"tool": "read_file"}
    assert streamed.text == "".join(listener.pieces) == whole.text
    assert streamed.usage.input > 5


@pytest.mark.model
def test_llama_cpp_dropping_tools_rings_the_alarm_and_too_much_is_an_overflow(
    llama_url: str,
) -> None:
    tools = [ToolSpec(f"t{i}", f"t{i}", "Does a thing with " * 5, ADD.schema) for i in range(20)]

    async def story() -> tuple[list[tuple[str, str]], ProviderError]:
        model_client = OpenAIChat("smollm2", base_url=f"{llama_url}/v1", api_key="")
        try:
            exchange = model_client.open("", tools, ModelOptions(max_tokens=2))
            await exchange.ask([UserMessage("hi")])
            with pytest.raises(ProviderError) as raised:
                await exchange.ask([UserMessage("hi"), UserMessage("word " * 6000)])
            return exchange.notices, raised.value
        finally:
            await model_client.close()

    notices, error = asyncio.run(story())
    assert [topic for topic, _ in notices] == ["truncated"]
    assert error.code == "context_overflow"
