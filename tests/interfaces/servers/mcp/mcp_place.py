"""An agent that is served, the official client in both versions of the protocol, and what the
journal says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.memory import create_client_server_memory_streams

from ferrule import tool
from ferrule.core.events import Event
from ferrule.engine.agent import Agent
from ferrule.runtime.http.server import accepted_hosts, accepted_origins, bound_port, listen, serve
from ferrule.servers.mcp import McpServer, client_of
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.context import Context
from grouped_options import grouped

OLD, NEW = "legacy", "2026-07-28"
TOKEN = "a-token-that-is-long-enough"


def text_of(result: Any) -> str:
    """The texts of a result."""
    return "\n".join(part.text for part in result.content if part.type == "text")


@dataclass
class Person:
    """Whoever sits at the client: what they were asked, and what they say."""

    says: list[Any] = field(default_factory=list[Any])
    asked: list[Any] = field(default_factory=list[Any])
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, context: Any, params: Any) -> Any:
        self.asked.append(params)
        self.begun.set()
        said = self.says.pop(0) if self.says else "no"
        if said == "nothing":
            await asyncio.Event().wait()
        if isinstance(said, dict):
            return types.ElicitResult(action="accept", content=said)
        if said == "yes":
            return types.ElicitResult(action="accept", content={"run": True})
        return types.ElicitResult(action="decline" if said == "no" else said)


@dataclass
class Place:
    """A served agent. `done` is what its tools did to the world."""

    folder: Path
    done: list[str] = field(default_factory=list[str])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def tools(self) -> list[Any]:
        @tool(risk="medium", side_effect="write")
        async def shelve(book: str) -> str:
            """Put a book on its shelf."""
            self.done.append(book)
            return f"{book} is on its shelf"

        @tool(side_effect="read")
        async def look(shelf: int = 1) -> dict[str, Any]:
            """Look at a shelf."""
            return {"shelf": shelf, "books": ["Moby Dick", "Walden"]}

        @tool(side_effect="none")
        async def wait(context: Context) -> str:
            """Wait for ever."""
            context.progress("waiting")
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return ""

        @tool(risk="critical", side_effect="execute")
        async def burn() -> str:
            """Burn everything."""
            self.done.append("burnt")
            return "burnt"

        @tool(side_effect="read")
        async def catalogue(lines: int) -> str:
            """List every book."""
            return "".join(f"book {at:06}\n" for at in range(lines))

        @tool(side_effect="none")
        async def ask_twice(context: Context) -> str:
            """Ask the person at the client two things."""
            client = client_of(context)
            self.done.append("asked")
            first = await client.elicit("First?", {"word": {"type": "string"}}, name="first")
            second = await client.elicit("Second?", {"word": {"type": "string"}}, name="second")
            return f"{first['word']} {second['word']}"

        return [shelve, look, wait, burn, catalogue, ask_twice]

    def agent(self, *more: Any, **options: Any) -> Agent:
        given = {"journal": self.folder / "journal.db", **options}
        agent = Agent(
            "scripted:none", [*self.tools(), *more], **grouped(workspace=self.folder, **given)
        )
        self.stack.push_async_callback(agent.close)
        return agent

    def server(self, agent: Agent | None = None, **more: Any) -> McpServer:
        made = McpServer(agent or self.agent(), name="library", **more)
        self.stack.push_async_callback(made.close)
        return made

    @asynccontextmanager
    async def client(
        self, server: McpServer, era: str, *, name: str = "tester", person: Any = None, **more: Any
    ) -> AsyncGenerator[Client]:
        """A client at the server's streams."""
        transport: Any = self.streams(server)
        about = types.Implementation(name=name, version="1")
        given = {"elicitation_callback": person, **more} if person is not None else more
        async with Client(transport, mode=era, client_info=about, **given) as client:
            yield client

    @asynccontextmanager
    async def streams(self, server: McpServer) -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (ours, theirs):
            task = asyncio.create_task(server.connect(*theirs))
            try:
                yield ours
            finally:
                for stream in ours:
                    await stream.aclose()
                await task

    @asynccontextmanager
    async def http(self, server: McpServer, token: Any = TOKEN) -> AsyncGenerator[str]:
        """Serve over HTTP; the address."""
        listening = listen("127.0.0.1", 0)
        port = bound_port(listening)
        app = server.app(
            token=token,
            hosts=accepted_hosts("127.0.0.1", port),
            origins=accepted_origins("127.0.0.1", port),
        )
        async with server.open():
            task = asyncio.create_task(serve(app, "127.0.0.1", port, listening=listening))
            try:
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                await server.close()
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    @asynccontextmanager
    async def over_http(
        self,
        url: str,
        era: str,
        *,
        name: str = "tester",
        token: str = TOKEN,
        person: Any = None,
        **more: Any,
    ) -> AsyncGenerator[Client]:
        about = types.Implementation(name=name, version="1")
        given = {"elicitation_callback": person, **more} if person is not None else more
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}) as http:
            transport: Any = streamable_http_client(url, http_client=http)
            async with Client(transport, mode=era, client_info=about, **given) as client:
                yield client

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for something that others do."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.02)

    def events(self, kind: type | None = None) -> list[Any]:
        """What the journal holds, of all sessions, oldest session first."""
        return [event for event, _ in self.recorded(kind)]

    def recorded(self, kind: type | None = None) -> list[tuple[Event, Any]]:
        with SqliteJournal(self.folder / "journal.db") as journal:
            found = [
                (record.event, record)
                for one in reversed(journal.sessions())
                for record in journal.records(one.session)
            ]
        return [
            (event, record) for event, record in found if kind is None or isinstance(event, kind)
        ]
