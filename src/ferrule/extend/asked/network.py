"""`http.*`: addresses that this file may reach (`extend.web`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.core.calls import compact

from .scope import Scope, invalid

LONGEST_FETCH = 300


async def get(
    scope: Scope, url: str, headers: Mapping[str, str] | None = None, timeout_seconds: float = 30
) -> dict[str, Any]:
    return await scope.web.fetch("GET", url, headers or {}, None, _seconds(timeout_seconds))


async def post(
    scope: Scope,
    url: str,
    body: Any = "",
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 30,
) -> dict[str, Any]:
    fields = dict(headers or {})
    if not isinstance(body, str):
        body = compact(body)
        if not any(name.lower() == "content-type" for name in fields):
            fields["Content-Type"] = "application/json"
    return await scope.web.fetch("POST", url, fields, body.encode(), _seconds(timeout_seconds))


def _seconds(given: float) -> float:
    if not isinstance(given, (int, float)) or not 0 < given <= LONGEST_FETCH:  # pyright: ignore[reportUnnecessaryIsInstance] - scripts are not typed
        raise invalid(f"`timeout_seconds` = {given!r}: more than 0, at most {LONGEST_FETCH}")
    return given


FUNCTIONS: dict[str, Callable[..., Awaitable[Any]]] = {"http.get": get, "http.post": post}
