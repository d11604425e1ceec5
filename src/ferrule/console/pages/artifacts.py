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

from ferrule.console.artifact_views import (
    PAGE_BUILDERS,
    PAGE_ENTRIES,
    ArtifactView,
    Page,
    diff_class,
    match_page,
    pointer_steps,
)
from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.engine.threads import run_blocking
from ferrule.storage.artifacts.readers import UnreadableArtifact
from ferrule.storage.artifacts.store import Artifact, ArtifactMissing, ArtifactStore, Scope
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.locations import create_artifact_store

MAX_SESSIONS = 200
"""Sessions whose artifacts are listed, the most recently used ones."""
MAX_SHOWN = 500
CONTENT_SECURITY_POLICY = "default-src 'none'; sandbox"


class ConsoleArtifacts:
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
            self._store = create_artifact_store(
                settings["artifacts.store"], max_bytes=most, days=days
            )
        return self._store

    def open(
        self, viewer: Viewer, session: str, reference: str
    ) -> tuple[SessionInfo, ArtifactView]:
        """Open an artifact of a session that this viewer may see.

        Raises:
            HTTPException: 404 for all others, without saying why.
        """
        info = self.console.find_session(viewer, session)
        try:
            return info, ArtifactView.find(self.store, artifact_scope(info), reference)
        except ArtifactMissing as error:
            raise HTTPException(404, error.detail) from error

    def find_all(self, viewer: Viewer, session: str) -> list[tuple[SessionInfo, Artifact]]:
        """Return the artifacts of a session, or of the sessions used last, the newest first."""
        infos = (
            [self.console.find_session(viewer, session)]
            if session
            else self.console.list_sessions(viewer, limit=MAX_SESSIONS)
        )
        found = [(info, one) for info in infos for one in self.store.list(artifact_scope(info))]
        return sorted(found, key=lambda one: one[1].made, reverse=True)


def artifact_scope(info: SessionInfo) -> Scope:
    """Return the owner of a session's artifacts."""
    return Scope(info.tenant, info.user, info.session)


def routes(console: Console) -> list[BaseRoute]:
    """Return `/artifacts`, `/artifacts/view`, `/artifacts/image` and `/artifacts/file`."""
    kept = ConsoleArtifacts(console)
    return [
        Route("/artifacts", partial(list_page, kept)),
        Route("/artifacts/view", partial(view_page, kept)),
        Route("/artifacts/image", partial(send_image, kept)),
        Route("/artifacts/file", partial(send_file, kept)),
    ]


async def list_page(kept: ConsoleArtifacts, request: Request) -> Response:
    """List artifacts."""
    viewer = kept.console.require_viewer(request)
    session = request.query_params.get("session", "").strip()
    found = await run_blocking(lambda: kept.find_all(viewer, session))
    return kept.console.render_page(
        request,
        "artifacts.html",
        found=found[:MAX_SHOWN],
        more=max(0, len(found) - MAX_SHOWN),
        session=session,
        listed=MAX_SESSIONS,
    )


async def view_page(kept: ConsoleArtifacts, request: Request) -> Response:
    """Show part of an artifact."""
    viewer = kept.console.require_viewer(request)
    given = request.query_params
    session = given.get("session", "")
    reference = given.get("artifact", "")

    def read() -> dict[str, Any]:
        info, look = kept.open(viewer, session, reference)
        views = look.list_views()
        chosen = given.get("as", "")
        chosen = chosen if chosen in PAGE_BUILDERS or chosen in views else views[0]
        first = _parse_number(given.get("from", ""))
        pointer = given.get("at", "")
        pattern = given.get("find", "")
        page, problem = _read_page(look, chosen, pointer, pattern, first)
        return {
            "info": info,
            "artifact": look.artifact,
            "views": views,
            "chosen": chosen,
            "page": page,
            "problem": problem,
            "first": first,
            "pointer": pointer,
            "crumbs": pointer_steps(pointer),
            "find": pattern,
            "size": PAGE_ENTRIES,
            "diff_class": diff_class,
            "target": _parse_number(given.get("line", "")) if given.get("line") else 0,
        }

    values = await run_blocking(read)
    return kept.console.render_page(request, "artifact.html", **values)


def _read_page(
    look: ArtifactView, chosen: str, pointer: str, pattern: str, first: int
) -> tuple[Page, str]:
    """Return what is shown, and the reason if it cannot be."""
    try:
        if chosen == "image":
            return Page(), ""
        if pattern and chosen in ("text", "diff"):
            return match_page(look, pattern, first), ""
        return PAGE_BUILDERS[chosen](look, pointer, first), ""
    except UnreadableArtifact as error:
        return Page(), str(error)


def _parse_number(text: str) -> int:
    """Parse the number of a line or row, counted from 1; 1 if it is none."""
    digits = "".join(text.split())
    return max(1, int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 1


async def send_image(kept: ConsoleArtifacts, request: Request) -> Response:
    """Send a picture under its own type."""
    viewer = kept.console.require_viewer(request)
    given = request.query_params

    def read() -> tuple[str, bytes]:
        _, look = kept.open(viewer, given.get("session", ""), given.get("artifact", ""))
        return look.image_type(), b"" if not look.image_type() else b"".join(look.read_pieces())

    mime, data = await run_blocking(read)
    if not mime:
        raise HTTPException(415, "this artifact is not a supported picture")
    return Response(
        data,
        media_type=mime,
        headers={
            "content-security-policy": CONTENT_SECURITY_POLICY,
            "content-disposition": "inline",
        },
    )


async def send_file(kept: ConsoleArtifacts, request: Request) -> Response:
    """Send the whole artifact as a download."""
    viewer = kept.console.require_viewer(request)
    given = request.query_params
    _, look = await run_blocking(
        lambda: kept.open(viewer, given.get("session", ""), given.get("artifact", ""))
    )
    pieces: Iterator[bytes] = look.read_pieces()
    ending = (
        "json" if "json" in look.artifact.mime else "csv" if "csv" in look.artifact.mime else "txt"
    )
    name = f"{look.artifact.reference[:16]}.{'bin' if look.image_type() else ending}"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-length": str(look.artifact.size),
        "content-security-policy": CONTENT_SECURITY_POLICY,
    }
    return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)
