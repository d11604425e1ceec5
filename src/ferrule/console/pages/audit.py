"""Audit: check the journal, show what allowed each call, and export it."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from ferrule.console.state import Console
from ferrule.console.viewer import Viewer
from ferrule.core.errors import JournalError
from ferrule.engine.threads import run_blocking
from ferrule.permissions.redaction import Redactor
from ferrule.storage.audit.audit import AuditedCall, calls
from ferrule.storage.audit.checkpoints import place_of, read_checkpoints
from ferrule.storage.audit.export import export_audit
from ferrule.storage.audit.signing import Verifier, key_path, public_path
from ferrule.storage.audit.verification import Finding, Verified, verify_sessions
from ferrule.storage.audit.wording import explained

LISTED = 50
CALLS = 1_000
"""Calls of a session on the page, the last ones."""


def routes(console: Console) -> list[BaseRoute]:
    """Return `/audit`, `/audit/verify`, `/audit/call` and `/audit/export`."""
    # Handlers that read the whole journal run one at a time.
    turn = asyncio.Lock()
    return [
        Route("/audit", partial(page, console)),
        Route("/audit/verify", partial(verify, console, turn), methods=["POST"]),
        Route("/audit/call", partial(one_call, console)),
        Route("/audit/export", partial(export, console, turn)),
    ]


async def page(console: Console, request: Request) -> Response:
    """Show the calls of a session, or a list of sessions."""
    viewer = console.viewer(request)
    name = request.query_params.get("session", "").strip()
    info = await run_blocking(lambda: console.session(viewer, name)) if name else None
    latest = await run_blocking(lambda: console.sessions(viewer, limit=LISTED))
    made: list[AuditedCall] = []
    number = 0
    if info is not None:
        made, number = await run_blocking(lambda: _last_calls(console, info.session))
    return console.page(
        request, "audit.html",
        info=info, latest=latest, calls=made, more=number - len(made), checked=None, name=name,
    )  # fmt: skip


def _last_calls(console: Console, session: str) -> tuple[list[AuditedCall], int]:
    """Return the last calls of a session, the newest first, and how many there are."""
    number = 0
    kept = deque[AuditedCall](maxlen=CALLS)
    for call in calls(console.journal.records(session)):
        number += 1
        kept.appendleft(call)
    return list(kept), number


async def verify(console: Console, turn: asyncio.Lock, request: Request) -> Response:
    """Check the hash chains of a session, or of all that this viewer may see.

    An operator's check covers the journal's file as well.
    """
    viewer = console.viewer(request)
    form = await request.form()
    name = str(form.get("session", "")).strip()
    info = await run_blocking(lambda: console.session(viewer, name)) if name else None
    async with turn:
        checked = await run_blocking(
            lambda: _verified(console, viewer, info.session if info else "")
        )
    latest = await run_blocking(lambda: console.sessions(viewer, limit=LISTED))
    return console.page(
        request,
        "audit.html",
        info=info,
        latest=latest,
        calls=[],
        more=0,
        checked=checked,
        name=name,
    )


def _verified(console: Console, viewer: Viewer, session: str) -> Verified:
    names = [session] if session else None
    if names is None and not viewer.operator:
        names = [info.session for info in console.sessions(viewer)]
    key = public_path(key_path())
    verifier = Verifier.load(key) if key.exists() else None
    try:
        points = read_checkpoints(place_of(console.journal))
    except JournalError as error:
        # An unreadable file of checkpoints is a finding; the chains are still checked.
        done = verify_sessions(console.journal, names)
        done.findings.append(Finding(error.detail))
        return done
    return verify_sessions(console.journal, names, points=points, verifier=verifier)


async def one_call(console: Console, request: Request) -> Response:
    """Show everything known about a call: rule, person, sandbox and outcome."""
    viewer = console.viewer(request)
    given = request.query_params
    info = await run_blocking(lambda: console.session(viewer, given.get("session", "")))
    name = given.get("call", "")

    def find() -> AuditedCall | None:
        return next(
            (call for call in calls(console.journal.records(info.session)) if call.call_id == name),
            None,
        )

    call = await run_blocking(find)
    if call is None:
        raise HTTPException(404, "no such call in this session")
    first, *lines = explained(call, cap=4_000)
    return console.page(
        request,
        "audit_call.html",
        info=info,
        call=call,
        verdict=first.removeprefix(f"{call.call_id}: {call.tool}, "),
        lines=[line.removeprefix("  ") for line in lines],
    )


async def export(console: Console, turn: asyncio.Lock, request: Request) -> Response:
    """Send the audit as JSON lines that `ferrule audit verify` checks, without secrets.

    Sessions that do not verify are not exported.
    """
    viewer = console.viewer(request)
    name = request.query_params.get("session", "").strip()
    redact = Redactor.of_process(os.environ).text

    def begin() -> Iterator[str]:
        infos = [console.session(viewer, name)] if name else console.sessions(viewer)
        names = [info.session for info in infos]
        for one in names:
            # Before the first byte: an export that fails midway would look like a truncated one.
            console.journal.verify(one)
        return export_audit(console.journal, names, redact=redact)

    async with turn:
        lines = await run_blocking(begin)
    suffix = f"-{name[:12]}" if name.isalnum() else ""
    headers = {"content-disposition": f'attachment; filename="audit{suffix}.jsonl"'}
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)
