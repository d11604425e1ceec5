"""The live stream of the console, over real sockets: who sees what, coming back, being slow, and
leaving.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from ferrule import tool
from ferrule.console import stream
from ferrule.console.viewer import Viewer
from ferrule.core.calls import ToolResult
from ferrule.core.events import LimitHit, ToolAnswered
from ferrule.core.identity import Identity
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.event_selection import OwnSessions
from ferrule.models.scripted import Scripted, calls, says
from ferrule.runtime.http.http_security import HttpGuard, Principal, Visitor
from ferrule.runtime.http.server import accepted_hosts, accepted_origins, bound_port, listen, serve
from ferrule.runtime.http.sign_in import BrowserSignIn
from ferrule.storage.journal.sqlite import SqliteJournal

PEOPLE = {
    "the-token-of-the-owner": Principal("owner", operator=True),
    "the-token-of-bob-himself": Principal("bob"),
}
OWNER, BOB = PEOPLE


@tool(risk="safe", side_effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"{at} looks fine"


@asynccontextmanager
async def at_an_address(app: Any) -> AsyncIterator[int]:
    """The application behind the HTTP guard, on a port."""
    listening = listen("127.0.0.1", 0)
    port = bound_port(listening)
    signing = BrowserSignIn(accepted_origins("127.0.0.1", port))
    http_guard = HttpGuard(
        app, token=PEOPLE, hosts=accepted_hosts("127.0.0.1", port), browsers=signing
    )
    task = asyncio.create_task(serve(http_guard, "127.0.0.1", port, listening=listening))
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def on_air(
    served: Callable[..., Any], *steps: Any, **more: Any
) -> AsyncIterator[tuple[Any, int]]:
    """A console whose model says these, and its port."""
    async with (
        served({"scripted:a": steps}, tools=[look], **more) as serving,
        at_an_address(serving.app) as port,
    ):
        yield serving, port


@dataclass
class StreamMessage:
    """One message of the stream."""

    kind: str
    cursor: str
    data: dict[str, Any]

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.data["sequence"].split("."))


@dataclass
class Watcher:
    """A reader of the stream that speaks HTTP itself: it reads when it is told to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    comments: int = 0
    text: str = ""
    kept: bytes = b""
    retry: int = 0
    told: list[StreamMessage] = field(default_factory=list[StreamMessage])

    async def next(self) -> StreamMessage:
        """The next message. Raises EOFError when the stream has ended."""
        async with asyncio.timeout(30):
            while True:
                block = await self.block()
                fields = dict(line.partition(": ")[::2] for line in block.splitlines())
                if "data" in fields:
                    message = StreamMessage(
                        fields["event"], fields.get("id", ""), json.loads(fields["data"])
                    )
                    self.told.append(message)
                    return message
                self.retry = int(fields.get("retry", self.retry))
                self.comments += block.startswith(":")

    async def block(self) -> str:
        while b"\n\n" not in self.kept:
            size = int(await self.reader.readline() or b"0", 16)
            self.kept += (await self.reader.readexactly(size + 2))[:-2]
            if not size:
                raise EOFError
        block, _, self.kept = self.kept.partition(b"\n\n")
        return block.decode()

    async def until(self, kind: str) -> list[StreamMessage]:
        """Messages up to the first one of this kind."""
        found = [await self.next()]
        while found[-1].kind != kind:
            found.append(await self.next())
        return found

    async def leave(self) -> None:
        self.writer.close()
        await asyncio.wait([asyncio.ensure_future(self.writer.wait_closed())])


