"""Applications to mount in FastAPI or Starlette, under that application's own sign-in.

    from ferrule.web import Principal, create_ag_ui_endpoint

    def identify(request):
        user = request.session.get("user")
        return Principal(user) if user else None

    endpoint = create_ag_ui_endpoint(agent, address="https://app.example.org", identify=identify)
    app = FastAPI(lifespan=endpoint.lifespan)
    app.mount("/agent", endpoint)

Each function makes one ASGI application: the console, an endpoint that speaks AG-UI, one for chat
completions, one for MCP clients. `identify` says who sends a request, or None for nobody, who gets
nothing; two people never see each other's sessions. The host application opens and closes them with
its lifespan, which mounted applications are not told of: `FastAPI(lifespan=one.lifespan)`, or
`async with one, two:` in a lifespan of its own. What the host's sign-in must do: docs/web.md.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError
from ferrule.core.extras import name_missing_extra
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.runtime.assemble import Assembly, assemble, wrap_agent
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import SETTING_OPTIONS

with name_missing_extra():
    from ferrule.runtime.http.http_security import Application, Principal
    from ferrule.runtime.http.mounting import HostAccess, Identify, MountableApp
    from ferrule.runtime.http.work_limits import OF_ONE_PERSON

with lazy_imports():
    from ferrule.console import app as console_app
    from ferrule.console import setup as console_setup
    from ferrule.servers.ag_ui import server as ag_ui
    from ferrule.servers.mcp import server as mcp
    from ferrule.servers.openai import server as openai

if TYPE_CHECKING:
    from ferrule.console.assemblies import SessionSetup
    from ferrule.console.state import Console
    from ferrule.engine.event_bus.bus import Bus
    from ferrule.engine.session import Session
    from ferrule.storage.journal.protocols import Journal

__all__ = [
    "Folder",
    "Identify",
    "MountableApp",
    "Principal",
    "create_ag_ui_endpoint",
    "create_console",
    "create_mcp_endpoint",
    "create_openai_endpoint",
]

_log = logging.getLogger("ferrule.web")


@frozen
class Folder:
    """An agent that works in a folder with its settings, as `ferrule run` does there.

    Attributes:
        path: The folder.
        settings: Settings by their keys, such as `{"model": "openai:gpt-5.2"}`; the others are read
            from the files that settings are read from.
    """

    path: str | Path
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for key in self.settings:
            if key.replace(".", "__") not in SETTING_OPTIONS:
                known = sorted(name.replace("__", ".") for name in SETTING_OPTIONS)
                raise ConfigError(
                    f"`{key}` is no setting that a `Folder` takes",
                    hint=suggest_names(key, known, "write it in a settings file"),
                )

    def options(self) -> dict[str, Any]:
        """Return the options that `runtime.assemble` takes."""
        given = {key.replace(".", "__"): value for key, value in self.settings.items()}
        return {**given, "workspace": str(self.path)}


Source = Agent[Any, Any] | Folder
"""Whose tools and model are served: a program's agent, or that of a folder."""


def create_console(
    source: Source,
    *,
    address: str | Iterable[str],
    identify: Identify,
    sign_in: str = "",
) -> MountableApp:
    """Return the web console as an application to mount.

    A `Principal` with `operator` sees everybody's sessions, others see their own.

    Args:
        source: The agent whose runs it starts. Sessions of the same journal are shown, whoever
            began them.
        address: Where people reach the host application: scheme and host, without a path.
        identify: Says who sends a request.
        sign_in: Where people sign in with the host application. Who is signed out is sent there.

    Raises:
        ConfigError: The address is not one. Errors in settings are raised when it is opened.
    """
    access = HostAccess.of_addresses(address, identify, sign_in)

    @asynccontextmanager
    async def open_console() -> AsyncGenerator[Application]:
        console = _build_console(source)
        console.host_sign_in = sign_in
        try:
            yield access.guard(console_app.make_app(console), pages=True)
        finally:
            console.bus.close()
            await console_setup.close_console(console)

    return MountableApp(open_console)


