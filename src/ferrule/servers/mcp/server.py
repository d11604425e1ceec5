"""`McpServer`: the tools of an agent for MCP clients, over standard streams and HTTP.

    agent = Agent("scripted:none", tools=[get_weather], deny=["delete_*"])
    await McpServer(agent, name="weather").stdio()

Both versions of the protocol are served. A client's calls pass the agent's gate and are journaled,
as if a person had made them: rules, sandbox, limits and hooks apply. No model is involved. Calls
that the rules leave open are asked of the person at the client, if the client can ask one
(`client_approvals`).
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from ferrule._version import __version__
from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.closed_by_with import ClosedByAsyncWith
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.runtime.http.http_security import Application, HttpGuard
from ferrule.runtime.http.http_security import Principal as Person
from ferrule.runtime.http.mounting import HostAccess
from ferrule.runtime.http.server import (
    accepted_hosts,
    accepted_origins,
    bound_port,
    listen,
    public_address,
    serve,
)

from . import http, stdio
from .handlers import Service, build_server, require_library
from .offers import Offers
from .plain_calls import ClientKey
from .plain_lines import PlainLines
from .sessions import ClientIdentity, ClientSessions

PORT = 8330
_connection: ContextVar[ClientKey] = ContextVar("ferrule_mcp_connection", default=("stdio", ""))


class McpServer(ClosedByAsyncWith):
    """Serves one agent.

    Args:
        agent: The agent. It stays open for its owner; close the server first.
        name: What clients are told the server is called.
        title: The name to show to people.
        version: The server's version.
        instructions: What clients are told about the tools.
        offers: What is served beside the tools.
        yes_to: Patterns of tools that need no approval, as `--yes-to`.
        end: Called in place of `Session.close` when a client has gone.

    Raises:
        ConfigError: the extra `mcp` is not installed, or a pattern is invalid.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        name: str = "ferrule",
        title: str = "",
        version: str = __version__,
        instructions: str = "",
        offers: Offers | None = None,
        yes_to: Sequence[str] = (),
        end: Callable[[Session], Awaitable[None]] = Session.close,
    ) -> None:
        require_library()
        AllowlistApprover(yes_to)  # an invalid pattern is an error now, not for the first client
        self._service = Service(
            ClientSessions(agent, tuple(yes_to), end),
            offers or Offers(),
            name,
            version,
            title,
            instructions,
            _identify_client,
        )
        self._server = build_server(self._service)
        self._endpoint: http.Endpoint | None = None

    async def stdio(self) -> None:
        """Serve the client at the standard streams until it closes them or the process must end.

        Meanwhile, whatever else writes to standard output writes to standard error.
        """
        # Before there are streams: requests are handled in the context of what reads them.
        connection = _name_connection()
        begin_calls = partial(PlainLines, self._service, connection)
        async with stdio.open_streams(begin_calls) as (read, write):
            await self._serve(read, write, connection)

    async def connect(self, read: Any, write: Any) -> None:
        """Serve one client over a pair of the library's message streams until it closes them."""
        await self._serve(read, write, _name_connection())

    async def _serve(self, read: Any, write: Any, connection: ClientKey) -> None:
        try:
            await self._server.run(read, write, self._server.create_initialization_options())
        finally:
            # The caller may close the agent next, and with it the journal.
            await self._service.end_connection(connection)

    async def http(
        self,
        *,
        token: str | Mapping[str, Person],
        host: str = "127.0.0.1",
        port: int = PORT,
        url: str = "",
        listening: socket.socket | None = None,
        ready: Callable[[str], None] = lambda address: None,
    ) -> int:
        """Serve over HTTP until the process is told to end.

        Args:
            token: The single token, or the user of each token.
            host: Where to listen. Anything but this machine needs an https `url`, that is a proxy
                with TLS.
            port: Where to listen.
            url: How clients reach the server, if not at `http://host:port`.
            listening: An open socket to use.
            ready: Called with the address once the server listens.

        Returns:
            The exit code.

        Raises:
            ConfigError: the address cannot be used.
        """
        given = listening or listen(host, port)
        try:
            taken = bound_port(given)
            address = public_address(host, taken, url)
            app = self.app(
                token=token,
                hosts=accepted_hosts(host, taken, url),
                origins=accepted_origins(host, taken, url),
            )
        except BaseException:
            given.close()
            raise
        async with self.open():
            ready(http.endpoint_url(address))
            return await serve(
                app, host, taken, listening=given, on_stopping=self._service.end_subscriptions
            )

    def app(
        self,
        *,
        token: str | Mapping[str, Person] | HostAccess,
        hosts: frozenset[str] = frozenset(),
        origins: frozenset[str] = frozenset(),
    ) -> Application:
        """Return the ASGI application, for a server of your own.

        It serves while `open` is entered. See `runtime.http.http_security.HttpGuard` for the
        arguments; how another application signs people in stands in place of all of them.
        """
        if self._endpoint is not None:
            raise ConfigError(
                "this server has an application already", hint="make another McpServer"
            )
        self._endpoint = http.Endpoint(self._server, self._service)
        if isinstance(token, HostAccess):
            return token.guard(self._endpoint)
        return HttpGuard(self._endpoint, token=token, hosts=hosts, origins=origins)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Context in which the application serves. At its end every call is ended and journaled."""
        if self._endpoint is None:
            raise ConfigError("this server has no application yet", hint="call `app` first")
        async with self._endpoint.open():
            try:
                yield
            finally:
                await self._service.sessions.close()

    async def notify_changed(self, what: str = "tools") -> None:
        """Tell clients that `tools`, `prompts` or `resources` changed."""
        await self._service.notify_list_changed(what)

    async def notify_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to a resource that it changed."""
        await self._service.notify_resource_updated(uri)

    async def close(self) -> None:
        """End and journal all work, and close all sessions. The agent stays open."""
        self._service.end_subscriptions()
        await self._service.sessions.close()


def _name_connection() -> ClientKey:
    """Return a new connection, of which the requests in this context are."""
    key = "stdio", uuid.uuid4().hex
    _connection.set(key)
    return key


def _identify_client(context: Any) -> ClientIdentity | None:
    """Return the client of a connection: by its token over HTTP, else by its streams."""
    over_http = http.identify_client(context)
    if over_http is not None:
        return over_http
    return ClientIdentity(_connection.get(), "")
