"""Serve the agent of this folder on an address: what `ferrule serve` of three protocols share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import click

from ferrule.core.extras import require
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.http.endpoint import HttpEndpoint
from ferrule.runtime.http.server import bound_port, listen, load_token
from ferrule.runtime.served_folder import require_folder


class Address(TypedDict):
    """Where a server is, and what opens it."""

    host: str
    port: int
    url: str
    token: str


MakeServer = Callable[[Assembly, Address], tuple[HttpEndpoint, str]]
"""Makes a server, and says in a line what it serves and where."""


async def serve_agent(options: dict[str, Any], make_server: MakeServer) -> int:
    """Assemble the agent and serve it until the process is told to stop. Return the exit code.

    Args:
        options: The options of the command, those of `server_options` among them.
        make_server: Makes the server.

    Raises:
        ConfigError: The address, the token or the settings cannot be used.
    """
    require("starlette", "uvicorn", "h11")
    token, is_made = load_token(options["token_file"])
    require_folder(options)
    # Before anything is assembled, so that an address that is taken is an error only.
    with listen(options["host"], options["port"]) as listening:
        assembly = assemble(options, notice=_print_notice)
        try:
            address = Address(
                host=options["host"],
                port=bound_port(listening),
                url=options["url"],
                token=token,
            )
            server, line = make_server(assembly, address)
            if not options["quiet"]:
                click.echo(line, err=True)
            if is_made:
                click.echo(f"token: {token}", err=True)
            return await server.run(listening)
        finally:
            # Whoever stops a server is done with it: a script with steps left is no failure.
            await assembly.close(strict=False)


def _print_notice(text: str) -> None:
    click.echo(f"! {text}", err=True)
