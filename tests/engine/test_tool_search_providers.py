"""Tool search by provider: the provider's own against its SDK's types, and the bytes of request
after request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, ErrorType, Scripted, Storage, ToolCalling, define_tool, tool
from ferrule.core.events import Event, ModelAnswered, ToolSearchQuery, ToolSearchResult
from ferrule.core.messages import AssistantMessage, UserMessage
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.capabilities import has_tool_search
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.openai.responses import OpenAIResponses
from ferrule.models.scripted import calls, says
from ferrule.models.verbatim_json import split_elements, split_members
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.definition import Tool
from grouped_options import grouped
from provider_double import (
    check_chat,
    check_messages,
    check_responses,
    make_message,
    make_response,
    messages_stream,
    responses_stream,
)


@tool(side_effect="none")
def look() -> str:
    """Look around."""
    return "a room"


def deferred(name: str, about: str, **more: Any) -> Tool:
    return define_tool(
        name,
        about,
        parameters={"env": "Where."},
        handler=lambda env: f"{name} in {env}",
        defer_loading=True,
        side_effect="none",
        **more,
    )


DEPLOY, PAINT = (
    deferred("deploy_service", "Deploy a service."),
    deferred("paint_wall", "Paint a wall."),
)
TOOLS = (look, DEPLOY, PAINT)

Parts = list[dict[str, Any]]
Answers = Sequence[Parts]
"""Blocks or items of one answer after another."""


# ---- doubles that take what the SDKs' types take, and answer with what these can spell


class Provider:
    """A provider that gives its answers in order. `bodies` is what it was sent."""

    def __init__(self, kind: str, answers: Answers) -> None:
        self.kind = kind
        self.bodies: list[str] = []
        self._answers = list(answers)
        self._double = HttpDouble(self._handle)

    def _handle(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply(404, json={})
        asked = request.json()
        self.bodies.append(request.body.decode())
        parts = self._answers.pop(0)
        if self.kind == "anthropic":
            check_messages(asked)
            ending = "tool_use" if any(part["type"] == "tool_use" for part in parts) else "end_turn"
            message = make_message(parts, ending, {"input_tokens": 1, "output_tokens": 1})
            return messages_stream(message) if asked.get("stream") else Reply(json=message)
        if self.kind == "responses":
            check_responses(asked)
            response = make_response(parts)
            return responses_stream(response) if asked.get("stream") else Reply(json=response)
        check_chat(asked)
        (message,) = parts
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return Reply(
            json={
                "choices": [{"index": 0, "finish_reason": finish, "message": message}],
                "usage": {},
            }
        )

    @asynccontextmanager
    async def model_client(self) -> Any:
        async with self._double as server:
            model_client: ModelClient
            if self.kind == "anthropic":
                model_client = Anthropic(
                    "m", base_url=server.url, api_key="k", force_native_tool_search=True
                )
            elif self.kind == "responses":
                model_client = OpenAIResponses(
                    "m", base_url=f"{server.url}/v1", api_key="k", force_native_tool_search=True
                )
            else:
                model_client = OpenAIChat("m", base_url=f"{server.url}/v1", api_key="k")
            yield model_client
            await model_client.close()

    def part(self, name: str) -> list[str]:
        """One member of every request, as the text it was sent as; "" where it was not."""
        return [split_members(body).get(name, "") for body in self.bodies]


def a_call(kind: str, id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if kind == "anthropic":
        return {"type": "tool_use", "id": id, "name": name, "input": arguments}
    if kind == "responses":
        return {
            "type": "function_call",
            "id": f"fc_{id}",
            "status": "completed",
            "call_id": id,
            "name": name,
            "arguments": json.dumps(arguments),
        }
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def some_calls(kind: str, *made: tuple[str, str, dict[str, Any]]) -> Parts:
    parts = [a_call(kind, *one) for one in made]
    return (
        [{"role": "assistant", "content": None, "tool_calls": parts}] if kind == "chat" else parts
    )


def words(kind: str, text: str) -> Parts:
    if kind == "anthropic":
        return [{"type": "text", "text": text, "citations": None}]
    if kind == "responses":
        content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
        return [
            {
                "type": "message",
                "id": "m1",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        ]
    return [{"role": "assistant", "content": text}]


def hosted_search(kind: str, id: str, query: dict[str, Any], found: Sequence[str]) -> Parts:
    """A search that the provider made, and what it found."""
    if kind == "anthropic":
        references = [{"type": "tool_reference", "tool_name": name} for name in found]
        content = {"type": "tool_search_tool_search_result", "tool_references": references}
        use = {
            "type": "server_tool_use",
            "id": id,
            "name": "tool_search_tool_bm25",
            "input": query,
            "caller": {"type": "direct"},
        }
        return [use, {"type": "tool_search_tool_result", "tool_use_id": id, "content": content}]
    tools = [
        {
            "type": "function",
            "name": name,
            "description": "x",
            "parameters": {"type": "object"},
            "strict": False,
            "defer_loading": True,
        }
        for name in found
    ]
    common = {"execution": "server", "call_id": None, "status": "completed"}
    return [
        {"id": id, "type": "tool_search_call", **common, "arguments": query},
        {"id": f"o{id}", "type": "tool_search_output", **common, "tools": tools},
    ]


async def run_agent(
    model_client: ModelClient, text: str = "go", **options: Any
) -> tuple[Any, list[Event]]:
    """A run's outcome and its events."""
    agent = Agent(model_client, TOOLS, **grouped(journal=SqliteJournal(":memory:"), **options))
    ran = await asyncio.wait_for(agent.run(text), 30)
    return ran, [record.event for record in agent.journal.records(ran.session)]