@asynccontextmanager
async def watching(
    port: int, query: str = "", *, token: str = OWNER, room: int = 0, **headers: str
) -> AsyncIterator[Watcher]:
    """A reader that is connected. `room`: bytes that its side of the connection takes without being
    read.
    """
    connecting = socket.socket()
    if room:
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    connecting.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connecting, limit=max(room, 65_536))
    sent = {"host": f"127.0.0.1:{port}", **headers}
    if "cookie" not in headers:
        sent["authorization"] = f"Bearer {token}"
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in sent.items()]
    writer.write("\r\n".join([f"GET /stream{query} HTTP/1.1", *lines, "", ""]).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    watcher = Watcher(reader, writer, int(head.split()[1]))
    if watcher.status != 200:
        length = re.search(r"content-length: (\d+)", head, re.I)
        size = int(length[1]) if length else int(await reader.readline(), 16)
        watcher.text = (await reader.readexactly(size)).decode()
    try:
        yield watcher
    finally:
        await watcher.leave()


async def begun(serving: Any, text: str = "go", user: str = "owner") -> str:
    """A run through the console, worked to its end; the session."""
    live = await serving.console.open_sessions.start(Viewer(user, user == "owner"), text)
    await asyncio.wait([live.run_task])
    return live.id


def elsewhere(journal: Path, *steps: Any) -> Agent:
    """The agent of another process, which knows nothing of the console's."""
    return Agent(
        Scripted(list(steps), model="scripted:a"),
        [look],
        storage=Storage(journal=journal, user="owner"),
    )


async def said(agent: Agent, text: str, session: str | None = None) -> str:
    opened = agent.resume(session) if session else agent.session()
    try:
        await opened.run(text)
    finally:
        await opened.close()
    return opened.id


async def test_a_reader_sees_a_run_as_the_journal_will_tell_it(served: Callable[..., Any]) -> None:
    async with on_air(served, calls(("look", {"at": "x"})), says("fine")) as (serving, port):
        async with watching(port) as watcher:
            session = await begun(serving)
            seen = await watcher.until("run.finished")
        numbered = [one for one in seen if one.data["session"] == session and len(one.place) == 1]
        written = [
            (record.event.kind, (record.seq,)) for record in serving.journal.records(session)
        ]
        assert [(one.kind, one.place) for one in numbered] == written[: len(numbered)]
        assert watcher.retry == stream.RETRY and all(
            one.cursor == one.data["cursor"] for one in seen
        )


async def test_kinds_choose_what_is_told_and_unknown_ones_are_refused(
    served: Callable[..., Any],
) -> None:
    script = [calls(("look", {"at": "x"})), says("fine")]
    async with on_air(served, *script) as (serving, port):
        async with watching(port, "?kinds=call.*,run.finished") as watcher:
            await begun(serving)
            kinds = {one.kind for one in await watcher.until("run.finished")}
        assert kinds and all(kind.startswith("call.") or kind == "run.finished" for kind in kinds)
        async with watching(port, "?kinds=cal.*", accept="text/html") as refused:
            assert refused.status == 422


async def test_what_belongs_to_somebody_else_is_not_told_and_does_not_exist(
    served: Callable[..., Any],
) -> None:
    async with on_air(served, says("mine"), says("his")) as (serving, port):
        async with watching(port, token=BOB) as bob, watching(port) as owner:
            session = await begun(serving)
            await begun(serving, "his", user="bob")
            assert {one.data["user"] for one in await bob.until("run.finished")} == {"bob"}
            await owner.until("run.finished")
            seen = {one.data["user"] for one in await owner.until("run.finished")}
            assert "bob" in seen and {one.data["user"] for one in owner.told} >= {"owner", "bob"}
        async with watching(port, f"?session={session}", token=BOB) as refused:
            assert refused.status == 404
        async with watching(port, f"?session={session}") as allowed:
            assert allowed.status == 200


async def test_a_reader_that_comes_back_gets_what_it_missed_and_nothing_twice(
    served: Callable[..., Any],
) -> None:
    script = [calls(("look", {"at": "x"})), says("one"), calls(("look", {"at": "y"})), says("two")]
    async with on_air(served, *script) as (serving, port):
        session = await begun(serving)
        async with watching(port, f"?session={session}&cursor=3") as first:
            before = [await first.next() for _ in range(4)]
        info = serving.journal.find(session)
        live = await serving.console.open_sessions.send_message(
            Viewer("owner", True), info, "and on"
        )
        await asyncio.wait([live.run_task])
        last = serving.journal.head(session)[0]
        query = f"?session={session}&cursor=3"
        async with watching(port, query, last_event_id=before[-1].cursor) as second:
            while (await second.next()).place != (last,):
                pass
        places = [one.place for one in (*before, *second.told) if len(one.place) == 1]
        assert places == [(number,) for number in range(4, last + 1)]


@pytest.mark.parametrize("cursor", ["99999", "not-a-cursor", "1.2.3", "-1", "9~9~deadbeef"])
async def test_a_cursor_that_leads_nowhere_is_said_and_the_stream_goes_on_from_now(
    served: Callable[..., Any], cursor: str
) -> None:
    async with on_air(served, says("one"), says("two")) as (serving, port):
        session = await begun(serving)
        async with watching(port, f"?session={session}", last_event_id=cursor) as watcher:
            reset = await watcher.next()
            assert reset.kind == stream.RESET and reset.data["reason"] and reset.cursor == ""
            info = serving.journal.find(session)
            live = await serving.console.open_sessions.send_message(
                Viewer("owner", True), info, "more"
            )
            await asyncio.wait([live.run_task])
            assert all(one.place[0] > info.events for one in await watcher.until("run.finished"))


async def test_all_sessions_have_no_past_and_whoever_comes_back_is_told_so(
    served: Callable[..., Any],
) -> None:
    async with (
        on_air(served, says("one")) as (serving, port),
        watching(port, last_event_id="7~7~deadbeef") as watcher,
    ):
        assert (await watcher.next()).kind == stream.RESET
        await begun(serving)
        await watcher.until("run.finished")


async def test_a_slow_reader_is_told_exactly_what_it_missed(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BUFFER", 8)
    large = ToolAnswered(ToolResult("c", "look", True, "lorem ipsum " * 3000))
    async with on_air(served) as (serving, port):
        one, other = (Identity("local", "bob", f"s{number}", "r") for number in (1, 2))
        feeds = {who.session: serving.console.bus.feed(who) for who in (one, other)}
        async with watching(port, token=BOB, room=4096) as slow, watching(port, token=BOB) as quick:
            reading = asyncio.ensure_future(quick.until("limit.hit"))
            for number in range(1, 401):
                feeds["s1" if number % 3 else "s2"].publish(large)
                # The quick one keeps up with what it can: the slow one reads nothing meanwhile.
                await asyncio.sleep(0)
            feeds["s1"].publish(LimitHit("max_turns", 10))
            await slow.until("limit.hit")
            await reading
        for reader in (slow, quick):
            _accounted(reader.told, {"s1": feeds["s1"].place.event, "s2": feeds["s2"].place.event})
        assert any(message.kind == "bus.dropped" for message in slow.told)


def _accounted(told: list[StreamMessage], published: dict[str, int]) -> None:
    """Of every session, each event was either read or named as lost, in order and never both."""
    seen: dict[str, list[int]] = {session: [] for session in published}
    for message in told:
        if message.kind == "bus.dropped":
            for lost in message.data["payload"]["ranges"]:
                gone = range(int(lost["first"]), int(lost["last"]) + 1)
                assert len(gone) == lost["count"]
                seen[lost["session"]] += gone
        else:
            seen[message.data["session"]].append(message.place[0])
    last = {session: max(numbers) for session, numbers in seen.items()}
    assert last["s1"] == published["s1"] and published["s2"] - last["s2"] < 8
    for session, numbers in seen.items():
        assert sorted(numbers) == list(range(1, last[session] + 1))


async def test_what_another_process_drives_is_told_from_the_journal_until_this_one_takes_over(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stream, "INTERVAL", 0.02)
    journal = tmp_path / "journal.db"
    agent = elsewhere(journal, says("one"), calls(("look", {"at": "x"})), says("two"))
    session = await said(agent, "first")
    async with on_air(served, says("three"), journal=journal) as (serving, port):
        async with (
            watching(port, f"?session={session}") as watcher,
            watching(port, f"?session={session}&cursor=0") as whole,
        ):
            await said(agent, "second", session)
            await watcher.until("run.finished")
            await agent.close()
            info = serving.journal.find(session)
            live = await serving.console.open_sessions.send_message(
                Viewer("owner", True), info, "third"
            )
            await asyncio.wait([live.run_task])
            await watcher.until("run.finished")
            for _ in range(3):
                await whole.until("run.finished")
        last = serving.journal.head(session)[0]
        for reader in (watcher, whole):
            places = [one.place[0] for one in reader.told if len(one.place) == 1]
            assert places == list(range(places[0], last + 1))
        assert whole.told[0].place == (1,) and watcher.told[0].place > (1,)


async def test_readers_are_bounded_and_one_that_left_makes_room(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_READERS", 1)
    monkeypatch.setattr(stream, "HEARTBEAT", 0.02)
    async with on_air(served) as (_, port):
        async with watching(port), watching(port) as refused:
            assert refused.status == 503
        async with asyncio.timeout(30):
            while True:
                async with watching(port) as again:
                    if again.status == 200:
                        break


async def test_one_person_who_opens_all_the_streams_they_can_shuts_nobody_out(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has room for 80 in all; one person asks for all of them."""
    monkeypatch.setattr(stream, "MAX_READERS", 80)
    async with on_air(served, says("one")) as (serving, port), AsyncExitStack() as opened:
        greedy = [await opened.enter_async_context(watching(port, token=BOB)) for _ in range(80)]
        statuses = [watcher.status for watcher in greedy]
        assert statuses == [200] * 64 + [429] * (80 - 64)
        assert "you have 64 event streams open already" in greedy[-1].text
        async with watching(port) as other:
            assert other.status == 200
            await begun(serving)
            await other.until("run.finished")


def test_one_browser_leaves_a_persons_other_browsers_their_streams(tmp_path: Path) -> None:
    streams = stream.EventStreams(Bus(), SqliteJournal(tmp_path / "journal.db"))
    one, two = (Visitor("ada", False, "local", csrf=name) for name in ("first", "second"))
    other = Visitor("bob", False, "local", csrf="third")

    def opened(visitor: Visitor) -> int:
        for number in range(1_000):
            try:
                streams.check_limits(visitor)
            except HTTPException as refused:
                assert refused.status_code == 429
                return number
            streams.reader_counts.update(set(stream.reader_groups(visitor)))
        raise AssertionError("there is no bound")

    assert [opened(one), opened(two), opened(one), opened(other)] == [32, 32, 0, 32]
    streams.remove_reader(set(stream.reader_groups(one)))
    assert opened(one) == 1


async def test_a_quiet_stream_has_a_heartbeat(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.02)
    async with on_air(served, says("one")) as (serving, port), watching(port) as watcher:
        async with asyncio.timeout(30):
            while watcher.comments < 3:
                watcher.comments += (await watcher.block()).startswith(":")
        await begun(serving)
        await watcher.until("run.finished")


async def test_streams_end_with_the_bus_of_the_server(served: Callable[..., Any]) -> None:
    async with on_air(served, says("one")) as (serving, port):
        session = await begun(serving)
        await serving.console.open_sessions.release(session)
        async with watching(port) as all_of_them, watching(port, f"?session={session}") as one:
            assert (all_of_them.status, one.status) == (200, 200)
            serving.console.bus.close()
            for watcher in (all_of_them, one):
                with pytest.raises(EOFError):
                    while True:
                        assert (await watcher.next()).kind in ("bus.closed", "bus.operator")


async def test_signing_out_ends_the_streams_of_that_sign_in(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    monkeypatch.setattr(stream, "HEARTBEAT", 0.02)
    async with on_air(served) as (_, port):
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False) as browser:
            await browser.get("/login", params={"token": BOB})
            (cookie,) = browser.cookies.jar
            page = (await browser.get("/runs")).text
            csrf = page.partition('name="csrf" content="')[2].partition('"')[0]
            kept = f"{cookie.name}={cookie.value}"
            async with watching(port, cookie=kept) as watcher:
                assert watcher.status == 200
                await browser.post("/logout", headers={"x-ferrule-csrf": csrf, "origin": base})
                with pytest.raises(EOFError):
                    await watcher.next()
            async with watching(port, cookie=kept) as again:
                assert again.status == 401


async def test_an_event_becomes_lines_once_for_all_readers(tmp_path: Path) -> None:
    bus = Bus()
    feed = bus.feed(Identity("local", "bob", "s1", "r"))
    streams = stream.EventStreams(bus, None)  # type: ignore[arg-type]
    readers = [bus.subscribe(OwnSessions("local", "bob")) for _ in range(3)]
    feed.publish(ToolAnswered(ToolResult("c", "look", True, "line\nline\r\u2028 <script>")))
    lines = [streams.encode_event(reader.take_nowait()[0]) for reader in readers]
    assert lines[0] is lines[1] is lines[2] and lines[0].count(b"\n") == 4 and b"\r" not in lines[0]
    for _ in range(stream.MAX_FRAMES):
        feed.publish(ToolAnswered(ToolResult("c", "look", True, "x")))
        streams.encode_event(readers[0].take_nowait()[0])
    assert len(streams._frames) == stream.MAX_FRAMES  # pyright: ignore[reportPrivateUsage]
