"""`McpServer`: the tools of an agent for MCP clients, over standard streams and HTTP.

    agent = Agent("scripted:none", tools=[get_weather])
    await McpServer(agent, name="weather").stdio()

Both versions of the protocol are served. A client's calls pass the agent's gate and are journaled,
as if a person had made them: rules, sandbox, limits and hooks apply. No model is involved. Calls
that the rules leave open are asked of the person at the client, if the client can ask one
(`approvals`).
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from ferrule._version import __version__
from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowThese
from ferrule.runtime.http.http_security import Application, Door
from ferrule.runtime.http.http_security import Who as Person
from ferrule.runtime.http.server import address_of, hosts_of, listen, origins_of, port_of, serve

from . import http, stdio
from .handlers import Service, build, library
from .offers import Offers
from .sessions import Visits, Who

PORT = 8330
_connection: ContextVar[str] = ContextVar("ferrule_mcp_connection", default="")


class McpServer:
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
        agent: Agent,
        *,
        name: str = "ferrule",
        title: str = "",
        version: str = __version__,
        instructions: str = "",
        offers: Offers | None = None,
        yes_to: Sequence[str] = (),
        end: Callable[[Session], Awaitable[None]] = Session.close,
    ) -> None:
        library()
        AllowThese(yes_to)  # an invalid pattern is an error now, not for the first client
        self._service = Service(
            Visits(agent, tuple(yes_to), end),
            offers or Offers(),
            name,
            version,
            title,
            instructions,
            _whose,
        )
        self._server = build(self._service)
        self._endpoint: http.Endpoint | None = None

    async def stdio(self) -> None:
        """Serve the client at the standard streams until it closes them or the process must end.

        Meanwhile, whatever else writes to standard output writes to standard error.
        """
        async with stdio.streams() as (read, write):
            await self.connect(read, write)

    async def connect(self, read: Any, write: Any) -> None:
        """Serve one client over a pair of the library's message streams until it closes them."""
        _connection.set(uuid.uuid4().hex)
        try:
            await self._server.run(read, write, self._server.create_initialization_options())
        finally:
            self._service.visits.leave(("stdio", _connection.get()))

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
            taken = port_of(given)
            address = address_of(host, taken, url)
            app = self.app(
                token=token, hosts=hosts_of(host, taken, url), origins=origins_of(host, taken, url)
            )
        except BaseException:
            given.close()
            raise
        async with self.running():
            ready(http.endpoint_of(address))
            return await serve(app, host, taken, listening=given, ending=self._service.quiet)

    def app(
        self,
        *,
        token: str | Mapping[str, Person],
        hosts: frozenset[str],
        origins: frozenset[str] = frozenset(),
    ) -> Application:
        """Return the ASGI application, for a server of your own.

        It serves while `running` is entered. See `runtime.http.http_security.Door` for the
        arguments.
        """
        if self._endpoint is not None:
            raise ConfigError(
                "this server has an application already", hint="make another McpServer"
            )
        self._endpoint = http.Endpoint(self._server, self._service.visits.leave)
        return Door(self._endpoint, token=token, hosts=hosts, origins=origins)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Context in which the application serves. At its end every call is ended and journaled."""
        if self._endpoint is None:
            raise ConfigError("this server has no application yet", hint="call `app` first")
        async with self._endpoint.running():
            try:
                yield
            finally:
                await self._service.visits.close()

    async def changed(self, what: str = "tools") -> None:
        """Tell clients that `tools`, `prompts` or `resources` changed."""
        await self._service.changed(what)

    async def updated(self, uri: str) -> None:
        """Tell the clients that subscribed to a resource that it changed."""
        await self._service.updated(uri)

    async def close(self) -> None:
        """End and journal all work, and close all sessions. The agent stays open."""
        self._service.quiet()
        await self._service.visits.close()


def _whose(context: Any) -> Who | None:
    over_http = http.connection(context)
    if over_http is not None:
        return over_http
    return Who(("stdio", _connection.get()), "")
