"""Reports of programs that call tools, which nobody had looked at before, each in a few lines."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from chat_server import ask, call_chunk, chunk, stream, stream_text, whole
from pydantic import BaseModel

from ferrule import (
    Agent,
    ApprovalAnswer,
    ConfigError,
    Context,
    Permissions,
    ProviderError,
    RetryCall,
    RunCancelled,
    Scripted,
    Storage,
    SubAgent,
    tool,
)
from ferrule.connectors import McpServer, connect_mcp, openapi_tools
from ferrule.models.openai.strict_schema import compile_strict
from ferrule.models.provider_errors import error_from_response
from ferrule.plugins import Parts
from ferrule.testing import calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request


class Person(BaseModel):
    name: str
    age: int


class Company(BaseModel):
    title: str


class Step(BaseModel):
    kind: str


class Case(BaseModel):
    steps: list[Step]


@tool(side_effect="none")
def look() -> str:
    """Look at the clock."""
    return "noon"


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# ---- typed answers


def check_person(person: Person) -> Person:
    """Take a person."""
    if person.age < 18:
        raise RetryCall("nobody below 18")
    return person


async def end_of(agent: Agent[Any, Any]) -> Any:
    """The output of a run that is streamed."""
    async with agent.session() as session:
        items = [item async for item in session.stream("go")]
        return items[-1], session


async def test_a_streamed_answer_that_a_function_sends_back_is_asked_for_again() -> None:
    script = [says('{"name": "Al", "age": 3}'), says('{"name": "Ada", "age": 36}')]
    agent = Agent(Scripted(script), output_type=check_person, output_mode="prompt")
    end, _ = await end_of(agent)
    assert json.loads(end.text) == {"name": "Ada", "age": 36}


async def test_a_streamed_text_that_a_function_sends_back_is_asked_for_again() -> None:
    def check(text: str) -> str:
        if "7" not in text:
            raise RetryCall("say a number")
        return text

    end, _ = await end_of(Agent(Scripted([says("many"), says("7 apples")]), output_type=check))
    assert end.text == "7 apples"


async def test_parts_of_a_streamed_value_use_up_no_retries() -> None:
    text = '{"name": "Ada", "age": 36}'
    replies = [stream([*(chunk({"content": letter}) for letter in text), chunk({}, "stop")])]
    run, requests = await ask(replies, output_type=Person, output_mode="prompt", output_retries=0)
    assert run.output == Person(name="Ada", age=36) and len(requests) == 1


# ---- what servers stream


async def test_an_empty_text_before_a_call_ends_no_answer() -> None:
    replies = [
        stream(
            [
                chunk({"role": "assistant", "content": ""}),
                chunk({"content": ""}),
                call_chunk("look", "{}"),
                chunk({"content": ""}, "tool_calls"),
            ]
        ),
        stream_text("it is noon"),
    ]
    run, _ = await ask(replies, [look])
    assert (run.text, run.results[0].data) == ("it is noon", "noon")


def add_chunks(shape: str) -> list[Any]:
    one, two = '{"a":1,"b":2}', '{"a":3,"b":4}'
    if shape == "interleaved":
        return [
            call_chunk("add", "", "x", 0),
            call_chunk("add", "", "y", 1),
            call_chunk(None, one[:5], None, 0),
            call_chunk(None, two[:5], None, 1),
            call_chunk(None, one[5:], None, 0),
            call_chunk(None, two[5:], None, 1),
        ]
    if shape == "all with index 0":
        return [call_chunk("add", one, "x", 0), call_chunk("add", two, "y", 0)]
    return [call_chunk("add", one, "x", 0), call_chunk("look", "{}", "y", 0)]


@pytest.mark.parametrize("shape", ["interleaved", "all with index 0", "other names"])
async def test_parallel_calls_of_a_stream_stay_apart(shape: str) -> None:
    replies = [stream([*add_chunks(shape), chunk({}, "tool_calls")]), stream_text("done")]
    run, _ = await ask(replies, [add, look])
    assert [one.data for one in run.results] == [3, "noon" if shape == "other names" else 7]


async def test_an_answer_that_ends_with_calls_and_has_none_is_not_taken_for_one() -> None:
    replies = [stream([chunk({"content": "Let me look."}), chunk({}, "tool_calls")])]
    run, requests = await ask(replies, [look])
    assert run.text == "Let me look." and len(requests) == 1


# ---- what people answer


async def test_answers_to_questions_that_wait_together_reach_their_calls() -> None:
    waiting: dict[str, asyncio.Future[ApprovalAnswer]] = {}

    class Late:
        async def ask(self, request: Any) -> ApprovalAnswer:
            name = request.values["who"]
            waiting[name] = asyncio.get_running_loop().create_future()
            return await waiting[name]

    @tool(side_effect="external")
    def pay(who: str) -> str:
        """Pay somebody."""
        return f"paid {who}"

    script = [calls(("pay", {"who": "ada"}), ("pay", {"who": "eve"})), says("done")]
    agent = Agent(Scripted(script), [pay], permissions=Permissions(approver=Late()))
    task = asyncio.ensure_future(agent.run("go"))
    answered: list[str] = []
    async with asyncio.timeout(20):
        while len(answered) < 2:
            await asyncio.sleep(0)
            for name in [one for one in ("eve", "ada") if one in waiting and one not in answered]:
                answered.append(name)
                choice = "once" if name == "eve" else "deny"
                waiting[name].set_result(ApprovalAnswer(choice, by="x", note=f"no to {name}"))
    first, second = (await task).results
    assert "no to ada" in str(first.error_message) and second.data == "paid eve"


async def test_a_run_may_ask_again_and_again() -> None:
    asked: list[str] = []

    class Office:
        async def ask(self, request: Any) -> ApprovalAnswer:
            asked.append(request.call.id)
            return ApprovalAnswer("once", by="office")

    @tool(side_effect="external")
    def step(number: int) -> int:
        """Take a step."""
        return number

    script = [*(calls(("step", {"number": n})) for n in range(5)), says("done")]
    agent = Agent(Scripted(script), [step], permissions=Permissions(approver=Office()))
    run = await agent.run("go")
    assert len(asked) == 5 and [one.data for one in run.results] == [0, 1, 2, 3, 4]


async def test_a_session_that_waits_for_a_person_holds_no_other_up() -> None:
    begun = asyncio.Event()

    class Nobody:
        async def ask(self, request: Any) -> ApprovalAnswer:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

    @tool(side_effect="external")
    def pay() -> str:
        """Pay."""
        return "paid"

    def answer(history: Any) -> Any:
        return calls(("pay", {})) if "pay" in history[-1].text else says("hello")

    agent = Agent(Scripted([answer, answer]), [pay], permissions=Permissions(approver=Nobody()))
    waits = asyncio.ensure_future(agent.run("pay"))
    await begun.wait()
    assert (await agent.run("hi")).text == "hello"
    waits.cancel()
    with pytest.raises((RunCancelled, asyncio.CancelledError)):
        await waits


async def test_a_hook_around_a_call_hides_no_question() -> None:
    asked: list[str] = []

    class Office:
        async def ask(self, request: Any) -> ApprovalAnswer:
            asked.append(request.tool.name)
            return ApprovalAnswer("once", by="office")

    class Watch:
        async def before(self, tool: Any, values: Any, context: Any) -> None:
            asked.append("hook")

        async def after(self, tool: Any, result: Any, context: Any) -> None:
            asked.append("after")

    @tool(side_effect="external")
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        Scripted([calls(("pay", {})), says("done")]),
        [pay],
        plugins=[Parts(hooks=[Watch()])],
        permissions=Permissions(approver=Office()),
    )
    run = await agent.run("go")
    assert asked == ["pay", "hook", "after"] and run.results[0].data == "paid"


# ---- arguments


async def run_call(tool_: Any, arguments: dict[str, Any]) -> Any:
    script = [calls((tool_.name, arguments)), says("done")]
    return (await Agent(Scripted(script), [tool_]).run("go")).results[0]


async def test_what_is_wrong_with_arguments_is_said_with_its_place() -> None:
    @tool
    def save(cases: list[Case]) -> str:
        """Save cases."""
        return "saved"

    result = await run_call(save, {"cases": [{"steps": [{"kind": "a"}, {"kind": 7}]}]})
    assert "cases" in result.error_message and "steps" in result.error_message
    assert "1" in result.error_message and "kind" in result.error_message
    assert "string" in result.error_message


async def test_unions_of_models_and_new_unions_are_converted() -> None:
    @tool
    def greet(who: Person | Company, title: str | None = None) -> str:
        """Greet."""
        return f"{type(who).__name__} {title}"

    assert (await run_call(greet, {"who": {"title": "Acme"}})).data == "Company None"
    assert (await run_call(greet, {"who": {"name": "A", "age": 3}, "title": "Dr"})).data == (
        "Person Dr"
    )


async def test_arguments_in_a_wrapper_that_nobody_declared_are_answered_by_name() -> None:
    result = await run_call(add, {"parameters": {"a": 1, "b": 2}})
    assert result.data == 3 or "`parameters`" in result.error_message


def strict(function: Any) -> Any:
    return compile_strict(tool(function).schema_json())


def test_defaults_open_maps_and_plain_schemas_are_sent_as_openai_takes_them() -> None:
    def weather(location: str = "") -> str:
        """Say the weather."""
        return location

    def call_method(name: str, kwargs: dict[str, Any]) -> str:
        """Call a method."""
        return name

    compiled = strict(weather)
    assert compiled.is_strict and '"default"' not in compiled.schema
    assert not strict(call_method).is_strict
    plain = compile_strict(json.dumps(Person.model_json_schema()))
    assert plain.is_strict and json.loads(plain.schema)["additionalProperties"] is False


# ---- contexts too long


@pytest.mark.parametrize(
    "said",
    [
        "The model returned the following errors: prompt is too long: 203470 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 142422 + 64000 > 204658, decrease input "
        "length or `max_tokens` and try again",
        "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        "the request exceeds the available context size. try increasing the context size",
    ],
)
def test_a_context_that_is_too_long_is_known_as_such(said: str) -> None:
    body = json.dumps({"error": {"message": said}}).encode()
    known = error_from_response("m", 400, {}, body, tools=False)
    assert known.code == "context_overflow"


async def test_a_context_that_no_compaction_helps_is_an_error_after_few_requests() -> None:
    sent: list[int] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        sent.append(len(request.body))
        return Reply(400, json={"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}})

    from ferrule.models import OpenAIChat

    async with HttpDouble(reply) as double:
        agent = Agent(
            OpenAIChat("m", base_url=f"{double.url}/v1", api_key="k"),
            context={"compact": "auto"},
        )
        with pytest.raises(ProviderError, match="too long"):
            await agent.run("go")
        await agent.disconnect()
    assert len(sent) < 10


# ---- HTTP services described by OpenAPI


async def call_service(
    tmp_path: Path, operation: dict[str, Any], path: str, version: str, **arguments: Any
) -> tuple[Any, list[Request], Any]:
    """Call the one operation of a service. Return the result, its requests and the tool."""
    requests: list[Request] = []

    def reply(request: Request) -> Reply:
        requests.append(request)
        return Reply(json={"name": None})

    async with HttpDouble(reply) as double:
        document = {
            "openapi": version,
            "info": {"title": "T", "version": "1"},
            "servers": [{"url": double.url}],
            "paths": {path: {"post": {"operationId": "go", "responses": {}, **operation}}},
        }
        place = tmp_path / "t.json"
        place.write_text(json.dumps(document))
        host = double.url.removeprefix("http://")
        (made,) = openapi_tools(place, hosts=(host,), results=True)
        agent = Agent(Scripted([]), [made], permissions=Permissions(allow=["t::go"]))
        async with agent.session() as session:
            return await session.call("t::go", **arguments), requests, made


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}, "required": True}


def parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string"}}


async def test_a_body_that_is_a_list_and_members_named_as_parameters_arrive(tmp_path: Path) -> None:
    numbers = body_of({"type": "array", "items": {"type": "integer"}})
    result, requests, _ = await call_service(
        tmp_path, {"requestBody": numbers}, "/x", "3.1.0", body=[1, 2]
    )
    assert result.success and json.loads(requests[0].body) == [1, 2]
    person = body_of({"type": "object", "properties": {"id": {"type": "integer"}}})
    operation = {"requestBody": person, "parameters": [parameter("id", "path")]}
    result, requests, _ = await call_service(
        tmp_path, operation, "/x/{id}", "3.1.0", id="a", body={"id": 3}
    )
    assert requests[0].target == "/x/a" and json.loads(requests[0].body) == {"id": 3}


async def test_a_parameter_that_is_called_body_takes_nothing_from_the_body(tmp_path: Path) -> None:
    numbers = body_of({"type": "array", "items": {"type": "integer"}})
    operation = {"requestBody": numbers, "parameters": [parameter("body", "query")]}
    _, _, made = await call_service(tmp_path, operation, "/x", "3.1.0")
    names = list(made.arguments.schema["properties"])
    assert len(names) == 2
    (other,) = [name for name in names if name != "body"]
    kinds = {name: made.arguments.schema["properties"][name]["type"] for name in names}
    given = {name: "q" if kinds[name] == "string" else [1] for name in ("body", other)}
    result, requests, _ = await call_service(tmp_path, operation, "/x", "3.1.0", **given)
    assert result.success, result.error_message
    assert requests[0].target == "/x?body=q" and json.loads(requests[0].body) == [1]


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
async def test_null_is_sent_where_it_is_allowed_and_means_something(
    tmp_path: Path, version: str
) -> None:
    nullable: dict[str, Any] = {"type": "string", "nullable": True}
    if version == "3.1.0":
        nullable = {"anyOf": [{"type": "string", "maxLength": 2000}, {"type": "null"}]}
    note = body_of({"type": "object", "properties": {"note": nullable}})
    result, requests, made = await call_service(
        tmp_path, {"requestBody": note}, "/x", version, body={"note": None}
    )
    assert result.success, result.error_message
    assert json.loads(requests[0].body) == {"note": None}
    assert "nullable" not in json.dumps(made.arguments.schema)


async def test_a_response_that_does_not_fit_its_document_is_passed_on(tmp_path: Path) -> None:
    named = {"type": "object", "properties": {"name": {"type": "string"}}}
    answers = {"200": {"description": "", "content": {"application/json": {"schema": named}}}}
    result, _, _ = await call_service(tmp_path, {"responses": answers}, "/x", "3.1.0")
    assert result.success and result.data == {"name": None}


# ---- history that goes back


def history_ids(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    asked = [one["id"] for message in messages for one in message.get("tool_calls") or ()]
    return asked, [one["tool_call_id"] for one in messages if one["role"] == "tool"]


async def test_an_id_that_a_server_gives_again_and_again_is_made_unlike() -> None:
    replies = [
        stream([call_chunk("look", "{}", "terminal:0"), chunk({}, "tool_calls")]) for _ in range(3)
    ]
    _, requests = await ask([*replies, stream_text("done")], [look])
    asked, answered = history_ids(requests[-1]["messages"])
    assert asked == answered and len(set(asked)) == 3


async def test_a_call_without_an_id_gets_one() -> None:
    replies = [stream([call_chunk("look", "{}", None), chunk({}, "tool_calls")])]
    _, requests = await ask([*replies, stream_text("done")], [look])
    asked, answered = history_ids(requests[-1]["messages"])
    assert asked == answered and all(asked)


async def test_a_fork_goes_on_before_a_message_that_the_provider_refuses() -> None:
    from ferrule.models import OpenAIChat

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        if "forbidden" in request.body.decode():
            said = "The request was rejected because it was considered high risk"
            return Reply(400, json={"error": {"message": said}})
        return whole({"role": "assistant", "content": "fine"})

    async with HttpDouble(reply) as double:
        agent = Agent(OpenAIChat("m", base_url=f"{double.url}/v1", api_key="k"))
        async with agent.session() as session:
            assert (await session.run("hello")).text == "fine"
            with pytest.raises(ProviderError, match="high risk"):
                await session.run("something forbidden")
            other = session.fork(1)
        async with agent.resume(other) as session:
            assert (await session.run("something else")).text == "fine"
        await agent.disconnect()


async def test_an_error_of_a_provider_is_kept_with_status_and_words() -> None:
    with pytest.raises(ProviderError) as raised:
        await ask([Reply(422, json={"error": {"message": "no such adapter"}})])
    assert raised.value.status == 422 and "no such adapter" in raised.value.detail


# ---- cancelling, threads and contexts


async def test_a_tool_that_ends_when_the_run_is_stopped_is_followed_by_nothing() -> None:
    model = Scripted([calls(("work", {})), says("never")])

    @tool
    async def work() -> str:
        """Work."""
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise ValueError("aborted") from None
        return "done"

    task = asyncio.ensure_future(Agent(model, [work]).run("go"))
    async with asyncio.timeout(20):
        while not model.asks:
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((RunCancelled, asyncio.CancelledError)):
        await task
    assert len(model.asks) == 1


async def test_a_plain_function_reads_the_callers_context_and_blocks_no_loop() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    ticks: list[int] = []
    done = threading.Event()

    @tool
    def slow() -> str:
        """Say who is there, after others had their turn."""
        done.wait(20)
        return who.get()

    async def tick() -> None:
        for number in range(3):
            await asyncio.sleep(0)
            ticks.append(number)
        done.set()

    who.set("ada")
    agent = Agent(Scripted([calls(("slow", {})), says("done")]), [slow])
    run, _ = await asyncio.gather(agent.run("go"), tick())
    assert run.results[0].data == "ada" and ticks == [0, 1, 2]


def test_a_wrapped_coroutine_keeps_its_own_description() -> None:
    async def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    @functools.wraps(fetch)
    async def logged(*args: Any, **kwargs: Any) -> str:
        return await fetch(*args, **kwargs)

    made = tool(logged)
    assert (made.name, made.description, made.is_async) == ("fetch", "Fetch a page.", True)
    assert list(made.arguments.schema["properties"]) == ["url"]


# ---- delegating


async def test_a_call_beside_a_delegation_keeps_its_result() -> None:
    script = [
        calls(("look", {}), ("delegate", {"task": "ask", "agent": "clerk"}), ("look", {})),
        says("the clerk's word"),
        says("over"),
    ]
    clerk = SubAgent("clerk", "Answers.", "Answer.", tools=["look"])
    agent = Agent(Scripted(script), [look], plugins=[Parts(agents=[clerk])])
    run = await agent.run("go")
    first, delegated, last = run.results
    assert (first.data, last.data) == ("noon", "noon")
    assert delegated.data["answer"] == "the clerk's word" and run.text == "over"


async def test_a_stream_that_a_failed_check_ends_leaves_its_turns_in_the_session() -> None:
    def refuse(text: str) -> str:
        raise RetryCall("not that")

    agent = Agent(
        Scripted([calls(("look", {})), says("secret"), says("hello")]),
        [look],
        output_type=refuse,
        output_retries=0,
        storage=Storage(journal=":memory:"),
    )
    async with agent.session() as session:
        with pytest.raises(Exception, match="not that"):
            async for _ in session.stream("go"):
                pass
        texts = [message.text for message in session.history]
        assert "secret" in texts and "noon" in " ".join(texts)


# ---- names and sizes


@pytest.mark.parametrize("length", [60, 63, 64, 65, 127])
async def test_a_name_of_any_length_is_sent_as_providers_take_it(length: int) -> None:
    name = "srv__" + "n" * (length - 5)
    made = [
        tool(functools.partial(look.handler), name=f"{name}{end}", description="Look.")
        for end in "ab"
    ]
    sent: list[str] = []

    def reply(request: Request) -> Reply:
        if request.method != "POST":
            return Reply(404, json={})
        names = [one["function"]["name"] for one in request.json().get("tools") or ()]
        if names and "report_ready" not in names:
            sent.extend(names)
        return whole({"role": "assistant", "content": "fine"})

    from ferrule.models import OpenAIChat

    async with HttpDouble(reply) as double:
        agent = Agent(OpenAIChat("gpt-4o", base_url=f"{double.url}/v1", api_key="k"), made)
        await agent.run("go")
        await agent.disconnect()
    assert len(set(sent)) >= 2 and all(len(one) <= 64 for one in sent)


# ---- MCP servers

SERVER = """
import json, os, subprocess, sys, time

