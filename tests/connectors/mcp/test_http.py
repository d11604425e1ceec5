"""Servers over HTTP that misbehave, and what never leaves for where it does not belong."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest
from conftest_mcp import Place
from far_server import Server

from ferrule.connectors.mcp import McpServer, OAuth
from ferrule.connectors.mcp.http import make_http_client
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.reliability import Policies, Reliability

MAX_BODY = 8 * 1024 * 1024


async def test_a_server_over_http_is_called_with_its_headers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_TOKEN", "t-1")
    async with HttpDouble(Server()) as double:
        spec = McpServer(
            "docs", url=f"{double.url}/mcp", headers={"Authorization": "Bearer ${DOCS_TOKEN}"}
        )
        assert (await place.call(spec, "echo", text="x")).data == "hello"
        await place.close()
    assert {one.headers["authorization"] for one in double.requests} == {"Bearer t-1"}
    call = next(one for one in double.requests if one.json().get("method") == "tools/call")
    assert (call.headers["mcp-method"], call.headers["mcp-name"]) == ("tools/call", "echo")


@pytest.mark.parametrize("kind", ["json", "events"])
async def test_a_giant_answer_is_not_read_to_its_end(place: Place, kind: str) -> None:
    piece = b"x" * 1_000_000
    pieces = [b'{"jsonrpc":"2.0","id":1,"result":"' if kind == "json" else b"data: ", *[piece] * 40]
    headers = {"content-type": "application/json" if kind == "json" else "text/event-stream"}
    async with HttpDouble(Server(lambda message: Reply(pieces=pieces, headers=headers))) as double:
        spec = McpServer(
            "docs", url=f"{double.url}/mcp", policies=Policies(Reliability(timeout=20.0))
        )
        result = await place.call(spec, "echo", text="x")
        await place.close()
    assert not result.success and result.size < MAX_BODY


class MixedUp:
    """A server whose calls wait for one another, and whose streams then carry each other's answers.

    Each answer names the request that it really answers. With `breaks_off` a stream ends before
    its answer, and the rest of it is asked for.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.plain = Server()
        self.calls: list[dict[str, Any]] = []
        self.all_there = asyncio.Event()

    async def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            return self.stream(int(request.headers["last-event-id"]))
        message = request.json()
        if message.get("method") != "tools/call":
            return self.plain(request)
        self.calls.append(message)
        if len(self.calls) == 2:
            self.all_there.set()
        await self.all_there.wait()
        if self.kind == "breaks-off":
            begun = f"retry: 1\nid: {message['id']}\ndata:\n\n"
            return Reply(pieces=[begun.encode()], headers={"content-type": "text/event-stream"})
        return self.stream(message["id"])

    def stream(self, asked: int) -> Reply:
        (other,) = (one for one in self.calls if one["id"] != asked)
        text = f"for {other['params']['arguments']['text']}"
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        answer = json.dumps({"jsonrpc": "2.0", "id": other["id"], "result": result})
        if self.kind == "json":
            return Reply(pieces=[answer.encode()], headers={"content-type": "application/json"})
        coding = "utf-16" if self.kind == "utf-16" else "utf-8"
        lines = answer.replace(", ", ",\rdata:") if self.kind == "lines" else answer
        event = f"data: {lines}\n\n".encode(coding)
        return Reply(
            pieces=[event], headers={"content-type": f"Text/Event-Stream; charset={coding}"}
        )


@pytest.mark.parametrize("kind", ["json", "events", "lines", "utf-16", "breaks-off"])
async def test_no_call_gets_the_answer_of_another_call(place: Place, kind: str) -> None:
    async with HttpDouble(MixedUp(kind)) as double:
        servers = await place.servers(McpServer("docs", url=f"{double.url}/mcp"))
        async with asyncio.timeout(20):
            results = await asyncio.gather(
                *(
                    place.session(servers).call("docs__echo", text=person)
                    for person in ("alice", "bob")
                )
            )
        await place.close()
    for result in results:
        assert (result.data, result.error_type) == (None, ErrorType.PARSE_ERROR)
        assert "its answer is not valid: it answers request" in (result.error_message or "")


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_refusal_that_names_no_request_is_the_answer_to_the_one_that_it_came_for(
    place: Place, kind: str
) -> None:
    refusal = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too early"}}'
    data = refusal if kind.endswith("json") else b"data: " + refusal + b"\n\n"
    reply = Reply(pieces=[data], headers={"content-type": kind})
    async with HttpDouble(Server(lambda message: reply)) as double:
        spec = McpServer("docs", url=f"{double.url}/mcp")
        result = await place.call(spec, "echo", text="x")
        await place.close()
    assert "too early" in (result.error_message or "")