def searches_in(events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, (ToolSearchQuery, ToolSearchResult))]


# ---- the same story everywhere


async def story_of(kind: str) -> tuple[Any, list[Event]]:
    if kind == "scripted":
        steps = [
            calls(("tool_search", {"query": "deploy"}, "s1")),
            calls(("deploy_service", {"env": "a"})),
            says("done"),
        ]
        return await run_agent(Scripted(steps), tool_search="bm25")
    if kind == "chat":
        first = [some_calls(kind, ("s1", "tool_search", {"query": "deploy"}))]
        then = [some_calls(kind, ("c1", "deploy_service", {"env": "a"}))]
    else:
        search = hosted_search(kind, "s1", {"query": "deploy"}, ["deploy_service"])
        first, then = [], [[*search, a_call(kind, "c1", "deploy_service", {"env": "a"})]]
    async with Provider(kind, [*first, *then, words(kind, "done")]).model_client() as model_client:
        return await run_agent(model_client, tool_search="bm25", tool_mode="native")


@pytest.mark.proves("tool-search.events")
@pytest.mark.parametrize("kind", ["scripted", "chat", "anthropic", "responses"])
async def test_one_story_leaves_the_same_two_events_whoever_searched(kind: str) -> None:
    ran, events = await story_of(kind)
    mode = "native" if kind in ("anthropic", "responses") else "client"
    assert searches_in(events) == [
        ToolSearchQuery("s1", "tool_search_tool_bm25", {"query": "deploy"}, "bm25", mode),
        ToolSearchResult("s1", ("deploy_service",), ("deploy_service",), "bm25", mode),
    ]
    assert ran.text == "done"
    assert ran.results[-1].data == "deploy_service in a"