HOW = sys.argv[1]
TOOL = {"name": "go", "inputSchema": {"type": "object", "properties": {}}}
LARGE = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "d" * 150} for n in range(12)}}

def result_of(message):
    match message["method"]:
        case "initialize":
            about = {"name": "x", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": [{"name": f"t{n}", "inputSchema": LARGE} for n in range(22)] if HOW == "large" else [TOOL]}
        case "tools/call":
            if HOW == "dies":
                os._exit(3)
            return {"content": [{"type": "text", "text": "went"}]}

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message)
        answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
if HOW == "stays":
    subprocess.Popen(["sleep", sys.argv[2]])
    time.sleep(600)
"""


def make_server(folder: Path, how: str, *more: str) -> McpServer:
    (folder / "server.py").write_text(SERVER)
    command = (sys.executable, str(folder / "server.py"), how, *more)
    return McpServer("x", command=command, readable=(sys.prefix, sys.base_prefix))


async def call_server(folder: Path, server: McpServer) -> tuple[list[str], Any]:
    async with connect_mcp([server], workspace=folder) as servers:
        allowed = Permissions(allow=["mcp__x"])
        agent = Agent(Scripted([]), servers.tools, workspace=folder, permissions=allowed)
        async with agent.session() as session:
            names = [one.full_name for one in servers.tools]
            return names, await session.call(names[0])


def running(word: str) -> list[str]:
    found: list[str] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in place.read_bytes().split(b"\0")[1:2]:
                found.append(place.parent.name)
    return found


async def test_a_server_that_dies_in_a_call_ends_the_call(tmp_path: Path) -> None:
    _, result = await call_server(tmp_path, make_server(tmp_path, "dies"))
    assert "it ended with 3; outcome unknown" in result.error_message


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_server_that_stays_is_ended_with_what_it_started(
    tmp_path: Path, cancelled: bool
) -> None:
    seconds = f"{600 + os.getpid() % 300}.{int(cancelled)}25"
    server = make_server(tmp_path, "stays", seconds)
    if cancelled:
        used = asyncio.Event()

        async def use() -> None:
            async with connect_mcp([server], workspace=tmp_path) as servers:
                assert servers.tools
                used.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(use())
        await used.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        _, result = await call_server(tmp_path, server)
        assert result.data == "went"
    assert running(seconds) == []


async def test_a_server_whose_file_is_missing_is_an_error_with_its_words(tmp_path: Path) -> None:
    command = (sys.executable, str(tmp_path / "nothing.py"))
    server = McpServer("x", command=command, readable=(sys.prefix, sys.base_prefix))
    with pytest.raises(ConfigError, match="No such file"):
        await call_server(tmp_path, server)


async def test_many_large_schemas_of_a_server_are_all_offered(tmp_path: Path) -> None:
    names, result = await call_server(tmp_path, make_server(tmp_path, "large"))
    assert len(names) == 22 and result.data == "went"


# ---- more of calls


async def test_a_tool_knows_the_id_of_its_call() -> None:
    @tool
    def which(context: Context) -> str:
        """Say which call this is."""
        return context.call_id

    script = [calls(("which", {}, "call-7")), says("done")]
    assert (await Agent(Scripted(script), [which]).run("go")).results[0].data == "call-7"


async def test_a_question_that_nobody_can_answer_stalls_no_run() -> None:
    @tool(side_effect="write")
    def change_settings() -> str:
        """Change settings."""
        return "changed"

    script = [calls(("change_settings", {})), says("not allowed")]
    run = await Agent(Scripted(script), [change_settings]).run("go")
    assert run.text == "not allowed" and str(run.results[0].error_type) == "permission_denied"


async def test_a_call_that_a_stream_repeats_whole_is_made_once() -> None:
    whole_call = call_chunk("add", '{"a":1,"b":2}', "x", 0)
    replies = [stream([whole_call, whole_call, chunk({}, "tool_calls")]), stream_text("done")]
    run, _ = await ask(replies, [add])
    assert [one.data for one in run.results] == [3]
