"""Reports of libraries for agents of 2026, each chosen before anything was tried."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from chat_server import ask, stream_call, stream_text
from starlette.applications import Starlette
from starlette.requests import Request as WebRequest
from starlette.routing import Mount

from ferrule import (
    Agent,
    ApprovalAnswer,
    ApprovalRequest,
    ConfigError,
    Context,
    HookBlocked,
    LimitReached,
    Limits,
    MessageHistory,
    OutputInvalid,
    Permissions,
    ProviderError,
    RunCancelled,
    Scripted,
    Storage,
    tool,
)
from ferrule.connectors import openapi_tools
from ferrule.events import Usage
from ferrule.hooks import TurnStart, block, hook
from ferrule.models.anthropic.client import Anthropic
from ferrule.models.client import ModelClient
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.scripted import calls, fails, says
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.web import MountableApp, Principal, create_ag_ui_endpoint


def assert_calls_are_answered(messages: list[dict[str, Any]]) -> None:
    """Check that the results of calls follow directly on the message with the calls."""
    wanted: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in wanted, messages
            wanted.remove(message["tool_call_id"])
            continue
        assert not wanted, messages
        made: list[dict[str, Any]] = message.get("tool_calls") or []
        wanted = [str(call["id"]) for call in made]
    assert not wanted, messages


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_instructions_never_stand_between_a_call_and_its_result() -> None:
    told = [
        {"role": "assistant", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "system", "content": "Summary: two numbers were added."},
        {"role": "user", "content": "Go on."},
        {"role": "assistant", "content": "Three."},
    ]  # fmt: skip
    history = MessageHistory.from_openai(told)
    requests: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        requests.append(request.json())
        return stream_text("Six.")

    async with HttpDouble(reply) as server:
        model = OpenAIChat("m", base_url=server.url, api_key="k")
        agent = Agent(model, [add], instructions=["You add.", lambda: "Be brief."])
        run = await agent.run("And twice that?", history=history)
        await agent.close()
    assert run.text == "Six."
    sent = requests[-1]["messages"]
    assert_calls_are_answered(sent)
    assert [one["role"] for one in sent].index("system") == 0


def test_used_up_corrections_name_their_number_the_problem_and_the_option() -> None:
    agent = Agent(Scripted([says('{"n": "x"}')] * 2), output_type=dict[str, int], output_retries=1)
    with pytest.raises(OutputInvalid) as raised:
        agent.run_sync("How many?")
    said = f"{raised.value.detail} {raised.value.hint}"
    assert "2 answers" in said and "`n`" in said and "output_retries" in said


@pytest.mark.parametrize("retries", [-1, 1.5, "2"])
def test_a_number_of_corrections_that_is_none_is_refused(retries: Any) -> None:
    with pytest.raises(ConfigError, match="output_retries"):
        Agent(Scripted([]), output_type=int, output_retries=retries)


WAITING = """
import asyncio, os
from ferrule import Agent, Permissions, Scripted, Storage
from test_fresh_agents import Shop, ship
from ferrule.models.scripted import calls, says

class Dies:
    async def ask(self, request):
        os._exit(9)

steps = [calls(("ship", {"order": "7"}))]
agent = Agent(Scripted(steps), [ship], deps_type=Shop, permissions=Permissions(approver=Dies()),
              storage=Storage(journal="journal.db"))
async def main():
    async with agent.session(id="t1", deps=Shop()) as session:
        await session.run("Ship order 7.")
asyncio.run(main())
"""


@dataclass
class Shop:
    shipped: list[str] = field(default_factory=list[str])


@tool(side_effect="write")
def ship(order: str, context: Context[Shop]) -> str:
    """Ship an order."""
    context.deps.shipped.append(order)
    return f"shipped {order}"


class Yes:
    """Approves everything and keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer("once", by="ines")


