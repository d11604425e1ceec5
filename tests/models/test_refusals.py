"""Refusals of one tool or of too many, and errors that stand inside an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest

from ferrule import Agent, Limits, Scripted, Storage, tool
from ferrule.core.errors import ProviderError
from ferrule.core.messages import UserMessage
from ferrule.models.answer_building import AnswerBuilder
from ferrule.models.client import ToolSpec
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.chat_answers import ChatStreamParser
from ferrule.models.provider_errors import find_error
from ferrule.models.scripted import says
from ferrule.models.tool_modes.refused_tools import find_refused_tools
from ferrule.models.tool_modes.selection import open_exchange
from ferrule.storage import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.definition import Tool

_CALL = {"id": "c", "type": "function", "function": {"name": "report_ready", "arguments": "{}"}}
PROBED = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [_CALL]}}]}
DONE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}}]}


def make_tool(name: str) -> Tool:
    @tool(name=name, side_effect="read", risk="safe")
    def look(a: int) -> int:
        """Look."""
        return a

    @tool(name=name, side_effect="read", risk="safe")
    def look_closely(a: Literal["north", "east", "south", "west"], b: list[dict[str, int]]) -> str:
        """Look."""
        return a

    return look_closely if name.startswith("large") else look


def refusal(message: str, status: int = 400, **more: Any) -> Reply:
    return Reply(status, json={"error": {"message": message, **more}})


Server = Callable[[list[str]], Reply]


async def run(
    model: str, names: list[str], server: Server, bodies: list[Any] | None = None
) -> tuple[str, list[list[str]]]:
    """Run a message. Return its answer, and which tools each request offered."""
    offered: list[list[str]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        sent = json.loads(request.body)
        names = [one["function"]["name"] for one in sent.get("tools") or ()]
        if "report_ready" in names:
            return Reply(json=PROBED)  # whether the model calls tools
        offered.append(names)
        if bodies is not None:
            bodies.append(sent)
        return server(names)

    async with HttpDouble(reply) as double:
        agent = Agent(
            OpenAIChat(model, base_url=f"{double.url}/v1", api_key="k"),
            [make_tool(name) for name in names],
            limits=Limits(max_turns=3),
            storage=Storage(journal=SqliteJournal(":memory:")),
        )
        try:
            return (await agent.run("go")).text, offered
        finally:
            await agent.disconnect()


@pytest.mark.parametrize(
    "said",
    [
        "Invalid schema for function 'bad': array schema missing items.",
        "tools.{n}.custom.input_schema: JSON schema is invalid",
        "Invalid 'tools[{n}].function.description': string too long",
        'Tool "bad" has a name that is reserved',
    ],
)
async def test_a_refusal_of_one_tool_costs_that_tool(said: str) -> None:
    def server(names: list[str]) -> Reply:
        if "bad" in names:
            return refusal(said.format(n=names.index("bad")))
        return Reply(json=DONE)

    text, offered = await run("gpt-4o", ["add", "bad", "find"], server)
    assert text == "done"
    assert offered[-1] == ["add", "find"] and len(offered) == 2


async def test_more_tools_than_a_provider_takes_are_left_out_those_of_servers_first() -> None:
    def server(names: list[str]) -> Reply:
        if len(names) > 5:
            said = "Invalid 'tools': array too long. Expected an array with maximum length 5, but"
            return refusal(f"{said} got an array with length {len(names)} instead.", param="tools")
        return Reply(json=DONE)

    names = [f"srv__t{n}" for n in range(6)] + ["zz_own"]
    text, offered = await run("m", names, server)
    assert text == "done" and len(offered[-1]) == 5 and "zz_own" in offered[-1]


@pytest.mark.parametrize(
    "said",
    [
        "The specified schema produces a constraint that has too many states for serving.",
        "The compiled grammar is too large, which would cause performance issues. Simplify your "
        "tool schemas or reduce the number of strict tools.",
        "Tool schemas are too complex",
    ],
)
async def test_schemas_that_are_too_large_together_cost_the_largest_tools(said: str) -> None:
    bodies: list[Any] = []

    def server(names: list[str]) -> Reply:
        sizes = [len(json.dumps(one["function"])) for one in bodies[-1].get("tools") or ()]
        return refusal(said) if sum(sizes) > 1000 else Reply(json=DONE)

    names = [f"small{n}" for n in range(3)] + [f"large{n}" for n in range(4)]
    text, offered = await run("gemini", names, server, bodies)
    assert text == "done" and len(offered) < 5
    assert {"small0", "small1", "small2"} <= set(offered[-1])


async def test_one_tool_that_is_too_large_is_an_error() -> None:
    said = "The specified schema produces a constraint that has too many states for serving."
    with pytest.raises(ProviderError, match="too many states"):
        await run("gemini", ["add"], lambda _: refusal(said))


@pytest.mark.parametrize(
    "said",
    ["Invalid 'messages[3].content': image too large", "temperature must be <= 2", "Bad request"],
)
async def test_a_refusal_of_something_else_is_an_error_and_costs_no_tool(said: str) -> None:
    with pytest.raises(ProviderError):
        await run("gpt-4o", ["add"], lambda _: refusal(said))


def test_a_refusal_without_a_status_is_about_no_tool() -> None:
    error = ProviderError("Invalid schema for function 'add'", code="http_400")
    assert find_refused_tools(error, []) == []


@pytest.mark.parametrize("code", [502, 504, 500, "503", 429])
async def test_an_error_in_place_of_an_answer_is_what_its_code_says(code: Any) -> None:
    replies = [refusal("Provider returned error", 200, code=code), Reply(json=DONE)]
    text, offered = await run("m", [], lambda _: replies.pop(0))
    assert (text, len(offered)) == ("done", 2)


async def test_an_error_that_no_retry_helps_is_raised_with_its_status() -> None:
    with pytest.raises(ProviderError) as raised:
        await run("m", [], lambda _: refusal("No credits", 200, code=402))
    assert "No credits" in raised.value.detail


ANSWER = {"role": "assistant", "content": "done"}
IN_ODD_PLACES = [
    {"errors": [{"message": "busy", "code": 503}]},
    {"error": {"error": {"message": "busy", "status": 503}}},
    {"choices": [{"index": 0, "message": {}, "error": {"message": "busy", "code": 503}}]},
    {"object": "error", "message": "busy", "code": 503},
    {"detail": "busy", "status": 503},
    {"msg": "busy", "code": "503"},
]


@pytest.mark.parametrize("body", IN_ODD_PLACES)
async def test_an_error_is_found_wherever_a_server_puts_it(body: dict[str, Any]) -> None:
    replies = [Reply(json=body), Reply(json=DONE)]
    text, offered = await run("m", [], lambda _: replies.pop(0))
    assert (text, len(offered)) == ("done", 2)


@pytest.mark.parametrize("body", IN_ODD_PLACES)
@pytest.mark.parametrize("begun", [False, True])
def test_an_error_in_a_stream_is_retried_as_long_as_nothing_was_seen(
    body: dict[str, Any], begun: bool
) -> None:
    parser = ChatStreamParser(AnswerBuilder.for_sink(None), "m", tools=False)
    if begun:
        parser.add([b'{"choices": [{"index": 0, "delta": {"content": "do"}}]}'])
    with pytest.raises(ProviderError, match="busy") as raised:
        parser.add([json.dumps(body).encode()])
    assert (raised.value.status, raised.value.retryable) == (503, not begun)


def test_what_is_an_answer_is_no_error() -> None:
    answer = {"choices": [{"message": ANSWER}], "message": "ok", "status": 500, "error": None}
    assert find_error(answer, expected="choices") is None
    assert find_error({"message": "hello", "status": 200}, expected="choices") is None


@pytest.mark.parametrize(
    "written", ["functions.add", "add<|channel|>commentary", " functions.add<|channel|>json", "add"]
)
async def test_a_tool_is_called_whatever_stands_around_its_name(written: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": written, "arguments": '{"a": 1}'}}
    calling = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [call]}}]}
    replies = [Reply(json=calling), Reply(json=DONE)]
    sent: list[Any] = []

    def server(_: list[str]) -> Reply:
        return replies.pop(0)

    text, offered = await run("m", ["add"], server, sent)
    assert text == "done" and len(offered) == 2
    assert sent[-1]["messages"][-1]["content"] == "1"


async def test_a_thought_that_was_cut_is_no_answer() -> None:
    tools = [ToolSpec("a", "a", "A.", "{}")]
    for name, thought in (("vllm:deepseek-r1", True), ("vllm:llama", False), ("x:qwq", False)):
        client = Scripted([says("First I have to", stop="length")], model=name)
        exchange, _ = await open_exchange(client, tools=tools)
        answer = await exchange.ask([UserMessage("go")])
        expected = ("", "First I have to") if thought else ("First I have to", "")
        assert (answer.text, answer.reasoning) == expected


@pytest.mark.parametrize("body", [{"choices": None, "id": "x-1"}, {"choices": [], "id": "x-1"}])
async def test_an_answer_without_choices_shows_what_was_sent(body: dict[str, Any]) -> None:
    with pytest.raises(ProviderError, match="x-1") as raised:
        await run("m", [], lambda _: Reply(json=body))
    assert raised.value.code == "not_understood"
