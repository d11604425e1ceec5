"""The Messages model client against a server in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.anthropic.client import Anthropic, AnthropicExchange
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.http.transport import Transport
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
    ServerCall,
)

SEARCH = {"type": "web_search_20250305", "name": "web_search"}
STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens"}


def event(value: Mapping[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def whole(content: Sequence[Mapping[str, Any]], stop: str = "end_turn", **more: Any) -> Reply:
    usage = {"input_tokens": 1000, "output_tokens": 7}
    return Reply(
        json={
            "type": "message",
            "role": "assistant",
            "content": content,
            "stop_reason": stop,
            "usage": usage,
            **more,
        }
    )


def streamed(
    *blocks: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]],
    stop: str = "end_turn",
    usage: Mapping[str, int] | None = None,
) -> Reply:
    """Blocks as they begin, and the deltas of each."""
    counted = usage or {"input_tokens": 1000, "output_tokens": 7}
    events = [
        event({"type": "message_start", "message": {"usage": {**counted, "output_tokens": 1}}}),
        event({"type": "ping"}),
    ]
    for index, (start, deltas) in enumerate(blocks):
        events.append(
            event({"type": "content_block_start", "index": index, "content_block": start})
        )
        events += [
            event({"type": "content_block_delta", "index": index, "delta": delta})
            for delta in deltas
        ]
        events.append(event({"type": "content_block_stop", "index": index}))
    events.append(
        event({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": counted})
    )
    events.append(event({"type": "message_stop"}))
    return Reply(200, events, headers={"content-type": "text/event-stream"})


@pytest.mark.proves("model-client.encoded-once")
class TestAnthropicConforms(ModelClientConformance):
    object_arguments = True
    string_arguments = False
    pieces_before_text = 4

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return Anthropic("claude-test", base_url=url, api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed_: bool) -> Reply:
        if not streamed_:
            content: list[dict[str, Any]] = []
            if said.reasoning:
                content.append(
                    {"type": "thinking", "thinking": "".join(said.reasoning), "signature": "s"}
                )
            if said.text:
                content.append({"type": "text", "text": "".join(said.text)})
            content += [used(call, self.arguments(call)) for call in said.calls]
            return whole(content, STOPS[said.stop])
        blocks: list[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = []
        if said.reasoning:
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in said.reasoning]
            blocks.append(
                (
                    {"type": "thinking", "thinking": "", "signature": ""},
                    [*deltas, {"type": "signature_delta", "signature": "s"}],
                )
            )
        if said.text:
            blocks.append(
                (
                    {"type": "text", "text": ""},
                    [{"type": "text_delta", "text": piece} for piece in said.text],
                )
            )
        for call in said.calls:
            spelled = json.dumps(self.arguments(call), ensure_ascii=False, separators=(",", ":"))
            pieces = [spelled[i : i + 3] for i in range(0, len(spelled), 3)]
            blocks.append(
                (
                    used(call, {}),
                    [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces]],
                )
            )
        return streamed(*blocks, stop=STOPS[said.stop])

    @staticmethod
    def arguments(call: ServerCall) -> Any:
        return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


def used(call: ServerCall, given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": given}
    return block if call.id else {name: value for name, value in block.items() if name != "id"}


# ---- one conversation, from outside


class Conversation:
    """A model client and a server that answers with these replies; `sent` are the requests."""

    def __init__(self, *replies: Reply, model: str = "claude-test", **more: Any) -> None:
        self._replies = list(replies)
        self._model = model
        self._more = more
        self.sent: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.notices: list[tuple[str, str]] = []
        self.waits: list[float] = []

    def _answer(self, request: Request) -> Reply:
        self.sent.append(request.json())
        self.bodies.append(request.body)
        self.headers.append(request.headers)
        return self._replies.pop(0)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def ask(
        self,
        *histories: Sequence[Message],
        system: str = "Be brief.",
        tools: Sequence[ToolSpec] = (ADD,),
        options: ModelOptions | None = None,
        sink: RecordingSink | None = None,
        allow: bool = True,
        schema: Mapping[str, Any] | None = None,
    ) -> list[ModelAnswered]:
        """The answers to these histories, one after another in one exchange."""

        async def ask_all() -> list[ModelAnswered]:
            transport = Transport(sleep=self._sleep, random_fraction=lambda: 0.5)
            async with asyncio.timeout(20), HttpDouble(self._answer) as server:
                model_client = Anthropic(
                    self._model, base_url=server.url, api_key="k", transport=transport, **self._more
                )
                exchange = model_client.open(system, tools, options or ModelOptions())
                try:
                    return [
                        await exchange.ask(h, tools=allow, sink=sink, schema=schema)
                        for h in histories or (HELLO,)
                    ]
                finally:
                    self.notices = exchange.notices
                    await transport.close()

        return asyncio.run(ask_all())


def said(answer: ModelAnswered) -> AssistantMessage:
    """The answer as the machine keeps it."""
    return AssistantMessage(
        answer.text or "(no answer)", answer.calls, answer.reasoning, answer.raw
    )


THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
THINKING = (
    THOUGHT,
    [
        {"type": "thinking_delta", "thinking": "one "},
        {"type": "thinking_delta", "thinking": "two"},
        {"type": "signature_delta", "signature": "EqoB+/=="},
    ],
)
REDACTED = ({"type": "redacted_thinking", "data": "EmwKAhgB"}, [])
CALL = (
    {"type": "tool_use", "id": "toolu_1", "name": "math_add", "input": {}},
    [
        {"type": "input_json_delta", "partial_json": '{"a": 1'},
        {"type": "input_json_delta", "partial_json": ', "b": 2}'},
    ],
)


@pytest.mark.parametrize("as_stream", [False, True])
def test_signed_and_redacted_thinking_goes_back_byte_for_byte(as_stream: bool) -> None:
    blocks = [
        {"type": "thinking", "thinking": "one two", "signature": "EqoB+/=="},
        {"type": "redacted_thinking", "data": "EmwKAhgB"},
        {"type": "tool_use", "id": "toolu_1", "name": "math_add", "input": {"a": 1, "b": 2}},
    ]
    first = (
        streamed(THINKING, REDACTED, CALL, stop="tool_use")
        if as_stream
        else whole(blocks, "tool_use")
    )
    talk = Conversation(first, whole([{"type": "text", "text": "3"}]))
    answer = talk.ask(sink=RecordingSink() if as_stream else None)[0]
    assert (answer.reasoning, answer.calls[0].tool) == ("one two", "math::add")
    talk.ask([*HELLO, said(answer), ToolMessage("toolu_1", "math::add", "3")])
    turn = talk.sent[1]["messages"][1]
    assert turn == {"role": "assistant", "content": blocks}
    if as_stream:
        assert b'"input":{"a": 1, "b": 2}' in talk.bodies[1], "the model's own spelling"


def test_a_history_of_another_model_is_sent_without_its_thinking() -> None:
    answer = Conversation(streamed(THINKING, CALL, stop="tool_use")).ask(sink=RecordingSink())[0]
    other = Conversation(whole([{"type": "text", "text": "3"}]), model="claude-other")
    other.ask([*HELLO, said(answer), ToolMessage("toolu_1", "math::add", "3")])
    kinds = [block["type"] for block in other.sent[0]["messages"][1]["content"]]
    assert kinds == ["text", "tool_use"]


def test_blocks_are_not_replayed_for_a_message_whose_calls_were_left_out() -> None:
    answer = Conversation(streamed(THINKING, CALL, stop="tool_use")).ask(sink=RecordingSink())[0]
    talk = Conversation(whole([{"type": "text", "text": "3"}]))
    talk.ask([*HELLO, replace(said(answer), calls=(), text="I stop."), UserMessage("go on")])
    assert talk.sent[0]["messages"][1]["content"] == [{"type": "text", "text": "I stop."}]


def test_what_the_message_spells_itself_is_not_kept_twice() -> None:
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Drei ☃"}])
    plain = ({"type": "tool_use", "id": "toolu_1", "name": "math_add", "input": {}}, CALL[1])
    answer = Conversation(streamed(text, plain, stop="tool_use")).ask(sink=RecordingSink())[0]
    assert answer.raw is None
    assert answer.calls == (ToolCall("toolu_1", "math::add", '{"a": 1, "b": 2}'),)


def test_results_of_a_round_and_the_words_after_them_are_one_turn() -> None:
    calls = (ToolCall("a.1:x", "math::add", '{"a":1}'), ToolCall("t2", "math::add", "{}"))
    history = [
        *HELLO,
        AssistantMessage("", calls),
        ToolMessage("a.1:x", "math::add", "3"),
        ToolMessage("t2", "math::add", "no", success=False),
        UserMessage("And now?"),
    ]
    talk = Conversation(whole([{"type": "text", "text": "3"}]))
    talk.ask(history)
    assert [turn["role"] for turn in talk.sent[0]["messages"]] == ["user", "assistant", "user"]
    made, results = talk.sent[0]["messages"][1]["content"], talk.sent[0]["messages"][2]["content"]
    assert [block["id"] for block in made] == ["a_1_x", "t2"]
    assert results == [
        {"type": "tool_result", "tool_use_id": "a_1_x", "content": "3"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
        {"type": "text", "text": "And now?"},
    ]


def test_the_stable_prefix_and_the_moving_end_are_marked_for_the_cache() -> None:
    mark = {"type": "ephemeral"}
    talk = Conversation(*[whole([{"type": "text", "text": "3"}])] * 3)
    talk.ask()
    talk.ask(system="")
    assert talk.sent[0]["cache_control"] == talk.sent[1]["cache_control"] == mark
    assert talk.sent[0]["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
    # Conversations with another system text share the tools.
    assert talk.sent[0]["tools"][0]["cache_control"] == mark
    assert talk.sent[1]["tools"][0]["cache_control"] == mark
    longer = Conversation(whole([{"type": "text", "text": "3"}]))
    longer.ask(options=ModelOptions(cache_control="1h"))
    assert longer.bodies[0].decode().count('"ttl":"1h"') == 3
    off = Conversation(whole([{"type": "text", "text": "3"}]), cache="")
    off.ask()
    assert "cache_control" not in off.bodies[0].decode()


def test_the_end_of_the_last_question_is_marked_if_the_turn_after_it_was_long() -> None:
    pytest.importorskip("anthropic", reason="its types say what is legal")
    from provider_double import check_messages

    calls = tuple(ToolCall(f"t{n}", "math::add", "{}") for n in range(15))
    results = [ToolMessage(call.id, call.tool, "3}]}") for call in calls]
    history = [*HELLO, AssistantMessage("", calls), *results]

    def marked(*histories: Sequence[Message]) -> list[list[dict[str, Any]]]:
        """The marked blocks of each request."""

        async def story() -> list[list[dict[str, Any]]]:
            reply = whole([{"type": "text", "text": "3"}])
            async with asyncio.timeout(20), HttpDouble(lambda request: reply) as server:
                client = Anthropic("claude-sonnet-5", base_url=server.url, api_key="k")
                exchange = client.open("Be brief.", [ADD], ModelOptions())
                for asked in histories:
                    await exchange.ask(asked)
                await client.close()
                bodies = [request.json() for request in server.requests]
            for body in bodies:
                check_messages(body)
                assert json.dumps(body).count('"cache_control"') <= 4
            turns = [[block for turn in b["messages"] for block in turn["content"]] for b in bodies]
            return [[one for one in blocks if "cache_control" in one] for blocks in turns]

        return asyncio.run(story())

    later = [*history, AssistantMessage("3"), UserMessage("Sure?")]
    first, second, third, other = marked(HELLO, history, later, HELLO)
    assert first == [] == other
    assert [block["text"] for block in second] == [HELLO[0].text]
    # A short turn needs none: what was sent is sent again byte for byte.
    assert third == []


def test_deferred_tools_say_so_and_carry_no_mark() -> None:
    late = replace(ADD, name="late", api_name="late", deferred=True)
    talk = Conversation(whole([{"type": "text", "text": "3"}]), cache="1h")
    talk.ask(system="", tools=[ADD, late])
    first, second = talk.sent[0]["tools"]
    assert first["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert (second["defer_loading"], "cache_control" in second) == (True, False)


def test_input_tokens_are_those_of_the_cache_too() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 500,
        "cache_creation_input_tokens": 40,
        "output_tokens": 7,
    }
    usage["output_tokens_details"] = {"thinking_tokens": 3}  # type: ignore[assignment]
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "3"}])
    answers = Conversation(streamed(text, usage=usage)).ask(sink=RecordingSink())
    answers += Conversation(whole([{"type": "text", "text": "3"}], usage=usage)).ask()
    assert [answer.usage for answer in answers] == [Usage(550, 7, 500, 40, 3)] * 2


def test_an_answer_that_pauses_goes_on_until_it_ends() -> None:
    search = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    talk = Conversation(
        whole([search], "pause_turn"), whole([found, {"type": "text", "text": "3"}])
    )
    answer = talk.ask(options=ModelOptions(provider_tools=(SEARCH,)))[0]
    assert (answer.text, answer.stop, answer.usage) == ("3", "end", Usage(2000, 14))
    assert talk.sent[1]["messages"][-1] == {"role": "assistant", "content": [search]}
    assert json.loads(answer.raw or "")["content"] == [search, found, {"type": "text", "text": "3"}]
    (made,) = answer.provider_calls
    assert (made.name, made.tool_kind, made.status, made.executor) == (
        "web_search",
        "search",
        "completed",
        "provider_native",
    )


def test_a_provider_that_only_pauses_is_asked_a_bounded_number_of_times() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    talk = Conversation(*[whole([search], "pause_turn")] * 16)
    answer = talk.ask()[0]
    assert (len(talk.sent), answer.stop) == (16, "length")
    assert [topic for topic, _ in talk.notices] == ["paused"]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "filter"),
        ("of_tomorrow", "end"),
    ],
)
def test_reasons_to_stop_are_told_apart(reason: str, stop: str) -> None:
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "so far"}])
    answers = (
        Conversation(streamed(text, stop=reason)).ask(sink=RecordingSink())
        + Conversation(whole([{"type": "text", "text": "so far"}], reason)).ask()
    )
    assert [(answer.text, answer.stop) for answer in answers] == [("so far", stop)] * 2


def test_nothing_of_a_refused_answer_or_of_mere_thinking_is_replayed() -> None:
    assert (
        Conversation(streamed(THINKING, CALL, stop="refusal")).ask(sink=RecordingSink())[0].raw
        is None
    )
    assert (
        Conversation(streamed(THINKING, stop="max_tokens")).ask(sink=RecordingSink())[0].raw is None
    )


def test_a_call_that_was_cut_off_stands_as_it_is_and_its_block_stays_valid() -> None:
    cut = (
        {"type": "tool_use", "id": "toolu_1", "name": "math_add", "input": {}},
        [{"type": "input_json_delta", "partial_json": '{"a": 1, "b'}],
    )
    answer = Conversation(streamed(THINKING, cut, stop="max_tokens")).ask(sink=RecordingSink())[0]
    assert (answer.stop, answer.calls[0].arguments) == ("length", '{"a": 1, "b')
    talk = Conversation(whole([{"type": "text", "text": "3"}]))
    talk.ask([*HELLO, said(answer), ToolMessage("toolu_1", "math::add", "broken", success=False)])
    block = talk.sent[0]["messages"][1]["content"][1]
    assert block["input"] == {"invalid_arguments": '{"a": 1, "b'}


def test_the_container_of_hosted_code_is_named_again() -> None:
    made = {
        "type": "tool_use",
        "id": "t1",
        "name": "math_add",
        "input": {},
        "caller": {"type": "code_execution_20260120", "tool_id": "s1"},
    }
    talk = Conversation(
        whole(
            [made],
            "tool_use",
            container={"id": "container_1", "expires_at": "2026-12-01T00:00:00Z"},
        ),
        whole([{"type": "text", "text": "3"}]),
    )
    answer = talk.ask()[0]
    talk.ask([*HELLO, said(answer), ToolMessage("t1", "math::add", "3")])
    assert talk.sent[1]["container"] == "container_1"
    assert talk.sent[1]["messages"][1]["content"][0]["caller"] == made["caller"]


@pytest.mark.parametrize(
    ("status", "kind", "words", "code"),
    [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            "context_overflow",
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            "context_overflow",
        ),
        (413, "request_too_large", "Request exceeds the maximum size", "context_overflow"),
        (401, "authentication_error", "invalid x-api-key", "unauthorized"),
        (403, "permission_error", "not yours", "unauthorized"),
        (404, "not_found_error", "model: claude-nope", "model_not_found"),
        (400, "invalid_request_error", "Your credit balance is too low to access the API", "quota"),
        (400, "invalid_request_error", "max_tokens: 99999999 > 32000", "http_400"),
    ],
)
def test_refusals_have_stable_codes(status: int, kind: str, words: str, code: str) -> None:
    refused = Reply(
        status, json={"type": "error", "error": {"type": kind, "message": words}, "request_id": "r"}
    )
    with pytest.raises(ProviderError) as raised:
        Conversation(refused).ask()
    assert (raised.value.code, raised.value.status) == (code, status)


def test_an_overloaded_server_is_asked_again_also_where_it_says_so_in_a_stream() -> None:
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    over = Reply(529, json=told, headers={"retry-after": "2"})
    begun = Reply(200, [event(told)], headers={"content-type": "text/event-stream"})
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "3"}])
    talk = Conversation(over, begun, streamed(text))
    assert talk.ask(sink=RecordingSink())[0].text == "3"
    assert (len(talk.sent), talk.waits[0]) == (3, 2.0)


def test_an_overloaded_server_is_not_asked_again_once_words_were_seen() -> None:
    told = event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "3"}])
    begun = streamed(text).body()[:4]
    talk = Conversation(Reply(200, [*begun, told], headers={"content-type": "text/event-stream"}))
    with pytest.raises(ProviderError) as raised:
        talk.ask(sink=RecordingSink())
    assert (raised.value.code, len(talk.sent)) == ("overloaded", 1)


@pytest.mark.parametrize(
    ("model", "wanted", "expected"),
    [
        ("claude-opus-5", True, {"thinking": {"type": "adaptive"}}),
        (
            "claude-opus-5",
            "max",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        ),
        ("claude-opus-5", False, {"thinking": {"type": "disabled"}}),
        (
            "claude-sonnet-4-5-20250929",
            "low",
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            "claude-3-7-sonnet-20250219",
            True,
            {"thinking": {"type": "enabled", "budget_tokens": 7168}},
        ),
        ("claude-opus-5", None, {}),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    model: str, wanted: bool | str | None, expected: dict[str, Any]
) -> None:
    talk = Conversation(whole([{"type": "text", "text": "3"}]), model=model)
    talk.ask(options=ModelOptions(thinking=wanted))
    assert {
        name: value for name, value in talk.sent[0].items() if name in ("thinking", "output_config")
    } == expected


def test_what_a_person_set_is_sent_and_more_may_be_merged_in() -> None:
    talk = Conversation(whole([{"type": "text", "text": "{}"}]), betas=("b-1", "b-2"))
    options = ModelOptions(
        temperature=0.5, max_tokens=99, thinking="low", extra={"service_tier": "standard_only"}
    )
    talk.ask(options=options, schema={"type": "object"}, allow=False)
    sent = talk.sent[0]
    assert (sent["temperature"], sent["max_tokens"], sent["service_tier"]) == (
        0.5,
        99,
        "standard_only",
    )
    assert sent["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {"type": "object"}},
    }
    assert sent["tool_choice"] == {"type": "none"}
    assert (talk.headers[0]["anthropic-beta"], talk.headers[0]["anthropic-version"]) == (
        "b-1,b-2",
        "2023-06-01",
    )
    assert (talk.headers[0]["x-api-key"], "authorization" in talk.headers[0]) == ("k", False)


def test_blank_words_are_never_sent_as_an_empty_text() -> None:
    talk = Conversation(whole([{"type": "text", "text": "3"}]))
    talk.ask([UserMessage("  \n"), AssistantMessage(""), UserMessage("?")], system=" ")
    assert [turn["content"][0]["text"] for turn in talk.sent[0]["messages"]] == [
        "(nothing)",
        "(nothing)",
        "?",
    ]
    assert "system" not in talk.sent[0]


def test_a_key_is_needed_for_anthropic_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    with pytest.raises(ConfigError) as raised:
        Anthropic("claude-opus-5")
    assert "ANTHROPIC_API_KEY" in raised.value.hint
    assert "x-api-key" not in Anthropic("m", base_url="http://127.0.0.1:1/v1").headers


def test_capabilities_come_from_the_table_or_from_the_server() -> None:
    described = {
        "type": "model",
        "id": "m",
        "max_input_tokens": 9000,
        "capabilities": {
            "structured_outputs": {"supported": True},
            "thinking": {"supported": False},
        },
    }

    def answer(request: Request) -> Reply:
        assert request.target == "/v1/models/m"
        return Reply(json=described)

    async def story() -> None:
        own = Anthropic("claude-opus-5", api_key="k", base_url="https://api.anthropic.com")
        found = await own.capabilities()
        assert (found.tools, found.tool_search, found.source) == (True, True, "provider table")
        async with HttpDouble(answer) as server:
            model_client = Anthropic("m", base_url=server.url, api_key="k")
            found = await model_client.capabilities()
            await model_client.close()
        assert (found.tools, found.structured, found.context, found.thinking) == (
            True,
            True,
            9000,
            False,
        )
        async with HttpDouble(lambda _: Reply(404, json={"error": "?"})) as server:
            model_client = Anthropic("m", base_url=server.url, api_key="k")
            found = await model_client.capabilities()
            await model_client.close()
        assert (found.tools, found.structured, found.source) == (True, None, "part of the format")

    asyncio.run(story())


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_knows_no_such_key_is_an_error_and_no_model_without_abilities(
    status: int,
) -> None:
    async with HttpDouble(lambda _: Reply(status, json={"error": {"message": "no"}})) as server:
        model_client = Anthropic("m", base_url=server.url, api_key="k")
        with pytest.raises(ProviderError) as raised:
            await model_client.capabilities()
        await model_client.close()
    assert (raised.value.code, len(server.requests)) == ("unauthorized", 1)


def test_the_result_of_a_replayed_call_names_it_as_it_was() -> None:
    odd = ({**CALL[0], "id": "functions.add:0"}, CALL[1])
    answer = Conversation(streamed(THINKING, odd, stop="tool_use")).ask(sink=RecordingSink())[0]
    talk = Conversation(whole([{"type": "text", "text": "3"}]))
    talk.ask([*HELLO, said(answer), ToolMessage("functions.add:0", "math::add", "3")])
    made, result = (
        talk.sent[0]["messages"][1]["content"][1],
        talk.sent[0]["messages"][2]["content"][0],
    )
    assert made["id"] == result["tool_use_id"] == "functions.add:0"


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(
            TEXTS.filter(lambda name: name not in ("type", "tool_use_id", "id")), VALUES, max_size=4
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_blocks_nobody_knows_come_back_in_the_bytes_they_came_in(
    blocks: list[dict[str, Any]], ascii: bool, indent: int | None
) -> None:
    content = [{"type": "of_tomorrow", **block} for block in blocks]
    spelled = json.dumps(content, ensure_ascii=ascii, indent=indent)
    body = (
        b'{"type":"message","stop_reason":"end_turn","usage":{},"content":'
        + spelled.encode()
        + b"}"
    )
    talk = Conversation(
        Reply(pieces=[body], headers={"content-type": "application/json"}),
        whole([{"type": "text", "text": "3"}]),
    )
    answer = talk.ask()[0]
    talk.ask([*HELLO, said(answer), UserMessage("?")])
    parts = [json.dumps(block, ensure_ascii=ascii, indent=indent) for block in content]
    for part in parts if indent is None else []:
        assert part.encode() in talk.bodies[1]
    assert talk.sent[1]["messages"][1]["content"] == content


def test_the_exchange_is_made_once_for_the_same_tools() -> None:
    model_client = Anthropic("m", base_url="http://127.0.0.1:1", api_key="k")
    tools = (ADD,)
    first, second = (model_client.open("s", tools, ModelOptions()) for _ in range(2))
    assert isinstance(first, AnthropicExchange)
    assert first._prefix is second._prefix  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "type_",
    ["bash_20250124", "computer_20251124", "text_editor_20250728", "memory_20250818", "custom"],
)
def test_a_tool_that_the_provider_does_not_run_is_refused(type_: str) -> None:
    model_client = Anthropic("m", base_url="http://127.0.0.1:1", api_key="k")
    with pytest.raises(ConfigError) as raised:
        model_client.open("", (), ModelOptions(provider_tools=({"type": type_, "name": "x"},)))
    assert type_ in raised.value.detail