@pytest.mark.proves("tool-search.native-wire")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["anthropic", "responses"])
async def test_what_a_provider_searched_goes_back_byte_for_byte_and_is_never_dispatched(
    kind: str, streamed: bool
) -> None:
    search = hosted_search(kind, "s1", {"query": "deploy"}, ["deploy_service"])
    answers = [[*search, a_call(kind, "c1", "deploy_service", {"env": "a"})], words(kind, "done")]
    provider = Provider(kind, answers)
    async with provider.model_client() as model_client:
        agent = Agent(model_client, TOOLS, storage=Storage(journal=SqliteJournal(":memory:")))
        session = agent.session()
        if streamed:
            async for _ in session.stream("go"):
                pass
        else:
            await session.run("go")
    events = [record.event for record in agent.journal.records(session.id)]
    answered = next(event for event in events if isinstance(event, ModelAnswered))
    assert [call.tool for call in answered.calls] == ["deploy_service"]
    sent = provider.part("messages" if kind == "anthropic" else "input")[1]
    for part in search:
        assert json.dumps(part, ensure_ascii=False, separators=(",", ":")) in sent
    assert len(searches_in(events)) == 2


@pytest.mark.proves("tool-search.native-wire")
@pytest.mark.parametrize("kind", ["anthropic", "responses"])
async def test_a_native_call_that_no_search_found_is_refused(kind: str) -> None:
    answers = [
        some_calls(kind, ("c1", "deploy_service", {"env": "a"})),
        [
            *hosted_search(kind, "s1", {"query": "paint"}, ["paint_wall"]),
            a_call(kind, "c2", "deploy_service", {"env": "a"}),
        ],
        [a_call(kind, "c3", "paint_wall", {"env": "a"})],
        words(kind, "done"),
    ]
    async with Provider(kind, answers).model_client() as model_client:
        ran, _ = await run_agent(model_client)
    assert [result.success for result in ran.results] == [False, False, True]
    assert ran.results[0].error_type is ErrorType.NOT_FOUND
    assert (
        "search" in ran.results[0].error_message
        and "tool_search`" not in ran.results[0].error_message
    )


