"""The worked examples of requirement 004 and of its study (systems.md §5.3), each driven as a whole
from outside.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ferrule import (
    Agent,
    Catalog,
    ConfigError,
    Context,
    ContextLeak,
    ErrorType,
    Scripted,
    Storage,
    ToolDefinitionError,
    ToolFailed,
    tool,
)
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.connectors.http import http_tools
from ferrule.connectors.mcp import McpServer
from ferrule.connectors.mcp import connect as mcp_servers
from ferrule.connectors.mcp.configuration import read_server
from ferrule.core.messages import Message, ToolMessage
from ferrule.hooks import Action, CompletionPre, hook, modify
from ferrule.models.scripted import Step, calls, says
from ferrule.storage.audit.audit import audit_calls as audited
from ferrule.tools.definition import Tool
from ferrule.tools.toolset import configure
from grouped_options import grouped

BOUND = 30.0
CITIES = {"Lisbon": 21.3, "Ghent": 9.5}


@dataclass
class Weather:
    """What the tool answers: a typed value, of which the model reads the JSON."""

    temperature_c: float
    description: str


@tool(name="weather_now", side_effect="external", idempotent=True)
async def weather(city: str, unit: str | None = None) -> Weather:
    """Return the current temperature and a short description for a city."""
    if city not in CITIES:
        known = ", ".join(CITIES)
        raise ToolFailed(
            ErrorType.NOT_FOUND, f"weather: `{city}` is no city that is known; known: {known}"
        )
    try:
        found = measured(city)
    except ZeroDivisionError as error:
        raise ToolFailed(ErrorType.IO_ERROR, f"weather: fetch `{city}`: {error}") from error
    return Weather(found, "Partly cloudy")


def measured(city: str) -> float:
    return CITIES[city] if city != "Ghent" else 1 / 0


def agent_of(
    steps: Sequence[Step | Callable[[Sequence[Message]], Step]],
    tools: Sequence[Tool],
    **options: Any,
) -> Agent:
    return Agent(Scripted([*steps]), tools, **grouped(journal=":memory:", **options))


# ---- one contract, whatever stands behind it


async def test_a_typed_function_is_registered_offered_called_and_answered_as_its_types_say() -> (
    None
):
    steps = [
        calls(("weather_now", {"city": "Lisbon"}), ("weather_now", {"town": "Ghent"})),
        says("21.3"),
    ]
    agent = agent_of(steps, [weather], allow=["weather_now"])
    ran = await agent.run("How warm is it in Lisbon?")
    assert agent.model_client.opened[0].tools[0].name == "weather_now"  # type: ignore[attr-defined]
    schema = weather.arguments.schema
    assert (schema["required"], sorted(schema["properties"])) == (["city"], ["city", "unit"])
    good, bad = ran.results
    assert good.data == {"temperature_c": 21.3, "description": "Partly cloudy"}
    assert bad.error_type is ErrorType.VALIDATION_FAILED and "`town`" in str(bad.error_message)


def test_a_name_that_is_taken_and_a_type_without_a_schema_fail_when_they_are_registered() -> None:
    with pytest.raises(ToolDefinitionError, match="weather_now"):
        Catalog([weather, weather])
    with pytest.raises(ToolDefinitionError, match="lock"):

        @tool
        def take(lock: threading.Event) -> str:  # pyright: ignore[reportUnusedFunction]
            """Take a lock."""
            return str(lock)


async def test_a_domain_error_and_what_it_wraps_reach_the_model_and_the_audit_with_their_type() -> (
    None
):
    steps = [
        calls(("weather_now", {"city": "Atlantis"}), ("weather_now", {"city": "Ghent"})),
        says("no"),
    ]
    agent = agent_of(steps, [weather], allow=["weather_now"])
    ran = await agent.run("go")
    unknown, broken = ran.results
    assert unknown.error_type is ErrorType.NOT_FOUND and "known: Lisbon, Ghent" in str(
        unknown.error_message
    )
    assert (broken.error_type, broken.error_message) == (
        ErrorType.IO_ERROR,
        "weather: fetch `Ghent`: division by zero",
    )
    read = [m.text for m in agent.model_client.histories[-1] if isinstance(m, ToolMessage)]  # type: ignore[attr-defined]
    told_of = audited(agent.journal.records(ran.session))
    for result, shown, call in zip(ran.results, read, told_of, strict=True):
        assert shown == f"{result.error_type}: {result.error_message}"
        assert (call.outcome, call.message) == (result.error_type, result.error_message)


PLAIN_SERVER = Path(__file__).parent.parent / "connectors/mcp/plain_server.py"
MANIFEST = """
namespace: web
hosts: ["{at}"]
tools:
  - name: greet
    description: Greet somebody.
    method: GET
    url_template: http://{at}/greet?message={{{{message}}}}
