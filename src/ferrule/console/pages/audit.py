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
from ferrule.storage.audit.audit import AuditedCall, audit_calls
from ferrule.storage.audit.checkpoints import checkpoints_path_of, read_checkpoints
from ferrule.storage.audit.explanation import explain
from ferrule.storage.audit.export import export_audit
from ferrule.storage.audit.signing import Verifier, default_key_path, public_key_path
from ferrule.storage.audit.verification import Finding, Verification, verify_sessions

from .artifacts import ConsoleArtifacts

MAX_SESSIONS = 50
MAX_CALLS = 1_000
"""Calls of a session on the page, the last ones."""


def routes(console: Console) -> list[BaseRoute]:
    """Return `/audit`, `/audit/verify`, `/audit/call` and `/audit/export`."""
    # Handlers that read the whole journal run one at a time.
    turn = asyncio.Lock()
    return [
        Route("/audit", partial(page, console)),
        Route("/audit/verify", partial(verify_page, console, turn), methods=["POST"]),
        Route("/audit/call", partial(call_page, console)),
        Route("/audit/export", partial(send_export, console, turn)),
    ]


async def page(console: Console, request: Request) -> Response:
    """Show the calls of a session, or a list of sessions."""
    viewer = console.require_viewer(request)
    name = request.query_params.get("session", "").strip()
    info = await run_blocking(lambda: console.find_session(viewer, name)) if name else None
    latest = await run_blocking(lambda: console.list_sessions(viewer, limit=MAX_SESSIONS))
    made: list[AuditedCall] = []
    number = 0
    if info is not None:
        made, number = await run_blocking(lambda: _last_calls(console, info.session))
    return console.render_page(
        request, "audit.html",
        info=info, latest=latest, calls=made, more=number - len(made), checked=None, name=name,
    )  # fmt: skip


def _last_calls(console: Console, session: str) -> tuple[list[AuditedCall], int]:
    """Return the last calls of a session, the newest first, and how many there are."""
    number = 0
    kept = deque[AuditedCall](maxlen=MAX_CALLS)
    for call in audit_calls(console.journal.records(session)):
        number += 1
        kept.appendleft(call)
    return list(kept), number


async def verify_page(console: Console, turn: asyncio.Lock, request: Request) -> Response:
    """Check the hash chains of a session, or of all that this viewer may see.

    An operator's check covers the journal's file as well.
    """
    viewer = console.require_viewer(request)
    form = await request.form()
    name = str(form.get("session", "")).strip()
    info = await run_blocking(lambda: console.find_session(viewer, name)) if name else None
    async with turn:
        checked = await run_blocking(lambda: _verify(console, viewer, info.session if info else ""))
    latest = await run_blocking(lambda: console.list_sessions(viewer, limit=MAX_SESSIONS))
    return console.render_page(
        request,
        "audit.html",
        info=info,
        latest=latest,
        calls=[],
        more=0,
        checked=checked,
        name=name,
    )


def _verify(console: Console, viewer: Viewer, session: str) -> Verification:
    names = [session] if session else None
    if names is None and not viewer.operator:
        names = [info.session for info in console.list_sessions(viewer)]
    key = public_key_path(default_key_path())
    verifier = Verifier.load(key) if key.exists() else None
    kept = ConsoleArtifacts(console).store
    try:
        points = read_checkpoints(checkpoints_path_of(console.journal))
    except JournalError as error:
        # An unreadable file of checkpoints is a finding; the chains are still checked.
        done = verify_sessions(console.journal, names, artifacts=kept)
        done.findings.append(Finding(error.detail))
        return done
    return verify_sessions(console.journal, names, points=points, verifier=verifier, artifacts=kept)


async def call_page(console: Console, request: Request) -> Response:
    """Show everything known about a call: rule, person, sandbox and outcome."""
    viewer = console.require_viewer(request)
    given = request.query_params
    info = await run_blocking(lambda: console.find_session(viewer, given.get("session", "")))
    name = given.get("call", "")

    def find() -> AuditedCall | None:
        return next(
            (
                call
                for call in audit_calls(console.journal.records(info.session))
                if call.call_id == name
            ),
            None,
        )

    call = await run_blocking(find)
    if call is None:
        raise HTTPException(404, "no such call in this session")
    first, *lines = explain(call, cap=4_000)
    return console.render_page(
        request,
        "audit_call.html",
        info=info,
        call=call,
        verdict=first.removeprefix(f"{call.call_id}: {call.tool}, "),
        lines=[line.removeprefix("  ") for line in lines],
    )


async def send_export(console: Console, turn: asyncio.Lock, request: Request) -> Response:
    """Send the audit as JSON lines that `ferrule audit verify` checks, without secrets.

    Sessions that do not verify are not exported.
    """
    viewer = console.require_viewer(request)
    name = request.query_params.get("session", "").strip()
    redact = Redactor.for_environment(os.environ).redact_text

    def begin() -> Iterator[str]:
        infos = [console.find_session(viewer, name)] if name else console.list_sessions(viewer)
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
