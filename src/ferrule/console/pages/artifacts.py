"""Artifacts: the large results of a person's sessions, opened in parts.

Whose an artifact is says its session: of somebody else's there is neither. What is sent as a file
is an attachment of unknown type; only pictures of a few types are shown, by what they begin with,
under a policy of their own in which nothing runs.
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
"""Sessions whose artifacts are listed, those used last."""
SHOWN = 500
SANDBOX = "default-src 'none'; sandbox"


class Artifacts:
    """The store of a console, opened with the first look."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._store: ArtifactStore | None = None

    @property
    def store(self) -> ArtifactStore:
        if self._store is None:
            settings = self.console.assembly.settings
            most, days = settings["artifacts.max_bytes"], settings["artifacts.days"]
            self._store = artifacts_at(settings["artifacts.store"], max_bytes=most, days=days)
        return self._store

    def look(self, viewer: Viewer, session: str, reference: str) -> tuple[SessionInfo, Look]:
        """An artifact of a session that they may see. Raises HTTPException (404) for all others,
        not saying which it is.
        """
        info = self.console.session(viewer, session)
        try:
            return info, Look.at(self.store, scope_of(info), reference)
        except ArtifactMissing as error:
            raise HTTPException(404, error.detail) from error

    def listed(self, viewer: Viewer, session: str) -> list[tuple[SessionInfo, Artifact]]:
        """The artifacts of this session, or of the sessions used last, the newest first."""
        infos = (
            [self.console.session(viewer, session)]
            if session
            else self.console.sessions(viewer, limit=LISTED)
        )
        found = [(info, one) for info in infos for one in self.store.list(scope_of(info))]
        return sorted(found, key=lambda one: one[1].made, reverse=True)


def scope_of(info: SessionInfo) -> Scope:
    """Whose the artifacts of a session are."""
    return Scope(info.tenant, info.user, info.session)


def routes(console: Console) -> list[BaseRoute]:
    """`/artifacts`, `/artifacts/view`, `/artifacts/image`, `/artifacts/file`."""
    kept = Artifacts(console)
    return [
        Route("/artifacts", partial(listing, kept)),
        Route("/artifacts/view", partial(view, kept)),
        Route("/artifacts/image", partial(image, kept)),
        Route("/artifacts/file", partial(file, kept)),
    ]


async def listing(kept: Artifacts, request: Request) -> Response:
    """What there is."""
    viewer, session = kept.console.viewer(request), request.query_params.get("session", "").strip()
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
    """A part of an artifact."""
    viewer, given = kept.console.viewer(request), request.query_params
    session, reference = given.get("session", ""), given.get("ref", "")

    def read() -> dict[str, Any]:
        info, look = kept.look(viewer, session, reference)
        views = look.views()
        chosen = given.get("as", "")
        chosen = chosen if chosen in VIEWERS or chosen in views else views[0]
        first, pointer, pattern = (
            _number(given.get("from", "")),
            given.get("at", ""),
            given.get("find", ""),
        )
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
    """What is shown, and why it cannot be, if it cannot."""
    try:
        if chosen == "image":
            return Page(), ""
        if pattern and chosen in ("text", "diff"):
            return match_page(look, pattern, first), ""
        return VIEWERS[chosen](look, pointer, first), ""
    except Unreadable as error:
        return Page(), str(error)


def _number(text: str) -> int:
    """A number of a line or row, from 1 on; 1 for what is none."""
    digits = "".join(text.split())
    return max(1, int(digits)) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 1


async def image(kept: Artifacts, request: Request) -> Response:
    """The bytes of a picture, as the picture that they are and nothing else."""
    viewer, given = kept.console.viewer(request), request.query_params

    def read() -> tuple[str, bytes]:
        _, look = kept.look(viewer, given.get("session", ""), given.get("ref", ""))
        return look.image(), b"" if not look.image() else b"".join(look.pieces())

    mime, data = await run_blocking(read)
    if not mime:
        raise HTTPException(415, "this artifact is no picture that is shown here")
    return Response(
        data,
        media_type=mime,
        headers={"content-security-policy": SANDBOX, "content-disposition": "inline"},
    )


async def file(kept: Artifacts, request: Request) -> Response:
    """The whole artifact, to be kept and not to be shown."""
    viewer, given = kept.console.viewer(request), request.query_params
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
