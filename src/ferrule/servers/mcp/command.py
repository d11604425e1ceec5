"""`ferrule serve mcp`: this folder's tools for MCP clients, over standard streams or HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ferrule.core.extras import require
from ferrule.core.invisible_characters import escape_invisible
from ferrule.runtime.http.server import load_token
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.runtime.served_folder import require_folder
from ferrule.runtime.shared_options import common_options, server_options, yes_to_option

with lazy_imports():
    from ferrule.runtime import assemble

    from . import server as mcp_server

if TYPE_CHECKING:
    from ferrule.engine.session import Session


PORT = 8330


@click.command()
@click.option(
    "--http", "over_http", is_flag=True, help="Serve over HTTP instead of standard streams."
)
@server_options(PORT)
@click.option(
    "--name",
    default="ferrule",
    show_default=True,
    help="Name of the server for clients.",
)
@yes_to_option
@common_options
def mcp(
    over_http: bool,
    host: str,
    port: int,
    url: str,
    token_file: Path | None,
    name: str,
    yes_to: tuple[str, ...],
    **options: Any,
) -> int:
    """Serve this folder's tools to an MCP client.

    Without `--http` the client starts this command and talks to it over its standard streams.

    Calls follow this folder's rules and are journaled; the person at the client is asked for
    approvals, if the client can ask one. `--allow-tool` and `--deny-tool` choose tools.
    """
    import asyncio

    quiet = bool(options.pop("quiet"))

    def say(sentence: str) -> None:
        click.echo(escape_invisible(sentence), err=True)

    require_folder(options)
    assembly = assemble.assemble(options, notice=say, needs_model=False)
    serving = (
        {"host": host, "port": port, "url": url, "token_file": token_file} if over_http else None
    )
    return asyncio.run(_serve(assembly, name, yes_to, serving, _discard if quiet else say))


async def _serve(
    assembly: assemble.Assembly,
    name: str,
    patterns: tuple[str, ...],
    serving: dict[str, Any] | None,
    say: Any,
) -> int:
    async def end(session: Session) -> None:
        await assembly.close_session(session, strict=False)

    try:
        agent = assembly.agent
        server = mcp_server.McpServer(
            agent, name=name, instructions=_instructions(assembly), yes_to=patterns, end=end
        )
        try:
            if serving is None:
                await server.stdio()
                return 0
            return await _over_http(server, say, **serving)
        finally:
            await server.close()
    finally:
        await assembly.close(strict=False)


async def _over_http(
    server: mcp_server.McpServer,
    say: Any,
    *,
    host: str,
    port: int,
    url: str,
    token_file: Path | None,
) -> int:
    require("starlette", "uvicorn", "h11")
    token, made = load_token(token_file)
    if made:
        click.echo(f"token: {token}", err=True)
    return await server.http(
        token=token,
        host=host,
        port=port,
        url=url,
        ready=lambda address: say(f"serving on {address}"),
    )


def _instructions(assembly: assemble.Assembly) -> str:
    """Return what clients are told about these tools."""
    folder = assembly.agent.workspace
    where = (
        f"the folder `{folder.root.name}`; paths are relative to it"
        if folder is not None
        else "one folder"
    )
    return (
        f"Tools that work in {where}. A call may be refused by rules, or wait for a person's "
        "yes; the reason says what would help. "
        "Large results are kept: their stub names a resource that can be read in parts."
    )


def _discard(sentence: str) -> None:
    """Drop a message, for `--quiet`."""
