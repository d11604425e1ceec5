"""Too many tools are deferred by themselves: those of servers, and what a provider does not take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ferrule import Agent, ConfigError, Scripted, Storage, ToolCalling, ToolSearch, tool
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.differences import ChatDifferences
from ferrule.testing import calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.definition import Tool


def make_tool(name: str, source: str = "python", description: str = "Look.") -> Tool:
    @tool(name=name, side_effect="read", risk="safe", description=description)
    def look() -> str:
        return name

    return replace(look, source=source)


def make_tools(count: int, source: str = "python", prefix: str = "t") -> list[Tool]:
    return [make_tool(f"{prefix}{n:03}", source, f"Read shelf {n}.") for n in range(count)]


def make_agent(model: Scripted, tools: list[Tool], search: Any = None) -> Agent[Any, str]:
    return Agent(
        model,
        tools,
        tool_calling=ToolCalling(search=search),
        storage=Storage(journal=":memory:"),
    )


def first_names(tools: list[Tool], search: Any = None) -> list[str]:
    model = Scripted([says("fine")])
    make_agent(model, tools, search).run_sync("go")
    return [spec.name for spec in model.opened[0].tools]


@pytest.mark.parametrize("source", ["mcp shop", "http shop.yaml"])
def test_more_than_forty_tools_are_deferred_where_servers_bring_them(source: str) -> None:
    own = make_tools(3, prefix="own")
    assert len(first_names(own + make_tools(37, source))) == 40
    assert first_names(own + make_tools(38, source)) == [
        "own000",
        "own001",
        "own002",
        "tool_get",
        "tool_search",
    ]


def test_tools_of_the_program_stay_whatever_their_number() -> None:
    assert len(first_names(make_tools(60))) == 60


def test_a_deferred_tool_is_found_then_called_and_none_is_lost() -> None:
    tools = make_tools(50, "mcp shop")
    model = Scripted(
        [
            calls(("t031", {})),
            calls(("tool_search", {"query": "read shelf 31"})),
            calls(("t031", {})),
            says("done"),
        ]
    )
    run = make_agent(model, tools).run_sync("go")
    guessed, _, called = run.results
    assert "find it with `tool_search`" in str(guessed.error_message)
    assert called.data == "t031"


def test_how_many_and_which_can_be_chosen() -> None:
    tools = [*make_tools(1, prefix="own"), *make_tools(5, "mcp shop")]
    few = ToolSearch(defer_above=4, always_loaded=("t002",))
    assert first_names(tools, few) == ["own000", "t002", "tool_get", "tool_search"]
    many = [*make_tools(1, prefix="own"), *make_tools(60, "mcp shop")]
    quiet = ToolSearch(defer_above=None, only_if_deferred=True)
    assert len(first_names(many, quiet)) == 61
    assert len(first_names(many, False)) == 61
    with pytest.raises(ConfigError, match="defer_above"):
        ToolSearch(defer_above=-1)


def answer(request: Request, offered: list[list[dict[str, Any]]], script: list[Any]) -> Reply:
    if request.method != "POST":
        return Reply(404, json={})
    sent = json.loads(request.body)
    functions = [one["function"] for one in sent.get("tools", ())]
    if functions and functions[0]["name"] == "report_ready":
        message = call_of("report_ready", ready=True)  # whether the model calls tools
        return Reply(json={"choices": [{"index": 0, "message": {"role": "assistant", **message}}]})
    offered.append(functions)
    if len(functions) > 128:
        return Reply(400, json={"error": {"message": "array too long"}})
    if any(len(one["description"]) > 1024 for one in functions):
        return Reply(400, json={"error": {"message": "string too long"}})
    message = script.pop(0)
    return Reply(json={"choices": [{"index": 0, "message": {"role": "assistant", **message}}]})


async def run_bounded(tools: list[Tool], script: list[Any]) -> tuple[Any, list[list[str]]]:
    """Run a message with a model whose provider takes what OpenAI takes."""
    offered: list[list[dict[str, Any]]] = []
    async with HttpDouble(lambda request: answer(request, offered, script)) as double:
        differences = ChatDifferences(like_openai=True)
        url = f"{double.url}/v1"
        client = OpenAIChat("m", base_url=url, api_key="k", name="azure", differences=differences)
        agent = make_agent(client, tools)  # pyright: ignore[reportArgumentType]  any client does
        try:
            run = await agent.run("go")
        finally:
            await agent.disconnect()
    return run, [[one["name"] for one in functions] for functions in offered]


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": f"call_{name}", "type": "function", "function": function}]}


async def test_tools_beyond_the_providers_number_are_found_not_dropped() -> None:
    script = [call_of("tool_search", query="read shelf 190"), call_of("t190"), {"content": "ok"}]
    run, offered = await run_bounded(make_tools(200), script)
    assert run.results[-1].data == "t190" and run.text == "ok"
    assert all(len(names) <= 128 for names in offered) and "t190" in offered[1]


async def test_what_is_found_stays_within_the_providers_number() -> None:
    tools = make_tools(70, prefix="a")
    for word in ("pear", "plum", "fig"):
        tools += [make_tool(f"{word}{n}", description=f"Peel a {word}.") for n in range(50)]
    searches = [call_of("tool_search", query=word, limit=50) for word in ("pear", "plum", "fig")]
    run, offered = await run_bounded(tools, [*searches, {"content": "ok"}])
    assert run.text == "ok" and max(map(len, offered)) == 128


async def test_a_description_is_cut_to_what_the_provider_takes() -> None:
    run, offered = await run_bounded(
        [make_tool("look", description="x" * 3000)], [{"content": "ok"}]
    )
    assert run.text == "ok" and len(offered) == 1
