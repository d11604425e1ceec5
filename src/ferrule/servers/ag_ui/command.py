"""`ferrule serve ag-ui`: an agent that works in this folder, for clients that speak AG-UI."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.shared_options import common_options, server_options

with lazy_imports():
    from ferrule.servers import agent_server

    from . import server as ag_ui_server

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly
    from ferrule.runtime.http.endpoint import HttpEndpoint

PORT = 8322


@click.command("ag-ui")
@common_options
@server_options(PORT)
def ag_ui(**options: Any) -> int:
    """Serve an agent with AG-UI 1.0: `POST /run` answers with a stream of events.

    A run works with this folder's tools and with those that the client brings, which run there. A
    call that needs approval interrupts the run: the person at the client is asked, and the run goes
    on with their answer.

    To serve pages under the sign-in of your own application, mount it there (docs/web.md).
    """
    return asyncio.run(agent_server.serve_agent(options, _make_server))


def _make_server(assembly: Assembly, address: agent_server.Address) -> tuple[HttpEndpoint, str]:
    leave = partial(assembly.close_session, strict=False)
    server = ag_ui_server.AgUiServer(assembly.agent, leave=leave, **address)
    return server, f"serving at {server.url}"
