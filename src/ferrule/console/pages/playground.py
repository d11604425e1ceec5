"""Playground: a message to a model with the server's tools, or to two of them side by side.

A run that begins here is a run like any other: it is in the list, it asks, it goes on when this
page is closed. Modes and models by name are an operator's to choose; others use the server's mode,
and the models that it knows of.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.assemblies import Setup
from ferrule.console.sessions import DeskError
from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.core.errors import FerruleError
from ferrule.engine.event_bus.events import KINDS
from ferrule.engine.threads import run_blocking
from ferrule.permissions.gate import MODES
from ferrule.runtime.model_discovery import discovered

from .run import Pane, leads, pane

ASKED_SECONDS = 30.0
"""How long providers are believed about what they have."""
RECENT = 40
PANES = ("a", "b")


class Models:
    """The models to choose from: the server's own first, then what providers here have, then those
    used lately.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._known: list[str] = []
        self._asked = 0.0

    async def usable(self) -> list[str]:
        """Those that anybody may choose. Asks providers of this machine, seldom."""
        if not self._asked or time.monotonic() - self._asked > ASKED_SECONDS:
            try:
                rows = await discovered(self._console.assembly.settings)
            except FerruleError as error:
                self._console.assembly.notice(f"looking for models: {error.detail}")
                rows = []
            self._known = [
                row.model for row in rows if row.ready and not row.model.endswith(":MODEL")
            ]
            self._asked = time.monotonic()
        return _each([self._console.assembly.agent.model, *self._known])

    async def offered(self, viewer: Viewer) -> list[str]:
        """Those that a page offers to this person."""
        found = await self.usable()
        if not viewer.operator:
            return found
        recent = await run_blocking(lambda: self._console.sessions(viewer, limit=RECENT))
        return _each([*found, *(info.model for info in recent)])


class Playground:
    """The handlers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._models = Models(console)

    async def page(self, request: Request) -> Response:
        """`GET /playground?a=&b=`: what is asked next, below the sessions that are open on the
        page.
        """
        viewer, given = self._console.viewer(request), request.query_params
        names = [given[name] for name in PANES if given.get(name)]
        panes = [await pane(self._console, viewer, name) for name in names]
        return self._console.page(
            request,
            "playground.html",
            panes=panes,
            kinds=" ".join(sorted(KINDS)),
            modes=MODES,
            models=[] if panes else await self._models.offered(viewer),
            chosen=_chosen(panes) or self._console.assembly.agent.model,
            mode=str(self._console.assembly.agent.gate.mode),
            folder=str(self._console.assembly.settings.workspace),
        )

    async def begin(self, request: Request) -> Response:
        """`POST /playground` (text, model, other, mode): a session for each model; leads to the
        page with them.
        """
        viewer, form = self._console.viewer(request), await request.form()
        text, mode = str(form.get("text", "")), str(form.get("mode", ""))
        models = _each([str(form.get(name, "")).strip() for name in ("model", "other")])
        await self._allowed(viewer, models, mode)
        lives = [
            await self._console.desk.start(viewer, text, Setup(model, mode))
            for model in models or [""]
        ]
        query = urlencode(dict(zip(PANES, (live.id for live in lives), strict=False)))
        return leads(request, f"/playground?{query}")

    async def say(self, request: Request) -> Response:
        """`POST /playground/say` (a, b, text): the same next message for the sessions on the
        page.
        """
        viewer, form = self._console.viewer(request), await request.form()
        names = [str(form.get(name)) for name in PANES if form.get(name)]
        found = await run_blocking(lambda: [self._console.session(viewer, name) for name in names])
        text = str(form.get("text", ""))
        await asyncio.gather(*(self._console.desk.go_on(viewer, info, text) for info in found))
        if request.headers.get("hx-request") == "true":
            return self._console.page(request, "message.html", text="sent", hint="", good=True)
        return leads(request, f"/playground?{urlencode(dict(zip(PANES, names, strict=False)))}")

    async def _allowed(self, viewer: Viewer, models: Sequence[str], mode: str) -> None:
        if mode and mode not in MODES:
            raise DeskError(
                f"there is no mode `{mode[:40]}`", code="not_allowed", hint=", ".join(MODES)
            )
        if viewer.operator:
            return
        if mode not in ("", str(self._console.assembly.agent.gate.mode)):
            raise DeskError(
                "the mode is for the owner of this server to choose", code="not_allowed"
            )
        known = await self._models.usable()
        if unknown := [model for model in models if model not in known]:
            raise DeskError(
                f"`{unknown[0][:80]}` is none of the models of this server", code="not_allowed"
            )


def routes(console: Console) -> list[BaseRoute]:
    """`/playground`."""
    made = Playground(console)
    return [
        Route("/playground", made.page),
        Route("/playground", made.begin, methods=["POST"]),
        Route("/playground/say", made.say, methods=["POST"]),
    ]


def _each(names: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(name for name in names if name)]


def _chosen(panes: Sequence[Pane]) -> str:
    return panes[0].info.model if panes else ""
