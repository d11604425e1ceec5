"""Refusals of one tool or of too many, and errors that stand inside an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import Agent, Limits, Storage, tool
from ferrule.core.errors import ProviderError
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.tool_modes.refused_tools import find_refused_tools
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

    return look


def refusal(message: str, status: int = 400, **more: Any) -> Reply:
    return Reply(status, json={"error": {"message": message, **more}})


Server = Callable[[list[str]], Reply]


async def run(model: str, names: list[str], server: Server) -> tuple[str, list[list[str]]]:
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


@pytest.mark.proves("models.refused-tool")
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


@pytest.mark.proves("models.refused-tool")
async def test_more_tools_than_a_provider_takes_are_left_out_those_of_servers_first() -> None:
    def server(names: list[str]) -> Reply:
        if len(names) > 5:
            said = "Invalid 'tools': array too long. Expected an array with maximum length 5, but"
            return refusal(f"{said} got an array with length {len(names)} instead.", param="tools")
        return Reply(json=DONE)

    names = [f"srv__t{n}" for n in range(6)] + ["zz_own"]
    text, offered = await run("m", names, server)
    assert text == "done" and len(offered[-1]) == 5 and "zz_own" in offered[-1]


@pytest.mark.proves("models.refused-tool")
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


@pytest.mark.proves("models.error-in-answer")
@pytest.mark.parametrize("code", [502, 504, 500, "503", 429])
async def test_an_error_in_place_of_an_answer_is_what_its_code_says(code: Any) -> None:
    replies = [refusal("Provider returned error", 200, code=code), Reply(json=DONE)]
    text, offered = await run("m", [], lambda _: replies.pop(0))
    assert (text, len(offered)) == ("done", 2)


@pytest.mark.proves("models.error-in-answer")
async def test_an_error_that_no_retry_helps_is_raised_with_its_status() -> None:
    with pytest.raises(ProviderError) as raised:
        await run("m", [], lambda _: refusal("No credits", 200, code=402))
    assert "No credits" in raised.value.detail
