"""Serving over HTTP: the HTTP guard, connections that break and end, and streams that are nobody
else's.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import httpx2
from mcp_place import NEW, OLD, TOKEN, Person, Place, text_of

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.core.events import ToolAnswered
from ferrule.servers.mcp.http import EventHistory, _stream_owner, endpoint_url  # pyright: ignore[reportPrivateUsage]

ERAS = pytest.mark.parametrize("era", [OLD, NEW])
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
BEARER = {**ACCEPT, "authorization": f"Bearer {TOKEN}"}


def message(method: str, params: Any = None, number: int | None = 1) -> str:
    named = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}, **named})


HELLO = message(
    "initialize",
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
)


def modern(params: dict[str, Any]) -> dict[str, Any]:
    about = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return {**params, "_meta": about}


@ERAS
async def test_calls_questions_and_progress_work_over_http(
    place: Place, person: Person, era: str
) -> None:
    person.says = ["yes", {"word": "hello"}, {"word": "world"}]
    heard: list[str | None] = []

    async def on_progress(progress: float, total: float | None, said: str | None) -> None:
        heard.append(said)

    async with (
        place.http(place.server()) as url,
        place.over_http(url, era, person=person) as client,
    ):
        assert not (await client.call_tool("shelve", {"book": "Walden"})).is_error
        assert text_of(await client.call_tool("ask_twice", {})) == "hello world"
        call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=on_progress))
        await place.until(lambda: heard == ["waiting"])
        call.cancel()
        await place.ended.wait()
    assert place.done == ["Walden", "asked"]
    assert [event.result.error_type for event in place.events(ToolAnswered)][
        -1
    ] is ErrorType.CANCELLED


async def test_nobody_comes_in_without_the_token_or_from_another_site(place: Place) -> None:
    async with place.http(place.server()) as url, httpx2.AsyncClient() as http:
        refused = {
            "no token": (await http.post(url, content=HELLO, headers=ACCEPT)).status_code,
            "wrong": (
                await http.post(url, content=HELLO, headers={**ACCEPT, "authorization": "Bearer x"})
            ).status_code,
            "page": (
                await http.post(
                    url, content=HELLO, headers={**BEARER, "origin": "https://evil.example"}
                )
            ).status_code,
            "host": (
                await http.post(url, content=HELLO, headers={**BEARER, "host": "evil.example"})
            ).status_code,
            "path": (await http.post(f"{url}/other", content=HELLO, headers=BEARER)).status_code,
        }
    assert refused == {"no token": 401, "wrong": 401, "page": 403, "host": 421, "path": 404}
    assert place.events() == []


async def test_a_token_that_can_be_guessed_and_a_network_in_the_clear_are_refused(
    place: Place,
) -> None:
    with pytest.raises(ConfigError, match="a token is one line of 16"):
        await place.server().http(token="short", port=0)
    with pytest.raises(ConfigError, match="in the clear"):
        await place.server().http(token=TOKEN, host="0.0.0.0", port=0)


async def test_a_session_that_is_deleted_is_gone_and_what_it_did_stays_in_the_journal(
    place: Place,
) -> None:
    async with place.http(place.server()) as url, httpx2.AsyncClient(headers=BEARER) as http:
        session = (await http.post(url, content=HELLO)).headers["mcp-session-id"]
        known = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        await http.post(
            url, content=message("notifications/initialized", number=None), headers=known
        )
        call = asyncio.create_task(
            http.post(
                url, content=message("tools/call", {"name": "wait"}, 2), headers=known, timeout=30
            )
        )
        await place.begun.wait()
        assert (await http.delete(url, headers=known)).status_code == 200
        await place.ended.wait()
        await asyncio.wait([call])
        assert (await http.post(url, content=message("ping"), headers=known)).status_code == 404
        await place.until(lambda: len(place.events(ToolAnswered)) == 1)
    assert place.events(ToolAnswered)[0].result.error_type is ErrorType.CANCELLED


async def test_a_connection_that_breaks_does_not_end_a_call_of_an_older_client_and_the_answer_is_kept_for_it(
    place: Place,
) -> None:
    async with place.http(place.server()) as url, httpx2.AsyncClient(headers=BEARER) as http:
        session = (await http.post(url, content=HELLO)).headers["mcp-session-id"]
        other = (await http.post(url, content=HELLO)).headers["mcp-session-id"]
        known = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        await http.post(
            url, content=message("notifications/initialized", number=None), headers=known
        )
        async with http.stream(
            "POST", url, content=message("tools/call", {"name": "look"}, 2), headers=known
        ) as stream:
            first = await anext(aiter(stream.aiter_lines()))
        assert first.startswith("id: ")
        await place.until(lambda: len(place.events(ToolAnswered)) == 1)
        back = {**known, "last-event-id": first.removeprefix("id: ")}
        async with http.stream("GET", url, headers=back) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: {"):
                    assert json.loads(line.removeprefix("data: "))["id"] == 2
                    break
        stranger = {**back, "mcp-session-id": other}
        async with http.stream("GET", url, headers=stranger, timeout=5) as stream:
            assert [line async for line in stream.aiter_lines() if line.startswith("data: {")] == []


async def test_a_newer_client_that_closes_the_stream_ends_its_call(place: Place) -> None:
    asked = message("tools/call", modern({"name": "wait", "arguments": {}}))
    headers = {"mcp-protocol-version": NEW, "mcp-method": "tools/call", "mcp-name": "wait"}
    async with place.http(place.server()) as url, httpx2.AsyncClient(headers=BEARER) as http:
        call = asyncio.create_task(http.post(url, content=asked, headers=headers, timeout=30))
        await place.begun.wait()
        call.cancel()
        await place.ended.wait()
        await place.until(lambda: len(place.events(ToolAnswered)) == 1)


async def test_streams_are_bounded_and_belong_to_one_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mcp_types import JSONRPCNotification

    monkeypatch.setattr("ferrule.servers.mcp.http.MAX_EVENTS", 3)
    streams, sent = EventHistory(), list[Any]()

    async def send(event: Any) -> None:
        sent.append(event.message.method)

    names: list[str] = []
    for at in range(5):
        _stream_owner.set("one" if at != 3 else "two")
        names.append(
            await streams.store_event("1", JSONRPCNotification(jsonrpc="2.0", method=f"m{at}"))
        )
    _stream_owner.set("one")
    assert await streams.replay_events_after(names[0], send) is None, "forgotten"
    assert await streams.replay_events_after(names[2], send) == "1" and sent == ["m4"]
    assert await streams.replay_events_after(names[3], send) is None, "another session's"


@pytest.mark.parametrize(
    "given",
    ["https://a.example", "https://a.example/", "https://a.example/mcp", "https://a.example/mcp/"],
)
def test_the_announced_address_has_the_path_once(given: str) -> None:
    assert endpoint_url(given) == "https://a.example/mcp"
