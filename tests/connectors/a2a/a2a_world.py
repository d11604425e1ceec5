"""Agents of the protocol library on this machine, served over real HTTP, and sessions that call
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from grouped_options import grouped

try:
    import uvicorn
    from a2a.client.card_resolver import parse_agent_card
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
    from a2a.types import Part, Task, TaskState, TaskStatus
    from google.protobuf.json_format import ParseDict
    from google.protobuf.struct_pb2 import Value
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    pytest.skip(f"the extra `a2a` is not installed here: {error}", allow_module_level=True)

from ferrule.connectors.a2a import A2aPeer, A2aPeers, PeerApprovals, connect
from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowlistApprover

CARD = "/.well-known/agent-card.json"
Behaviour = Callable[["Job"], Awaitable[None]]
Handler = Callable[[Request], Awaitable[Any]]


@dataclass
class Job:
    """One message that an agent works on."""

    context: RequestContext
    queue: EventQueue
    updater: TaskUpdater

    @property
    def text(self) -> str:
        return self.context.get_user_input()

    def says(self, *texts: str) -> Any:
        return self.updater.new_agent_message([Part(text=one) for one in texts])

    async def begin(self) -> None:
        """Make it a task, unless it is one already."""
        if self.context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            task = Task(id=self.context.task_id, context_id=self.context.context_id, status=status)
            await self.queue.enqueue_event(task)

    async def reply(self, *texts: str) -> None:
        """Answer with a message, no task."""
        await self.queue.enqueue_event(self.says(*texts))


class Executor(AgentExecutor):
    def __init__(self, world: World) -> None:
        self._world = world

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        job = Job(
            context, event_queue, TaskUpdater(event_queue, context.task_id, context.context_id)
        )
        self._world.jobs.append(job)
        await self._world.behaviour(job)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self._world.cancelled.append(str(context.task_id))
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        self._world.was_cancelled.set()


async def echo(job: Job) -> None:
    """Answers with what it was told."""
    await job.begin()
    await job.updater.start_work(job.says("thinking about it"))
    await job.updater.add_artifact([Part(text=f"you said: {job.text}")], name="answer")
    await job.updater.complete()


@dataclass
class World:
    """A folder of the person's own, and one agent beside it. `card` and `behaviour` may be changed
    at any time.
    """

    state: Path
    url: str = ""
    card: dict[str, Any] = field(default_factory=dict[str, Any])
    behaviour: Behaviour = echo
    jobs: list[Job] = field(default_factory=list[Job])
    cancelled: list[str] = field(default_factory=list[str])
    was_cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list[Any])
    instead: dict[str, Handler] = field(default_factory=dict[str, Handler])
    """Handlers by path that answer in place of the agent: for those who do not keep to the
    protocol.
    """
    serving: Any = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def approvals(self) -> PeerApprovals:
        return PeerApprovals(self.state / "a2a")

    def peer(self, name: str = "friend", **more: Any) -> A2aPeer:
        """The agent, as a program would name it."""
        return A2aPeer(name, **{"url": self.url, "plain_http": True, **more})

    async def peers(self, *peers: A2aPeer, **more: Any) -> A2aPeers:
        opened = connect(peers or (self.peer(),), approvals=self.approvals, **more)
        return await self.stack.enter_async_context(opened)

    def session(self, peers: A2aPeers, **more: Any) -> Session:
        """A session whose person says yes to every tool of a peer, closed with the world."""
        given = {"approver": AllowlistApprover(["*"]), "journal": self.state / "journal.db", **more}
        session = Agent(
            "scripted:x", peers.tools, **grouped(workspace=self.state, **given)
        ).session()
        self.stack.push_async_callback(session.close)
        return session

    async def call(
        self, peer: A2aPeer | None = None, skill: str = "echo", **arguments: Any
    ) -> ToolResult:
        """One call to the agent, from nothing to its result."""
        peer = peer or self.peer()
        session = self.session(await self.peers(peer))
        return await session.call(f"{peer.name}__{skill}", **{"message": "hello", **arguments})

    async def agent(self, request: Request) -> Any:
        """What the agent itself would answer, for a handler that stands in its place at times."""
        return self.serving.agent

    def sent(self, method: str) -> list[dict[str, Any]]:
        """The JSON-RPC requests of a method that arrived, their parameters."""
        bodies = [
            body for verb, _, _, body in self.requests if verb == "POST" and isinstance(body, dict)
        ]
        return [body["params"] for body in bodies if body.get("method") == method]


def data(value: Any) -> Part:
    return Part(data=ParseDict(value, Value()))


def skill(name: str = "echo", **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "name": name.title(),
        "description": f"Does {name}.",
        "tags": ["test"],
        **more,
    }


def card_of(
    url: str, *skills: dict[str, Any], binding: str = "JSONRPC", streaming: bool = True
) -> dict[str, Any]:
    return {
        "name": "Friend",
        "description": "Answers.",
        "version": "1.0.0",
        "supportedInterfaces": [{"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": list(skills or (skill(),)),
    }


class Served:
    """An agent at work: the protocol library's routes, what was asked, and what answers instead."""

    def __init__(self, world: World) -> None:
        self._world = world
        handler = DefaultRequestHandler(
            Executor(world), InMemoryTaskStore(), parse_agent_card(card_of("http://x"))
        )
        routes = [
            *create_jsonrpc_routes(handler, "/rpc"),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
        self._agent = Starlette(routes=[Route(CARD, self._card), *routes])
        world.serving = self

    async def _card(self, request: Request) -> Response:
        return JSONResponse(self._world.card)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        body = await request.body()
        parsed: Any = None
        with contextlib.suppress(ValueError):
            parsed = json.loads(body)
        self._world.requests.append(
            (request.method, request.url.path, dict(request.headers), parsed)
        )
        instead = self._world.instead.get(request.url.path)
        given = self.agent if instead is None else await instead(request)
        await given(scope, _again(body, receive), send)

    async def agent(self, scope: Any, receive: Any, send: Any) -> None:
        """What the agent itself answers."""
        await self._agent(scope, receive, send)


def _again(body: bytes, receive: Any) -> Any:
    """A request's body once more, for the next one who reads it."""
    left = [body]

    async def read() -> Any:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


def sse(*events: Any) -> bytes:
    """Answers of JSON-RPC as an event stream."""
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events)


def broken_stream(*events: Any) -> Response:
    """An event stream that breaks off in the middle of an event."""

    async def parts() -> AsyncGenerator[bytes]:
        yield sse(*events) + b"data: {"
        raise ConnectionResetError

    return StreamingResponse(parts(), media_type="text/event-stream")


async def serve(app: Any, stack: AsyncExitStack) -> str:
    """Serve an application on a free port of this machine until the stack is closed; its
    address.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=0
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # the signals are pytest's
    running = asyncio.create_task(server.serve(sockets=[listening]))

    async def stop() -> None:
        server.should_exit = server.force_exit = True
        await running
        listening.close()

    stack.push_async_callback(stop)
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[World]:
    """An agent that is served from the loop of the test."""
    world = World(folder)
    world.url = await serve(Served(world), world.stack)
    world.card = card_of(f"{world.url}/rpc")
    yield world
    await world.stack.aclose()


@contextlib.contextmanager
def in_a_thread(folder: Path) -> Generator[World]:
    """An agent that is served from a loop of its own, for what runs loops itself."""
    ready: list[World] = []
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        async with opened(folder) as world:
            ready.append(world)
            begun.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert begun.wait(30)
        yield ready[0]
    finally:
        ended.set()
        thread.join(30)
