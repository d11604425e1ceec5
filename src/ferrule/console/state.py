"""What all pages share: who is looking, what they may see, and where it is read from.

No request is answered without a visitor. The HTTP guard (`runtime.http.http_security`) puts one on
each request, and a request without one is refused here once more. The owner of the process is an
operator and sees every session of the journal. Anyone else with a token sees and controls only
their own sessions, as if there were no others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ferrule.core.errors import SessionNotFound
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.event_selection import Operator, OwnSession, OwnSessions, Scope
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.http_security import Visitor, route_path
from ferrule.runtime.http.sign_in import LOGIN
from ferrule.storage.journal.change_detection import ChangeDetector, create_change_detector
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal

from .html import template_environment
from .navigation import list_areas
from .open_sessions import OpenSessions
from .timeline_cache import TimelineCache
from .viewer import Viewer


def mount_path(request: Request) -> str:
    """Return the path at which the console is mounted; "" if it has an address of its own."""
    return quote(request.scope.get("root_path", "")).rstrip("/")


@dataclass(slots=True)
class Console:
    """State shared by all pages.

    `assembly` is the server's own: its settings, catalog, gate and MCP servers. `journal` is used
    for reading only. `host_sign_in` is where people sign in with the application that the console
    is mounted in, "" if nowhere; None if they sign in with the console itself.
    """

    assembly: Assembly
    journal: Journal
    bus: Bus
    open_sessions: OpenSessions
    timelines: TimelineCache
    owner: str
    host_sign_in: str | None = None
    html: Environment = field(default_factory=template_environment)
    _changes_lock: threading.Lock = field(default_factory=threading.Lock)
    _changes: ChangeDetector | None = None
    _change_count: int = 0
    _closers: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _epoch: str = field(default_factory=lambda: token_hex(4))

    def require_viewer(self, request: Request) -> Viewer:
        """Return who made a request.

        Raises:
            HTTPException: 401, the request did not pass the HTTP guard.
        """
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        if visitor is None:
            raise HTTPException(401, "a token is required")
        return Viewer(visitor.user, visitor.operator, visitor.tenant, visitor.csrf)

    def require_operator(self, request: Request) -> Viewer:
        """Return who made a request, if they are an operator.

        Raises:
            HTTPException: 401 as for `require_viewer`, 403 if they are not an operator.
        """
        viewer = self.require_viewer(request)
        if not viewer.operator:
            raise HTTPException(403, "only the owner of this server may do this")
        return viewer

    def list_sessions(self, viewer: Viewer, *, limit: int | None = None) -> list[SessionInfo]:
        """Return the sessions this viewer may see, the most recently used first.

        Reads the journal.
        """
        if viewer.operator:
            return self.journal.sessions(limit=limit)
        return self.journal.sessions(tenant=viewer.tenant, user=viewer.user, limit=limit)

    def find_session(self, viewer: Viewer, name: str) -> SessionInfo:
        """Find a session by its id or the beginning of its id.

        Raises:
            SessionNotFound: there is none, or it belongs to someone else.
        """
        if viewer.operator:
            return self.journal.find(name)
        return self.journal.find(name, tenant=viewer.tenant, user=viewer.user)

    def change_mark(self, viewer: Viewer) -> str:
        """Return a text that changes with every change in the journal or in the session pool.

        Changes by other processes count as well.
        """
        journal = self.journal
        begun = (
            not isinstance(journal, SqliteJournal) or journal.path is None or journal.path.exists()
        )
        with self._changes_lock:
            if self._changes is None and begun:
                self._changes = create_change_detector(journal)
                self.close_with_reading(self._changes.close)
            if self._changes is not None and self._changes.has_changed():
                self._change_count += 1
            questions = len(self.open_sessions.list_questions(viewer))
            sessions = self.open_sessions.change_count
            return f"{self._epoch}.{self._change_count}.{sessions}.{questions}"

    def close_with_reading(self, close: Callable[[], object]) -> None:
        """Have `close` called by `close_reading`."""
        self._closers.append(close)

    def close_reading(self) -> None:
        """Close the connections with which pages look for changes of the journal, and read it."""
        for close in self._closers:
            close()
        self._closers.clear()
        self.timelines.close()
        if self.journal is not self.open_sessions.journal:
            self.journal.close()

    def subscription_scope(self, viewer: Viewer, info: SessionInfo | None = None) -> Scope:
        """Return what this viewer may subscribe to on the event bus.

        That is the given session, or without one every session that they may see.

        Raises:
            SessionNotFound: the session is not theirs to see.
        """
        if info is not None and not viewer.may_see(info):
            raise SessionNotFound(f"no session `{info.session}`")
        if info is not None and (info.tenant, info.user) == (viewer.tenant, viewer.user):
            return OwnSession(info.tenant, info.user, info.session)
        if not viewer.operator:
            return OwnSessions(viewer.tenant, viewer.user)
        if info is None:
            return Operator(viewer.user, "console")
        return Operator(viewer.user, "console", info.tenant, info.user, info.session)

    def render_page(
        self, request: Request, name: str, /, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a template with these values.

        Every template also gets `viewer`, `areas`, `waiting`, `root` (the path at which the console
        is mounted, without a `/` at its end), `path` (below it), `sign_in` and `signs_out`.
        """
        text = self.html.get_template(name).render({**self._list_shared(request), **values})
        # A text may hold half of a surrogate pair, which UTF-8 cannot encode. If `visible` did not
        # spell it out, it becomes a question mark.
        return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)

    def render_text(self, request: Request, template: str, /, **values: Any) -> str:
        """Render a template that is given as text. It gets what `render_page` gives."""
        made = self.html.from_string(template)
        return made.render({**self._list_shared(request), **values})

    def _list_shared(self, request: Request) -> dict[str, Any]:
        viewer = self.require_viewer(request)
        root = mount_path(request)
        return {
            "viewer": viewer,
            "areas": list_areas(self.assembly.settings),
            "root": root,
            "path": route_path(request.scope),
            "sign_in": f"{root}{LOGIN}" if self.host_sign_in is None else self.host_sign_in,
            "signs_out": self.host_sign_in is None,
            "waiting": len(self.open_sessions.list_questions(viewer)),
        }
