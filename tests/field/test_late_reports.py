"""Sixty reports of libraries for agents, chosen by a rule before any of them was tried."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
from chat_server import ask, call_chunk, chunk, stream, stream_text, whole
from pydantic import BaseModel
from test_fresh_libraries import (
    PIXEL,
    anthropic,
    anthropic_message,
    chat,
    converse,
    google,
    google_answer,
)

from ferrule import (
    Agent,
    ApprovalAnswer,
    Bus,
    ConfigError,
    Context,
    Host,
    Image,
    JournalError,
    LimitReached,
    Limits,
    MessageHistory,
    ModelOptions,
    Permissions,
    PricePerMillion,
    ProviderError,
    RetryCall,
    RunCancelled,
    Scripted,
    Storage,
    SubAgent,
    Telemetry,
    ToolFailed,
    define_tool,
    run_batch,
    tool,
)
from ferrule.connectors import McpServer, connect_mcp, openapi_tools
from ferrule.core.calls import ErrorType
from ferrule.core.events import ModelAnswered, ToolAnswered, Usage
from ferrule.engine.event_bus.event_selection import OwnSessions
from ferrule.evaluation import Target, evaluate, load_cases, open_agents
from ferrule.models.bedrock.client import Bedrock
from ferrule.models.ollama.client import Ollama
from ferrule.models.openai.chat import OpenAIChat
from ferrule.models.registry import create_model_client
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says
from ferrule.testing.http_double import HttpDouble, Reply, Request

GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==")
WEBP = base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
NATIVE: Any = "native"
MARKED = ("cache_control", "cachePoint")


class Flag(BaseModel):
    flag: bool


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Shop:
    """What tools of a shop depend on."""


@tool(side_effect="none")
def now() -> str:
    """Say what time it is."""
    return "noon"


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effect="none")
def broken() -> str:
    """Fail."""
    raise ValueError("no")


@tool(side_effect="none")
def look() -> Image:
    """Look."""
    return Image(PIXEL)


CLERK = SubAgent("clerk", "Works.", "Work.", tools=["now"])


NO_ARGUMENTS: dict[str, Any] = {}


def tool_use(name: str, id: str = "c1") -> dict[str, Any]:
    """A call without arguments, as Anthropic writes it."""
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def chat_answer(text: str, *called: str, **usage: Any) -> Reply:
    """A whole answer of chat completions, with calls of these tools."""
    listed = [
        {"id": f"call{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for number, name in enumerate(called)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if listed:
        message["tool_calls"] = listed
    finish = "tool_calls" if listed else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return Reply(json={"choices": [choice], **({"usage": usage} if usage else {})})


def in_turn(*replies: Reply) -> Callable[[int], Reply]:
    """Answer with each of them in turn."""
    return lambda number: replies[number - 1]


def count_in(value: Any, *names: str) -> int:
    """How often these members are in a JSON value."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        inner = sum(count_in(one, *names) for one in members.values())
        return inner + sum(name in members for name in names)
    if isinstance(value, list):
        return sum(count_in(one, *names) for one in cast("list[Any]", value))
    return 0


# ---- stopping


async def test_a_task_that_is_cancelled_ends_as_cancelled_wherever_it_is() -> None:
    script = [calls(("now", {}), ("add", {"a": 1, "b": 2})), says("done")]
    steps = 0
    while True:
        task = asyncio.ensure_future(Agent(Scripted(script), [now, add]).run("go"))
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        steps += 1
    assert steps > 3


