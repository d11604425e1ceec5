"""Calls over HTTP that are answered with plain JSON, and those that must have a stream after all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import httpx2
from mcp_place import OLD, TOKEN, Person, Place, text_of
from test_http import BEARER, HELLO, message

from ferrule import tool
from ferrule.core.calls import ErrorType
from ferrule.core.events import ToolAnswered
from ferrule.servers.mcp import client_of
from ferrule.tools.context import Context

VERSION = "2025-11-25"


@tool(side_effect="none")
async def note(context: Context, times: int = 1) -> str:
    """Write lines to the client's log."""
    for at in range(times):
        client_of(context).log("warning", f"line {at}")
    return "noted"


@dataclass
class RawClient:
    """A client of the raw protocol, with a session of the transport."""

    http: httpx2.AsyncClient
    url: str
    known: dict[str, str]
    first: Any = None
    """The answer to its first call, which the library gave."""

    async def post(
        self, method: str, params: Any = None, number: int | None = 1, **headers: str
    ) -> Any:
        asked = message(method, params, number)
        return await self.http.post(self.url, content=asked, headers={**self.known, **headers})


@asynccontextmanager
async def raw_client(place: Place, *more: Any) -> AsyncGenerator[RawClient]:
    """A client that the library has served one call."""
    async with (
        place.http(place.server(place.agent(*more))) as url,
        httpx2.AsyncClient(headers=BEARER, timeout=30) as http,
    ):
        named = (await http.post(url, content=HELLO)).headers["mcp-session-id"]
        client = RawClient(http, url, {"mcp-session-id": named, "mcp-protocol-version": VERSION})
        await client.post("notifications/initialized", number=None)
        client.first = await client.post("tools/call", {"name": "look"}, 100)
        assert client.first.headers["content-type"].startswith("text/event-stream")
        yield client


def events(answer: Any) -> list[Any]:
    """The messages of a stream of events."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


async def test_a_short_call_is_answered_with_plain_json_that_says_what_the_library_says(
    place: Place,
) -> None:
    async with raw_client(place) as raw:
        answer = await raw.post("tools/call", {"name": "look", "arguments": {}}, 7)
        failed = await raw.post(
            "tools/call", {"name": "look", "arguments": {"shelf": "x"}}, "eight"
        )
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["mcp-session-id"] == raw.known["mcp-session-id"]
    assert answer.json() == {**events(raw.first)[-1], "id": 7}
    assert failed.json()["id"] == "eight" and failed.json()["result"]["isError"] is True
    assert [event.result.success for event in place.events(ToolAnswered)] == [True, True]


async def test_a_call_that_says_something_first_gets_a_stream_and_is_made_once(
    place: Place, person: Person
) -> None:
    person.says = [{"word": "hello"}, {"word": "world"}, "yes"]
    heard: list[str | None] = []

    async def on_log(params: Any) -> None:
        heard.append(params.data)

    server = place.server(place.agent(note))
    async with (
        place.http(server) as url,
        place.over_http(url, OLD, person=person, logging_callback=on_log) as client,
    ):
        await client.call_tool("look", {})
        assert text_of(await client.call_tool("note", {"times": 3})) == "noted"
        await place.until(lambda: len(heard) == 3)
        assert text_of(await client.call_tool("ask_twice", {})) == "hello world"
        assert not (await client.call_tool("shelve", {"book": "Walden"})).is_error
    assert heard == ["line 0", "line 1", "line 2"]
    assert place.done == ["asked", "Walden"]
    assert len(place.events(ToolAnswered)) == 4


async def test_a_call_that_takes_longer_gets_a_stream_and_can_be_cancelled(place: Place) -> None:
    async with raw_client(place) as raw:
        call = asyncio.create_task(raw.post("tools/call", {"name": "wait", "arguments": {}}, 5))
        await place.begun.wait()
        # At once: the library does not know of the call yet.
        await raw.post("notifications/cancelled", {"requestId": 5}, None)
        await place.ended.wait()
        answer = await call
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert place.events(ToolAnswered)[-1].result.error_type is ErrorType.CANCELLED


async def test_a_slow_call_goes_on_when_its_connection_breaks_and_its_answer_is_fetched_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.servers.mcp.http.SOON", 0.01)
    go_on = asyncio.Event()

    @tool(side_effect="none")
    async def think() -> str:
        """Think for a while."""
        await go_on.wait()
        return "thought"

    async with raw_client(place, think) as raw:
        asked = message("tools/call", {"name": "think", "arguments": {}}, 9)
        async with raw.http.stream("POST", raw.url, content=asked, headers=raw.known) as stream:
            first = await anext(aiter(stream.aiter_lines()))
        go_on.set()
        await place.until(lambda: len(place.events(ToolAnswered)) == 2)
        back = {**raw.known, "last-event-id": first.removeprefix("id: ")}
        got: Any = None
        async with raw.http.stream("GET", raw.url, headers=back) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: {"):
                    got = json.loads(line.removeprefix("data: "))
                    break
    assert got["id"] == 9 and got["result"]["content"][0]["text"] == "thought"


async def test_what_the_library_must_see_goes_to_it(place: Place) -> None:
    """Another version in the header, metadata, another type, a tool that is not served."""
    call = {"name": "look", "arguments": {}}
    async with raw_client(place) as raw:
        answers = [
            await raw.post("tools/call", {**call, "_meta": {"progressToken": 1}}, 2),
            await raw.post("tools/call", call, 3, **{"mcp-protocol-version": "2025-06-18"}),
            await raw.post("tools/call", {"name": "nothing"}, 4),
        ]
        refused = await raw.post("tools/call", call, 5, accept="application/json")
        unread = await raw.post("tools/call", call, 6, **{"content-type": "text/plain"})
    kinds = {answer.headers["content-type"].partition(";")[0] for answer in answers}
    assert kinds == {"text/event-stream"}
    assert "Unknown tool" in events(answers[2])[-1]["error"]["message"]
    assert (refused.status_code, unread.status_code) == (406, 400)


async def test_a_session_answers_nobody_else_and_not_after_its_end(place: Place) -> None:
    call = message("tools/call", {"name": "look", "arguments": {}}, 2)
    async with raw_client(place) as raw, httpx2.AsyncClient(headers=BEARER) as http:
        stranger = {**raw.known, "authorization": "Bearer another-token-of-this-length"}
        assert (await http.post(raw.url, content=call, headers=stranger)).status_code == 401
        assert (await http.delete(raw.url, headers=raw.known)).status_code == 200
        assert (await http.post(raw.url, content=call, headers=raw.known)).status_code == 404
    assert TOKEN not in stranger["authorization"]
