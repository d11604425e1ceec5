"""Runs: the sessions of the journal with their current state, whichever process runs them.

The list is requested again every few seconds. It is rendered only if the journal or the session
pool changed; otherwise the answer is 204.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.sessions import SessionInfo

LISTED = 200
"""Sessions on the page, of the newest `READ`."""
READ = 500
"""Sessions that a refreshing list looks through; a list of all sessions does not refresh."""

STATES = (
    "running",
    "waiting",
    "interrupted",
    "elsewhere",
    "done",
    "failed",
    "cancelled",
    "limit",
    "idle",
)


@dataclass(frozen=True, slots=True)
class Filter:
    """What is searched for; empty fields match everything."""

    words: str = ""
    state: str = ""
    model: str = ""
    user: str = ""

    @staticmethod
    def of(request: Request) -> Filter:
        given = request.query_params
        return Filter(
            *(given.get(name, "").strip()[:200] for name in ("words", "state", "model", "user"))
        )

    @property
    def empty(self) -> bool:
        return self == Filter()

    def fits(self, info: SessionInfo, state: str) -> bool:
        """Return whether a session in this state matches."""
        text = f"{info.question} {info.session} {info.workspace}".casefold()
        return (
            all(word in text for word in self.words.casefold().split())
            and self.state in ("", state)
            and self.model in ("", info.model)
            and self.user in ("", info.user)
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list."""

    info: SessionInfo
    state: str


class Listing:
    """The sessions of each viewer, read once per change, however many people look."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._known: dict[tuple[str, str, bool], tuple[str, list[SessionInfo]]] = {}

    async def now(self, viewer: Viewer) -> tuple[str, list[SessionInfo]]:
        """Return a mark that differs after every change, and the sessions at that moment."""
        key = (viewer.tenant, viewer.user, viewer.operator)
        # Take the mark first: what is written during the read changes it.
        mark = await run_blocking(lambda: self._console.mark(viewer))
        known = self._known.get(key)
        if known is None or known[0] != mark:
            found = await run_blocking(lambda: self._console.sessions(viewer, limit=READ))
            known = self._known[key] = (mark, found)
        return known


def routes(console: Console) -> list[BaseRoute]:
    """Return `/runs`, `/runs/list` (its rows) and `/waiting` (how many questions wait)."""

    listing = Listing(console)

    async def page(request: Request) -> Response:
        viewer = console.viewer(request)
        wanted = Filter.of(request)
        deep = "all" in request.query_params
        mark, found = (
            ("", await run_blocking(lambda: console.sessions(viewer)))
            if deep
            else await listing.now(viewer)
        )
        return console.page(
            request,
            "runs.html",
            rows=_rows(console, found, wanted),
            wanted=wanted,
            states=STATES,
            mark=mark,
            query=request.url.query,
            more=READ if len(found) == READ and not deep else 0,
            models=_distinct(info.model for info in found),
            users=_distinct(info.user for info in found),
        )

    async def rows(request: Request) -> Response:
        viewer = console.viewer(request)
        mark, found = await listing.now(viewer)
        if request.query_params.get("mark") == mark:
            return Response(status_code=204)
        shown = _rows(console, found, Filter.of(request))
        return console.page(
            request,
            "runs_rows.html",
            rows=shown,
            mark=mark,
            query=_without(request, "mark"),
            more=READ if len(found) == READ else 0,
        )

    return [
        Route("/runs", page),
        Route("/runs/list", rows),
        Route("/waiting", partial(_waiting, console)),
    ]


async def _waiting(console: Console, request: Request) -> Response:
    now = str(len(console.desk.waiting(console.viewer(request))))
    if request.query_params.get("shown") == now:
        return Response(status_code=204)
    return console.page(request, "waiting.html")


def _rows(console: Console, found: list[SessionInfo], wanted: Filter) -> list[Row]:
    rows: list[Row] = []
    for info in found:
        state = console.desk.standing(info)
        if wanted.fits(info, state):
            rows.append(Row(info, state))
            if len(rows) == LISTED:
                break
    return rows


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if value})


def _without(request: Request, name: str) -> str:
    return str(request.url.remove_query_params(name).query)
