"""Servers that nobody knows: tools are sent, and what becomes of them is found out and said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from ferrule.core.errors import ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import UserMessage
from ferrule.models.client import ModelClient, ModelOptions
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.tool_modes.live_probe import probe_capabilities
from ferrule.models.tool_modes.selection import open_exchange
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.testing.model_client_conformance import ADD, HELLO, RecordingSink

Told = TypeVar("Told")
Manner = Callable[[dict[str, Any]], Reply]


def message(**fields: Any) -> Reply:
    calls = fields.get("tool_calls")
    choice = {
        "message": {"role": "assistant", **fields},
        "finish_reason": "tool_calls" if calls else "stop",
    }
    return Reply(json={"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 2}})


def called(asked: dict[str, Any]) -> Reply:
    """A call of the first tool that was sent."""
    function = {"name": asked["tools"][0]["function"]["name"], "arguments": '{"a":1,"b":2}'}
    return message(
        content=None, tool_calls=[{"id": "c1", "type": "function", "function": function}]
    )


def plain(asked: dict[str, Any]) -> Reply:
    """A proxy such as LiteLLM: OpenAI's format, and a model behind it that calls tools."""
    return called(asked)


def shy(asked: dict[str, Any]) -> Reply:
    """The same; this model answers people in words, and calls a tool when it is told to."""
    return (
        called(asked)
        if "report_ready" in json.dumps(asked["messages"])
        else message(content="Hello!")
    )


def refusing(words: str) -> Manner:
    def manner(asked: dict[str, Any]) -> Reply:
        if "tools" in asked:
            return Reply(400, json={"error": {"message": words, "type": "invalid_request_error"}})
        return in_text(asked)

    return manner


def ignoring(asked: dict[str, Any]) -> Reply:
    """Tools are dropped on the way, and a schema is taken as advice."""
    return in_text(asked)


def without_schemas(asked: dict[str, Any]) -> Reply:
    if "response_format" in asked:
        return Reply(422, json={"detail": "Extra inputs: response_format"})
    return in_text(asked)


def in_text(asked: dict[str, Any]) -> Reply:
    """A model that calls in words where the tools stand in the prompt."""
    if "math_add" in json.dumps(asked["messages"]):
        return message(
            content='<tool_call>{"name": "math_add", "arguments": {"a": 1, "b": 2}}</tool_call>'
        )
    return message(content="I have no tools.")


