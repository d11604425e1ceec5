"""Events: live, and as the journal holds them for a session. What is shown holds no secrets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ferrule.console.state import Console
from ferrule.core.value_class import frozen
from ferrule.engine.event_bus.event_selection import OwnSession
from ferrule.engine.event_bus.events import KINDS, BusEvent, Place
from ferrule.engine.event_bus.past_events import MAX_EVENTS, PastPage, past_events
from ferrule.engine.threads import run_blocking
from ferrule.storage.journal.sessions import SessionInfo

GROUPS = {
    "sessions and runs": ("session.*", "run.*", "context.*", "notice*", "cancelled", "limit.*"),
    "models": ("model.*",),
    "calls": ("call.*",),
    "questions and answers": ("approval.*", "person.*", "consent.*"),
    "delegation and tool search": ("delegation.*", "tool_search.*"),
    "words as they arrive": ("piece.*",),
}
"""The groups to choose from, and the kinds each stands for. `piece.*` is live only: no journal
holds it.
"""
MAX_SESSIONS = 20
"""Sessions offered for a choice, and those whose last events are shown."""
LAST_EVENTS = 15
"""Last events of a session among those of all."""


@frozen
class RecentEvent:
    """An event of one of the latest sessions."""

    session: str
    event: BusEvent


def routes(console: Console) -> list[BaseRoute]:
    """Return `/events`."""
    return [Route("/events", partial(page, console))]


async def page(console: Console, request: Request) -> Response:
    """Show live events and, for one session, those of the journal after a position."""
    viewer = console.require_viewer(request)
    given = request.query_params
    chosen = [name for name in given.getlist("group") if name in GROUPS]
    kinds = _known_patterns(chosen)
    name = given.get("session", "").strip()
    after = _parse_cursor(given.get("after", ""))
    info = await run_blocking(lambda: console.find_session(viewer, name)) if name else None
    past = PastPage()
    if info is not None:
        own = OwnSession(info.tenant, info.user, info.session)
        past = await run_blocking(
            lambda: past_events(
                console.journal, own, console.bus.redactor, kinds=kinds or None, after=after
            )
        )
    latest = await run_blocking(lambda: console.list_sessions(viewer, limit=MAX_SESSIONS))
    recent: list[RecentEvent] = []
    if info is None:
        recent = await run_blocking(lambda: _read_recent(console, latest, kinds or None))
    return console.render_page(
        request,
        "events.html",
        info=info,
        past=past,
        recent=recent,
        after=after,
        most=MAX_EVENTS,
        groups=list(GROUPS),
        chosen=chosen,
        latest=latest,
        kinds=",".join(kinds or _without_pieces()),
        known=",".join(sorted(KINDS)),
        cursor=given.get("cursor", "")[:100],
    )


def _read_recent(
    console: Console, sessions: Iterable[SessionInfo], kinds: list[str] | None
) -> list[RecentEvent]:
    """Return the last events of these sessions, the newest first."""
    found: list[RecentEvent] = []
    for info in sessions:
        own = OwnSession(info.tenant, info.user, info.session)
        after = max(0, info.events - LAST_EVENTS)
        page = past_events(console.journal, own, console.bus.redactor, kinds=kinds, after=after)
        found += [RecentEvent(info.session, event) for event in page.events]
    return sorted(found, key=_moment, reverse=True)[:MAX_EVENTS]


def _moment(one: RecentEvent) -> tuple[float, Place]:
    return one.event.time, one.event.sequence or Place()


def _known_patterns(chosen: list[str]) -> list[str]:
    """Return the patterns of these groups that match any known kind."""
    patterns = [pattern for name in chosen for pattern in GROUPS[name]]
    return [
        one
        for one in patterns
        if any(kind == one or kind.startswith(one.removesuffix("*")) for kind in KINDS)
    ]


def _without_pieces() -> list[str]:
    return sorted(kind for kind in KINDS if not kind.startswith(("piece.", "bus.")))


def _parse_cursor(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
