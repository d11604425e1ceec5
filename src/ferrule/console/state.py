"""What pages get: who looks, what they may see, and everything that they show it from.

Nobody without a visitor gets in: the door (`runtime.http.http_security`) puts one on each request,
and a request without is refused here once more. The owner of the process is an operator and sees
all sessions of the journal; whoever else has a token sees and drives only their own, as if there
were no others.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from ferrule.core.errors import SessionNotFound
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.scope import Operator, OwnSession, OwnSessions, Scope
from ferrule.storage.journal.change_detection import Changes, changes_of
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal

from .html import environment
from .navigation import AREAS
from .sessions import Desk
from .timeline_cache import Views
from .viewer import Viewer

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly
    from ferrule.runtime.http.http_security import Visitor


@dataclass(slots=True)
class Console:
    """What all pages share. `assembly` is the server's own: its settings, catalog, gate, servers;
    `journal` is for reading.
    """

    assembly: Assembly
    journal: Journal
    bus: Bus
    desk: Desk
    views: Views
    owner: str
    html: Environment = field(default_factory=environment)
    _looks: threading.Lock = field(default_factory=threading.Lock)
    _changes: Changes | None = None
    _look: int = 0
    _epoch: str = field(default_factory=lambda: token_hex(4))

    def viewer(self, request: Request) -> Viewer:
        """Who asks. Raises HTTPException (401) where no door let them in."""
        visitor: Visitor | None = getattr(request.state, "visitor", None)
        if visitor is None:
            raise HTTPException(401, "this wants a token")
        return Viewer(visitor.user, visitor.operator, visitor.tenant, visitor.csrf)

    def operator(self, request: Request) -> Viewer:
        """Who asks, if it is an operator. Raises HTTPException (403)."""
        viewer = self.viewer(request)
        if not viewer.operator:
            raise HTTPException(403, "this is for the owner of the server")
        return viewer

    def sessions(self, viewer: Viewer, *, limit: int | None = None) -> list[SessionInfo]:
        """The sessions that they may see, the one used last first. Reads the journal."""
        if viewer.operator:
            return self.journal.sessions(limit=limit)
        return self.journal.sessions(tenant=viewer.tenant, user=viewer.user, limit=limit)

    def session(self, viewer: Viewer, name: str) -> SessionInfo:
        """A session by its id or the beginning of it. Raises SessionNotFound, also for one of
        somebody else.
        """
        if viewer.operator:
            return self.journal.find(name)
        return self.journal.find(name, tenant=viewer.tenant, user=viewer.user)

    def mark(self, viewer: Viewer) -> str:
        """A text that is another one after anything was written to the journal, by whatever
        process, or changed at the desk.
        """
        journal = self.journal
        begun = (
            not isinstance(journal, SqliteJournal) or journal.path is None or journal.path.exists()
        )
        with self._looks:
            if self._changes is None and begun:
                self._changes = changes_of(journal)
            if self._changes is not None and self._changes.changed():
                self._look += 1
            return (
                f"{self._epoch}.{self._look}.{self.desk.changes}.{len(self.desk.waiting(viewer))}"
            )

    def scope(self, viewer: Viewer, info: SessionInfo | None = None) -> Scope:
        """What they may subscribe to on the bus: this session, or without one all that is theirs to
        see.
        """
        if info is not None and not viewer.sees(info):
            raise SessionNotFound(f"no session `{info.session}`")
        if info is not None and (info.tenant, info.user) == (viewer.tenant, viewer.user):
            return OwnSession(info.tenant, info.user, info.session)
        if not viewer.operator:
            return OwnSessions(viewer.tenant, viewer.user)
        if info is None:
            return Operator(viewer.user, "console")
        return Operator(viewer.user, "console", info.tenant, info.user, info.session)

    def page(
        self, request: Request, name: str, /, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """A template with these values, and what all templates may use: `viewer`, `areas`, `path`,
        `waiting`.
        """
        viewer = self.viewer(request)
        shared = {
            "viewer": viewer,
            "areas": AREAS,
            "path": request.url.path,
            "waiting": len(self.desk.waiting(viewer)),
        }
        text = self.html.get_template(name).render({**shared, **values})
        # A text may hold half of a character, which no page can: one that `visible` did not spell
        # out is a question mark.
        return HTMLResponse(text.encode("utf-8", "replace"), status_code=status)