async def test_a_compressed_answer_is_refused(place: Place) -> None:
    bomb = Reply(
        pieces=[gzip.compress(b"x" * 10_000_000)],
        headers={"content-type": "application/json", "content-encoding": "gzip"},
    )
    async with HttpDouble(Server(lambda message: bomb)) as double:
        spec = McpServer(
            "docs", url=f"{double.url}/mcp", policies=Policies(Reliability(timeout=10.0))
        )
        result = await place.call(spec, "echo", text="x")
        await place.close()
    assert not result.success


async def test_headers_do_not_follow_a_redirect_to_somebody_else(place: Place) -> None:
    async with HttpDouble(Server()) as other:
        away = Reply(status=307, headers={"location": f"{other.url}/mcp"})
        async with HttpDouble(lambda request: away) as double:
            spec = McpServer(
                "docs", url=f"{double.url}/mcp", headers={"X-Key": "secret"}, connect_timeout=5.0
            )
            servers = await place.servers(spec)
            await place.close()
        assert servers.tools == () and other.requests == []


@pytest.mark.parametrize(
    ("tool", "policy", "attempts"),
    [
        ("look", Reliability(max_attempts=3), 3),
        ("look", Reliability(max_attempts=1), 1),
        ("look", Reliability(max_attempts=3, retry_on=("timeout",)), 1),
        ("look", Reliability(max_attempts=3, retry_on=("permanent",)), 1),
        ("echo", Reliability(max_attempts=3), 1),
    ],
)
async def test_a_5xx_is_tried_again_as_the_policy_says_and_only_where_it_does_no_harm(
    place: Place, tool: str, policy: Reliability, attempts: int
) -> None:
    server = Server(lambda message: Reply(status=503, pieces=[b"busy"]))
    async with HttpDouble(server) as double:
        spec = McpServer("docs", url=f"{double.url}/mcp", hints=True, policies=Policies(policy))
        result = await place.call(spec, tool, text="x")
        await place.close()
    assert not result.success and server.calls == attempts


async def test_a_server_that_takes_the_request_and_says_nothing_is_a_timeout(place: Place) -> None:
    async with HttpDouble(Server(lambda message: Reply(hold_head=True))) as double:
        spec = McpServer(
            "docs", url=f"{double.url}/mcp", policies=Policies(Reliability(timeout=0.3))
        )
        result = await place.call(spec, "echo", text="x")
        assert result.error_type is ErrorType.TIMEOUT
        await place.close()


async def test_a_server_that_wants_a_person_to_sign_in_says_so_in_a_run(place: Place) -> None:
    def handler(request: Request) -> Reply:
        if request.target.startswith("/.well-known/oauth-protected-resource"):
            return Reply(
                json={"resource": f"{double.url}/mcp", "authorization_servers": [double.url]}
            )
        if request.target.startswith("/.well-known/"):
            about = {"issuer": double.url, "authorization_endpoint": f"{double.url}/authorize"}
            more = {"token_endpoint": f"{double.url}/token", "response_types_supported": ["code"]}
            return Reply(json={**about, **more, "code_challenge_methods_supported": ["S256"]})
        return Reply(status=401, headers={"www-authenticate": "Bearer"})

    async with HttpDouble(handler) as double:
        spec = McpServer(
            "docs", url=f"{double.url}/mcp", oauth=OAuth(client_id="me"), connect_timeout=10.0
        )
        servers = await place.servers(spec)
        await place.close()
    assert any("sign in" in one and "ferrule mcp login docs" in one for one in servers.notices), (
        servers.notices
    )


@pytest.mark.proves("mcp.http.ssrf")
@pytest.mark.parametrize(
    "address",
    [
        "http://192.0.2.1/x",
        "https://169.254.169.254/latest",
        "https://127.0.0.1:9/x",
        "https://10.0.0.1/",
    ],
)
async def test_addresses_that_a_server_names_do_not_lead_inside(address: str) -> None:
    import httpx2

    async with make_http_client("https://mcp.example.com/mcp") as client:
        with pytest.raises(httpx2.ConnectError, match="is not contacted"):
            await client.get(address)


def test_plain_http_is_for_this_machine_only() -> None:
    with pytest.raises(ConfigError, match="in the clear"):
        McpServer("x", url="http://mcp.example.com/mcp")
    for url in ("http://localhost:3030/mcp", "http://127.0.0.1:1/", "http://[::1]:2/"):
        assert McpServer("x", url=url).transport == "http"