class Gateway:
    """A server with these manners. It describes no model."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self.asks: list[dict[str, Any]] = []
        self.listener = RecordingSink()
        self.double = HttpDouble(self._answer)

    def _answer(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply(404, json={"detail": "Not Found"})
        self.asks.append(request.json())
        return self._manner(request.json())

    def client(self) -> ModelClient:
        return OpenAIChat("house-model", base_url=f"{self.double.url}/v1", api_key="k")

    def probes(self) -> list[dict[str, Any]]:
        return [asked for asked in self.asks if "report_ready" in json.dumps(asked["messages"])]


def tell(
    manner: Manner, story: Callable[[Gateway, ModelClient], Awaitable[Told]]
) -> tuple[Told, Gateway]:
    """What a story with a client of such a gateway comes to, and the gateway."""
    gateway = Gateway(manner)

    async def whole() -> Told:
        async with asyncio.timeout(20), gateway.double:
            model_client = gateway.client()
            try:
                return await story(gateway, model_client)
            finally:
                await model_client.close()

    return asyncio.run(whole()), gateway


def ask(
    manner: Manner, *, asks: int = 1, streams: bool = True
) -> tuple[list[ModelAnswered], list[str], Gateway]:
    """The answers, the notices of falling, and the gateway."""

    async def story(gateway: Gateway, client: ModelClient) -> list[ModelAnswered]:
        exchange, tool_mode = await open_exchange(
            client, "auto", "Be brief.", [ADD], ModelOptions()
        )
        assert tool_mode == "native"
        sink = gateway.listener if streams else None
        return [await exchange.ask(HELLO, sink=sink) for _ in range(asks)]

    answers, gateway = tell(manner, story)
    falls = [text for topic, text in gateway.listener.notices if topic == "fallback"]
    return answers, falls, gateway


def made(answer: ModelAnswered) -> list[tuple[str, str]]:
    return [(call.tool, call.arguments) for call in answer.calls]


ADDED = [("math::add", '{"a":1,"b":2}')]


def test_a_gateway_that_nobody_knows_is_sent_the_tools_field() -> None:
    answers, falls, gateway = ask(plain)
    assert (made(answers[0]), answers[0].tool_mode, falls) == (ADDED, "native", [])
    assert [tool["function"]["name"] for tool in gateway.asks[0]["tools"]] == ["math_add"]
    assert "math_add" not in json.dumps(gateway.asks[0]["messages"])
    assert len(gateway.asks) == 1


def test_words_of_a_model_that_does_call_tools_are_kept_after_one_probe() -> None:
    answers, falls, gateway = ask(shy, asks=3)
    assert [(answer.text, answer.tool_mode) for answer in answers] == [("Hello!", "native")] * 3
    assert (falls, len(gateway.asks)) == ([], 4)


@pytest.mark.parametrize(
    "words",
    [
        "tools not supported",
        "Unsupported parameter: 'tools'",
        "This model does not support function calling.",
        "house-model: `tools` may not be given",
    ],
)
def test_a_refusal_that_names_tools_falls_and_says_so(words: str) -> None:
    answers, falls, gateway = ask(refusing(words))
    assert (made(answers[0]), answers[0].tool_mode) == (ADDED, "text")
    assert "native is refused" in falls[0]
    assert words in falls[0]
    assert "math_add" in json.dumps(gateway.asks[-1]["messages"])


@pytest.mark.parametrize("manner", [ignoring, without_schemas])
def test_an_answer_that_ignores_the_tools_falls_and_says_so(manner: Manner) -> None:
    answers, falls, gateway = ask(manner, asks=2)
    assert [(made(answer), answer.tool_mode) for answer in answers] == [(ADDED, "text")] * 2
    assert "native is ignored" in falls[0]
    assert "constrained" in falls[1]
    assert len(gateway.probes()) == 1


def test_an_answer_that_stands_is_shown_once() -> None:
    def talkative(asked: dict[str, Any]) -> Reply:
        return message(content="Hello!")

    answers, falls, gateway = ask(talkative)
    assert [(answer.text, answer.tool_mode) for answer in answers] == [("Hello!", "text")]
    assert "".join(gateway.listener.pieces) == "Hello!"
    assert "native is ignored" in falls[0]
    assert answers[0].usage.input == 2 * 90


def test_an_answer_that_stands_is_the_same_without_streaming() -> None:
    """A server that answers its own tools, but not the probe's, such as a stub of somebody's."""

    def in_its_mode(asked: dict[str, Any]) -> Reply:
        return message(content="Hello!" if "tools" in asked else "In words, then.")

    answers, _, _ = ask(in_its_mode, streams=False)
    assert (answers[0].text, answers[0].tool_mode) == ("Hello!", "text")


def test_conversations_at_the_same_time_share_one_probe() -> None:
    async def story(gateway: Gateway, client: ModelClient) -> list[ModelAnswered]:
        opened = [await open_exchange(client, "auto", "", [ADD]) for _ in range(4)]
        return await asyncio.gather(*(exchange.ask(HELLO) for exchange, _ in opened))

    answers, gateway = tell(shy, story)
    assert [answer.tool_mode for answer in answers] == ["native"] * 4
    assert len(gateway.probes()) == 1


def test_a_call_in_one_conversation_saves_the_others_the_probe() -> None:
    def choosy(asked: dict[str, Any]) -> Reply:
        return called(asked) if "Add" in asked["messages"][-1]["content"] else message(content="Hi")

    async def story(gateway: Gateway, client: ModelClient) -> list[ModelAnswered]:
        first, _ = await open_exchange(client, "auto", "", [ADD])
        second, _ = await open_exchange(client, "auto", "", [ADD])
        return [await first.ask([UserMessage("Add them")]), await second.ask(HELLO)]

    answers, gateway = tell(choosy, story)
    assert [(made(answer), answer.tool_mode) for answer in answers] == [
        (ADDED, "native"),
        ([], "native"),
    ]
    assert gateway.probes() == []


def test_a_probe_that_fails_changes_nothing_and_is_said() -> None:
    def broken(asked: dict[str, Any]) -> Reply:
        if "report_ready" in json.dumps(asked["messages"]):
            return Reply(401, json={"error": {"message": "quota of keys"}})
        return message(content="Hello!")

    answers, falls, _ = ask(broken)
    assert (answers[0].text, answers[0].tool_mode) == ("Hello!", "native")
    assert "could not be found out" in falls[0]


def test_other_refusals_of_a_gateway_are_errors() -> None:
    with pytest.raises(ProviderError) as raised:
        ask(lambda _: Reply(400, json={"error": {"message": "the field `user` is required"}}))
    assert raised.value.code == "http_400"


@pytest.mark.parametrize(
    ("manner", "able"), [(plain, True), (refusing("tools not supported"), False), (ignoring, False)]
)
def test_a_probe_says_whether_tools_work_and_how_it_knows(manner: Manner, able: bool) -> None:

    async def story(gateway: Gateway, client: ModelClient) -> tuple[bool | None, str]:
        found = await probe_capabilities(client)
        return found.tools, found.source

    assert tell(manner, story)[0] == (able, "live probe")
