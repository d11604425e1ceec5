"""`ferrule serve ag-ui`: an agent that works in this folder, for clients that speak AG-UI."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from ferrule.runtime.shared_options import common_options, server_options

if TYPE_CHECKING:
    from ferrule.engine.session import Session

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
    return asyncio.run(_serve(options))


async def _serve(options: dict[str, Any]) -> int:
    from ferrule.runtime.assemble import assemble
    from ferrule.runtime.http.server import bound_port, listen, load_token

    from .server import AgUiServer

    def say(text: str) -> None:
        click.echo(text, err=True)

    def notice(text: str) -> None:
        say(f"! {text}")

    async def leave(session: Session) -> None:
        await assembly.close_session(session, strict=False)

    token, is_made = load_token(options["token_file"])
    with listen(options["host"], options["port"]) as listening:
        assembly = assemble(options, notice=notice, attended=True)
        try:
            server = AgUiServer(
                assembly.agent,
                token=token,
                leave=leave,
                host=options["host"],
                port=bound_port(listening),
                url=options["url"],
            )
            if not options["quiet"]:
                say(f"serving at {server.url}")
            if is_made:
                say(f"token: {token}")
            return await server.run(listening)
        finally:
            await assembly.close()