"""


class Greeter(BaseHTTPRequestHandler):
    """A service that greets, and the smallest agent there is."""

    def do_GET(self) -> None:
        if "agent-card" not in self.path:
            self.say({"path": self.path})
            return
        here = f"http://127.0.0.1:{self.server.server_port}/"  # type: ignore[attr-defined]
        skill = {
            "id": "greet",
            "name": "Greet",
            "description": "Greet somebody.",
            "tags": list[str](),
        }
        self.say(
            {
                "name": "Friend",
                "description": "Greets.",
                "version": "1",
                "capabilities": {},
                "supportedInterfaces": [
                    {"url": here, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
                ],
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [skill],
            }
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = asked["params"]["message"]["parts"][0]["text"]
        message = {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": f"hello {told}"}]}
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": {"message": message}})

    def say(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def at() -> Iterator[str]:
    """`127.0.0.1:port` of the greeter."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Greeter) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


async def test_a_function_a_service_a_server_and_an_agent_are_tools_of_one_kind(
    tmp_path: Path, at: str
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")
    pytest.importorskip("a2a", reason="the extra `a2a` is not installed here")
    from ferrule.connectors.a2a import A2aPeer
    from ferrule.connectors.a2a import connect as a2a_peers

    entered: list[str] = []

    @tool(side_effect="external")
    def greet(message: str) -> str:
        """Greet somebody."""
        entered.append(message)
        return f"hello {message}"

    (tmp_path / "web.yaml").write_text(MANIFEST.format(at=at))
    shutil.copy(PLAIN_SERVER, tmp_path)
    python = str(Path(sys.executable).resolve())
    server = McpServer("away", command=(python, "plain_server.py", "new", "good"), only=("echo",))
    peer = A2aPeer("friend", url=f"http://{at}", plain_http=True)
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(mcp_servers([server], workspace=tmp_path))
        peers = await stack.enter_async_context(a2a_peers([peer]))
        tools = [greet, *http_tools(tmp_path / "web.yaml"), *servers.tools, *peers.tools]
        names = {
            "greet": "message",
            "web::greet": "message",
            "away__echo": "text",
            "friend__greet": "message",
        }
        assert sorted(one.full_name for one in Catalog(tools)) == sorted(names)
        good = calls(*((name, {parameter: "Ada"}) for name, parameter in names.items()))
        wrong = calls(*((name, {"nobody": 1}) for name in names))
        allowing = agent_of([good, wrong, says("done")], tools, workspace=tmp_path, allow=[*names])
        ran = await allowing.run("greet Ada four times")
        assert all(result.success and "Ada" in result.to_text() for result in ran.results[:4])
        assert [result.error_type for result in ran.results[4:]] == [
            ErrorType.VALIDATION_FAILED
        ] * 4
        asking = agent_of([good, says("done")], tools, workspace=tmp_path)
        refused = await asking.run("greet Ada four times")
        assert [result.error_type for result in refused.results] == [
            ErrorType.PERMISSION_DENIED
        ] * 4
        await allowing.close()
        await asking.close()
    assert entered == ["Ada"]


# ---- many calls at one time


class Gathering:
    """`await arrive()` returns once so many have come: they are surely under way at the same
    time.
    """

    def __init__(self, most: int) -> None:
        self.most, self.count, self.everybody = most, 0, asyncio.Event()

    async def arrive(self) -> None:
        self.count += 1
        if self.count == self.most:
            self.everybody.set()
        async with asyncio.timeout(BOUND):
            await self.everybody.wait()


async def test_a_hundred_calls_of_one_tool_at_one_time_each_get_their_own_answer() -> None:
    gathering = Gathering(100)

    @tool(side_effect="read")
    async def echo(context: Context, city: str) -> list[str]:
        """Say the city, and who asked, once all are there."""
        await gathering.arrive()
        return [city, context.identity.user]

    catalog = Catalog([echo])

    async def one(number: int) -> list[str]:
        agent = Agent(
            "scripted:x", catalog, storage=Storage(journal=":memory:", user=f"user-{number}")
        )
        session = agent.session()
        result = await session.call("echo", city=f"City-{number}")
        await session.close()
        return result.data

    found = await asyncio.gather(*(one(number) for number in range(100)))
    assert found == [[f"City-{number}", f"user-{number}"] for number in range(100)]


async def test_calls_of_one_answer_run_side_by_side_and_answer_in_their_order() -> None:
    gathering = Gathering(12)

    @tool(side_effect="read")
    async def echo(city: str) -> str:
        """Say the city, once all are there."""
        await gathering.arrive()
        return city

    cities = [f"City-{number}" for number in range(12)]
    ran = await agent_of(
        [calls(*(("echo", {"city": one}) for one in cities)), says("ok")], [echo]
    ).run("go")
    assert [result.data for result in ran.results] == cities


async def test_a_setting_for_all_tools_makes_every_call_of_an_answer_wait_for_the_one_before() -> (
    None
):
    now: list[str] = []
    most: list[int] = []

    @tool(side_effect="read")
    async def echo(city: str) -> str:
        """Say the city, after letting all others go first."""
        now.append(city)
        for _ in range(50):
            await asyncio.sleep(0)
            most.append(len(now))
        now.remove(city)
        return city

    cities = [f"City-{number}" for number in range(5)]
    steps = [calls(*(("echo", {"city": one}) for one in cities)), says("ok")]
    ran = await agent_of(steps, configure([echo], {"*": {"parallel": False}})).run("go")
    assert [result.data for result in ran.results] == cities and max(most) == 1
    most.clear()
    await agent_of(steps, [echo]).run("go")
    assert max(most) == 5


# ---- two turns


@pytest.mark.proves("harbor.two-turns")
async def test_a_deferred_tool_is_not_there_is_refused_is_found_is_sent_once_and_works() -> None:
    @tool(side_effect="none")
    def look() -> str:
        """Look around."""
        return "a room"

    @tool(side_effect="none", defer_loading=True)
    def orbit(body: str) -> str:
        """Compute the orbital elements of a body."""
        return f"orbit of {body}"

    @tool(side_effect="none", defer_loading=True, scopes=["observatory"])
    def orbit_of_satellite(body: str) -> str:
        """Compute the orbital elements of a satellite."""
        return f"orbit of {body}"

    find = ("tool_search", {"query": "orbital elements"})
    use = ("orbit", {"body": "Ceres"})
    steps = [calls(use), calls(find, use), calls(find, use), calls(use), says("done")]
    agent = agent_of(steps, [look, orbit, orbit_of_satellite])
    ran = await agent.run("Where is Ceres?")
    outcomes = [
        (r.tool, r.data if r.success and r.tool == "orbit" else r.success) for r in ran.results
    ]
    assert outcomes == [
        ("orbit", False),
        ("tool_search", True), ("orbit", False),
        ("tool_search", True), ("orbit", "orbit of Ceres"),
        ("orbit", "orbit of Ceres"),
    ]  # fmt: skip
    assert ran.results[0].error_type is ErrorType.NOT_FOUND
    # A model client is opened again when tools join; its last opening holds what the next question sends.
    openings: list[list[str]] = [
        [spec.name for spec in one.tools] for one in agent.model_client.opened
    ]  # type: ignore[attr-defined]
    assert "orbit" not in openings[0] and openings[-1].count("orbit") == 1
    assert not any("orbit_of_satellite" in one for one in openings)
    assert "orbit_of_satellite" not in "".join(result.to_text() for result in ran.results)


# ---- large results


@tool(side_effect="none")
def text(size: int) -> str:
    """Text of so many bytes, in lines of ten."""
    return ("123456789\n" * (size // 10 + 1))[:size]


def last_text(history: Sequence[Message]) -> str:
    """What the model reads of the last result."""
    last = history[-1]
    assert isinstance(last, ToolMessage)
    return last.text


def record(shown: str) -> dict[str, Any]:
    """The object that a result begins with; notes may follow it."""
    return json.loads(shown.splitlines()[0])


@pytest.mark.proves("harbor.heavy-output")
async def test_a_model_gets_a_stub_at_the_threshold_and_reads_twenty_thousand_bytes_of_it_inline(
    tmp_path: Path,
) -> None:
    seen: dict[str, str] = {}

    def large(history: Sequence[Message]) -> Step:
        seen["inline"] = last_text(history)
        return calls(("text", {"size": 32_768}))

    def fetch(history: Sequence[Message]) -> Step:
        seen["stub"] = last_text(history)
        return calls(
            (
                "artifact_fetch",
                {"artifact": record(last_text(history))["artifact"], "max_bytes": 20_000},
            )
        )

    def done(history: Sequence[Message]) -> Step:
        seen["part"] = last_text(history)
        return says("done")

    mine = agent_of(
        [calls(("text", {"size": 32_767})), large, fetch, done], [text], artifacts=tmp_path
    )
    await mine.run("go")
    stub, part = record(seen["stub"]), record(seen["part"])
    assert len(seen["inline"]) == 32_767
    assert (stub["size_bytes"], stub["mime"], stub["truncated"]) == (32_768, "text/plain", True)
    assert stub["preview"].startswith("123456789\n") and len(seen["stub"]) < 2000
    assert "`artifact_fetch`" in seen["stub"].splitlines()[-1]
    whole = text.handler(32_768)
    assert (part["artifact"], part["mime"], part["size_bytes"]) == (
        stub["artifact"],
        "text/plain",
        32_768,
    )
    assert (part["content"], part["truncated"]) == (whole[:20_000], True)
    theirs = agent_of([], [text], artifacts=tmp_path, tenant="elsewhere").session()
    refused = await theirs.call("artifact_fetch", artifact=stub["artifact"])
    missing = await theirs.call("artifact_fetch", artifact="art-" + "0" * 64)
    assert (
        refused.error_type is missing.error_type is ErrorType.NOT_FOUND
        and whole[:20] not in refused.to_text()
    )


@pytest.mark.proves("harbor.heavy-output")
async def test_raw_bytes_put_in_place_of_a_stub_are_an_error_with_an_event_and_are_not_sent(
    tmp_path: Path,
) -> None:
    @hook("completion.pre")
    def unstub(question: CompletionPre) -> Action | None:
        shown = [dict(message) for message in question.messages]
        for message in shown:
            if message["role"] == "tool":
                message["content"] = text.handler(32_768)
        return modify({"messages": shown})

    agent = agent_of(
        [calls(("text", {"size": 40_000})), says("never")],
        [text],
        artifacts=tmp_path,
        hooks=[unstub],
    )
    session = agent.session()
    with pytest.raises(ContextLeak):
        await session.run("go")
    topics = [getattr(record.event, "topic", "") for record in agent.journal.records(session.id)]
    assert topics.count("llm.context_leak") == 1
    assert len(agent.model_client.histories) == 1  # type: ignore[attr-defined]


# ---- what cannot be meant is said before anything is served


@pytest.mark.proves("harbor.boot-failures")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("tools: {entries: [{name: read_flie, loading_mode: deferred}]}", "read_flie"),
        ("tools: {entries: [{name: read_file, loading_mode: sometimes}]}", "sometimes"),
        ("tools: {policy: {retry_on: [transient, often]}}", "often"),
        ("tools: {policy: {max_attempts: 0}}", "max_attempts"),
        ("tools: {built_ins: [artifact_fetch]}", "built_ins"),
        ("permissions: {allow: ['Edit(']}", "Edit("),
    ],
)
def test_settings_that_mean_nothing_are_a_named_error_before_a_model_is_asked(
    own_folders: Path, tmp_path: Path, settings: str, named: str
) -> None:
    config = own_folders / "config"
    config.mkdir()
    (config / "ferrule.yaml").write_text(f"model: 'scripted:x'\n{settings}\n")
    with pytest.raises(ConfigError) as refused:
        assemble_at_terminal({"workspace": str(tmp_path)})
    assert named in f"{refused.value} {refused.value.detail}"


@pytest.mark.proves("harbor.boot-failures")
@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        ("auth: {key: {kind: bearer, secret: sk-written-out-1234}}", "is written out"),
        ("auth: {key: {kind: bearer, secret: '${NOT_THERE}'}}", "NOT_THERE"),
        ("colour: red", "colour"),
    ],
)
def test_a_manifest_that_means_nothing_is_left_out_and_named(
    own_folders: Path,
    tmp_path: Path,
    manifest: str,
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = own_folders / "config"
    (config / "http").mkdir(parents=True)
    (config / "ferrule.yaml").write_text("model: 'scripted:x'\n")
    tools = "[{name: fetch_a, description: A., method: GET, url_template: 'https://example.com/a'}]"
    (config / "http" / "mine.yaml").write_text(f"{manifest}\ntools: {tools}\n")
    assembly = assemble_at_terminal({"workspace": str(tmp_path)}, needs_model=False)
    said = capsys.readouterr().err
    assert "mine.yaml" in said and named in said
    assert "sk-written-out-1234" not in said
    assert "fetch_a" not in str(assembly.agent.catalog)


SERVERS = """
- name: youtube
  transport_mode: streamable_http
  url: https://example.com/mcp/youtube
  policy: {max_attempts: 3, timeout_ms: 10000, retry_on: [transient, timeout, 5xx]}
  tool_policies:
    get_metadata: {max_attempts: 1, timeout_ms: 60000}
    search: {max_attempts: 6}
"""


def test_the_policies_of_the_requirement_s_server_mean_what_they_say_field_by_field() -> None:
    (entry,) = yaml.safe_load(SERVERS)
    server = read_server("youtube", entry, "settings")
    assert server is not None
    found = {
        name: (one.max_attempts, one.timeout, one.retry_on)
        for name in ("get_metadata", "search", "other")
        for one in [server.policies.policy_for(name)]
    }
    classes = ("transient", "timeout", "5xx")
    assert found == {
        "get_metadata": (1, 60.0, classes),
        "search": (6, 10.0, classes),
        "other": (3, 10.0, classes),
    }
    entry["tool_policies"]["search"]["retry_on"] = ["always"]
    with pytest.raises(ConfigError, match="always"):
        read_server("youtube", entry, "settings")


async def test_resources_of_a_server_are_tried_as_its_policy_says_whatever_is_said_for_its_tools(
    tmp_path: Path,
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")
    shutil.copy(PLAIN_SERVER, tmp_path)
    entry = {
        "command": [str(Path(sys.executable).resolve()), "plain_server.py", "new", "good"],
        "policy": {"max_attempts": 3, "retry_on": ["timeout"]},
        "tool_policies": {"echo": {"max_attempts": 1}, "resources": {"max_attempts": 6}},
    }
    server = read_server("away", entry, "a program", origin="program")
    assert server is not None
    async with mcp_servers([server], workspace=tmp_path) as servers:
        tried = {tool.name: tool.reliability.max_attempts for tool in servers.tools}
        assert (tried["away__echo"], tried["away__look"], tried["away__resources"]) == (1, 3, 3)
        assert {tool.reliability.retry_on for tool in servers.tools} == {("timeout",)}
