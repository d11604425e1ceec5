"""Clients and their sessions: how many there are, and which of them goes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from mcp_place import NEW, Place

from ferrule.core.events import Noticed, ToolAnswered
from ferrule.engine.session import Session
from ferrule.servers.mcp import McpServer
from ferrule.servers.mcp.requests import ClientRequest
from ferrule.servers.mcp.sessions import ClientIdentity, ClientSessions, LimitExceeded


def who(name: str) -> ClientIdentity:
    return ClientIdentity(("here", name), f"mcp:{name}")


async def forever(request: Any) -> None:
    await asyncio.Event().wait()


class Gone:
    """A client that hears nothing."""

    async def drain(self) -> None:
        pass

    def disconnect(self) -> None:
        pass


async def test_the_quietest_client_makes_room_and_a_busy_one_does_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.servers.mcp.sessions.MAX_CLIENTS", 2)
    sessions = ClientSessions(place.agent())
    first, second = sessions.session_for(who("one"), "one"), sessions.session_for(who("two"), "two")
    assert sessions.session_for(who("one"), "again") is first
    third = sessions.session_for(who("three"), "three")
    assert set(sessions) == {first, third}, "two was quiet longest"
    assert sessions.session_for(who("one"), "again") is first
    nobody: Any = cast(Any, None)
    first.start_request(nobody, {}, forever)
    third.start_request(nobody, {}, forever)
    with pytest.raises(LimitExceeded, match="2 clients are served already"):
        sessions.session_for(who("four"), "four")
    await sessions.close()
    assert not list(sessions) and not first.is_busy and not second.is_busy


async def test_a_client_is_quiet_from_the_end_of_its_request_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.servers.mcp.sessions.MAX_CLIENTS", 2)
    sessions = ClientSessions(place.agent())
    first = sessions.session_for(who("one"), "one")
    go_on = asyncio.Event()

    async def work(request: Any) -> None:
        await go_on.wait()

    request = first.start_request(cast(Any, Gone()), {}, work)
    sessions.session_for(who("two"), "two")
    go_on.set()
    assert await request.wait() is None
    third = sessions.session_for(who("three"), "three")
    assert set(sessions) == {first, third}, "two was quiet longest"
    await sessions.close()


async def test_who_stops_waiting_for_a_request_ends_its_work_and_is_cancelled() -> None:
    request = ClientRequest(cast(Any, Gone()), {})
    request.start(forever(request), lambda: None)
    waiting = asyncio.create_task(request.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert request.is_done


async def test_a_client_that_was_quiet_for_long_is_gone(
    place: Place,
) -> None:
    sessions = ClientSessions(place.agent())
    first = sessions.session_for(who("one"), "one")
    sessions.pool.idle_seconds = 0.0
    sessions.pool.sweep()
    sessions.pool.idle_seconds = None
    assert sessions.session_for(who("one"), "one") is not first
    await sessions.close()


async def test_a_client_that_did_nothing_leaves_nothing_in_the_journal(place: Place) -> None:
    sessions = ClientSessions(place.agent())
    sessions.session_for(who("one"), "one")
    await sessions.close()
    assert place.events(Noticed) == []


async def test_subscriptions_are_bounded(place: Place) -> None:
    sessions = ClientSessions(place.agent())
    visit = sessions.session_for(who("one"), "one")
    for at in range(256):
        visit.subscribe(f"book://{at}")
    visit.subscribe("book://0")
    with pytest.raises(LimitExceeded):
        visit.subscribe("book://other")
    await sessions.close()


async def test_a_long_connection_does_not_keep_what_its_calls_said(place: Place) -> None:
    ended: list[str] = []

    async def end(session: Session) -> None:
        ended.append(session.id)
        await session.close()

    server = McpServer(place.agent(), end=end)
    async with place.client(server, NEW) as client:
        assert (await client.call_tool("catalogue", {"lines": 1_000})).content
        (visit,) = server._service.sessions  # pyright: ignore[reportPrivateUsage]  nothing else shows what is kept
        machine = visit.session.driver.machine
        (call,) = machine.call_ids
        slot = machine.find_slot(call)
        assert (
            slot is not None
            and slot.result is not None
            and slot.result.success
            and slot.result.data is None
        )
        assert not visit.calls
    await server.close()
    assert ended == [visit.session.id]
    assert place.events(ToolAnswered)[0].result.data.startswith("book 000000")
