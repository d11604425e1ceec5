"""The Responses model client against a server in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall, encode_json
from ferrule.core.errors import ConfigError, ProviderError
from ferrule.core.events import ModelAnswered, Usage
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.hosted_tools import APPROVAL_TOOL
from ferrule.models.http.transport import Transport
from ferrule.models.openai.responses import OpenAIResponses, ResponsesExchange
from ferrule.models.scripted import Scripted, says
from ferrule.storage.export.steps import NoticeStep, StepReader
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.fakes import RecordingApprover
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import (
    ADD,
    HELLO,
    ModelClientConformance,
    RecordingSink,
    ServerAnswer,
    ServerCall,
)
from ferrule.toolkits import remote_mcp

STATUS = {"end": "completed", "calls": "completed", "length": "incomplete"}
MAY_ADD = replace(
    ADD,
    schema='{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a"],"additionalProperties":false}',
)


def event(value: Mapping[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {encode_json(value)}\n\n".encode()


def response(
    output: Sequence[Mapping[str, Any]],
    status: str = "completed",
    reason: str = "max_output_tokens",
    **more: Any,
) -> dict[str, Any]:
    usage = {"input_tokens": 1000, "output_tokens": 7}
    details = {"reason": reason} if status == "incomplete" else None
    return {
        "object": "response",
        "status": status,
        "output": output,
        "usage": usage,
        "incomplete_details": details,
        "error": None,
        **more,
    }


def whole(*output: Mapping[str, Any], status: str = "completed", **more: Any) -> Reply:
    return Reply(json=response(output, status, **more))


def message(text: str, id: str = "msg_1") -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def call(
    arguments: str = '{"a":1,"b":2}', id: str = "call_1", name: str = "math_add", **more: Any
) -> dict[str, Any]:
    item = {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
        **more,
    }
    return item if id else {key: value for key, value in item.items() if key != "call_id"}


def reasoning(text: str = "one and two") -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAAAA+/=="}


def streamed(
    *items: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]], status: str = "completed"
) -> Reply:
    """Items as they end, and the deltas of each."""
    events = [
        event(
            {
                "type": "response.created",
                "response": {"status": "in_progress", "usage": None, "error": None},
            }
        )
    ]
    for index, (item, deltas) in enumerate(items):
        began = {**item, "content": [], "summary": [], "arguments": "", "status": "in_progress"}
        began = {name: value for name, value in began.items() if name in item}
        events.append(
            event({"type": "response.output_item.added", "output_index": index, "item": began})
        )
        events += [event({**delta, "output_index": index}) for delta in deltas]
        events.append(
            event({"type": "response.output_item.done", "output_index": index, "item": item})
        )
    events.append(
        event(
            {
                "type": f"response.{status}",
                "response": response([item for item, _ in items], status),
            }
        )
    )
    return Reply(200, events, headers={"content-type": "text/event-stream"})


def texts(*pieces: str) -> list[dict[str, Any]]:
    return [
        {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
        for piece in pieces
    ]


@pytest.mark.proves("model-client.encoded-once")
class TestOpenAIResponsesConforms(ModelClientConformance):
    pieces_before_text = 3

    def make_client(self, url: str, transport: Transport) -> ModelClient:
        return OpenAIResponses("m", base_url=f"{url}/v1", api_key="k", transport=transport)

    def encode(self, said: ServerAnswer, streamed_: bool) -> Reply:
        items: list[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = []
        if said.reasoning:
            deltas = [
                {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": p}
                for p in said.reasoning
            ]
            items.append((reasoning("".join(said.reasoning)), deltas))
        if said.text:
            items.append((message("".join(said.text)), texts(*said.text)))
        for one in said.calls:
            items.append((self.call(one), self.deltas(one)))
        if not streamed_:
            return whole(*[item for item, _ in items], status=STATUS[said.stop])
        return streamed(*items, status=STATUS[said.stop])

    @staticmethod
    def call(one: ServerCall) -> dict[str, Any]:
        assert isinstance(one.arguments, str)
        return call(one.arguments, one.id, one.name)

    @staticmethod
    def deltas(one: ServerCall) -> list[dict[str, Any]]:
        assert isinstance(one.arguments, str)
        cut = [one.arguments[i : i + 3] for i in range(0, len(one.arguments), 3)]
        return [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in cut]


# ---- one conversation, from outside


class Conversation:
    """A model client and a server that answers with these replies; `sent` are the requests, `targets` where
    they went.
    """

    def __init__(self, *replies: Reply, **more: Any) -> None:
        self._replies = list(replies)
        self._more = more
        self.sent: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.targets: list[str] = []

    def _answer(self, request: Request) -> Reply:
        self.sent.append(request.json())
        self.bodies.append(request.body)
        self.targets.append(request.target)
        return self._replies.pop(0)

    async def _no_wait(self, seconds: float) -> None:
        del seconds

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
            transport = Transport(sleep=self._no_wait)
            async with asyncio.timeout(20), HttpDouble(self._answer) as server:
                model_client = OpenAIResponses(
                    "m", base_url=f"{server.url}/v1", api_key="k", transport=transport, **self._more
                )
                exchange = model_client.open(system, tools, options or ModelOptions())
                try:
                    return [
                        await exchange.ask(h, tools=allow, sink=sink, schema=schema)
                        for h in histories or (HELLO,)
                    ]
                finally:
                    await transport.close()

        return asyncio.run(ask_all())


def said(answer: ModelAnswered) -> AssistantMessage:
    """The answer as the machine keeps it."""
    return AssistantMessage(
        answer.text or "(no answer)", answer.calls, answer.reasoning, answer.raw
    )


@pytest.mark.parametrize("as_stream", [False, True])
def test_encrypted_reasoning_and_its_calls_go_back_byte_for_byte(as_stream: bool) -> None:
    items = [reasoning(), message("Let me add. ☃"), call('{"a": 1, "b": 2}')]
    summary = [
        {
            "type": "response.reasoning_summary_text.delta",
            "summary_index": 0,
            "delta": "one and two",
        }
    ]
    first = (
        streamed((items[0], summary), (items[1], texts("Let me ", "add. ☃")), (items[2], []))
        if as_stream
        else whole(*items)
    )
    talk = Conversation(first, whole(message("3")))
    answer = talk.ask(sink=RecordingSink() if as_stream else None)[0]
    assert (answer.reasoning, answer.text) == ("one and two", "Let me add. ☃")
    assert answer.calls == (ToolCall("call_1", "math::add", '{"a": 1, "b": 2}'),)
    talk.ask([*HELLO, said(answer), ToolMessage("call_1", "math::add", "3")])
    assert talk.sent[1]["input"][1:] == [
        *items,
        {"type": "function_call_output", "call_id": "call_1", "output": "3"},
    ]
    assert encode_json(items[0]).encode() in talk.bodies[1]
    assert (talk.sent[0]["store"], talk.sent[0]["include"]) == (
        False,
        ["reasoning.encrypted_content"],
    )


def test_a_history_of_another_provider_is_sent_as_words_and_calls() -> None:
    talk = Conversation(whole(message("3")))
    calls = (ToolCall("toolu_1", "math::add", '{"a":1}'),)
    foreign = AssistantMessage(
        "So:", calls, "thoughts", '{"model":"anthropic:m","calls":["toolu_1"],"content":[]}'
    )
    talk.ask([*HELLO, foreign, ToolMessage("toolu_1", "math::add", "3")])
    assert talk.sent[0]["input"][1:] == [
        {"type": "message", "role": "assistant", "content": "So:"},
        {"type": "function_call", "call_id": "toolu_1", "name": "math_add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "3"},
    ]


def test_hosted_calls_are_recorded_and_never_handed_out() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "ghent"},
    }
    remote = {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "docs",
        "name": "search",
        "arguments": "{}",
        "output": "x" * 9000,
        "error": None,
    }
    failed = {
        "type": "mcp_call",
        "id": "mcp_2",
        "server_label": "docs",
        "name": "put",
        "arguments": "{}",
        "error": {"type": "http_error"},
    }
    found = {
        "type": "tool_search_call",
        "id": "ts_1",
        "call_id": "c9",
        "execution": "server",
        "status": "completed",
        "arguments": {},
    }
    tools = (
        {"type": "web_search"},
        {"type": "mcp", "server_label": "docs", "server_url": "https://mcp.example.com"},
    )
    talk = Conversation(whole(search, remote, failed, found, message("3")))
    answer = talk.ask(options=ModelOptions(provider_tools=tools))[0]
    assert talk.sent[0]["tools"][:2] == list(tools)
    assert (answer.calls, answer.text) == ((), "3")
    told = [
        (c.provider_tool_id, c.call_id, c.provider_tool_type, c.tool_kind, c.name, c.status)
        for c in answer.provider_calls
    ]
    assert told == [
        ("ws_1", "ws_1", "web_search_call", "search", "web_search", "completed"),
        ("mcp_1", "mcp_1", "mcp_call", "mcp", "docs.search", "completed"),
        ("mcp_2", "mcp_2", "mcp_call", "mcp", "docs.put", "failed"),
        ("ts_1", "c9", "tool_search_call", "tool_search", "tool_search", "completed"),
    ]
    assert json.loads(answer.provider_calls[1].provider_metadata)["output"] == "[9000 characters]"
    assert {c.executor for c in answer.provider_calls} == {"provider_native"}


def test_a_hosted_call_is_in_the_journal_and_its_transcript_and_met_no_gate(tmp_path: Path) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search"},
    }

    async def story() -> list[Any]:
        async with (
            asyncio.timeout(20),
            HttpDouble(lambda _: whole(search, message("It rains."))) as server,
        ):
            model_client = OpenAIResponses("m", base_url=f"{server.url}/v1", api_key="k")
            options = ModelOptions(provider_tools=({"type": "web_search"},))
            agent = Agent(
                model_client, model_options=options, storage=Storage(journal=tmp_path / "j.db")
            )
            ran = await agent.run("Weather?")
            await model_client.close()
            records = list(agent.journal.records(ran.session))
            agent.journal.close()
            return records

    records = asyncio.run(story())
    kinds = [record.event.kind for record in records]
    assert not {"call.evaluated", "call.started", "call.answered"} & set(kinds)
    (answer,) = [record.event for record in records if isinstance(record.event, ModelAnswered)]
    assert [made.provider_tool_id for made in answer.provider_calls] == ["ws_1"]
    teller = StepReader()
    told = [
        step for record in records for step in teller.feed(record) if isinstance(step, NoticeStep)
    ]
    assert told == [
        NoticeStep("provider_tool_call", "the provider ran web_search (search) itself: completed")
    ]


@pytest.mark.parametrize(
    "type_", ["function", "custom", "computer_use_preview", "local_shell", "apply_patch"]
)
def test_a_tool_that_the_provider_does_not_run_is_refused(type_: str) -> None:
    model_client = OpenAIResponses("m", base_url="http://127.0.0.1:1", api_key="k")
    with pytest.raises(ConfigError) as raised:
        model_client.open("", (), ModelOptions(provider_tools=({"type": type_},)))
    assert type_ in raised.value.detail


ASKED = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "docs",
    "name": "search",
    "arguments": '{"q":"x"}',
}


@pytest.mark.parametrize("yes", [True, False])
def test_the_question_of_a_remote_server_is_a_call_and_its_result_the_answer(yes: bool) -> None:
    talk = Conversation(whole(ASKED), whole(message("done")))
    answer = talk.ask(tools=[ADD, replace(ADD, name=APPROVAL_TOOL, api_name=APPROVAL_TOOL)])[0]
    (made,) = answer.calls
    assert (made.id, made.tool, answer.stop) == ("mcpr_1", APPROVAL_TOOL, "calls")
    assert json.loads(made.arguments) == {
        "server": "docs",
        "tool": "search",
        "arguments": {"q": "x"},
    }
    assert [tool["name"] for tool in talk.sent[0]["tools"]] == ["math_add"], (
        "the model cannot approve for itself"
    )
    talk.ask(
        [*HELLO, said(answer), ToolMessage("mcpr_1", APPROVAL_TOOL, "not run: denied", success=yes)]
    )
    told = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": yes}
    assert talk.sent[1]["input"][1:] == [
        ASKED,
        told if yes else {**told, "reason": "not run: denied"},
    ]


def test_a_history_that_the_provider_compacted_stands_for_everything_before_it(
    tmp_path: Path,
) -> None:
    folded = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAA="}
    four = message("4", "msg_2")
    replies = [whole(message("3")), whole(folded, four), whole(message("5"))]
    sent: list[Request] = []

    def answer(request: Request) -> Reply:
        sent.append(request)
        return replies.pop(0)

    keeping = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
    path = tmp_path / "j.db"

    async def story() -> list[Message]:
        async with asyncio.timeout(20), HttpDouble(answer) as server:

            def agent() -> Agent:
                model_client = OpenAIResponses("m", base_url=f"{server.url}/v1", api_key="k")
                return Agent(
                    model_client,
                    model_options=ModelOptions(extra=keeping),
                    storage=Storage(journal=SqliteJournal(path)),
                )

            first = agent()
            session = first.session()
            await session.run("1+2?")
            await session.run("2+2?")
            await session.close()
            await first.model_client.close()
            first.journal.close()
            # Another process goes on from the journal, on this model client and on another one.
            second = agent()
            resumed = second.resume(session.id)
            await resumed.run("2+3?")
            await resumed.close()
            await second.model_client.close()
            second.journal.close()
            journal = SqliteJournal(path)
            other = Scripted([says("6")])
            await Agent(other, storage=Storage(journal=journal)).resume(session.id).run("3+3?")
            journal.close()
            return list(other.histories[-1])

    elsewhere = asyncio.run(story())
    bodies = [request.json() for request in sent]
    assert [body["context_management"] for body in bodies] == [keeping["context_management"]] * 3
    asked = [{"role": "user", "content": text} for text in ("1+2?", "2+2?", "2+3?")]
    assert bodies[1]["input"] == [asked[0], message("3"), asked[1]]
    assert bodies[2]["input"] == [folded, four, asked[2]], "nothing before it is sent again"
    assert encode_json(folded).encode() in sent[2].body
    told = [one.text for one in elsewhere if isinstance(one, (UserMessage, AssistantMessage))]
    assert told[:7] == ["1+2?", "3", "2+2?", "4", "2+3?", "5", "3+3?"], (
        "the journal keeps all of it"
    )


def test_several_messages_and_thoughts_are_paragraphs() -> None:
    items = [reasoning("a"), message("One."), reasoning("b"), message("Two.", "msg_2")]
    thought = {"type": "response.reasoning_summary_text.delta", "summary_index": 0}
    parts = [
        [{**thought, "delta": "a"}],
        texts("One."),
        [{**thought, "delta": "b"}],
        texts("Tw", "o."),
    ]
    listener = RecordingSink()
    answers = (
        Conversation(streamed(*zip(items, parts, strict=True))).ask(sink=listener)
        + Conversation(whole(*items)).ask()
    )
    assert [(a.text, a.reasoning) for a in answers] == [("One.\n\nTwo.", "a\n\nb")] * 2
    assert "".join(listener.pieces) == "One.\n\nTwo."


def test_a_server_without_deltas_is_heard_at_the_end_of_each_item() -> None:
    listener = RecordingSink()
    answer = Conversation(streamed((reasoning(), []), (message("3 ☃"), []), (call(), []))).ask(
        sink=listener
    )[0]
    assert (answer.text, answer.reasoning, listener.pieces) == ("3 ☃", "one and two", ["3 ☃"])


def test_a_refusal_is_heard_and_not_replayed() -> None:
    refused = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "refusal", "refusal": "I will not."}],
    }
    delta = [{"type": "response.refusal.delta", "content_index": 0, "delta": "I will not."}]
    for answer in Conversation(whole(refused)).ask() + Conversation(streamed((refused, delta))).ask(
        sink=RecordingSink()
    ):
        assert (answer.text, answer.stop, answer.raw) == ("I will not.", "filter", None)


def test_an_answer_that_ended_in_its_reasoning_is_not_replayed() -> None:
    answer = Conversation(whole(reasoning(), status="incomplete")).ask()[0]
    assert (answer.stop, answer.raw) == ("length", None)
    filtered = Conversation(
        whole(message("so"), status="incomplete", reason="content_filter")
    ).ask()[0]
    assert (filtered.stop, filtered.raw) == ("filter", None)


def test_the_output_of_a_call_by_a_hosted_program_names_its_caller() -> None:
    program = {
        "type": "program",
        "id": "p1",
        "call_id": "prog_1",
        "code": "await add()",
        "fingerprint": "f",
    }
    caller = {"type": "program", "caller_id": "prog_1"}
    talk = Conversation(whole(program, call(caller=caller)), whole(message("3")))
    answer = talk.ask()[0]
    assert [(c.name, c.tool_kind) for c in answer.provider_calls] == [("program", "execute")]
    talk.ask([*HELLO, said(answer), ToolMessage("call_1", "math::add", "3")])
    assert talk.sent[1]["input"][-1] == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": "3",
        "caller": caller,
    }


# ---- strict


def test_tools_are_sent_strict_and_the_nulls_that_this_asks_for_are_dropped() -> None:
    open_map = replace(
        ADD,
        name="put",
        api_name="put",
        schema='{"type":"object","properties":{"v":{"type":"object"}}}',
    )
    talk = Conversation(whole(call('{"a": 1, "b": null}')), whole(message("3")), strict=True)
    answer = talk.ask(tools=[MAY_ADD, open_map])[0]
    add, put = talk.sent[0]["tools"]
    assert (add["strict"], add["parameters"]["required"]) == (True, ["a", "b"])
    assert add["parameters"]["properties"]["b"]["type"] == ["integer", "null"]
    assert (put["strict"], put["parameters"]) == (False, json.loads(open_map.schema))
    assert answer.calls[0].arguments == '{"a":1}'
    talk.ask([*HELLO, said(answer), ToolMessage("call_1", "math::add", "3")], tools=[MAY_ADD])
    assert talk.sent[1]["input"][1]["arguments"] == '{"a": 1, "b": null}', (
        "what is replayed is what came"
    )


def test_other_servers_get_schemas_as_they_are() -> None:
    talk = Conversation(whole(message("3")))
    talk.ask(tools=[replace(MAY_ADD, deferred=True)])
    tool = talk.sent[0]["tools"][0]
    assert (tool["strict"], tool["defer_loading"], tool["parameters"]) == (
        False,
        True,
        json.loads(MAY_ADD.schema),
    )


# ---- settings and errors


def test_what_a_person_set_is_sent_and_more_may_be_merged_in() -> None:
    talk = Conversation(whole(message("{}")))
    options = ModelOptions(
        temperature=0.5,
        max_tokens=99,
        thinking="high",
        extra={"text": {"verbosity": "low"}, "store": True},
    )
    talk.ask(options=options, schema={"type": "object"}, allow=False)
    sent = talk.sent[0]
    assert (sent["temperature"], sent["max_output_tokens"], sent["reasoning"], sent["store"]) == (
        0.5,
        99,
        {"effort": "high"},
        True,
    )
    assert sent["text"] == {
        "verbosity": "low",
        "format": {"type": "json_schema", "name": "reply", "schema": {"type": "object"}},
    }
    assert sent["tool_choice"] == "none"
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}, "for llama.cpp"


def test_usage_counts_cache_and_reasoning() -> None:
    usage = {
        "input_tokens": 900,
        "output_tokens": 80,
        "input_tokens_details": {"cached_tokens": 512, "cache_write_tokens": 100},
        "output_tokens_details": {"reasoning_tokens": 64},
    }
    assert Conversation(whole(message("3"), usage=usage)).ask()[0].usage == Usage(
        900, 80, 512, 100, 64
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            {
                "code": "context_length_exceeded",
                "message": "Your input exceeds the context window of this model.",
            },
            "context_overflow",
        ),
        ({"code": "rate_limit_exceeded", "message": "Rate limit reached"}, "rate_limited"),
        ({"code": "insufficient_quota", "message": "You exceeded your current quota"}, "quota"),
        ({"code": "server_error", "message": "The model failed"}, "provider"),
    ],
)
@pytest.mark.parametrize("how", ["failed", "event", "whole"])
def test_failures_inside_an_answer_have_stable_codes(
    error: dict[str, str], code: str, how: str
) -> None:
    failed = response([], "failed", error=error)
    events = {
        "failed": {"type": "response.failed", "response": failed},
        "event": {"type": "error", **error},
    }
    reply = (
        Reply(json=failed)
        if how == "whole"
        else Reply(200, [event(events[how])], headers={"content-type": "text/event-stream"})
    )
    with pytest.raises(ProviderError) as raised:
        Conversation(*[reply] * 4).ask(sink=None if how == "whole" else RecordingSink())
    assert raised.value.code == code


def test_capabilities_say_which_models_search_tools_themselves() -> None:
    async def story() -> list[bool | None]:
        model_clients = [
            OpenAIResponses(name, api_key="k", base_url="https://api.openai.com/v1")
            for name in ("gpt-5.4", "gpt-5.1", "gpt-6-sol")
        ]
        return [(await model_client.capabilities()).tool_search for model_client in model_clients]

    assert asyncio.run(story()) == [True, False, True]


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(TEXTS.filter(lambda name: name not in ("type", "id")), VALUES, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
)
def test_items_nobody_knows_come_back_in_the_bytes_they_came_in(
    items: list[dict[str, Any]], ascii: bool, as_stream: bool
) -> None:
    spelled = [json.dumps({"type": "of_tomorrow", **item}, ensure_ascii=ascii) for item in items]
    body = f'{{"output": [{" , ".join(spelled)}], "status": "completed"}}'.encode()
    if as_stream:
        events = [
            b'data: {"output_index":%d,"type":"response.output_item.done","item": %b }\n\n'
            % (n, s.encode())
            for n, s in enumerate(spelled)
        ]
        body = b"".join(events) + b'data: {"type":"response.completed","response":{}}\n\n'
    kind = "text/event-stream" if as_stream else "application/json"
    talk = Conversation(Reply(pieces=[body], headers={"content-type": kind}), whole(message("3")))
    answer = talk.ask(sink=RecordingSink() if as_stream else None)[0]
    talk.ask([*HELLO, said(answer), UserMessage("?")])
    for one in spelled:
        assert one.encode() in talk.bodies[1]
    assert [json.dumps(item, ensure_ascii=ascii) for item in talk.sent[1]["input"][1:-1]] == spelled


def test_a_piece_of_arguments_that_belongs_to_no_item_is_an_error() -> None:
    call = {"type": "function_call", "id": "f", "call_id": "c", "name": "wipe", "arguments": ""}
    pieces = [(0, '{"path":"/srv"'), (3, ',"only":"*.tmp"'), (0, "}")]
    delta = "response.function_call_arguments.delta"
    events = [
        event({"type": "response.output_item.added", "output_index": 0, "item": call}),
        *(event({"type": delta, "output_index": at, "delta": piece}) for at, piece in pieces),
        event({"type": "response.completed", "response": response([])}),
    ]
    kind = {"content-type": "text/event-stream"}
    with pytest.raises(ProviderError, match="output_index") as raised:
        Conversation(Reply(200, events, headers=kind)).ask(sink=RecordingSink())
    assert raised.value.code == "not_understood"


def test_the_exchange_is_made_once_for_the_same_tools() -> None:
    model_client = OpenAIResponses("m", base_url="http://127.0.0.1:1", api_key="k")
    tools = (ADD,)
    first, second = (model_client.open("s", tools, ModelOptions()) for _ in range(2))
    assert isinstance(first, ResponsesExchange)
    assert first._tools is second._tools  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("tools", "choice", "approved"),
    [(True, "once", True), (True, "deny", False), (False, "once", False)],
)
def test_a_remote_server_is_approved_by_a_person_or_not_at_all(
    tools: bool, choice: Any, approved: bool, tmp_path: Path
) -> None:
    sent: list[dict[str, Any]] = []
    replies = [whole(ASKED), whole(message("done"))]

    def answer(request: Request) -> Reply:
        if request.method == "GET":
            # How large the model's window is. Nobody knows here.
            return Reply(status=404)
        sent.append(request.json())
        return replies.pop(0)

    approver = RecordingApprover((choice,))

    async def story() -> None:
        async with asyncio.timeout(20), HttpDouble(answer) as server:
            model_client = OpenAIResponses("m", base_url=f"{server.url}/v1", api_key="k")
            options = ModelOptions(
                provider_tools=(
                    {
                        "type": "mcp",
                        "server_label": "docs",
                        "server_url": "https://mcp.example.com",
                    },
                )
            )
            agent = Agent(
                model_client,
                remote_mcp.TOOLS if tools else (),
                tool_calling="native",
                model_options=options,
                permissions=Permissions(approver=approver),
                storage=Storage(journal=tmp_path / "j.db"),
            )
            await agent.run("Search the docs.")
            await model_client.close()
            agent.journal.close()

    asyncio.run(story())
    assert sent[1]["input"][-1]["approve"] is approved
    assert [request.tool.full_name for request in approver.requests] == (
        [APPROVAL_TOOL] if tools else []
    )
