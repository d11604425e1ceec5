"""A console over scripted models, and browsers that somebody has signed in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ferrule.console.app import make_app
from ferrule.console.assemblies import SessionSetup
from ferrule.console.setup import build_console_over, close_console
from ferrule.console.state import Console
from ferrule.engine.agent import Agent
from ferrule.engine.event_bus.bus import Bus
from ferrule.models.scripted import Script, Scripted
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.http_security import Visitor
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.settings.settings import load_settings
from grouped_options import grouped


class As:
    """The application as somebody sees it whom the HTTP guard let in."""

    def __init__(self, app: Any, visitor: Visitor) -> None:
        self._app, self._visitor = app, visitor

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["visitor"] = self._visitor
        await self._app(scope, receive, send)


@dataclass
class Serving:
    """A console that is served to tests, and its journal."""

    console: Console
    app: Any
    journal: Journal
    workspace: Path
    notices: list[str] = field(default_factory=list)

    def browser(self, user: str = "owner", *, operator: bool | None = None) -> httpx.AsyncClient:
        """A client that is this person; the owner is an operator."""
        allowed = user == "owner" if operator is None else operator
        visitor = Visitor(user, allowed, "local", csrf=f"csrf-of-{user}")
        transport = httpx.ASGITransport(app=As(self.app, visitor), raise_app_exceptions=True)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`async with served({"scripted:a": [steps]}) as serving`: a console whose models say these;
    the first one is the server's own.

    `tools` are the catalog, `journal` a file that another console may have written before.
    """
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(exist_ok=True)
    workspace = tmp_path / "work"
    workspace.mkdir(exist_ok=True)

    @asynccontextmanager
    async def serve(
        scripts: dict[str, Sequence[Script]],
        *,
        tools: Sequence[Any] = (),
        journal: str | Path | None = None,
        mode: str = "default",
        **given: Any,
    ) -> AsyncIterator[Serving]:
        model_clients = {name: Scripted(steps, model=name) for name, steps in scripts.items()}
        notices: list[str] = []
        store = SqliteJournal(journal or tmp_path / "journal.db")

        def make(setup: SessionSetup, _: Journal | None, bus: Bus | None) -> Assembly:
            agent = Agent(
                model_clients[setup.model or next(iter(model_clients))],
                tools,
                **grouped(
                    workspace=setup.workspace or workspace,
                    mode=setup.mode or mode,
                    journal=store,
                    bus=bus,
                    user="owner",
                    interruptible=True,
                    **given,
                ),
            )
            return Assembly(
                agent, load_settings(workspace=str(workspace)), notices.append, owns_journal=False
            )

        console = build_console_over(make, owner="owner")
        try:
            yield Serving(console, make_app(console), store, workspace, notices)
        finally:
            await close_console(console)
            store.close()
        for model_client in model_clients.values():
            model_client.assert_finished()

    return serve
