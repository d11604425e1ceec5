"""`McpServer`: the tools of an agent for MCP clients, over standard streams and HTTP, in both
versions of the protocol.

    agent = Agent("scripted:none", tools=[get_weather], deny=["delete_*"])
    await McpServer(agent, name="weather").stdio()

What a client calls goes through the agent's gate and into its journal, as if a person had called
it: rules, sandbox, limits and hooks hold. A model is not asked for anything. What the rules leave
open is asked of the person at the client, if it can ask one (`approving`).
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
    """Serves one agent. `offers` are what there is beside its tools; `yes_to` names tools that need
    nobody's yes (patterns, as `--yes-to`); `end` is called in place of `Session.close` when a
    client has gone.

    The agent stays its owner's: close the server first. Raises ConfigError where the extra `mcp` is
    not installed.
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
        AllowThese(yes_to)  # what cannot be meant is said now, not to the first client
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
        """Serve the client at this process's standard streams until it closes them, or the process
        is told to end.

        While it serves, whatever else writes to standard output writes to standard error.
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
        """Serve over HTTP until the process is told to end; the exit code for that.

        `token` is the one there is, or whom each stands for; a `host` other than this machine needs
        an https `url` (a proxy with TLS before it). `ready` is called with the address once there
        is one. Raises ConfigError.
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
        """The ASGI application, for servers of one's own: it serves while `running` is entered. See
        `runtime.http.http_security.Door` for the arguments.
        """
        if self._endpoint is not None:
            raise ConfigError(
                "this server has an application already", hint="make another McpServer"
            )
        self._endpoint = http.Endpoint(self._server, self._service.visits.leave)
        return Door(self._endpoint, token=token, hosts=hosts, origins=origins)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While the application serves; then every call is ended and written down."""
        if self._endpoint is None:
            raise ConfigError("there is no application to run", hint="call `app` first")
        async with self._endpoint.running():
            try:
                yield
            finally:
                await self._service.visits.close()

    async def changed(self, what: str = "tools") -> None:
        """Tell clients that there are other `tools`, `prompts` or `resources` than before."""
        await self._service.changed(what)

    async def updated(self, uri: str) -> None:
        """Tell clients that subscribed to it that a resource changed."""
        await self._service.updated(uri)

    async def close(self) -> None:
        """End what is at work, written down, and all sessions. The agent stays open."""
        self._service.quiet()
        await self._service.visits.close()


def _whose(context: Any) -> Who | None:
    over_http = http.connection(context)
    if over_http is not None:
        return over_http
    return Who(("stdio", _connection.get()), "")
