"""Servers as they are met: sessions that expire, tools and results that are not quite right."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ferrule import Agent, Permissions, Scripted
from ferrule.connectors.mcp import McpServer, connect, server_client
from ferrule.connectors.mcp.raw_results import LEFT_OUT, sort_out_tools
from ferrule.connectors.mcp.server_client import ServerClient
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.tools.reliability import read_policies

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
NOT_FOUND = json.dumps({"jsonrpc": "2.0", "id": 0, "error": {"code": -32001, "message": "x"}})


class Met:
    """A server over HTTP with sessions. `expire` forgets them; `gone` is how it says so."""

    def __init__(self) -> None:
        self.tools: list[Any] = [{"name": "add", "inputSchema": OBJECT}]
        self.results: dict[str, Any] = {}
        self.statuses: dict[str, tuple[int, str]] = {}
        self.gone: tuple[int, str] = (404, "")
        self.opened = 0
        self.live: set[str] = set()
        self.called: list[str] = []
        self.gains: list[Any] = []
        """Tools that are announced with the next calls, one with each."""
        self.lists: dict[str, Any] = {}
        """Results of further lists, by method."""
        self.broken_lists = 0
        """How many of the next lists of tools fail."""
        met = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def reply(self, status: int, body: str = "", **headers: str) -> None:
                self.send_response(status)
                kind = "application/json" if body.startswith("{") else "text/plain"
                self.send_header("content-type", headers.pop("content_kind", kind))
                self.send_header("content-length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body.encode())

            def do_GET(self) -> None:
                self.reply(405)

            def do_DELETE(self) -> None:
                self.reply(200)

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
                met.answer(self, sent)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, handler: Any, sent: dict[str, Any]) -> None:
        method = sent.get("method", "")

        def result(value: Any, **headers: str) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": value})
            handler.reply(200, body, **headers)

        if "id" not in sent:
            return handler.reply(202)
        if method.startswith("server/"):
            error = {"code": -32601, "message": "no"}
            return handler.reply(200, json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}))
        if method == "initialize":
            self.opened += 1
            session = f"s{self.opened}"
            self.live.add(session)
            opening = {
                "protocolVersion": "2025-11-25",
                "capabilities": {
                    "tools": {"listChanged": True},
                    **{method.partition("/")[0]: {} for method in self.lists},
                },
                "serverInfo": {"name": "met", "version": "1"},
            }
            return result(opening, mcp_session_id=session)
        if handler.headers["mcp-session-id"] not in self.live:
            return handler.reply(*self.gone)
        if method.endswith("/list"):
            return self.list(handler, method, sent["id"], result)
        name = sent["params"]["name"]
        self.called.append(name)
        if self.gains:
            self.tools.append(self.gains.pop(0))
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            answer: Any = {"jsonrpc": "2.0", "id": sent["id"], "result": {"content": []}}
            events = "".join(f"data: {json.dumps(one)}\n\n" for one in (changed, answer))
            return handler.reply(200, events, content_kind="text/event-stream")
        if name in self.statuses:
            return handler.reply(*self.statuses[name])
        return result(self.results.get(name, {"content": [{"type": "text", "text": "done"}]}))

    def list(self, handler: Any, method: str, number: Any, result: Any) -> None:
        if method == "tools/list" and self.broken_lists and self.called:
            self.broken_lists -= 1
            return handler.reply(500, "busy")
        if method == "tools/list":
            return result({"tools": self.tools})
        if method in self.lists:
            return result(self.lists[method])
        error = {"code": -32601, "message": "no such method"}
        return handler.reply(200, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))

    def expire(self) -> None:
        self.live.clear()

    def spec(self, **more: Any) -> McpServer:
        return McpServer("met", url=self.url, **more)


@pytest.fixture
def met() -> Iterator[Met]:
    made = Met()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize("gone", [(404, ""), (404, "not found"), (404, NOT_FOUND)])
async def test_an_expired_session_is_begun_anew_and_the_call_made_once(
    place: Any, met: Met, gone: tuple[int, str]
) -> None:
    met.gone = gone
    session = place.session(await place.servers(met.spec()))
    assert (await session.call("met__add")).data == "done"
    met.expire()
    assert (await session.call("met__add")).data == "done"
    assert (met.opened, met.called) == (2, ["add", "add"])


async def test_many_calls_that_meet_an_expired_session_all_run_once(place: Any, met: Met) -> None:
    session = place.session(await place.servers(met.spec()))
    assert (await session.call("met__add")).success
    met.expire()
    results = await asyncio.gather(*(session.call("met__add") for _ in range(5)))
    assert all(result.success for result in results) and len(met.called) == 6


async def test_a_session_that_expired_before_the_tools_were_listed_again_is_begun_anew(
    place: Any, met: Met, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = place.session(await place.servers(met.spec()))
    assert (await session.call("met__add")).success
    monkeypatch.setattr(server_client, "LISTING_LIFETIME", -1.0)
    met.expire()
    assert (await session.call("met__add")).success and met.opened == 2


async def test_a_server_that_forgets_every_session_is_an_error_and_no_loop(
    place: Any, met: Met
) -> None:
    session = place.session(await place.servers(met.spec()))
    assert (await session.call("met__add")).success
    met.live = frozenset()  # type: ignore[assignment]
    met.answer = _forget(met, met.answer)  # type: ignore[method-assign]
    result = await session.call("met__add")
    assert result.error_type == ErrorType.IO_ERROR and "expired" in (result.error_message or "")
    assert met.opened <= 3


def _forget(met: Met, answer: Callable[..., None]) -> Callable[..., None]:
    def forgetting(handler: Any, sent: dict[str, Any]) -> None:
        met.live = set()
        answer(handler, sent)
        met.live = set()

    return forgetting


async def test_a_session_refused_with_400_is_begun_anew_and_the_call_not_repeated(
    place: Any, met: Met
) -> None:
    session = place.session(await place.servers(met.spec()))
    assert (await session.call("met__add")).success
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    met.gone = (400, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}))
    met.expire()
    result = await session.call("met__add")
    assert "outcome unknown" in (result.error_message or "") and met.called == ["add"]
    assert (await session.call("met__add")).success


async def test_a_tool_that_is_not_valid_costs_itself_and_is_named(place: Any, met: Met) -> None:
    met.tools += [
        {"name": "bare", "inputSchema": {}},
        {"name": "titled", "inputSchema": OBJECT, "title": 3},
        {"name": "none"},
        "no object",
    ]
    servers = await place.servers(met.spec())
    assert [tool.full_name for tool in servers.tools] == ["met__add", "met__bare"]
    said = "\n".join(servers.notices)
    assert "tool `titled` is left out" in said and "title" in said
    assert "tool `none` is left out" in said and "inputSchema" in said
    result = await place.session(servers).call("met__bare")
    assert result.data == "done"


@pytest.mark.parametrize(
    ("sent", "value"),
    [
        ({"structuredContent": {"v": 1}}, {"v": 1}),
        ({"content": [], "structuredContent": [1, 2]}, [1, 2]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "later", "z": 1}]}, None),
    ],
)
async def test_a_result_that_is_not_quite_right_is_a_result(
    place: Any, met: Met, sent: dict[str, Any], value: Any
) -> None:
    met.results["add"] = sent
    result = await place.session(await place.servers(met.spec())).call("met__add")
    assert result.success, result.error_message
    if value is None:
        assert result.data["parts"][0] == {"type": "text", "text": "a"}
    else:
        assert result.data == value


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "the request is not valid for it"),
        (401, "it wants a sign-in"),
        (403, "it refuses access"),
        (429, "too many requests"),
    ],
)
async def test_statuses_are_told_apart(place: Any, met: Met, status: int, said: str) -> None:
    met.statuses["add"] = (status, "")
    result = await place.session(await place.servers(met.spec())).call("met__add")
    assert f"it answered with the status {status} ({said})" in (result.error_message or "")


async def test_attempts_that_a_person_wrote_for_a_tool_hold_whatever_its_server_says(
    place: Any, met: Met
) -> None:
    met.statuses["add"] = (503, "")
    policy = {"max_attempts": 3, "retry_on": ["5xx"], "backoff_base_ms": 1}
    written = read_policies(None, {"add": policy}, "t")
    session = place.session(await place.servers(met.spec(policies=written)))
    assert not (await session.call("met__add")).success
    assert met.called == ["add"] * 3


async def test_attempts_for_all_tools_hold_for_harmless_ones_and_that_is_said(
    place: Any, met: Met
) -> None:
    met.statuses["add"] = (503, "")
    for_all = read_policies({"max_attempts": 3, "retry_on": ["5xx"]}, None, "t")
    servers = await place.servers(met.spec(policies=for_all))
    assert not (await place.session(servers).call("met__add")).success
    assert met.called == ["add"]
    assert any("name others in `tool_policies`" in notice for notice in servers.notices)


async def test_a_server_that_cannot_be_used_raises_unless_it_is_optional(place: Any) -> None:
    missing = McpServer("lost", command=("/no/such/program",))
    with pytest.raises(ConfigError, match="lost") as raised:
        async with connect([missing], launch=place.ground, approvals=place.approvals):
            pass
    assert "optional=True" in raised.value.hint
    servers = await place.servers(missing, optional=True)
    assert servers.tools == () and "lost" in servers.notices[0]


def test_only_what_is_wrong_is_taken_out_of_a_list() -> None:
    good, refused = sort_out_tools(
        {"tools": [{"name": "a", "inputSchema": OBJECT}, {"name": "b"}]}, "2025-11-25"
    )
    assert [tool["name"] for tool in good["tools"]] == ["a"]
    assert refused[0]["name"] == "b" and LEFT_OUT in refused[0]


def make_agent(place: Any, servers: Any, *steps: Any) -> Agent[None, str]:
    return Agent(
        Scripted(steps),
        servers.tools,
        workspace=place.root,
        permissions=Permissions(approver=AllowlistApprover(["*"])),
    )


NEW = {"name": "subtract", "inputSchema": OBJECT}


async def test_tools_that_a_server_announces_are_called_in_the_next_turn(
    place: Any, met: Met
) -> None:
    servers = await place.servers(met.spec())
    met.gains = [NEW, {"name": "divide", "inputSchema": OBJECT}]
    steps = [
        calls(("met__add", {})),
        calls(("met__subtract", {})),
        calls(("met__divide", {})),
        says("done"),
    ]
    async with make_agent(place, servers, *steps) as agent:
        run = await agent.run("go")
    assert [one.success for one in run.results] == [True] * 3
    assert met.called == ["add", "subtract", "divide"]
    names = [tool.full_name for tool in servers.tools]
    assert names == ["met__add", "met__divide", "met__subtract"]
    again = await place.servers(met.spec())
    assert [tool.full_name for tool in again.tools] == names


@pytest.mark.parametrize(("broken", "found"), [(1, True), (2, True), (3, False)])
async def test_a_change_that_could_not_be_listed_is_listed_with_the_next_turn(
    place: Any, met: Met, broken: int, found: bool
) -> None:
    servers = await place.servers(met.spec())
    met.gains = [NEW]
    met.broken_lists = broken
    look = calls(("nothing", {}))
    steps = [calls(("met__add", {})), look, look, look, calls(("met__subtract", {})), says("done")]
    async with make_agent(place, servers, *steps) as agent:
        run = await agent.run("go")
    assert run.results[-1].success is found
    assert met.called == ["add", "subtract"][: 1 + found]


async def test_a_malformed_entry_of_a_list_costs_itself_and_is_named(place: Any, met: Met) -> None:
    good = {"uri": "shop://one", "name": "one"}
    met.lists = {
        "resources/list": {"resources": [good, "nonsense", {"name": "two"}, {"uri": 7}, None]},
        "resources/templates/list": {"resourceTemplates": {"uriTemplate": "x"}},
        "prompts/list": {"prompts": [{"title": "Untold"}, {"name": "greet"}]},
    }
    session = place.session(await place.servers(met.spec()))
    resources = (await session.call("met__resources")).data
    assert resources["resources"] == [good] and resources["templates"] == []
    assert resources["left_out"] == [
        "resource 2: it has no `uri`",
        "resource 3 'two': it has no `uri`",
        "resource 4: it has no `uri`",
        "resource 5: it has no `uri`",
        "the list of templates is no list",
    ]
    prompts = (await session.call("met__prompts")).data
    assert prompts["prompts"] == [{"name": "greet"}]
    assert prompts["left_out"] == ["prompt 1 'Untold': it has no `name`"]


async def test_an_announced_tool_that_is_not_selected_or_denied_is_not_there(
    place: Any, met: Met
) -> None:
    servers = await place.servers(met.spec(without=("subtract",)))
    met.gains = [NEW]
    steps = [calls(("met__add", {})), calls(("met__subtract", {})), says("done")]
    async with make_agent(place, servers, *steps) as agent:
        run = await agent.run("go")
    assert run.results[1].error_type is ErrorType.NOT_FOUND
    assert met.called == ["add"]


async def test_what_a_persons_server_announces_waits_for_an_approval(place: Any, met: Met) -> None:
    spec = met.spec(origin="person")
    place.approvals.approve(spec, await list_tools(place, met))
    servers = await place.servers(spec)
    met.gains = [NEW]
    steps = [calls(("met__add", {})), calls(("met__subtract", {})), says("done")]
    async with make_agent(place, servers, *steps) as agent:
        run = await agent.run("go")
    assert [one.success for one in run.results] == [True, False]
    assert "nobody approved: `subtract`; `ferrule mcp approve met`" in servers.notices[-1]


async def list_tools(place: Any, met: Met) -> Any:
    client = ServerClient(met.spec(), place.ground, place.approvals, None)
    try:
        return await client.fetch_manifest()
    finally:
        await client.close()
