"""MCP servers: their state, what they say about their tools, and the owner's approval.

An approval applies to what the page shows and to nothing else (`connectors.mcp.approval_review`).
Sessions of other assemblies use it from their start; this server's own sessions have the tools that
were found when it started.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ferrule.connectors.mcp.approval_review import ServerReview
from ferrule.connectors.mcp.plugin import RunServers
from ferrule.console.state import Console, mount_path
from ferrule.engine.threads import run_blocking
from ferrule.runtime.sandbox_policy import make_sandbox_policy


def routes(console: Console) -> list[BaseRoute]:
    """Return `/servers`, `/servers/server` (one server), and the actions of the owner.

    The actions are `/servers/{command,look,tools,withdraw}`.
    """
    settings = console.assembly.settings
    review = ServerReview(settings, make_sandbox_policy(settings, names=settings.names))
    return [
        Route("/servers", partial(page, console, review)),
        Route("/servers/server", partial(server_page, console, review)),
        Route("/servers/{doing}", partial(apply_action, console, review), methods=["POST"]),
    ]


async def page(console: Console, review: ServerReview, request: Request) -> Response:
    """List all servers. Nothing is started."""
    standings, problems = await run_blocking(review.list_servers)
    running = console.assembly.agent.plugins.find_resource(RunServers)
    status = {one.name: one for one in running.status()} if running is not None else {}
    return console.render_page(
        request, "servers.html", standings=standings, problems=problems, now=status
    )


async def server_page(console: Console, review: ServerReview, request: Request) -> Response:
    """Show one server, with what would be approved."""
    console.require_operator(request)
    standing = await run_blocking(lambda: review.find_server(request.query_params.get("name", "")))
    return console.render_page(request, "server.html", standing=standing)


async def apply_action(console: Console, review: ServerReview, request: Request) -> Response:
    """Carry out what the owner decided about a server.

    A decision that does not apply shows an error page, and nothing is changed.
    """
    console.require_operator(request)
    given: dict[str, Any] = {**await request.form()}
    name = str(given.get("name", ""))
    digest = str(given.get("digest", ""))
    match request.path_params["doing"]:
        case "command":
            await run_blocking(lambda: review.approve_command(name, digest))
            await review.inspect(name)
        case "look":
            await review.inspect(name)
        case "tools":
            await run_blocking(lambda: review.approve_tools(name, digest))
        case "withdraw":
            await run_blocking(lambda: review.revoke(name))
        case _:
            return Response(status_code=404)
    page = f"{mount_path(request)}/servers/server?{urlencode({'name': name})}"
    return RedirectResponse(page, status_code=303)
