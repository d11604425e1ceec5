"""Servers that send their own requests and notifications without end, and take no answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest_mcp import Place
from far_server import Server

from ferrule.connectors.mcp import McpServer
from ferrule.connectors.mcp.connection import Connection, RequestFailed
from ferrule.connectors.mcp.streams import (
    Incoming,
    Outgoing,
    PendingRequests,
    TransportStreams,
    accept_line,
)
from ferrule.testing.http_double import HttpDouble, Reply

MAX_UNANSWERED = 256
MESSAGES = 2_000
TASKS = 400
"""More than this many tasks at once is a flood that was let in."""
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "h", "version": "1"},
}
FORM = {"message": "go on?", "requestedSchema": {"type": "object", "properties": {}}}


class Flooding:
    """A server in this process: it answers the handshake, then sends what it is made of."""

    def __init__(self, flood: Callable[[int], list[dict[str, Any]]]) -> None:
        self.flood = flood
        self.incoming = Incoming(32 * 1024 * 1024)
        self.pending = PendingRequests()
        self.outgoing = Outgoing(self.pending)
        self.most_tasks = 0

    def send(self, message: dict[str, Any]) -> bool:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        return accept_line(self.incoming, self.pending, line)

    async def request(self) -> dict[str, Any]:
        line = await self.outgoing.next_line()
        return json.loads(line or b"{}")

    async def serve(self) -> None:
        self.send({"id": (await self.request())["id"], "result": ABOUT})
        await self.request()  # `notifications/initialized`
        call = await self.request()
        for number in range(MESSAGES):
            for message in self.flood(number):
                self.send(message)
        while self.incoming._items:  # pyright: ignore[reportPrivateUsage]  it is read to its end
            self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
            await asyncio.sleep(0)
            self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        self.send({"id": call["id"], "result": {"content": []}})

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[TransportStreams]:
        serving = asyncio.create_task(self.serve())
        try:
            yield TransportStreams(self.incoming, self.outgoing, asyncio.Event(), _describe_end)
        finally:
            serving.cancel()


async def _describe_end() -> str:
    return "it ended"


async def ask_for_ever(params: Mapping[str, Any]) -> Mapping[str, Any]:
    await asyncio.Event().wait()
    return {}


def asks(method: str, params: dict[str, Any]) -> Callable[[int], list[dict[str, Any]]]:
    return lambda number: [{"id": number, "method": method, "params": params}]


def asks_and_cancels(number: int) -> list[dict[str, Any]]:
    """Repeats an id and cancels it: what is unanswered cannot be known from ids."""
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    ping = {"id": 1, "method": "ping"}
    return [ping, ping, cancelled, cancelled]


async def call(server: Flooding) -> Connection:
    """Make one call to a server, after which it floods. Raises what the call raises."""
    connection = Connection(
        "h",
        server.open(),
        era="2025-11-25",
        answer_elicitation=ask_for_ever,
        on_tools_changed=lambda: None,
    )
    await connection.open()
    try:
        await connection.request("tools/call", {"name": "x", "arguments": {}}, progress=str)
    finally:
        await connection.close()
    return connection


@pytest.mark.parametrize(
    "flood",
    [
        asks("ping", {}),
        asks("elicitation/create", FORM),
        asks("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        asks("roots/list", {}),
        asks("no/such/method", {}),
        asks_and_cancels,
    ],
    ids=["pings", "questions", "sampling", "roots", "unknown", "cancelled"],
)
async def test_a_server_with_too_many_unanswered_requests_is_ended(
    flood: Callable[[int], list[dict[str, Any]]],
) -> None:
    server = Flooding(flood)
    async with asyncio.timeout(20):
        with pytest.raises(RequestFailed) as failed:
            await call(server)
    assert failed.value.kind == "gone"
    assert f"more than {MAX_UNANSWERED} requests of its own" in failed.value.message
    assert server.most_tasks < TASKS


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/progress", {"progressToken": 2, "progress": 1, "message": "m"}),
        ("notifications/message", {"level": "info", "data": "d"}),
        ("notifications/tools/list_changed", {}),
    ],
)
async def test_notifications_are_worked_on_one_by_one(method: str, params: dict[str, Any]) -> None:
    server = Flooding(lambda number: [{"method": method, "params": params}])
    async with asyncio.timeout(20):
        await call(server)
    assert server.most_tasks < 50


async def test_what_waits_to_be_read_is_counted_with_what_it_takes_when_it_is_read() -> None:
    incoming = Incoming(1_000_000)
    fitting = [incoming.put("message", 40) for _ in range(1_000)]
    assert 900 < sum(fitting) < 1_000
    assert incoming.is_flooded
    assert [message async for message in incoming] == []


async def test_a_flood_on_a_stream_of_events_ends_the_connection(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    pings = b"".join(
        b'data: {"jsonrpc":"2.0","id":%d,"method":"ping"}\n\n' % number for number in range(3_000)
    )
    reply = Reply(pieces=[pings], headers={"content-type": "text/event-stream"}, then="hold")
    async with HttpDouble(Server(lambda message: reply)) as double:
        spec = McpServer("far", url=f"{double.url}/mcp")
        async with asyncio.timeout(20):
            result = await place.call(spec, "echo", text="x")
        await place.close()
    caplog.clear()  # the SDK logs a traceback, and its frames keep the session
    assert f"more than {MAX_UNANSWERED} requests of its own" in (result.error_message or "")