def die_while_asked(folder: Path, code: str) -> None:
    """Run a program that is killed while its question is open."""
    (folder / "run.py").write_text(textwrap.dedent(code))
    here = str(Path(__file__).parent)
    ran = subprocess.run(
        [sys.executable, "run.py"],
        cwd=folder,
        env={"PYTHONPATH": here, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 9, ran.stderr


async def test_an_approval_after_a_restart_holds_with_dependencies(tmp_path: Path) -> None:
    die_while_asked(tmp_path, WAITING)
    shop, person = Shop(), Yes()
    agent = Agent(
        Scripted([says("Shipped.")]), [ship], deps_type=Shop,
        permissions=Permissions(approver=person), storage=Storage(journal=tmp_path / "journal.db"),
    )  # fmt: skip
    async with agent.session(id="t1", resume=True, deps=shop) as session:
        run = await session.resume()
    await agent.close()
    assert run is not None and run.text == "Shipped."
    assert len(person.asked) == 1 and shop.shipped == ["7"]


async def test_what_tools_change_in_a_continued_run_is_the_callers_own_state(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal.db"
    allowed = Permissions(allow=["ship"])
    steps = [
        calls(("ship", {"order": "1"})),
        says("One."),
        calls(("ship", {"order": "2"})),
        says("Two."),
    ]
    shop = Shop()
    for _ in range(2):
        script = [steps.pop(0), steps.pop(0)]
        agent = Agent(
            Scripted(script),
            [ship],
            deps_type=Shop,
            permissions=allowed,
            storage=Storage(journal=journal),
        )
        async with agent.session(id="t", resume=True, deps=shop) as session:
            await session.run("Ship.")
        await agent.close()
    assert shop.shipped == ["1", "2"]


# ---- AG-UI


@tool(side_effect="write")
def deploy(target: str) -> str:
    """Deploy to a target."""
    DEPLOYED.append(target)
    return f"deployed to {target}"


DEPLOYED: list[str] = []


def identify(request: WebRequest) -> Principal:
    return Principal("ada")


@asynccontextmanager
async def client_of(app: MountableApp) -> AsyncGenerator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/agent", app)]))
    address = "https://app.example.org"
    async with app, httpx.AsyncClient(transport=transport, base_url=address) as client:
        yield client


async def post(client: httpx.AsyncClient, **more: Any) -> tuple[int, list[dict[str, Any]]]:
    sent: dict[str, Any] = {"threadId": "t1", "runId": f"r{len(more)}", "messages": [], **more}
    answer = await client.post("/agent/run", json=sent, timeout=30)
    lines = [line for line in answer.text.split("\n\n") if line.startswith("data: ")]
    return answer.status_code, [json.loads(line.removeprefix("data: ")) for line in lines]


MESSAGE = [{"id": "m1", "role": "user", "content": "Deploy."}]
APPROVED = {"status": "resolved", "payload": {"approved": True}}


async def test_an_answer_to_a_question_that_is_not_open_is_refused_and_the_real_one_stays() -> None:
    DEPLOYED.clear()
    agent = Agent(Scripted([calls(("deploy", {"target": "eu"})), says("Done.")]), [deploy])
    app = create_ag_ui_endpoint(agent, address="https://app.example.org", identify=identify)
    async with client_of(app) as client:
        _, events = await post(client, messages=MESSAGE)
        (asked,) = events[-1]["outcome"]["interrupts"]
        wrong = [{"interruptId": "0" * 32, **APPROVED}]
        status, _ = await post(client, messages=MESSAGE, resume=wrong)
        assert status == 409 and DEPLOYED == []
        right = [{"interruptId": asked["id"], **APPROVED}]
        _, events = await post(client, messages=MESSAGE, resume=right)
    assert events[-1]["type"] == "RUN_FINISHED" and DEPLOYED == ["eu"]


async def test_a_model_that_fails_after_an_approval_costs_no_second_effect() -> None:
    DEPLOYED.clear()
    broken = fails(ProviderError("the provider broke", code="server_error", status=500))
    agent = Agent(
        Scripted([calls(("deploy", {"target": "eu"})), broken, says("It is deployed.")]), [deploy]
    )
    app = create_ag_ui_endpoint(agent, address="https://app.example.org", identify=identify)
    async with client_of(app) as client:
        _, events = await post(client, messages=MESSAGE)
        (asked,) = events[-1]["outcome"]["interrupts"]
        answer = [{"interruptId": asked["id"], **APPROVED}]
        _, events = await post(client, messages=MESSAGE, resume=answer)
        assert events[-1]["type"] == "RUN_ERROR" and DEPLOYED == ["eu"]
        status, _ = await post(client, messages=MESSAGE, resume=answer)
        assert status == 409
        more = [*MESSAGE, {"id": "m2", "role": "user", "content": "Well?"}]
        _, events = await post(client, messages=more, runId="r9")
    assert events[-1]["type"] == "RUN_FINISHED" and DEPLOYED == ["eu"]
    assert any("deployed" in str(one) for one in events)


# ---- calls


def test_an_optional_list_does_not_make_the_other_parameters_optional() -> None:
    @tool(side_effect="none")
    def search(
        query: str, tags: list[str] | None = None, extra: dict[str, int | None] | None = None
    ) -> str:
        """Search."""
        return query

    assert search.arguments.schema["required"] == ["query"]
    (result,) = (
        Agent(Scripted([calls(("search", {"tags": []})), says("x")]), [search])
        .run_sync("x")
        .results
    )
    assert not result.success and "`query`" in (result.error_message or "")


async def test_defaults_stay_optional_in_tools_for_other_frameworks() -> None:
    from ferrule.adapters.langchain import guard

    @tool(side_effect="none")
    def search(query: str, most: int = 5, region: str = "global") -> str:
        """Search."""
        return f"{query} {most} {region}"

    async with guard(Agent(Scripted([]), [search])) as guarded:
        (made,) = guarded.tools
        schema: Any = made.args_schema
        shown: dict[str, Any] = schema if type(schema) is dict else schema.model_json_schema()
        assert shown["required"] == ["query"] and shown["properties"]["most"]["default"] == 5
        assert "x 5 global" in str(await made.ainvoke({"query": "x"}))


def test_definitions_and_arguments_are_checked_under_optimization(tmp_path: Path) -> None:
    code = """
    from ferrule import Agent, ConfigError, Scripted, ToolDefinitionError, define_tool, tool
    from ferrule.models.scripted import calls, says
    found = []
    for definition in ({"name": "bad name!"}, {"parameters": {"q": {"type": "text"}}}, {"handler": 3}):
        try:
            define_tool(**{"name": "t", "description": "d", "parameters": {}, "handler": print, **definition})
        except (ToolDefinitionError, ConfigError):
            found.append("refused")
    @tool(side_effect="none")
    def twice(n: int) -> int:
        '''Twice.'''
        return n * 2
    (result,) = Agent(Scripted([calls(("twice", {"n": "x"})), says("no")]), [twice]).run_sync("x").results
    print(found, result.error_type)
    """
    ran = subprocess.run(
        [sys.executable, "-O", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.stdout == "['refused', 'refused', 'refused'] validation_failed\n", ran.stderr


def test_the_same_call_twice_runs_twice_and_live_data_is_live() -> None:
    prices = iter(range(100, 110))
    done: list[int] = []

    @tool(side_effect="read")
    def price(article: str) -> int:
        """The price now."""
        return next(prices)

    @tool(side_effect="write")
    def press(button: str) -> str:
        """Press a button."""
        done.append(1)
        return "pressed"

    step = calls(("price", {"article": "bolt"}), ("press", {"button": "next"}))
    agent = Agent(
        Scripted([step, step, says("Done.")]),
        [price, press],
        permissions=Permissions(allow=["press"]),
    )
    results = agent.run_sync("Twice.").results
    assert [one.data for one in results if one.tool == "price"] == [100, 101]
    assert len(done) == 2 and all(one.success for one in results)


def test_a_call_counts_once_against_its_limit() -> None:
    step = calls(("add", {"a": 1, "b": 1}))
    agent = Agent(
        Scripted([step, calls(("add", {"a": 1, "b": 2})), says("Four.")]),
        [add],
        limits=Limits(max_calls=2),
    )
    assert [one.data for one in agent.run_sync("Add.").results] == [2, 3]
    more = Agent(
        Scripted([calls(("add", {"a": 1, "b": n})) for n in range(3)]),
        [add],
        limits=Limits(max_calls=2),
    )
    with pytest.raises(LimitReached) as reached:
        more.run_sync("Add.")
    assert reached.value.limit == "max_calls"


async def test_a_call_after_thoughts_in_a_stream_of_anthropic_arrives() -> None:
    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    pieces = [
        event("message_start", message={"id": "m", "model": "claude-sonnet-5", "usage": {"input_tokens": 9, "output_tokens": 1}}),
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "One tool."}),
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "c2ln"}),
        event("content_block_stop", index=0),
        event("content_block_start", index=1, content_block={"type": "tool_use", "id": "t1", "name": "add", "input": {}}),
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": ""}),
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": '{"a": 1, "b"'}),
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": ": 2}"}),
        event("content_block_stop", index=1),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 20}),
        event("message_stop"),
    ]  # fmt: skip
    text = [
        event("message_start", message={"id": "m", "model": "claude-sonnet-5", "usage": {"input_tokens": 9, "output_tokens": 1}}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Three."}),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        event("message_stop"),
    ]  # fmt: skip
    kind = {"content-type": "text/event-stream"}
    replies = [Reply(pieces=pieces, headers=kind), Reply(pieces=text, headers=kind)]
    sent: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST" or not request.json().get("stream"):
            return Reply(404, json={})
        sent.append(request.json())
        return replies.pop(0)

    async with HttpDouble(reply) as server:
        agent = Agent(Anthropic("claude-sonnet-5", api_key="k", base_url=server.url), [add])
        seen = [type(one).__name__ async for one in agent.stream("1 + 2?")]
        await agent.close()
    second = sent[1]["messages"]
    assert "ToolAnswered" in seen and seen.count("ArgumentsDelta") >= 1
    assert [block["type"] for block in second[1]["content"]] == ["thinking", "tool_use"]
    assert second[2]["content"][0]["type"] == "tool_result"


# ---- stops, histories and guards


async def test_after_a_stop_within_a_tool_the_next_message_is_a_valid_request() -> None:
    requests: list[dict[str, Any]] = []
    replies = [stream_call("hold", "{}"), stream_text("Going on.")]

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        requests.append(request.json())
        return replies.pop(0)

    holding = asyncio.Event()

    @tool(side_effect="read")
    async def hold() -> str:
        """Take long."""
        holding.set()
        await asyncio.sleep(60)
        return "late"

    async with HttpDouble(reply) as server:
        agent = Agent(
            OpenAIChat("m", base_url=server.url, api_key="k"), [hold], tool_calling="native"
        )
        session = agent.session()
        task = asyncio.create_task(session.run("Hold."))
        await holding.wait()
        session.cancel()
        with pytest.raises(RunCancelled):
            await task
        assert (await session.run("Go on.")).text == "Going on."
        await agent.close()
    assert_calls_are_answered(requests[-1]["messages"])
    assert requests[-1]["messages"][-1]["content"] == "Go on."


async def test_a_conversation_that_is_loaded_again_sends_calls_before_their_results(
    tmp_path: Path,
) -> None:
    requests: list[dict[str, Any]] = []
    replies = [stream_call("add", '{"a":1,"b":2}'), stream_text("Three."), stream_text("Six.")]

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        requests.append(request.json())
        return replies.pop(0)

    async with HttpDouble(reply) as server:
        for message in ("1 + 2?", "Twice that?"):
            model: ModelClient = OpenAIChat("m", base_url=server.url, api_key="k")
            agent = Agent(
                model, [add], tool_calling="native", storage=Storage(journal=tmp_path / "j.db")
            )
            async with agent.session(id="t", resume=True) as session:
                await session.run(message)
            await agent.close()
    sent = requests[-1]["messages"]
    assert_calls_are_answered(sent)
    assert [one["role"] for one in sent if one["role"] != "system"] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip


async def test_a_fork_before_a_question_asks_anew_and_repeats_no_finished_call() -> None:
    journal = SqliteJournal(":memory:")
    shop, person = Shop(), Yes()
    steps = [calls(("ship", {"order": "1"})), says("One."), calls(("ship", {"order": "2"})), says("Two."),
             calls(("ship", {"order": "3"})), says("Three.")]  # fmt: skip
    agent = Agent(
        Scripted(steps), [ship], deps_type=Shop,
        permissions=Permissions(approver=person), storage=Storage(journal=journal),
    )  # fmt: skip
    session = agent.session(deps=shop)
    await session.run("Ship 1.")
    await session.run("Ship 2.")
    other = agent.resume(session.fork(1), deps=shop)
    assert await other.resume() is None
    assert (await other.run("Ship 3 instead.")).text == "Three."
    assert shop.shipped == ["1", "2", "3"] and len(person.asked) == 3
    await session.close()
    await other.close()
    journal.close()


@hook("turn.start")
def no_secrets(turn: TurnStart) -> Any:
    return block("no secrets") if "secret" in turn.text else None


async def test_a_guard_of_messages_holds_in_a_stream_too_and_usage_is_of_its_run() -> None:
    def make(tokens: int) -> Agent[Any, Any]:
        script = [says("Hello.", usage=Usage(tokens, 1))]
        return Agent(Scripted(script), plugins=[Parts(hooks=[no_secrets])])

    with pytest.raises(HookBlocked):
        await make(1).run("the secret")
    with pytest.raises(HookBlocked):
        async for _ in make(1).stream("the secret"):
            pass
    runs = await asyncio.gather(*(make(tokens).run("hi") for tokens in range(1, 20)))
    assert [run.usage.input for run in runs] == list(range(1, 20))


async def test_an_operation_of_an_openapi_document_with_a_nested_body_is_called(
    tmp_path: Path,
) -> None:
    tag = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    pet = {
        "type": "object", "required": ["name", "photoUrls"],
        "properties": {
            "id": {"type": "integer", "format": "int64"}, "name": {"type": "string"},
            "category": {"$ref": "#/components/schemas/Tag"},
            "photoUrls": {"type": "array", "items": {"type": "string"}},
            "tags": {"type": "array", "items": {"$ref": "#/components/schemas/Tag"}},
            "status": {"type": "string", "enum": ["available", "sold"]},
        },
    }  # fmt: skip
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
    got: list[Any] = []

    def reply(request: Request) -> Reply:
        got.append((request.method, request.target, request.json()))
        return Reply(json={"id": 1})

    async with HttpDouble(reply) as server:
        document = {
            "openapi": "3.0.2", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": server.url}],
            "paths": {"/pet": {"post": {"operationId": "addPet", "requestBody": {"content": content, "required": True},
                                        "responses": {"200": {"description": "ok"}}}}},
            "components": {"schemas": {"Pet": pet, "Tag": tag}},
        }  # fmt: skip
        file = tmp_path / "pets.json"
        file.write_text(json.dumps(document))
        tools = openapi_tools(file, hosts=(server.url.removeprefix("http://"),))
        body = {
            "name": "Rex",
            "photoUrls": [],
            "tags": [{"id": 1, "name": "dog"}],
            "status": "available",
        }
        script = [stream_call("pets__addPet", json.dumps({"body": body})), stream_text("Added.")]
        run, requests = await ask(script, tools, permissions=Permissions(allow=["pets::*"]))
    assert run.results[0].success, run.results[0].error_message
    assert got == [("POST", "/pet", body)]
    assert "$ref" not in json.dumps(requests[0]["tools"])


async def test_an_agent_without_tools_sends_none_and_ends_with_its_answer() -> None:
    run, requests = await ask([stream_text("Hello.")])
    assert run.text == "Hello." and run.turns == 1
    assert not requests[0].get("tools") and "tool_choice" not in requests[0]
