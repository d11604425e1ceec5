"""The endpoint: `POST /run` takes a `RunAgentInput` and answers with a stream of events (SSE).

    server = AgUiServer(agent, token=token, port=8322)
    await server.run()

The HTTP guard is in front of it, with a token or with the sign-in of the application that it is
mounted in. Calls pass the agent's own gate and are journaled. A client that leaves its stream
cancels the run; one that was told of a question or of a call of its own tools does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from socket import socket
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.engine.agent import Agent
from ferrule.engine.closed_by_with import ClosedByAsyncWith
from ferrule.engine.session import Session
from ferrule.runtime.http.http_security import (
    Application,
    HttpGuard,
    Principal,
    Receive,
    Scope,
    Send,
    route_path,
)
from ferrule.runtime.http.mounting import HostAccess
from ferrule.runtime.http.server import (
    accepted_hosts,
    accepted_origins,
    public_address,
    serve,
)

from .event_writer import AgUiEvent
from .inputs import InputRefused, parse_input
from .run_stream import RunStream, describe_failure
from .threads import Leave, Thread, Threads

PATH = "/run"
PORT = 8322
MAX_BODY = 8 * 1024 * 1024
"""Most bytes of a request: clients send the whole conversation each time."""
_EVENT_STREAM = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)


class AgUiServer(ClosedByAsyncWith):
    """Serves one agent.

    Args:
        agent: The agent. It stays open for its owner; close the server first.
        token: The single token, or the user of each token: then every user has threads of their
            own. Inside another application: how that one signs people in.
        leave: Called in place of `Session.close` for a session that is no longer used.
        host: Where to listen.
        port: Where to listen.
        url: How clients reach it, if not at `http://host:port`.

    `app` is the ASGI application, for a server of your own.

    Raises:
        ConfigError: The address cannot be used.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        token: str | Mapping[str, Principal] | HostAccess,
        leave: Leave = Session.close,
        host: str = "127.0.0.1",
        port: int = PORT,
        url: str = "",
    ) -> None:
        self._host = host
        self._port = port
        self._threads = Threads(agent, leave)
        if isinstance(token, HostAccess):
            self.url = ""
            guard = token.guard(self._serve, max_body=MAX_BODY)
        else:
            self.url = f"{public_address(host, port, url)}{PATH}"
            guard = HttpGuard(
                self._serve,
                token=token,
                hosts=accepted_hosts(host, port, url),
                origins=accepted_origins(host, port, url),
                max_body=MAX_BODY,
            )
        self.app: Application = guard

    async def run(self, listening: socket | None = None) -> int:
        """Serve until the process is told to end, then end and journal every run.

        Args:
            listening: An open socket to use (see `runtime.http.server`).

        Returns:
            The exit code.
        """
        try:
            return await serve(self.app, self._host, self._port, listening=listening)
        finally:
            await self.close()

    async def close(self) -> None:
        """End and journal all runs, and close the sessions. The agent stays open."""
        await self._threads.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            stream, thread = await self._accept(scope, receive)
        except InputRefused as refused:
            await _send_refusal(send, refused)
            return
        except FerruleError as error:
            message, code = describe_failure(error)
            await _send_refusal(send, InputRefused(message, status=500, code=code))
            return
        await _respond(thread, stream, receive, send)

    async def _accept(self, scope: Scope, receive: Receive) -> tuple[RunStream, Thread]:
        path = route_path(scope)
        if path != PATH:
            raise InputRefused(f"no `{path[:200]}` here", status=404, code="not_found")
        if scope["method"] != "POST":
            raise InputRefused(
                f"`{PATH}` does not support {scope['method']}", status=405, code="method"
            )
        # The HTTP guard has read the body; it comes as one message.
        given = parse_input((await receive())["body"])
        thread = await self._threads.open(scope["state"]["visitor"], given)
        return RunStream(thread, given), thread


async def _respond(thread: Thread, stream: RunStream, receive: Receive, send: Send) -> None:
    """Send the events until the run of the protocol ends; cancel the run if the client leaves."""
    await send({"type": "http.response.start", "status": 200, "headers": list(_EVENT_STREAM)})
    writing = asyncio.ensure_future(_write(stream.events(), send))
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if writing.done():
            writing.result()
    finally:
        is_complete = writing.done() and not writing.cancelled() and writing.exception() is None
        writing.cancel()
        leaving.cancel()
        await asyncio.gather(writing, leaving, return_exceptions=True)
        if not is_complete:
            await thread.cancel()


async def _write(events: AsyncIterator[AgUiEvent | None], send: Send) -> None:
    async for event in events:
        line = ":\n\n" if event is None else f"data: {encode_json(event)}\n\n"
        body = line.encode("utf-8", "replace")
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_refusal(send: Send, refused: InputRefused) -> None:
    body = encode_json({"error": {"message": refused.message, "code": refused.code}})
    content = body.encode("utf-8", "replace")
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
