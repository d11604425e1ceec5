"""Artifacts: the large results of a person's sessions, opened in parts.

An artifact belongs to its session: for anyone else, neither exists. A download is sent as an
attachment of unknown type. Only pictures of a few types are shown, recognised by their first bytes,
under a content security policy of their own in which nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ferrule.console.artifact_views import PAGE, VIEWERS, Look, Page, crumbs, diff_class, match_page
from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.engine.threads import run_blocking
from ferrule.storage.artifacts.parts import Unreadable
from ferrule.storage.artifacts.store import Artifact, ArtifactMissing, ArtifactStore, Scope
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.locations import artifacts_at

LISTED = 200
"""Sessions whose artifacts are listed, the most recently used ones."""
SHOWN = 500
SANDBOX = "default-src 'none'; sandbox"


class Artifacts:
    """The artifact store of a console, opened on first use."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._store: ArtifactStore | None = None

    @property
    def store(self) -> ArtifactStore:
        if self._store is None:
            settings = self.console.assembly.settings
            most = settings["artifacts.max_bytes"]
            days = settings["artifacts.days"]
            self._store = artifacts_at(settings["artifacts.store"], max_bytes=most, days=days)
        return self._store

    def look(self, viewer: Viewer, session: str, reference: str) -> tuple[SessionInfo, Look]:
        """Open an artifact of a session that this viewer may see.

        Raises:
            HTTPException: 404 for all others, without saying why.
        """
        info = self.console.session(viewer, session)
        try:
            return info, Look.at(self.store, scope_of(info), reference)
        except ArtifactMissing as error:
            raise HTTPException(404, error.detail) from error

    def listed(self, viewer: Viewer, session: str) -> list[tuple[SessionInfo, Artifact]]:
        """Return the artifacts of a session, or of the sessions used last, the newest first."""
        infos = (
            [self.console.session(viewer, session)]
            if session
            else self.console.sessions(viewer, limit=LISTED)
        )
        found = [(info, one) for info in infos for one in self.store.list(scope_of(info))]
        return sorted(found, key=lambda one: one[1].made, reverse=True)


def scope_of(info: SessionInfo) -> Scope:
    """Return the owner of a session's artifacts."""
    return Scope(info.tenant, info.user, info.session)


def routes(console: Console) -> list[BaseRoute]:
    """Return `/artifacts`, `/artifacts/view`, `/artifacts/image` and `/artifacts/file`."""
    kept = Artifacts(console)
    return [
        Route("/artifacts", partial(listing, kept)),
        Route("/artifacts/view", partial(view, kept)),
        Route("/artifacts/image", partial(image, kept)),
        Route("/artifacts/file", partial(file, kept)),
    ]


async def listing(kept: Artifacts, request: Request) -> Response:
    """List artifacts."""
    viewer = kept.console.viewer(request)
    session = request.query_params.get("session", "").strip()
    found = await run_blocking(lambda: kept.listed(viewer, session))
    return kept.console.page(
        request,
        "artifacts.html",
        found=found[:SHOWN],
        more=max(0, len(found) - SHOWN),
        session=session,
        listed=LISTED,
    )


async def view(kept: Artifacts, request: Request) -> Response:
    """Show part of an artifact."""
    viewer = kept.console.viewer(request)
    given = request.query_params
    session = given.get("session", "")
    reference = given.get("ref", "")

    def read() -> dict[str, Any]:
        info, look = kept.look(viewer, session, reference)
        views = look.views()
        chosen = given.get("as", "")
        chosen = chosen if chosen in VIEWERS or chosen in views else views[0]
        first = _number(given.get("from", ""))
        pointer = given.get("at", "")
        pattern = given.get("find", "")
        page, problem = _page(look, chosen, pointer, pattern, first)
        return {
            "info": info,
            "artifact": look.artifact,
            "views": views,
            "chosen": chosen,
            "page": page,
            "problem": problem,
            "first": first,
            "pointer": pointer,
            "crumbs": crumbs(pointer),
            "find": pattern,
            "size": PAGE,
            "diff_class": diff_class,
            "target": _number(given.get("line", "")) if given.get("line") else 0,
        }

    values = await run_blocking(read)
    return kept.console.page(request, "artifact.html", **values)


def _page(look: Look, chosen: str, pointer: str, pattern: str, first: int) -> tuple[Page, str]:
    """Return what is shown, and the reason if it cannot be."""
    try:
        if chosen == "image":
            return Page(), ""
        if pattern and chosen in ("text", "diff"):
            return match_page(look, pattern, first), ""
        return VIEWERS[chosen](look, pointer, first), ""
    except Unreadable as error:
        return Page(), str(error)


def _number(text: str) -> int:
    """Parse the number of a line or row, counted from 1; 1 if it is none."""
    digits = "".join(text.split())
    return max(1, int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 1


async def image(kept: Artifacts, request: Request) -> Response:
    """Send a picture under its own type."""
    viewer = kept.console.viewer(request)
    given = request.query_params

    def read() -> tuple[str, bytes]:
        _, look = kept.look(viewer, given.get("session", ""), given.get("ref", ""))
        return look.image(), b"" if not look.image() else b"".join(look.pieces())

    mime, data = await run_blocking(read)
    if not mime:
        raise HTTPException(415, "this artifact is not a supported picture")
    return Response(
        data,
        media_type=mime,
        headers={"content-security-policy": SANDBOX, "content-disposition": "inline"},
    )


async def file(kept: Artifacts, request: Request) -> Response:
    """Send the whole artifact as a download."""
    viewer = kept.console.viewer(request)
    given = request.query_params
    _, look = await run_blocking(
        lambda: kept.look(viewer, given.get("session", ""), given.get("ref", ""))
    )
    pieces: Iterator[bytes] = look.pieces()
    ending = (
        "json" if "json" in look.artifact.mime else "csv" if "csv" in look.artifact.mime else "txt"
    )
    name = f"{look.artifact.reference[:16]}.{'bin' if look.image() else ending}"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-length": str(look.artifact.size),
        "content-security-policy": SANDBOX,
    }
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)