def create_ag_ui_endpoint(
    source: Source,
    *,
    address: str | Iterable[str],
    identify: Identify,
) -> MountableApp:
    """Return an endpoint that speaks AG-UI, at `/run` below the place where it is mounted.

    Args:
        source: The agent that answers.
        address: Where people reach the host application: scheme and host, without a path.
        identify: Says who sends a request.

    Raises:
        ConfigError: The address is not one.
    """
    access = HostAccess.of_addresses(address, identify)

    @asynccontextmanager
    async def open_endpoint() -> AsyncGenerator[Application]:
        async with _open_assembly(source) as assembly:
            server = ag_ui.AgUiServer(
                assembly.agent,
                token=access,
                leave=_leave_with(assembly),
            )
            try:
                yield server.app
            finally:
                await server.close()

    return MountableApp(open_endpoint)


def create_openai_endpoint(
    source: Source,
    *,
    address: str | Iterable[str],
    identify: Identify,
    offers: Iterable[str] = (),
    direct: Iterable[str] = (),
    yes_to: Iterable[str] = (),
    at_once: int = OF_ONE_PERSON,
) -> MountableApp:
    """Return a chat completions endpoint, at `/v1` below the place where it is mounted.

    Args:
        source: The agent that answers.
        address: Where clients reach the host application: scheme and host, without a path.
        identify: Says who sends a request, such as by an API key of the host's own.
        offers: Models besides its own that the agent works with if a client asks for it.
        direct: Models that clients may ask without the agent: no rule, hook or budget applies, and
            nothing is journaled.
        yes_to: Patterns of tools that need no approval, since nobody can be asked.
        at_once: Requests of one person that are worked on at a time.

    Raises:
        ConfigError: The address is not one.
    """
    access = HostAccess.of_addresses(address, identify)

    @asynccontextmanager
    async def open_endpoint() -> AsyncGenerator[Application]:
        async with _open_assembly(source) as assembly:
            server = openai.OpenAiServer(
                assembly,
                token=access,
                offers=offers,
                direct=direct,
                yes_to=tuple(yes_to),
                at_once=at_once,
            )
            try:
                yield server.app
            finally:
                await server.close()

    return MountableApp(open_endpoint)


def create_mcp_endpoint(
    source: Source,
    *,
    address: str | Iterable[str],
    identify: Identify,
    name: str = "ferrule",
    yes_to: Iterable[str] = (),
) -> MountableApp:
    """Return an MCP server, at `/mcp` below the place where it is mounted.

    Args:
        source: The agent whose tools it has. No model is asked.
        address: Where clients reach the host application: scheme and host, without a path.
        identify: Says who sends a request.
        name: What clients are told the server is called.
        yes_to: Patterns of tools that need no approval.

    Raises:
        ConfigError: The address is not one.
    """
    access = HostAccess.of_addresses(address, identify)

    @asynccontextmanager
    async def open_endpoint() -> AsyncGenerator[Application]:
        async with _open_assembly(source, needs_model=False) as assembly:
            server = mcp.McpServer(
                assembly.agent, name=name, yes_to=tuple(yes_to), end=_leave_with(assembly)
            )
            app = server.app(token=access)
            async with server.open():
                try:
                    yield app
                finally:
                    await server.close()

    return MountableApp(open_endpoint)


@asynccontextmanager
async def _open_assembly(source: Source, *, needs_model: bool = True) -> AsyncGenerator[Assembly]:
    """Enter with the agent to serve; a program's own stays open for the program."""
    if isinstance(source, Agent):
        yield wrap_agent(source, _log.warning)
        return
    made = assemble(source.options(), notice=_log.warning, needs_model=needs_model)
    try:
        yield made
    finally:
        await made.close(strict=False)


def _leave_with(assembly: Assembly) -> Callable[[Session[Any]], Any]:
    async def leave(session: Session[Any]) -> None:
        await assembly.close_session(session, strict=False)

    return leave


def _build_console(source: Source) -> Console:
    if isinstance(source, Folder):
        return console_setup.build_console(source.options(), _log.warning)

    def wrap(setup: SessionSetup, journal: Journal | None, bus: Bus | None) -> Assembly:
        if setup.model or setup.mode or setup.workspace:
            raise ConfigError(
                "this console serves one agent: its model, mode and folder are those of the agent",
                hint="make the console of a `Folder` to choose them for each session",
            )
        # A copy, with the same journal: the console gives it an event bus.
        return wrap_agent(source.copy_for_user(source.user), _log.warning)

    return console_setup.build_console_over(wrap, owner=source.user)