@pytest.mark.proves("tool-search.native-wire")
async def test_a_providers_search_that_failed_finds_nothing() -> None:
    use = {
        "type": "server_tool_use",
        "id": "s1",
        "name": "tool_search_tool_regex",
        "input": {"pattern": "("},
    }
    error = {
        "type": "tool_search_tool_result_error",
        "error_code": "invalid_tool_input",
        "error_message": "?",
    }
    result = {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": error}
    async with Provider(
        "anthropic", [[use, result, *words("anthropic", "no")]]
    ).model_client() as model_client:
        _, events = await run_agent(model_client, tool_search="regex")
    assert searches_in(events) == [
        ToolSearchQuery("s1", "tool_search_tool_regex", {"pattern": "("}, "regex", "native"),
        ToolSearchResult("s1", (), (), "regex", "native"),
    ]


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
async def test_a_native_session_goes_on_in_another_process_with_what_was_found(
    kind: str, tmp_path: Any
) -> None:
    where = tmp_path / "j.db"
    search = hosted_search(kind, "s1", {"query": "deploy"}, ["deploy_service"])
    before, after = Provider(kind, [[*search, *words(kind, "found")]]), None
    async with before.model_client() as model_client:
        agent = Agent(model_client, TOOLS, storage=Storage(journal=where))
        session = agent.session()
        await session.run("find it")
        await session.close()
        agent.journal.close()
    after = Provider(
        kind, [[a_call(kind, "c1", "deploy_service", {"env": "b"})], words(kind, "done")]
    )
    async with after.model_client() as model_client:
        agent = Agent(model_client, TOOLS, storage=Storage(journal=where))
        again = agent.resume(session.id)
        ran = await again.run("deploy")
        await again.close()
        agent.journal.close()
    assert ran.results[0].data == "deploy_service in b"
    assert after.part("tools")[0] == before.part("tools")[0]


async def test_what_ferrule_found_for_one_model_is_sent_whole_to_one_that_searches_itself() -> None:
    answers = [
        [a_call("anthropic", "c1", "deploy_service", {"env": "b"})],
        words("anthropic", "done"),
    ]
    provider = Provider("anthropic", answers)
    steps = [calls(("tool_search", {"query": "deploy"})), says("found")]
    agent = Agent(Scripted(steps), TOOLS, storage=Storage(journal=SqliteJournal(":memory:")))
    session = agent.session()
    await session.run("find it")
    async with provider.model_client() as model_client:
        agent.change_model(model_client)
        session.driver.reset_exchange()
        ran = await session.run("deploy")
    assert ran.results[0].data == "deploy_service in b"
    sent = json.loads(provider.part("tools")[0])
    assert [(one["name"], one.get("defer_loading", False)) for one in sent] == [
        ("tool_search_tool_bm25", False),
        ("look", False),
        ("paint_wall", True),
        ("deploy_service", False),
    ]


# ---- requests


def spec(name: str, namespace: str = "", *, deferred: bool = True) -> ToolSpec:
    schema = '{"type":"object","properties":{},"additionalProperties":false}'
    return ToolSpec(name, name, f"Does {name}.", schema, deferred=deferred, namespace=namespace)


SPECS = (
    spec("audit", "ops"),
    spec("call_customer", "crm"),
    spec("deploy", "ops"),
    spec("look", "ops", deferred=False),
    spec("plain"),
)


async def tools_sent(
    model_client: ModelClient, respond: Callable[[], Any], variant: str
) -> list[dict[str, Any]]:
    exchange = model_client.open("", SPECS, ModelOptions(tool_search=variant))
    await exchange.ask([UserMessage("hi")])
    return respond()


@pytest.mark.proves("tool-search.namespaces")
async def test_openai_gets_its_search_first_and_the_tools_of_a_namespace_together() -> None:
    provider = Provider("responses", [words("responses", "hi")])
    async with provider.model_client() as model_client:
        sent = await tools_sent(model_client, lambda: json.loads(provider.part("tools")[0]), "bm25")
    assert sent[0] == {"type": "tool_search", "execution": "server"}
    assert [one["name"] for one in sent[1:]] == ["look", "plain", "crm", "ops"]
    assert ["defer_loading" in one for one in sent[1:3]] == [False, True]
    crm, ops = sent[3:]
    assert (crm["type"], ops["type"]) == ("namespace", "namespace")
    assert [one["name"] for one in ops["tools"]] == ["audit", "deploy"]
    assert all(one["defer_loading"] for group in (crm, ops) for one in group["tools"])
    assert ops["description"] == "Tools of ops: audit, deploy"


@pytest.mark.proves("tool-search.namespaces")
async def test_a_gateway_may_get_the_namespaces_as_a_list_in_the_search() -> None:
    bodies: list[dict[str, Any]] = []

    def handle(request: Request) -> Reply:
        bodies.append(request.json())
        return Reply(json=make_response(words("responses", "hi")))

    async with HttpDouble(handle) as server:
        model_client = OpenAIResponses(
            "my-clone",
            base_url=f"{server.url}/v1",
            api_key="k",
            flat_tool_search=True,
            strict=False,
        )
        await tools_sent(model_client, lambda: bodies[0]["tools"], "bm25")
        await model_client.close()
    sent = bodies[0]["tools"]
    assert sent[0] == {"type": "tool_search", "mode": "hosted", "namespaces": ["crm", "ops"]}
    assert [one.get("defer_loading", False) for one in sent[1:]] == [True, True, True, False, True]


@pytest.mark.proves("tool-search.namespaces")
async def test_a_call_in_a_history_that_another_provider_made_names_its_namespace() -> None:
    from ferrule.core.calls import ToolCall
    from ferrule.core.messages import ToolMessage

    history = [
        UserMessage("hi"),
        AssistantMessage("", (ToolCall("c1", "deploy", "{}"), ToolCall("c2", "look", "{}"))),
        ToolMessage("c1", "deploy", "ok"),
        ToolMessage("c2", "look", "ok"),
    ]
    provider = Provider("responses", [words("responses", "hi")])
    async with provider.model_client() as model_client:
        await model_client.open("", SPECS, ModelOptions(tool_search="bm25")).ask(history)
    items = json.loads(provider.part("input")[0])
    assert [item.get("namespace") for item in items if item.get("type") == "function_call"] == [
        "ops",
        None,
    ]


@pytest.mark.proves("tool-search.native-wire")
@pytest.mark.parametrize("variant", ["bm25", "regex"])
async def test_anthropic_gets_its_search_first_and_every_deferred_tool_marked(variant: str) -> None:
    provider = Provider("anthropic", [words("anthropic", "hi")])
    async with provider.model_client() as model_client:
        sent = await tools_sent(
            model_client, lambda: json.loads(provider.part("tools")[0]), variant
        )
    assert sent[0] == {
        "type": f"tool_search_tool_{variant}_20251119",
        "name": f"tool_search_tool_{variant}",
    }
    assert [(one["name"], one.get("defer_loading", False)) for one in sent[1:]] == [
        (one.name, one.deferred) for one in SPECS
    ]


@pytest.mark.proves("tool-search.namespaces")
async def test_namespaces_and_servers_are_groups_in_requests_and_their_calls_come_home() -> None:
    ops = [replace(deferred(f"deploy_{n}", "Deploy."), namespace="ops") for n in "ab"]
    crm = replace(deferred("crm__mail", "Mail."), source="mcp crm")
    search = hosted_search("responses", "s1", {"paths": ["ops"]}, [])
    search[1]["tools"] = [
        {
            "type": "namespace",
            "name": "ops",
            "description": "x",
            "tools": [{"type": "function", "name": "ops__deploy_b"}],
        }
    ]
    call = a_call("responses", "c1", "ops__deploy_b", {"env": "x"}) | {"namespace": "ops"}
    provider = Provider("responses", [[*search, call], words("responses", "done")])
    async with provider.model_client() as model_client:
        agent = Agent(
            model_client, [look, *ops, crm], storage=Storage(journal=SqliteJournal(":memory:"))
        )
        ran = await agent.run("go")
    groups = [one for one in json.loads(provider.part("tools")[0]) if one["type"] == "namespace"]
    assert [(one["name"], len(one["tools"])) for one in groups] == [("crm", 1), ("ops", 2)]
    assert ran.results[0].data == "deploy_b in x"


@pytest.mark.parametrize(
    ("model", "able"),
    [
        ("claude-opus-4-20250514", True),
        ("claude-sonnet-4-0", True),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-opus-5", True),
        ("claude-haiku-4-5", True),
        ("claude-haiku-5", True),
        ("claude-haiku-4-20250514", False),
        ("claude-3-7-sonnet-latest", False),
        ("claude-3-5-haiku-latest", False),
        ("gpt-5.4", True),
        ("gpt-5.4-mini", True),
        ("gpt-5.10", True),
        ("gpt-6-sol", True),
        ("openai/gpt-5.5", True),
        ("gpt-5.3", False),
        ("gpt-5", False),
        ("gpt-5.1-codex", False),
        ("gpt-4o", False),
        ("gpt-4.1", False),
        ("gpt-35-turbo", False),
        ("my-internal-gpt-clone-v2", False),
    ],
)
async def test_who_searches_is_known_by_the_models_name(model: str, able: bool) -> None:
    assert has_tool_search(model) is able
    if model.startswith("claude"):
        model_client: ModelClient = Anthropic(
            model, api_key="k", base_url="https://api.anthropic.com"
        )
        assert bool((await model_client.capabilities()).tool_search) is able
    elif model.startswith(("gpt-5", "gpt-4")):
        model_client = OpenAIResponses(model, api_key="k", base_url="https://api.openai.com/v1")
        assert bool((await model_client.capabilities()).tool_search) is able


async def test_a_router_is_believed_by_the_models_name_or_by_the_persons_word() -> None:
    async with HttpDouble(lambda _: Reply(404, json={})) as server:
        address = f"{server.url}/v1"
        routed = OpenAIResponses("openai/gpt-5.5", base_url=address, api_key="k")
        unknown = OpenAIResponses("my-clone", base_url=address, api_key="k")
        forced = OpenAIResponses(
            "my-clone", base_url=address, api_key="k", force_native_tool_search=True
        )
        found = [
            (await model_client.capabilities()).tool_search
            for model_client in (routed, unknown, forced)
        ]
        for model_client in (routed, unknown, forced):
            await model_client.close()
    assert found == [True, False, True]


# ---- what providers cache


ROUNDS = st.lists(
    st.lists(st.sampled_from(["red", "blue", "green", "black", "white"]), max_size=3, unique=True),
    min_size=1,
    max_size=5,
)


def many() -> list[Tool]:
    return [
        deferred(f"paint_{word}", f"Paint it {word}.")
        for word in ("red", "blue", "green", "black", "white")
    ]


async def bodies_of(kind: str, rounds: list[list[str]]) -> Provider:
    """A run in which each round searches these words (and calls what was found the round
    before).
    """
    answers: list[Parts] = []
    for number, found in enumerate(rounds):
        before = rounds[number - 1] if number else []
        made = [(f"c{number}{word}", f"paint_{word}", {"env": "x"}) for word in before]
        if kind == "chat":
            made += [(f"s{number}{word}", "tool_search", {"query": word}) for word in found]
            made = made or [(f"l{number}", "look", {})]
            answers.append(some_calls(kind, *made))
        else:
            hosted = [
                part
                for word in found
                for part in hosted_search(
                    kind, f"s{number}{word}", {"query": word}, [f"paint_{word}"]
                )
            ]
            answers.append([*hosted, *some_calls(kind, *(made or [(f"l{number}", "look", {})]))])
    provider = Provider(kind, [*answers, words(kind, "done")])
    async with provider.model_client() as model_client:
        agent = Agent(
            model_client,
            [look, *many()],
            storage=Storage(journal=SqliteJournal(":memory:")),
            tool_calling=ToolCalling(search="bm25", mode="native"),
        )
        ran = await asyncio.wait_for(agent.run("go"), 60)
    assert ran.text == "done"
    return provider


def grows(parts: list[str]) -> bool:
    """Whether each JSON array is a byte prefix of the next one, but for its closing bracket."""
    return all(later.startswith(earlier[:-1]) for earlier, later in pairwise(parts))


@settings(max_examples=15, deadline=None)
@given(ROUNDS)
def test_whatever_is_discovered_every_request_begins_with_the_bytes_of_the_one_before(
    rounds: list[list[str]],
) -> None:
    provider = asyncio.run(bodies_of("chat", rounds))
    tools = provider.part("tools")
    assert grows(provider.part("messages"))
    assert grows(tools)
    # Each tool once, in the order in which the model asked for it.
    sent = [json.loads(one)["function"]["name"] for one in split_elements(tools[-1])][3:]
    assert sent == list(dict.fromkeys(f"paint_{word}" for found in rounds for word in found))


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
@settings(max_examples=8, deadline=None)
@given(rounds=ROUNDS)
def test_where_the_provider_searches_tools_and_system_text_never_change(
    kind: str, rounds: list[list[str]]
) -> None:
    provider = asyncio.run(bodies_of(kind, rounds))
    assert len(set(provider.part("tools"))) == 1
    assert len(set(provider.part("system" if kind == "anthropic" else "instructions"))) == 1
    if kind == "responses":
        assert grows(provider.part("input"))
    else:
        turns = [split_elements(part) for part in provider.part("messages")]
        assert all(
            [*later[: len(earlier) - 1]] == earlier[:-1] for earlier, later in pairwise(turns)
        )
