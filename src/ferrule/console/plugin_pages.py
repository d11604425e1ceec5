"""Pages that installed plugins bring, each at `/x/NAME`, for the owner of the server alone.

The manifest names a page's function; it is imported when the page is opened first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.plugin_set import make_plugin_folder
from ferrule.runtime.chosen_plugins import list_used

from .navigation import PLUGIN_PAGES
from .state import Console

T = TypeVar("T")


class FindResource(Protocol):
    """Finds a resource of an agent."""

    def __call__(self, kind: type[T], /) -> T | None:
        """Return the resource of a type; None if there is none."""
        ...


@frozen
class ConsolePage:
    """What the function of a page is called with.

    Attributes:
        user: Who looks at it.
        query: The parameters of the address.
        form: The fields of a form that was sent; None if none was.
        state: Makes and returns the plugin's own folder, as `Setup.state`.
        find_resource: Returns a resource of the server's own agent by its type, None without one.
        render: Renders a Jinja template, given as text, with these values; they are escaped.
    """

    user: str
    query: Mapping[str, str]
    form: Mapping[str, str] | None
    state: Callable[[], Path]
    find_resource: FindResource
    render: Callable[..., str]


ShowPage = Callable[[ConsolePage], str | Awaitable[str]]
"""Shows a page: returns what `ConsolePage.render` returned."""


def routes(console: Console) -> list[BaseRoute]:
    """Return the pages of the plugins that are on."""
    return [
        Route(
            f"{PLUGIN_PAGES}/{name}",
            partial(_show, console, manifest.name, entry.object, entry.text),
            methods=["GET", "POST"],
        )
        for manifest in list_used(console.assembly.settings)
        for name, entry in manifest.pages.items()
    ]


async def _show(
    console: Console, plugin: str, target: str, title: str, request: Request
) -> Response:
    viewer = console.require_operator(request)
    form = {**await request.form()} if request.method == "POST" else None

    def render(template: str, /, **values: Any) -> str:
        page = f"{{% extends 'plugin_page.html' %}}{{% block plugin %}}{template}{{% endblock %}}"
        return console.render_text(request, page, page_title=title, **values)

    shown = _load(plugin, target)(
        ConsolePage(
            viewer.user,
            dict(request.query_params),
            cast("dict[str, str] | None", form),
            lambda: make_plugin_folder(plugin),
            console.assembly.agent.plugins.find_resource,
            render,
        )
    )
    text = await shown if isawaitable(shown) else shown
    return HTMLResponse(text.encode("utf-8", "replace"))


def _load(plugin: str, target: str) -> ShowPage:
    module, _, name = target.partition(":")
    try:
        return cast("ShowPage", getattr(import_module(module), name))
    except Exception as error:
        raise ConfigError(
            f"the page of the plugin `{plugin}` cannot be loaded: {type(error).__name__}: {error}",
            code="plugin_failed",
            hint=f"switch it off: `plugins: {{{plugin}: false}}`, or tell its author",
        ) from error
