"""An AG-UI endpoint in a host application that knows people by a header."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from ag_ui_pages import ADDRESS, Client, identify
from starlette.applications import Starlette
from starlette.routing import Mount

from ferrule import Agent
from ferrule.web import create_ag_ui_endpoint


@pytest.fixture
def serving() -> Callable[..., Any]:
    """`async with serving(agent) as client_of`: `client_of("ada")` is somebody at a page."""

    @asynccontextmanager
    async def serve(agent: Agent[Any, Any], **more: Any) -> AsyncIterator[Callable[..., Client]]:
        endpoint = create_ag_ui_endpoint(agent, address=ADDRESS, identify=identify, **more)
        host = Starlette(routes=[Mount("/agent", endpoint)])
        transport = httpx.ASGITransport(app=host)
        async with (
            endpoint,
            httpx.AsyncClient(transport=transport, base_url=ADDRESS) as http,
        ):
            yield lambda user, thread="t1", **given: Client(http, user, thread, **given)

    return serve
