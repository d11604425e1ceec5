"""Runs: the sessions of the journal with their current state, whichever process runs them.

The list is requested again every few seconds. It is rendered only if the journal or the session
pool changed; otherwise the answer is 204.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.message_search import MessageSearch
from ferrule.console.state import Console
from ferrule.console.statistics import SECONDS, find_statistics
from ferrule.console.viewer import Viewer
from ferrule.core.value_class import frozen
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.statistics.activity import SessionActivity
from ferrule.storage.statistics.incremental import JournalStatistics
from ferrule.storage.statistics.spending import SessionSpending

from .costs import format_spending

MAX_ROWS = 200
"""Sessions on the page, of the newest `MAX_READ`."""
MAX_READ = 500
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


@frozen
class Filter:
    """What is searched for; empty fields match everything."""

    words: str = ""
    state: str = ""
    model: str = ""
    user: str = ""

    @staticmethod
    def from_request(request: Request) -> Filter:
        given = request.query_params
        return Filter(
            *(given.get(name, "").strip()[:200] for name in ("words", "state", "model", "user"))
        )

    @property
    def empty(self) -> bool:
        return self == Filter()

    def matches(self, info: SessionInfo, state: str, messages: MessageSearch) -> bool:
        """Return whether a session in this state matches; its messages are searched last."""
        if self.state not in ("", state) or self.model not in ("", info.model):
            return False
        if self.user not in ("", info.user):
            return False
        text = f"{info.question} {info.session} {info.workspace}".casefold()
        missing = [word for word in self.words.casefold().split() if word not in text]
        return not missing or messages.matches(info, missing)


@frozen
class Row:
    """A row of the list. What was not read yet, or did not happen, is None."""

    info: SessionInfo
    state: str
    activity: SessionActivity | None = None
    spent: SessionSpending | None = None

    @property
    def seconds(self) -> float | None:
        """How long its runs took; one that is in progress counts until now."""
        if self.activity is None:
            return None
        running = self.activity.began if self.state in ("running", "waiting", "elsewhere") else 0
        since = max(0, time.time() * 1000 - running) if running else 0
        return (self.activity.milliseconds + since) / 1000


class SessionLists:
    """The sessions of each viewer, read once per change, however many people look."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.messages = MessageSearch(lambda info: console.timelines.fetch(info).timeline.entries)
        self._known: dict[tuple[str, str, bool], tuple[str, list[SessionInfo]]] = {}

    async def current(self, viewer: Viewer) -> tuple[str, list[SessionInfo]]:
        """Return a mark that differs after every change, and the sessions at that moment."""
        key = (viewer.tenant, viewer.user, viewer.operator)
        # Take the mark first: what is written during the read changes it.
        mark = await run_blocking(lambda: self._console.change_mark(viewer))
        known = self._known.get(key)
        if known is None or known[0] != mark:
            found = await run_blocking(lambda: self._console.list_sessions(viewer, limit=MAX_READ))
            known = self._known[key] = (mark, found)
        return known


def routes(console: Console) -> list[BaseRoute]:
    """Return `/runs`, `/runs/list` (its rows) and `/waiting` (how many questions wait)."""
    listing = SessionLists(console)

    async def page(request: Request) -> Response:
        viewer = console.require_viewer(request)
        wanted = Filter.from_request(request)
        deep = "all" in request.query_params
        mark, found = (
            ("", await run_blocking(lambda: console.list_sessions(viewer)))
            if deep
            else await listing.current(viewer)
        )
        shown, left = await run_blocking(lambda: _rows(console, listing.messages, found, wanted))
        return console.render_page(
            request,
            "runs.html",
            rows=shown,
            dollars=format_spending,
            wanted=wanted,
            states=STATES,
            mark=mark and _mark(mark, left),
            query=request.url.query,
            more=MAX_READ if len(found) == MAX_READ and not deep else 0,
            models=_distinct(info.model for info in found),
            users=_distinct(info.user for info in found),
        )

    async def rows(request: Request) -> Response:
        viewer = console.require_viewer(request)
        mark, found = await listing.current(viewer)
        if request.query_params.get("mark") == mark:
            return Response(status_code=204)
        wanted = Filter.from_request(request)
        shown, left = await run_blocking(lambda: _rows(console, listing.messages, found, wanted))
        return console.render_page(
            request,
            "runs_rows.html",
            rows=shown,
            dollars=format_spending,
            mark=_mark(mark, left),
            query=_without(request, "mark"),
            more=MAX_READ if len(found) == MAX_READ else 0,
        )

    return [
        Route("/runs", page),
        Route("/runs/list", rows),
        Route("/waiting", partial(_show_waiting, console)),
    ]


async def _show_waiting(console: Console, request: Request) -> Response:
    now = str(len(console.open_sessions.list_questions(console.require_viewer(request))))
    if request.query_params.get("shown") == now:
        return Response(status_code=204)
    return console.render_page(request, "waiting.html")


def _mark(mark: str, left: int) -> str:
    """Return the mark of a list; while events are `left` to read, the next request renders it."""
    return f"{mark}~{left}" if left else mark


def _rows(
    console: Console, messages: MessageSearch, found: list[SessionInfo], wanted: Filter
) -> tuple[list[Row], int]:
    """Return the rows to show, and how many events are left to read for their numbers.

    First come those that wait for the viewer, then the others as `found` has them.
    """
    rows: list[tuple[SessionInfo, str]] = []
    for info in found:
        state = console.open_sessions.session_state(info)
        if wanted.matches(info, state, messages):
            rows.append((info, state))
            if len(rows) == MAX_ROWS:
                break
    rows.sort(key=lambda row: row[1] != "waiting")

    def describe(numbers: JournalStatistics) -> list[Row]:
        return [
            Row(
                info,
                state,
                numbers.activities.find(info.session),
                numbers.spending.find(info.session),
            )
            for info, state in rows
        ]

    described, reading = find_statistics(console).query(describe, seconds=SECONDS)
    return described, reading.left


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if value})


def _without(request: Request, name: str) -> str:
    return str(request.url.remove_query_params(name).query)
