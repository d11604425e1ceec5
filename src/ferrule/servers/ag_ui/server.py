"""The endpoint: `POST /run` takes a `RunAgentInput` and answers with a stream of events (SSE).

    server = AgUiServer(agent, token=token, port=8322)
    await server.run()

The HTTP guard is in front of it, with a token or with the sign-in of the application that it is
mounted in. Calls pass the agent's own gate and are journaled. A client that leaves its stream
cancels the run; one that was told of a question or of a call of its own tools does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.runtime.http.endpoint import (
    Access,
    HttpEndpoint,
    find_route_problem,
    send_events,
    send_json,
)
from ferrule.runtime.http.http_security import Receive, Scope, Send

from .event_writer import AgUiEvent
from .inputs import InputRefused, parse_input
from .run_stream import RunStream, describe_failure
from .threads import Leave, Thread, Threads

PATH = "/run"
PORT = 8322
MAX_BODY = 8 * 1024 * 1024
"""Most bytes of a request: clients send the whole conversation each time."""
_ROUTE_CODES = {404: "not_found", 405: "method"}


class AgUiServer(HttpEndpoint):
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
        token: Access,
        leave: Leave = Session.close,
        host: str = "127.0.0.1",
        port: int = PORT,
        url: str = "",
    ) -> None:
        self._threads = Threads(agent, leave)
        super().__init__(
            self._serve, token, host=host, port=port, url=url, max_body=MAX_BODY, has_pages=True
        )
        if self.url:
            self.url = f"{self.url}{PATH}"

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
        is_complete = False
        try:
            is_complete = await send_events(_encode_events(stream.events()), receive, send)
        finally:
            if not is_complete:
                await thread.cancel()

    async def _accept(self, scope: Scope, receive: Receive) -> tuple[RunStream, Thread]:
        problem = find_route_problem(scope, {PATH: "POST"})
        if problem is not None:
            status, why = problem
            raise InputRefused(why, status=status, code=_ROUTE_CODES[status])
        # The HTTP guard has read the body; it comes as one message.
        given = parse_input((await receive())["body"])
        thread = await self._threads.open(scope["state"]["visitor"], given)
        return RunStream(thread, given), thread


async def _encode_events(events: AsyncIterator[AgUiEvent | None]) -> AsyncIterator[str]:
    async for event in events:
        yield ":\n\n" if event is None else f"data: {encode_json(event)}\n\n"


async def _send_refusal(send: Send, refused: InputRefused) -> None:
    error = {"message": refused.message, "code": refused.code}
    await send_json(send, encode_json({"error": error}), refused.status)