async def test_the_first_run_of_a_session_can_be_stopped_before_anything_is_stored(
    tmp_path: Path,
) -> None:
    with SqliteJournal(tmp_path / "kept.db") as journal:
        for steps in range(8):
            agent = Agent(Scripted([says("a"), says("b")]), storage=Storage(journal=journal))
            async with agent.session() as session:
                task = asyncio.ensure_future(session.run("go"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                session.cancel()
                await asyncio.wait([task])
                assert task.exception() is None or isinstance(task.exception(), RunCancelled)
                assert (await session.run("again")).text in ("a", "b")


# ---- streams


async def test_a_stream_has_each_call_with_all_its_arguments_and_its_result() -> None:
    replies = [
        stream(
            [
                call_chunk("add", ""),
                call_chunk(None, '{"a":1,', None),
                call_chunk(None, '"b":2}', None),
                chunk({}, "tool_calls"),
            ]
        ),
        stream_text("three"),
    ]

    def reply(request: Request) -> Reply:
        asked = request.body.decode()
        if request.method != "POST" or "report_ready" in asked:
            return Reply(404, json={})
        return replies.pop(0)

    async with HttpDouble(reply) as server:
        client = OpenAIChat("m", base_url=f"{server.url}/v1", api_key="k")
        agent = Agent(client, [add], tool_calling=NATIVE)
        items = [item async for item in agent.stream("go")]
        await agent.disconnect()
    answers = [item for item in items if isinstance(item, ModelAnswered)]
    assert [call.arguments for call in answers[0].calls] == ['{"a":1,"b":2}']
    assert [item.result.data for item in items if isinstance(item, ToolAnswered)] == [3]


async def watch(agent: Agent[Any, Any], bus: Bus) -> list[Any]:
    """Run the agent and return what watchers of the person's sessions see."""
    seen: list[Any] = []
    subscription = bus.subscribe(OwnSessions("local", "ada"), buffer=2_000)

    async def read() -> None:
        async for event in subscription:
            seen.append(event)

    reading = asyncio.ensure_future(read())
    result = await agent.run("go")
    async with asyncio.timeout(20):
        while not any(
            event.kind == "run.finished" and event.identity.session == result.session
            for event in seen
        ):
            await asyncio.sleep(0)
    reading.cancel()
    return seen


async def test_events_of_calls_are_complete_while_several_agents_work() -> None:
    def answer(history: Any) -> Any:
        text = history[-1].text
        if text == "go":
            return calls(*(("delegate", {"task": f"look {n}", "agent": "clerk"}) for n in range(3)))
        return calls(("now", {})) if "look" in text else says("fine")

    bus = Bus()
    agent = Agent(
        Scripted([answer] * 8),
        [now],
        plugins=[Parts(agents=[CLERK])],
        host=Host(bus=bus),
        storage=Storage(user="ada"),
    )
    seen = await watch(agent, bus)
    for kind in ("call.evaluated", "call.answered"):
        assert sum(event.kind == kind for event in seen) == 6, kind


async def test_what_an_agent_two_levels_below_writes_is_seen_while_it_comes() -> None:
    leaf = SubAgent("leaf", "Leaf.", "Leaf.", tools=["now"])
    middle = SubAgent("middle", "Middle.", "Middle.", tools=["delegate", "now"])
    bus = Bus()
    script = [
        calls(("delegate", {"task": "a", "agent": "middle"})),
        calls(("delegate", {"task": "b", "agent": "leaf"})),
        says("words below"),
        says("between"),
        says("above"),
    ]
    agent = Agent(
        Scripted(script),
        [now],
        plugins=[Parts(agents=[leaf, middle])],
        host=Host(bus=bus),
        storage=Storage(user="ada"),
    )
    seen = await watch(agent, bus)
    pieces = "".join(event.payload["text"] for event in seen if event.kind == "piece.text")
    assert pieces == "words belowbetweenabove"


async def test_chunks_without_choices_end_no_stream() -> None:
    empty = json.dumps({"id": "", "object": "", "choices": [], "prompt_filter_results": [{}]})
    usage = json.dumps({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    replies = [
        stream([empty, call_chunk("now", "{}"), chunk({}, "tool_calls"), usage]),
        stream([empty, chunk({"content": "Noon."}), chunk({}, "stop")]),
    ]
    run, _ = await ask(replies, [now])
    assert (run.text, run.results[0].data, run.usage.output) == ("Noon.", "noon", 2)


# ---- schemas


def paint(
    color: Color, mode: Literal["a", "b"], n: int | str, x: str | None, y: list[str] | None = None
) -> str:
    """Paint."""
    return f"{color} {mode} {n} {x} {y}"


class Painter:
    """Paint as a method, and as an object that is called."""

    def paint(
        self,
        color: Color,
        mode: Literal["a", "b"],
        n: int | str,
        x: str | None,
        y: list[str] | None = None,
    ) -> str:
        """Paint."""
        return paint(color, mode, n, x, y)

    __call__ = paint


def test_a_tool_has_one_schema_however_it_is_made() -> None:
    named = {"name": "paint", "description": "Paint."}
    made = [
        tool(paint),
        tool(Painter().paint),
        tool(partial(paint), **named),
        tool(Painter(), **named),
    ]
    assert len({one.schema_json() for one in made}) == 1
    schema = json.loads(made[0].schema_json())
    assert schema["required"] == ["color", "mode", "n", "x"]
    assert schema["properties"]["n"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}


@tool
def choose(
    one: Literal["x", "y"], color: Color, number: Literal[1, 2], last: Literal["k"] | None = None
) -> str:
    """Choose."""
    return f"{one} {color} {number} {last}"


@tool
def store(prices: dict[str, int], rows: list[dict[str, Any]]) -> str:
    """Store."""
    return f"{prices} {rows}"


async def test_choices_have_their_type_and_dictionaries_their_values_for_gemini() -> None:
    text = Reply(json=google_answer({"text": "Fine."}))
    _, sent, _ = await converse(google, lambda _: text, ["go"], [choose, store])
    declared = {
        one["name"]: one["parametersJsonSchema"]["properties"]
        for one in sent[0]["tools"][0]["functionDeclarations"]
    }
    kinds = {name: schema.get("type") for name, schema in declared["choose"].items()}
    assert kinds == {"one": "string", "color": "string", "number": "integer", "last": "string"}
    assert declared["store"]["prices"]["additionalProperties"] == {"type": "integer"}
    assert declared["store"]["rows"]["items"]["type"] == "object"


# ---- MCP

TOOLS: dict[str, dict[str, Any]] = {
    "go": {"type": "object"},
    "nulled": {
        "type": "object",
        "description": None,
        "properties": {"a": {"$ref": "#/$defs/A", "title": None}, "b": {"default": None}},
        "required": None,
        "$defs": None,
    },
    "wrong": {"type": "object", "properties": {"a": {"type": "string"}}, "$defs": []},
}


def mcp_reply(how: str, asked: list[str]) -> Callable[[Request], Reply]:
    """A server that answers plainly, closes what it can, or refuses calls."""

    def reply(request: Request) -> Reply:
        asked.append(request.method)
        if request.method != "POST":
            return Reply(405)
        message = request.json()
        if "id" not in message:
            return Reply(202)
        result: dict[str, Any] = {
            "tools": [{"name": name, "inputSchema": schema} for name, schema in TOOLS.items()]
        }
        if message["method"] == "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
        elif message["method"] == "tools/call":
            if how == "refuses":
                return Reply(401, json={})
            result = {"content": [{"type": "text", "text": "went"}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        headers = {"mcp-session-id": "s", "content-type": "application/json"}
        if how == "streams":
            data = b"event: message\ndata: " + json.dumps(body).encode() + b"\n\n"
            return Reply(pieces=[data], headers={**headers, "content-type": "text/event-stream"})
        return Reply(json=body, headers=headers | ({"connection": "close"} if how else {}))

    return reply


def mcp_agent(tools: Any, folder: Path, *script: Any) -> Agent[Any, Any]:
    return Agent(
        Scripted(script),
        tools,
        workspace=folder,
        permissions=Permissions(allow=["mcp__x"]),
    )


@pytest.mark.parametrize("how", ["closes", "streams"])
async def test_a_server_that_closes_connections_is_called_again_and_again(
    how: str, tmp_path: Path
) -> None:
    async with HttpDouble(mcp_reply(how, [])) as server:
        remote = McpServer("x", url=f"{server.url}/mcp")
        async with connect_mcp([remote], workspace=tmp_path) as servers:
            session = mcp_agent(servers.tools, tmp_path).session()
            assert [(await session.call("x__go")).data for _ in range(3)] == ["went"] * 3
            await session.close()


async def test_tools_of_a_server_work_in_other_tasks_other_loops_and_after_they_were_closed(
    tmp_path: Path,
) -> None:
    def make() -> Agent[Any, Any]:
        return mcp_agent(servers.tools, tmp_path, calls(("x__go", {})), says("done"))

    async with HttpDouble(mcp_reply("", [])) as server:
        remote = McpServer("x", url=f"{server.url}/mcp")
        async with connect_mcp([remote], workspace=tmp_path) as servers:
            runs = [
                await asyncio.create_task(make().run("go")),
                await asyncio.to_thread(lambda: asyncio.run(make().run("go"))),
                await make().run("go"),
            ]
        runs.append(await make().run("go"))
        await servers.close()
    assert [run.results[0].data for run in runs] == ["went"] * 4


async def test_a_server_that_wants_a_sign_in_costs_the_call_and_no_more(tmp_path: Path) -> None:
    async with HttpDouble(mcp_reply("refuses", [])) as server:
        remote = McpServer("x", url=f"{server.url}/mcp")
        async with connect_mcp([remote], workspace=tmp_path) as servers:
            agent = mcp_agent(servers.tools, tmp_path, calls(("x__go", {})), says("on"))
            run = await agent.run("go")
    assert run.text == "on" and not run.results[0].success
    assert "401" in str(run.results[0].error_message)


async def test_null_in_a_servers_schema_is_nothing_and_what_is_wrong_costs_one_tool(
    tmp_path: Path,
) -> None:
    async with HttpDouble(mcp_reply("", [])) as server:
        remote = McpServer("x", url=f"{server.url}/mcp")
        async with connect_mcp([remote], workspace=tmp_path) as servers:
            assert [one.full_name for one in servers.tools] == ["x__go", "x__nulled"]
            (notice,) = servers.notices
            assert "`wrong`" in notice
            offered = json.loads(servers.tools[1].schema_json())
            assert offered["properties"]["b"] == {"default": None}
            assert "$defs" not in offered and "title" not in offered["properties"]["a"]
            async with mcp_agent(servers.tools, tmp_path).session() as session:
                assert (await session.call("x__nulled", a="b")).data == "went"


OPENAPI = """
openapi: 3.1.0
info: {title: T, version: x}
servers: [{url: "http://t.example"}]
paths:
  /x:
    post:
      operationId: go
      requestBody:
        content:
          application/json:
            schema:
              type: object
              required:
              properties:
                name: {type: [string, null], maxLength: , description: , const: }
      responses:
"""


def test_null_in_a_documents_schema_is_nothing_too(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(OPENAPI)
    (made,) = openapi_tools(tmp_path / "t.yaml", hosts=("t.example",))
    body = json.loads(made.schema_json())["properties"]["body"]
    assert body["properties"] == {"name": {"type": ["string", "null"], "const": None}}


MCP_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        about = {"name": "x", "version": "1"}
        result = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about},
            "tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "went"}]},
        }.get(message["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

MCP_PROGRAM = """
import asyncio, sys
from ferrule import Agent, Permissions, Scripted
from ferrule.connectors import McpServer, connect_mcp
from ferrule.testing import calls, says

async def main(folder):
    command = (sys.executable, f"{folder}/server.py")
    server = McpServer("x", command=command, readable=(sys.prefix, sys.base_prefix), connect_timeout=90)
    servers = await connect_mcp([server], workspace=folder).open()
    allowed = Permissions(allow=["mcp__x"])
    script = Scripted([calls(("x__go", {})), says("done")])
    agent = Agent(script, servers.tools, workspace=folder, permissions=allowed)
    print((await agent.run("go")).results[0].data)

asyncio.run(main(sys.argv[1]))
"""


def test_a_program_that_closes_nothing_ends_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(MCP_SERVER)
    command = [sys.executable, "-W", "error", "-c", MCP_PROGRAM, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "went\n", "")


# ---- retries and limits


@pytest.mark.parametrize(
    ("headers", "said", "code"),
    [
        ({"retry-after": "1382400"}, "slow down", "rate_limited"),
        ({}, "Monthly usage limit reached. Resets in 16 days.", "quota"),
        ({}, "You have reached your specified API usage limits.", "quota"),
    ],
)
async def test_a_limit_that_lasts_for_days_is_said_at_once(
    headers: dict[str, str], said: str, code: str
) -> None:
    refused = Reply(429, json={"error": {"message": said}}, headers=headers)
    with pytest.raises(ProviderError) as error:
        await ask([refused])
    assert error.value.code == code


async def test_unknown_tools_of_one_answer_end_no_run() -> None:
    unknown = calls(*((f"nothing_{number}", NO_ARGUMENTS) for number in range(5)))
    run = await Agent(Scripted([unknown, calls(("now", {})), says("ok")]), [now]).run("go")
    assert run.text == "ok" and run.results[-1].data == "noon"


async def test_calls_that_ask_for_another_try_count() -> None:
    made: list[str] = []

    @tool(side_effect="none")
    def again() -> str:
        """Ask for another try."""
        made.append("again")
        raise RetryCall("once more")

    script = [*(calls(("again", {})) for _ in range(6)), says("never")]
    with pytest.raises(LimitReached, match="max_calls"):
        await Agent(Scripted(script), [again], limits=Limits(max_calls=3)).run("go")
    assert len(made) == 3


# ---- history


async def test_text_beside_a_call_is_kept_when_a_history_is_read_again() -> None:
    first = in_turn(chat_answer("Let me look.", "now"), chat_answer("Noon."))
    _, _, kept = await converse(chat, first, ["go"], [now])
    history = MessageHistory.from_json(kept)
    _, sent, _ = await converse(chat, in_turn(chat_answer("x")), ["?"], [now], history=history)
    called = [one for one in sent[0]["messages"] if one.get("tool_calls")]
    assert [one["content"] for one in called] == ["Let me look."]
    assert MessageHistory.from_openai(history.to_openai()).to_openai() == history.to_openai()


async def test_a_call_that_failed_has_failed_after_its_history_was_read_again() -> None:
    @tool(side_effect="none")
    def fetch() -> str:
        """Fetch."""
        raise ToolFailed(ErrorType.TOOL_ERROR, "no such project")

    use = anthropic_message(tool_use("fetch"), stop="tool_use")
    text = anthropic_message({"type": "text", "text": "Sorry."})
    _, _, kept = await converse(anthropic, in_turn(use, text), ["go"], [fetch])
    _, sent, _ = await converse(
        anthropic, in_turn(text), ["?"], [fetch], history=MessageHistory.from_json(kept)
    )
    blocks = [block for one in sent[0]["messages"] for block in one["content"]]
    (result,) = [block for block in blocks if block["type"] == "tool_result"]
    assert result["is_error"] and "no such project" in result["content"]


async def test_a_call_stands_in_a_session_once_after_its_approval(tmp_path: Path) -> None:
    class Person:
        async def ask(self, request: Any) -> ApprovalAnswer:
            return ApprovalAnswer("once", by="ada")

    @tool(side_effect="external")
    def pay() -> str:
        """Pay."""
        return "paid"

    script = Scripted([calls(("pay", {}, "c1")), says("done"), says("more")])
    with SqliteJournal(tmp_path / "kept.db") as journal:
        agent = Agent(
            script,
            [pay],
            permissions=Permissions(approver=Person()),
            storage=Storage(journal=journal),
        )
        async with agent.session(id="s") as session:
            await session.run("go")
        async with agent.resume("s") as session:
            await session.run("again")
            kinds = [type(message).__name__ for message in session.history]
    assert kinds.count("ToolMessage") == 1 and len(kinds) == 6


# ---- providers


async def test_thinking_without_a_signature_goes_back_as_thinking() -> None:
    thought = {"type": "thinking", "thinking": "hmm"}
    use = tool_use("now")
    text = {"type": "text", "text": "Noon."}
    replies = in_turn(
        anthropic_message(thought, use, stop="tool_use"),
        anthropic_message({**thought, "signature": ""}, text),
        anthropic_message(text),
    )
    _, sent, _ = await converse(anthropic, replies, ["go", "more"], [now])
    for request in sent[1:]:
        assert request["messages"][1]["content"] == [thought, use]


async def test_gemini_gets_a_result_for_each_call_of_its_answer() -> None:
    names = ("now", "now", "broken", "missing")
    called = [{"functionCall": {"name": name, "args": NO_ARGUMENTS}} for name in names]
    text = Reply(json=google_answer({"text": "Fine."}))
    replies = in_turn(Reply(json=google_answer(*called, {"text": "Wait."})), text, text)
    _, sent, _ = await converse(google, replies, ["go", "more"], [now, broken])
    for request in sent[1:]:
        turns = request["contents"]
        at = next(n for n, one in enumerate(turns) if count_in(one["parts"], "functionCall"))
        assert count_in(turns[at]["parts"], "functionCall") == 4
        assert [part["functionResponse"]["name"] for part in turns[at + 1]["parts"]] == [*names]


def lm_studio(model: str, base_url: str) -> Any:
    return create_model_client(f"lmstudio:{model}", base_url=f"{base_url}/v1")


@pytest.mark.parametrize("client", [Ollama, lm_studio])
async def test_calls_and_usage_of_local_servers_are_read(client: Any) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    replies = [chat_answer("", "now", **usage), chat_answer("Noon.", **usage)]
    if client is Ollama:
        counted = {"done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 3}
        called = [{"function": {"name": "now", "arguments": NO_ARGUMENTS}}]
        messages: list[dict[str, Any]] = [{"tool_calls": called}, {"content": "Noon."}]
        replies = [Reply(json={**counted, "message": message}) for message in messages]

    def reply(request: Request) -> Reply:
        if request.target.endswith("/show"):
            return Reply(json={"capabilities": ["completion", "tools"]})
        return replies.pop(0) if request.method == "POST" else Reply(404, json={})

    async with HttpDouble(reply) as server:
        agent = Agent(client("m", base_url=server.url), [now], tool_calling=NATIVE)
        run = await agent.run("go")
        await agent.disconnect()
    assert run.results[0].data == "noon" and run.text == "Noon."
    assert (run.usage.input, run.usage.output) == (10, 6)


def mistral(model: str, base_url: str) -> Any:
    return create_model_client(f"mistral:{model}", base_url=f"{base_url}/v1", api_key="k")


class Strict:
    """A server that refuses a message of the person right after a result."""

    def __init__(self, status: int = 400) -> None:
        self.status = status
        self.refused = 0
        self.asked = 0

    def answer(self, sent: dict[str, Any]) -> Reply:
        roles = [one["role"] for one in sent["messages"]]
        if ("tool", "user") in pairwise(roles):
            self.refused += 1
            said = "Unexpected role 'user' after role 'tool'"
            return Reply(self.status, json={"object": "error", "message": said})
        self.asked += 1
        return chat_answer("", "look") if self.asked == 1 else chat_answer("A dot.")


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("client", [mistral, chat])
async def test_a_message_after_a_result_is_sent_as_the_server_takes_it(
    client: Any, status: int
) -> None:
    strict = Strict(status)

    def reply(request: Request) -> Reply:
        if request.method != "POST" or b"report_ready" in request.body:
            return Reply(404, json={})
        return strict.answer(request.json())

    async with HttpDouble(reply) as server:
        agent = Agent(client("m", base_url=server.url), [look], tool_calling=NATIVE)
        async with agent.session() as session:
            assert (await session.run("go")).text == "A dot."
            assert (await session.run("And now?")).text == "A dot."
        await agent.disconnect()
    assert strict.refused == (0 if client is mistral else 1)


# ---- typed answers


async def test_an_answer_is_checked_against_a_schema_given_as_json() -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }
    script = [says('{"title": 42}'), says('{"title": "A"}')]
    agent = Agent(Scripted(script), output_type=schema, output_mode="prompt")
    assert (await agent.run("go")).output == {"title": "A"}


@pytest.mark.parametrize("name", ["groq:openai/gpt-oss-120b", "openai:gpt-5.2"])
async def test_a_typed_answer_beside_tools_comes_from_a_server_that_takes_one_of_both(
    name: str,
) -> None:
    def answer(sent: dict[str, Any]) -> Reply:
        names = [one["function"]["name"] for one in sent.get("tools") or ()]
        if names and sent.get("response_format"):
            said = "json mode cannot be combined with tool/function calling"
            return Reply(400, json={"error": {"message": said}})
        if "final_answer" in names:
            function = {"name": "final_answer", "arguments": '{"flag": true}'}
            call = {"id": "c", "type": "function", "function": function}
            return whole({"role": "assistant", "tool_calls": [call]}, "tool_calls")
        return whole({"role": "assistant", "content": '{"flag": true}'})

    def reply(request: Request) -> Reply:
        if request.method != "POST" or b"report_ready" in request.body:
            return Reply(404, json={})
        return answer(request.json())

    async with HttpDouble(reply) as server:
        client = create_model_client(name, base_url=f"{server.url}/v1", api_key="k")
        agent = Agent(client, [now], output_type=Flag)
        assert (await agent.run("go")).output == Flag(flag=True)
        await agent.disconnect()


async def test_a_run_takes_no_type_of_its_own_and_another_agent_goes_on_with_one() -> None:
    first = Agent(Scripted([says("Hello.")]))
    with pytest.raises(TypeError, match=r"`output_type`.*`Agent"):
        await first.run("go", output_type=Flag)  # pyright: ignore[reportCallIssue]
    history = (await first.run("go")).messages
    typed = Agent(Scripted([says('{"flag": true}')]), output_type=Flag, output_mode="prompt")
    assert (await typed.run("And?", history=history)).output == Flag(flag=True)


# ---- dependencies


def plain(x: int, context: Context) -> str:
    """Put."""
    return f"{x} {type(context.deps).__name__}"


def optional(x: int, context: Context[Shop] | None = None) -> str:
    """Put."""
    return plain(x, context) if context else "nothing"


def annotated(x: int, context: Annotated[Context[Shop], "the shop"]) -> str:
    """Put."""
    return plain(x, context)


def both(x: int, *, context: Annotated[Context | None, "the shop"] = None) -> str:
    """Put."""
    return optional(x, context)


@pytest.mark.parametrize("function", [plain, optional, annotated, both])
async def test_the_context_is_no_parameter_and_is_given_however_it_is_annotated(
    function: Any,
) -> None:
    made = tool(function)
    assert list(json.loads(made.schema_json())["properties"]) == ["x"]
    agent = Agent(Scripted([calls((made.name, {"x": 1})), says("done")]), [made], deps_type=Shop)
    run = await agent.run("go", deps=Shop())
    assert run.results[0].data == "1 Shop", run.results[0].error_message


def test_what_an_optional_context_asks_for_is_checked() -> None:
    with pytest.raises(ConfigError, match="Shop"):
        Agent(Scripted([]), [tool(optional)], deps_type=Color)


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3, "description": "own"}},
    "required": ["n"],
}


def put_one(n: int, context: Context[Shop]) -> str:
    return f"{n} {type(context.deps).__name__}"


def put_all(context: Context[Shop] | None = None, **arguments: Any) -> str:
    return put_one(arguments["n"], context) if context else "nothing"


@pytest.mark.parametrize("handler", [put_one, put_all])
async def test_a_tool_with_a_schema_of_its_own_keeps_it_and_gets_the_context(handler: Any) -> None:
    made = define_tool("put", "Put.", parameters=SCHEMA, handler=handler)
    assert json.loads(made.schema_json())["properties"] == SCHEMA["properties"]
    agent = Agent(Scripted([calls(("put", {"n": 4})), says("done")]), [made], deps_type=Shop)
    assert (await agent.run("go", deps=Shop())).results[0].data == "4 Shop"


# ---- many at a time


class Refused(Exception):
    """An error of the program's own code."""


def answer_or_fail(history: Any) -> Any:
    if "bad" in history[-1].text:
        raise Refused("no answer")
    return says(history[-1].text.upper())


async def test_one_of_many_runs_that_fails_in_any_way_costs_itself(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "kept.db") as journal:
        agent = Agent(Scripted([answer_or_fail] * 9), storage=Storage(journal=journal))
        inputs = {"a": "aa", "b": "bad", "c": "cc"}
        report = await run_batch(agent, inputs, name="n", concurrency=1)
        assert report.outputs() == {"a": "AA", "c": "CC"}
        (failed,) = [item for item in report.items if item.status == "failed"]
        assert failed.key == "b" and isinstance(failed.error, Refused)
        assert report.text.endswith("b: Refused: no answer")
        together = await asyncio.gather(
            *(agent.run(text) for text in ("x", "bad", "y")), return_exceptions=True
        )
        assert [getattr(one, "text", None) for one in together] == ["X", None, "Y"]
        later = Agent(Scripted([says("better")]), storage=Storage(journal=journal))
        again = await run_batch(later, inputs, name="n", concurrency=1)
        assert again.outputs() == {"a": "AA", "b": "better", "c": "CC"}


async def test_a_sub_agent_that_fails_costs_itself() -> None:
    def answer(history: Any) -> Any:
        if history[-1].text == "go":
            tasks = ("one", "bad", "three")
            return calls(*(("delegate", {"task": task, "agent": "clerk"}) for task in tasks))
        return answer_or_fail(history)

    agent = Agent(Scripted([answer] * 5), [now], plugins=[Parts(agents=[CLERK])])
    run = await agent.run("go")
    assert [result.success for result in run.results] == [True, False, True]


async def test_what_has_ended_stays_as_it_is_when_something_breaks_after_it() -> None:
    class Watch:
        async def before(self, tool: Any, values: Any, context: Any) -> None: ...

        async def after(self, tool: Any, result: Any, context: Any) -> None:
            if tool.name == "add":
                raise RuntimeError("broken hook")

    @tool(side_effect="none")
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    script = [calls(("now", {}), ("add", {"a": 1, "b": 2}), ("leave", {})), says("on")]
    agent = Agent(Scripted(script), [now, add, leave], plugins=[Parts(hooks=[Watch()])])
    run = await agent.run("go")
    assert run.text == "on"
    assert [result.data for result in run.results] == ["noon", None, None]


# ---- tokens and money


def test_cached_tokens_are_paid_once() -> None:
    price = PricePerMillion(input=3, output=15, cached=0.3, written=3.75)
    usage = Usage(input=1_000, cached=900, written=50, output=100)
    assert float(price(usage)) * 1e6 == pytest.approx(50 * 3 + 900 * 0.3 + 50 * 3.75 + 100 * 15)


async def test_tokens_of_a_request_are_counted_once_whatever_its_answer_has() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 30},
    }
    replies = in_turn(
        chat_answer("Let me look.", "now", "now", "now", **usage), chat_answer("x", **usage)
    )
    (run,), _, _ = await converse(chat, replies, ["go"], [now])
    assert (run.usage.input, run.usage.output, run.usage.cached) == (200, 100, 60)
    assert len(run.spent) == 2


# ---- what tools say


async def test_a_service_that_refuses_is_a_call_that_failed(tmp_path: Path) -> None:
    async with HttpDouble(lambda _: Reply(401, json={"error": "bad key"})) as server:
        document = {
            "openapi": "3.1.0",
            "info": {"title": "T", "version": "1"},
            "servers": [{"url": server.url}],
            "paths": {"/x": {"get": {"operationId": "go", "responses": NO_ARGUMENTS}}},
        }
        (tmp_path / "t.json").write_text(json.dumps(document))
        hosts = (server.url.removeprefix("http://"),)
        (made,) = openapi_tools(tmp_path / "t.json", hosts=hosts)
        script = Scripted([calls(("t__go", {})), says("Here it is.")])
        agent = Agent(script, [made], permissions=Permissions(allow=["t::go"]))
        run = await agent.run("go", require_successful_tools=["t::go"])
    assert run.stop == "failed" and not run.results[0].success
    assert "401" in str(run.results[0].error_message)


async def test_a_value_that_is_no_json_is_left_out_by_name_and_the_run_goes_on() -> None:
    @tool(side_effect="none")
    def thing() -> Any:
        """Make a thing."""
        return {"function": print, "error": ValueError("x"), "class": Shop}

    run = await Agent(Scripted([calls(("thing", {})), says("on")]), [thing]).run("go")
    (note,) = run.results[0].notes
    assert run.text == "on" and "`thing`" in note
    assert MessageHistory.from_json(run.messages.to_json()).messages


async def test_a_sub_agents_question_and_its_answer_are_its_own() -> None:
    asked: list[str] = []

    class Person:
        async def ask(self, request: Any) -> ApprovalAnswer:
            asked.append(f"{request.tool.name} {request.values}")
            return ApprovalAnswer("once", by="ada")

    @tool(side_effect="external")
    def pay(to: str) -> str:
        """Pay."""
        return f"paid {to}"

    clerk = SubAgent("clerk", "Pays.", "Pay.", tools=["pay"])
    script = [
        calls(("delegate", {"task": "pay", "agent": "clerk"})),
        calls(("pay", {"to": "bo"})),
        says("It is paid."),
        says("done"),
    ]
    agent = Agent(
        Scripted(script),
        [pay],
        plugins=[Parts(agents=[clerk])],
        permissions=Permissions(allow=["Agent"], approver=Person()),
    )
    run = await agent.run("go")
    assert asked == ["pay {'to': 'bo'}"] and run.results[0].data["answer"] == "It is paid."


# ---- telemetry


async def list_spans(script: list[Any], tools: list[Any]) -> list[tuple[str, str | None]]:
    """Stream a run within a span of the caller. Return the spans, with the names of their parents."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider, bus = InMemorySpanExporter(), TracerProvider(), Bus()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Telemetry(tracer_provider=provider).listen(bus)
    agent = Agent(
        Scripted(script, model="openai:gpt"),
        tools,
        host=Host(bus=bus),
        permissions=Permissions(allow=["run_code"]),
    )
    with provider.get_tracer("test").start_as_current_span("caller"):
        async for _ in agent.stream("go"):
            pass
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context}
    return [(span.name, names.get(span.parent.span_id) if span.parent else None) for span in spans]


async def test_spans_of_a_streamed_run_are_below_it_and_it_is_below_its_caller() -> None:
    spans = await list_spans([calls(("now", {})), says("x")], [now])
    assert sorted(spans, key=str) == [
        ("caller", None),
        ("chat gpt", "invoke_agent"),
        ("chat gpt", "invoke_agent"),
        ("execute_tool now", "invoke_agent"),
        ("invoke_agent", "caller"),
    ]


@pytest.mark.usefixtures("rust_runtimes")
async def test_spans_of_tools_that_code_calls_are_below_the_call_that_runs_it() -> None:
    pytest.importorskip("pydantic_monty")
    from ferrule.toolkits.code_mode import code_tool

    script = [calls(("run_code", {"code": "now()\nnow()"})), says("x")]
    spans = await list_spans(script, [now, code_tool([now])])
    assert spans.count(("execute_tool now", "execute_tool run_code")) == 2


# ---- prompt caches


async def test_bedrock_caches_tools_system_text_and_conversation() -> None:
    pytest.importorskip("botocore", reason="`botocore` is not installed: it signs requests")
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    reply = Reply(json={"output": {"message": message}, "stopReason": "end_turn", "usage": usage})

    def bedrock(_: str, base_url: str) -> Any:
        name = "anthropic.claude-sonnet-4-5-20250929-v1:0"
        return Bedrock(name, base_url=base_url, region="eu-west-1", api_key="k")

    _, sent, _ = await converse(bedrock, lambda _: reply, ["go"], [now], instructions="Be kind.")
    assert [count_in(sent[0][part], *MARKED) for part in ("system", "toolConfig", "messages")] == [
        1,
        1,
        1,
    ]


def open_router(_: str, base_url: str) -> Any:
    name = "openrouter:anthropic/claude-sonnet-5"
    return create_model_client(name, base_url=f"{base_url}/v1", api_key="k")


async def test_anthropic_never_gets_more_cache_marks_than_it_takes() -> None:
    def use(number: int) -> Reply:
        if number % 3 == 0:
            return anthropic_message({"type": "text", "text": "x"})
        many = [tool_use("now", f"c{number}_{n}") for n in range(14)]
        return anthropic_message({"type": "text", "text": "x"}, *many, stop="tool_use")

    messages = ["go", "more", "again"]
    _, sent, _ = await converse(anthropic, use, messages, [now], instructions=["a", "b"])
    marks = [count_in(request, *MARKED) for request in sent]
    assert len(sent) == 9 and max(marks) == 4 and min(marks) >= 3
    replies = in_turn(chat_answer("", "now", "now", "now"), chat_answer("x"))
    _, sent, _ = await converse(
        open_router,
        replies,
        ["go"],
        [now],
        instructions="a",
        model_options=ModelOptions(cache_control="5m"),
    )
    assert [count_in(request, *MARKED) for request in sent] == [2, 2]


async def test_instructions_that_a_function_makes_are_cached() -> None:
    def who(context: Context) -> str:
        return "You speak with Ada."

    text = anthropic_message({"type": "text", "text": "x"})
    instructions = ["Be kind.", who]
    _, sent, _ = await converse(
        anthropic, lambda _: text, ["go", "more"], [now], instructions=instructions
    )
    first, second = sent
    assert (first["system"], first["tools"]) == (second["system"], second["tools"])
    assert "Ada" in json.dumps(first["system"]) and count_in(first["system"], *MARKED) == 1


# ---- pictures


async def test_pictures_have_the_type_of_their_bytes(tmp_path: Path) -> None:
    files = {"a.gif": GIF, "b.webp": WEBP, "c.jpg": PIXEL, "d.GIF": GIF}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    @tool(side_effect="none")
    def show() -> list[Any]:
        """Show pictures."""
        return [*(Image.from_path(tmp_path / name) for name in files), Image(WEBP)]

    use = tool_use("show")
    replies = in_turn(
        anthropic_message(use, stop="tool_use"), anthropic_message({"type": "text", "text": "x"})
    )
    _, sent, _ = await converse(anthropic, replies, ["go"], [show])
    blocks = [block for one in sent[1]["messages"] for block in one["content"]]
    (result,) = [block for block in blocks if block["type"] == "tool_result"]
    types = [one["source"]["media_type"] for one in result["content"] if one["type"] == "image"]
    kinds = ("gif", "webp", "png", "gif", "webp")
    assert types == [f"image/{kind}" for kind in kinds]


@pytest.mark.parametrize("sees", [True, False])
async def test_a_picture_of_a_tool_is_sent_unless_the_model_is_known_not_to_see(
    sees: bool,
) -> None:
    sent: list[dict[str, Any]] = []

    def reply(request: Request) -> Reply:
        if request.target.endswith("/show"):
            able = ["completion", "tools", *(["vision"] if sees else [])]
            return Reply(json={"capabilities": able})
        if request.method != "POST":
            return Reply(404, json={})
        sent.append(request.json())
        called = [{"function": {"name": "look", "arguments": NO_ARGUMENTS}}]
        message = {"tool_calls": called} if len(sent) == 1 else {"content": "A dot."}
        return Reply(json={"message": message, "done": True, "done_reason": "stop"})

    async with HttpDouble(reply) as server:
        agent = Agent(Ollama("m", base_url=server.url), [look], tool_calling=NATIVE)
        assert (await agent.run("go")).text == "A dot."
        await agent.disconnect()
    asked = json.dumps(sent[1]["messages"])
    assert (base64.b64encode(PIXEL).decode()[:40] in asked) is sees
    assert sees or "picture" in asked or "image" in asked, asked


async def test_a_picture_of_a_tool_is_sent_to_a_model_of_which_nothing_is_known() -> None:
    replies = in_turn(chat_answer("", "look"), chat_answer("A dot."))
    _, sent, _ = await converse(chat, replies, ["go"], [look])
    assert base64.b64encode(PIXEL).decode()[:40] in json.dumps(sent[1])


async def test_a_case_of_an_evaluation_can_have_pictures(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(PIXEL)
    (tmp_path / ".env").write_text("KEY=secret")
    text = "cases:\n  - {name: sees, message: What is it?, attach: %s, expect: {output: {contains: dot}}}\n"
    seen: list[Any] = []

    def answer(history: Any) -> Any:
        seen.append(history[-1])
        return says("A dot.")

    def make_agent(trial: Any) -> Agent[Any, Any]:
        return Agent(
            Scripted([answer]), workspace=trial.workspace, storage=Storage(journal=trial.journal)
        )

    async def try_case(attached: str) -> Any:
        (tmp_path / "cases.yaml").write_text(text % attached)
        cases = load_cases(tmp_path / "cases.yaml")
        return await evaluate(cases, [Target("scripted:x")], open_agents(make_agent))

    assert (await try_case("[dot.png]")).holds
    (media,) = seen[0].media
    assert (media.name, media.mime) == ("dot.png", "image/png") and "What is it?" in seen[0].text
    with pytest.raises(ConfigError, match="is not a file"):
        await try_case("missing.png")
    with pytest.raises(ConfigError, match="outside"):
        await try_case("../other.png")
    (tmp_path / ".ferrule").mkdir()
    (tmp_path / ".ferrule/dot.png").write_bytes(PIXEL)
    for protected in (".env", ".ferrule/dot.png"):
        with pytest.raises(ConfigError, match="no tool may"):
            await try_case(protected)
    assert len(seen) == 1


# ---- sessions

WAITING = """
import asyncio, os, sys
from ferrule import Agent, ApprovalAnswer, Permissions, Scripted, Storage, tool
from ferrule.testing import calls, says

journal, how = sys.argv[1:]
waiting = []

@tool(side_effect="external")
def pay(to: str) -> str:
    "Pay."
    print("paid", to, flush=True)
    return "paid"

class Person:
    async def ask(self, request):
        print("asked", request.values["to"], flush=True)
        if how == "answers":
            return ApprovalAnswer("once", by="ada")
        waiting.append(request)
        if len(waiting) == 2:
            os._exit(0)
        await asyncio.Event().wait()

def agent(to):
    script = [says("Done.")] if how == "answers" else [calls(("pay", {"to": to})), says("Done.")]
    return Agent(
        Scripted(script), [pay],
        storage=Storage(journal=journal, user="ada"), permissions=Permissions(approver=Person()),
    )

async def main():
    if how == "waits":
        await asyncio.gather(*(agent(to).session(id=to).run("go") for to in ("ann", "bob")))
    for to in ("bob", "ann"):
        async with agent(to).resume(to) as session:
            await session.resume()

asyncio.run(main())
"""


def test_each_of_two_questions_of_a_dead_process_goes_on_in_its_own_session(tmp_path: Path) -> None:
    said = ""
    for how in ("waits", "answers"):
        command = [sys.executable, "-c", WAITING, str(tmp_path / "kept.db"), how]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        said = ran.stdout
    assert said.splitlines() == ["asked bob", "paid bob", "asked ann", "paid ann"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE records SET body = 'half a {' WHERE kind = 'run.started'", "cannot be read"),
        ("DELETE FROM records WHERE kind = 'model.answered'", "is missing"),
        ("", "is damaged"),
    ],
)
async def test_a_damaged_session_is_an_error_and_no_new_one(
    damage: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "kept.db"
    with SqliteJournal(path) as journal:
        async with Agent(Scripted([says("x")]), storage=Storage(journal=journal)).session(
            id="s"
        ) as s:
            await s.run("go")
    if damage:
        with sqlite3.connect(path) as connection:
            connection.execute(damage)
        connection.close()
    else:
        path.write_bytes(b"no database at all" * 400)
    with pytest.raises(JournalError, match=said) as error, SqliteJournal(path) as journal:
        agent = Agent(Scripted([says("y")]), storage=Storage(journal=journal))
        async with agent.session(id="s", resume=True) as session:
            await session.run("again")
    assert "salvage" in str(error.value.hint)


# ---- loops


async def test_a_tool_may_run_another_agent_without_await() -> None:
    script = [calls(("now", {})), says("within"), calls(("now", {})), says("within")]
    inner = Agent(Scripted(script), [now])

    @tool(side_effect="none")
    def without() -> str:
        """Ask in a thread."""
        return inner.run_sync("x").text

    @tool(side_effect="none")
    async def within() -> str:
        """Ask in the loop."""
        return inner.run_sync("x").text

    script = [calls(("without", {})), calls(("within", {})), says("done")]
    async with asyncio.timeout(60):
        run = await Agent(Scripted(script), [without, within]).run("go")
    assert [result.data for result in run.results] == ["within", "within"]


class Threaded(BaseHTTPRequestHandler):
    """A server that keeps its connections open and needs no loop of the test's."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "hi"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_in_a_thread() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Threaded) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_an_agent_works_in_one_loop_after_another() -> None:
    with serve_in_a_thread() as address:
        agent = Agent(OpenAIChat("m", base_url=address, api_key="k"))
        said = [asyncio.run(agent.run("go")).text, agent.run_sync("go").text]
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.close()
        try:
            said.append(agent.run_sync("go").text)
        finally:
            asyncio.set_event_loop(None)
        threads = [
            threading.Thread(target=lambda: said.append(asyncio.run(agent.run("go")).text))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(agent.disconnect())
    assert said == ["hi"] * 5
