"""The ASGI application of the console: its pages, its static files, and its error pages.

Who may enter, from where, and with which headers an answer leaves is decided by the HTTP guard in
front of it (`runtime.http.http_security`). Nothing here answers without the visitor that the guard
puts on a request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from ferrule.core.errors import FerruleError, SessionNotFound
from ferrule.runtime.http.http_security import Application

from . import plugin_pages, stream
from .html import template_environment
from .pages import artifacts, audit, costs, events, playground, policy, run, runs, servers, tools
from .state import Console, mount_path

FOLDER = Path(__file__).parent
PAGE_MODULES = (
    runs,
    run,
    playground,
    tools,
    events,
    artifacts,
    policy,
    servers,
    audit,
    costs,
    stream,
    plugin_pages,
)
"""The modules with pages: each has `routes(console)`."""


def make_app(console: Console) -> Application:
    """Build the application for `console`. Put the HTTP guard in front of it."""
    routes: list[BaseRoute] = [
        Route("/", _redirect_home),
        Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
    ]
    for part in PAGE_MODULES:
        routes += part.routes(console)
    handlers: dict[Any, Any] = {
        FerruleError: _error_handler(console),
        HTTPException: _http_error_handler(console),
        Exception: _error_handler(console),
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def render_login_page(note: str, to: str) -> str:
    """Render the sign-in form (`runtime.http.sign_in`) with a note and the path to open next."""
    return template_environment().get_template("login.html").render(note=note, next=to, root="")


def _redirect_home(request: Request) -> Response:
    return RedirectResponse(f"{mount_path(request)}/runs", status_code=303)


def _error_handler(console: Console) -> Any:
    async def show_failure(request: Request, error: Exception) -> Response:
        if isinstance(error, FerruleError):
            status = 404 if isinstance(error, SessionNotFound) else 422
            return render_error(console, request, status, error.detail, error.hint)
        return render_error(
            console, request, 500, "internal error; see the terminal of the server", ""
        )

    return show_failure


def _http_error_handler(console: Console) -> Any:
    async def show_refusal(request: Request, error: HTTPException) -> Response:
        said = "page not found" if error.status_code == 404 else error.detail
        return render_error(console, request, error.status_code, said, "", headers=error.headers)

    return show_refusal


def render_error(
    console: Console, request: Request, status: int, text: str, hint: str, headers: Any = None
) -> Response:
    """Render an error as a page, or as a message if part of a page was requested."""
    if getattr(request.state, "visitor", None) is None:
        # A path that needs no sign-in: there is no viewer to render a page for.
        return PlainTextResponse(text, status, headers)
    part = request.headers.get("hx-request") == "true"
    name = "message.html" if part else "error.html"
    answer = console.render_page(request, name, status=status, text=text, hint=hint, good=False)
    answer.headers.update(headers or {})
    if part:
        answer.headers.update({"hx-retarget": "#messages", "hx-reswap": "innerHTML"})
    return answer
