"""Playground: begin a conversation with a model and the server's tools, or with two side by side.

A run that starts here is a run like any other: it is in the list, it asks questions, and it
continues when this page is closed. Only an operator may choose any mode and name any model; others
use the server's mode and the models it knows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.assemblies import SessionSetup
from ferrule.console.open_sessions import SessionActionError
from ferrule.console.state import Console
from ferrule.console.uploads import read_form
from ferrule.console.viewer import Viewer
from ferrule.core.errors import FerruleError
from ferrule.engine.event_bus.events import KINDS
from ferrule.engine.threads import run_blocking
from ferrule.permissions.rule_evaluation import MODES
from ferrule.runtime.model_discovery import discover_models

from .run import load_pane, redirect

CACHE_SECONDS = 30.0
"""How long a provider's list of models is cached."""
RECENT = 40
PANES = ("a", "b")
EXAMPLES = {
    "list_files": "What is in this folder? Give a short overview of what each part is for.",
    "search_files": "Find everything marked TODO or FIXME and list it by file.",
    "run_command": "Run the tests and explain the first failure.",
    "edit_file": "Find one small improvement, show it to me, and make it.",
}
"""What a person may begin with, by the tool that it needs."""
EXAMPLE_WITHOUT_TOOLS = "Explain in five sentences what you can and cannot do here."


class ModelChoices:
    """The models to choose from: the server's own, those of its providers, those used lately."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._known: list[str] = []
        self._asked_at = 0.0

    async def list_usable(self) -> list[str]:
        """Return the models anyone may choose. Asks the providers of this machine, rarely."""
        if not self._asked_at or time.monotonic() - self._asked_at > CACHE_SECONDS:
            try:
                rows = await discover_models(self._console.assembly.settings)
            except FerruleError as error:
                self._console.assembly.notice(f"cannot list models: {error.detail}")
                rows = []
            self._known = [
                row.model for row in rows if row.ready and not row.model.endswith(":MODEL")
            ]
            self._asked_at = time.monotonic()
        return _distinct([self._console.assembly.agent.model, *self._known])

    async def list_for(self, viewer: Viewer) -> list[str]:
        """Return the models that the page offers to this viewer."""
        found = await self.list_usable()
        if not viewer.operator:
            return found
        recent = await run_blocking(lambda: self._console.list_sessions(viewer, limit=RECENT))
        return _distinct([*found, *(info.model for info in recent)])


class Playground:
    """The request handlers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._models = ModelChoices(console)

    async def page(self, request: Request) -> Response:
        """Handle `GET /playground?a=&b=`: two sessions side by side; without them the form."""
        viewer = self._console.require_viewer(request)
        given = request.query_params
        names = [given[name] for name in PANES if given.get(name)]
        panes = [await load_pane(self._console, viewer, name) for name in names]
        return self._console.render_page(
            request,
            "playground.html",
            panes=panes,
            kinds=" ".join(sorted(KINDS)),
            modes=MODES,
            models=[] if panes else await self._models.list_for(viewer),
            chosen=self._console.assembly.agent.model,
            mode=str(self._console.assembly.agent.gate.mode),
            folder=str(self._console.assembly.settings.workspace),
            examples=self._list_examples(),
        )

    def _list_examples(self) -> list[str]:
        tools = {tool.name for tool in self._console.assembly.agent.catalog}
        found = [text for name, text in EXAMPLES.items() if name in tools]
        return found or [EXAMPLE_WITHOUT_TOOLS]

    async def start_sessions(self, request: Request) -> Response:
        """Handle `POST /playground` (text, files, model, named, other, mode).

        Starts a session for each model; a model that is named is used instead of the chosen one.
        Redirects to the session, or to the page that shows both.
        """
        viewer = self._console.require_viewer(request)
        form, message = await read_form(request)
        mode = str(form.get("mode", ""))
        named = str(form.get("named", "")).strip() or str(form.get("model", "")).strip()
        models = _distinct([named, str(form.get("other", ""))])
        await self._check_allowed(viewer, models, mode)
        lives = [
            await self._console.open_sessions.start(viewer, message, SessionSetup(model, mode))
            for model in models or [""]
        ]
        if len(lives) == 1:
            return redirect(request, f"/runs/{lives[0].id}")
        query = urlencode(dict(zip(PANES, (live.id for live in lives), strict=True)))
        return redirect(request, f"/playground?{query}")

    async def send_message(self, request: Request) -> Response:
        """Handle `POST /playground/say` (a, b, text, files): a message to the sessions shown."""
        viewer = self._console.require_viewer(request)
        form, message = await read_form(request)
        names = [str(form.get(name)) for name in PANES if form.get(name)]
        found = await run_blocking(
            lambda: [self._console.find_session(viewer, name) for name in names]
        )
        await asyncio.gather(
            *(self._console.open_sessions.send_message(viewer, info, message) for info in found)
        )
        if request.headers.get("hx-request") == "true":
            return self._console.render_page(
                request, "message.html", text="sent", hint="", good=True
            )
        return redirect(request, f"/playground?{urlencode(dict(zip(PANES, names, strict=False)))}")

    async def _check_allowed(self, viewer: Viewer, models: Sequence[str], mode: str) -> None:
        if mode and mode not in MODES:
            raise SessionActionError(
                f"unknown mode `{mode[:40]}`", code="not_allowed", hint=", ".join(MODES)
            )
        if viewer.operator:
            return
        if mode not in ("", str(self._console.assembly.agent.gate.mode)):
            raise SessionActionError(
                "only the owner of this server may choose the mode", code="not_allowed"
            )
        known = await self._models.list_usable()
        if unknown := [model for model in models if model not in known]:
            raise SessionActionError(
                f"`{unknown[0][:80]}` is not a model of this server", code="not_allowed"
            )


def routes(console: Console) -> list[BaseRoute]:
    """Return the routes of `/playground`."""
    made = Playground(console)
    return [
        Route("/playground", made.page),
        Route("/playground", made.start_sessions, methods=["POST"]),
        Route("/playground/say", made.send_message, methods=["POST"]),
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(name for name in names if name)]
