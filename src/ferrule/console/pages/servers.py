"""MCP servers: how each stands, what it says of its tools, and the owner's yes or no to it.

A yes counts for what stands on the page and for nothing else (`runtime.mcp_approvals`). It holds
for sessions of other assemblies from their start; the tools of this server's own sessions are those
that it found when it started.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ferrule.console.state import Console
from ferrule.engine.threads import run_blocking
from ferrule.runtime.mcp_approvals import ServerApprovals


def routes(console: Console) -> list[BaseRoute]:
    """`/servers`, `/servers/server` (one of them), and what the owner may do:
    `/servers/{command,look,tools,withdraw}`.
    """
    book = ServerApprovals(console.assembly.settings)
    return [
        Route("/servers", partial(page, console, book)),
        Route("/servers/server", partial(one_server, console, book)),
        Route("/servers/{doing}", partial(act, console, book), methods=["POST"]),
    ]


async def page(console: Console, book: ServerApprovals, request: Request) -> Response:
    """All of them. Nothing is started."""
    standings, problems = await run_blocking(book.standings)
    running = console.assembly.servers
    status = {one.name: one for one in running.status()} if running is not None else {}
    return console.page(request, "servers.html", standings=standings, problems=problems, now=status)


async def one_server(console: Console, book: ServerApprovals, request: Request) -> Response:
    """One of them, with what would be approved."""
    console.operator(request)
    standing = await run_blocking(lambda: book.standing(request.query_params.get("name", "")))
    return console.page(request, "server.html", standing=standing)


async def act(console: Console, book: ServerApprovals, request: Request) -> Response:
    """What the owner says to one. What does not count is said by an error page, and nothing has
    changed.
    """
    console.operator(request)
    given: dict[str, Any] = {**await request.form()}
    name, digest = str(given.get("name", "")), str(given.get("digest", ""))
    match request.path_params["doing"]:
        case "command":
            await run_blocking(lambda: book.approve_command(name, digest))
            await book.look(name)
        case "look":
            await book.look(name)
        case "tools":
            await run_blocking(lambda: book.approve_tools(name, digest))
        case "withdraw":
            await run_blocking(lambda: book.withdraw(name))
        case _:
            return Response(status_code=404)
    return RedirectResponse(f"/servers/server?{urlencode({'name': name})}", status_code=303)
