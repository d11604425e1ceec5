"""Runs: the sessions of the journal with their current state, whichever process runs them.

The list is requested again every few seconds. It is rendered only if the journal or the session
pool changed; otherwise the answer is 204.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.entries import Entry, Message
from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.core.value_class import frozen
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.sessions import SessionInfo

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
    """A row of the list."""

    info: SessionInfo
    state: str


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
        return console.render_page(
            request,
            "runs.html",
            rows=await run_blocking(lambda: _rows(console, listing.messages, found, wanted)),
            wanted=wanted,
            states=STATES,
            mark=mark,
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
        shown = await run_blocking(lambda: _rows(console, listing.messages, found, wanted))
        return console.render_page(
            request,
            "runs_rows.html",
            rows=shown,
            mark=mark,
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


def _rows(
    console: Console, messages: MessageSearch, found: list[SessionInfo], wanted: Filter
) -> list[Row]:
    rows: list[Row] = []
    for info in found:
        state = console.open_sessions.session_state(info)
        if wanted.matches(info, state, messages):
            rows.append(Row(info, state))
            if len(rows) == MAX_ROWS:
                break
    return rows


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted({value for value in values if value})


def _without(request: Request, name: str) -> str:
    return str(request.url.remove_query_params(name).query)


MAX_CHARACTERS = 200_000
"""Characters of a session that are searched: those of its last messages."""
MAX_KEPT = 40_000_000
"""Characters of all sessions that are kept."""


class MessageSearch:
    """Finds sessions by what was said in them.

    Args:
        read_entries: Returns the entries of a session's page.
    """

    def __init__(self, read_entries: Callable[[SessionInfo], Iterable[Entry]]) -> None:
        self._read_entries = read_entries
        self._texts: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._kept = 0

    def matches(self, info: SessionInfo, words: Iterable[str]) -> bool:
        """Return whether all words are in a session's messages. Reads it if it went on."""
        text = self._find_text(info)
        return all(word in text for word in words)

    def _find_text(self, info: SessionInfo) -> str:
        known = self._texts.get(info.session)
        if known is not None and known[0] == info.events:
            self._texts.move_to_end(info.session)
            return known[1]
        said = [entry.text for entry in self._read_entries(info) if isinstance(entry, Message)]
        text = "\n".join(said)[-MAX_CHARACTERS:].casefold()
        self._kept += len(text) - (len(known[1]) if known is not None else 0)
        self._texts[info.session] = (info.events, text)
        while self._kept > MAX_KEPT:
            _, (_, dropped) = self._texts.popitem(last=False)
            self._kept -= len(dropped)
        return text
