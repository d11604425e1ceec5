"""`http.*`: hosts that this file may reach (`engine.web`); each request calls `web_request`.

So rules for hosts, plan mode and hooks see every hop of a redirect, whatever effect the file
declares. Headers are not arguments of the call, because a call is journaled and headers hold
credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.engine.web.fetch import Request, follow_redirects

from .scope import Scope, usage_error

LONGEST_FETCH = 300


async def get(
    scope: Scope, url: str, headers: Mapping[str, str] | None = None, timeout_seconds: float = 30
) -> dict[str, Any]:
    return await _fetch(
        scope, Request.create("GET", url, headers or {}, None), _check_seconds(timeout_seconds)
    )


async def post(
    scope: Scope,
    url: str,
    body: Any = "",
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 30,
) -> dict[str, Any]:
    fields = dict(headers or {})
    if not isinstance(body, str):
        body = encode_json(body)
        if not any(name.lower() == "content-type" for name in fields):
            fields["Content-Type"] = "application/json"
    return await _fetch(
        scope, Request.create("POST", url, fields, body.encode()), _check_seconds(timeout_seconds)
    )


async def _fetch(scope: Scope, request: Request, seconds: float) -> dict[str, Any]:
    until = asyncio.get_running_loop().time() + seconds

    async def send(next_request: Request) -> dict[str, Any]:
        return await _send(scope, next_request, until)

    return await follow_redirects(request, send)


async def _send(scope: Scope, request: Request, until: float) -> dict[str, Any]:
    """Send one request through the gate, and read its body in pieces that fit into results."""
    arguments: dict[str, Any] = {
        "method": request.method,
        "url": request.target.url,
        "script": scope.context.call_id,
    }
    if request.body is not None:
        arguments["body"] = request.body.decode()
    scope.pending_request = (request, until)
    try:
        answer = await scope.call_for_value("web_request", **arguments)
        pieces = [answer["body"]]
        offset = answer.pop("next")
        while offset is not None:
            piece = await scope.call_for_value(
                "web_body", script=scope.context.call_id, offset=offset
            )
            pieces.append(piece["body"])
            offset = piece["next"]
        return {**answer, "body": "".join(pieces)}
    finally:
        scope.pending_request = None
        scope.response_body = ""


def _check_seconds(given: float) -> float:
    if not isinstance(given, (int, float)) or not 0 < given <= LONGEST_FETCH:  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
        raise usage_error(f"`timeout_seconds` = {given!r}: more than 0, at most {LONGEST_FETCH}")
    return given


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {"http.get": get, "http.post": post}
