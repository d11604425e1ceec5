"""A page of a plugin without a server, for tests of plugins.

def test_the_page_lists_the_notes(tmp_path):
    (tmp_path / "notes.txt").write_text("buy <milk>")
    assert "buy &lt;milk&gt;" in render_page(show, state=tmp_path)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from ferrule.core.extras import name_missing_extra

with name_missing_extra():
    from ferrule.console.html import template_environment
    from ferrule.console.plugin_pages import ConsolePage, ShowPage

T = TypeVar("T")


def render_page(
    show: ShowPage,
    *,
    state: Path,
    query: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    resources: Iterable[object] = (),
) -> str:
    """Return what a page adds to the console, as HTML, as the console renders it.

    Args:
        show: The function of the page.
        state: The plugin's own folder.
        query: The parameters of the address.
        form: The fields of a form that was sent; None if none was.
        resources: The resources that `ConsolePage.find_resource` finds.
    """
    environment = template_environment()
    kept = tuple(resources)

    def render(template: str, /, **values: Any) -> str:
        viewer = SimpleNamespace(csrf="csrf", user="owner")
        return environment.from_string(template).render(viewer=viewer, root="", **values)

    def find_resource(kind: type[T], /) -> T | None:
        return next((one for one in kept if isinstance(one, kind)), None)

    page = ConsolePage("owner", query or {}, form, lambda: state, find_resource, render)
    shown = show(page)
    if not isawaitable(shown):
        return shown

    async def wait() -> str:
        return await shown

    return asyncio.run(wait())
