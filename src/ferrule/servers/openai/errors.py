"""Errors in the form of the API: a status and an `error` object.

The object has `message`, `type`, `param` and `code`. Clients of this API retry by themselves after
408, 409, 429 and 5xx. What an agent has started must not be done twice because of a retry: such
answers carry `x-should-retry: false`, which the official clients obey.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, get_args

from ferrule.core.calls import encode_json
from ferrule.core.errors import FerruleError, LimitReached, ProviderError
from ferrule.core.vocabulary import OwnerLimitName
from ferrule.permissions.redaction import Redactor
from ferrule.runtime.hidden_errors import is_for_clients, log_hidden_error
from ferrule.runtime.http.endpoint import send_json
from ferrule.runtime.http.http_security import Application, Message, Receive, Scope, Send

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    421: "invalid_request_error",
    422: "limit_error",
    429: "rate_limit_error",
}
_PROVIDER = {
    "context_overflow": (400, "context_length_exceeded"),
    "model_not_found": (404, "model_not_found"),
    "content_filter": (400, "content_filter"),
    "rate_limited": (429, "rate_limit_exceeded"),
    "overloaded": (503, "overloaded"),
    "timeout": (504, "timeout"),
    "http_400": (400, "provider_refused"),
    "http_422": (400, "provider_refused"),
}
"""Codes of a ProviderError that are not a 502, and their names in the API."""
_OURS = ("unauthorized", "quota", "api_key")
"""Errors between this server and its provider; their messages may name accounts and keys."""


class RequestRefused(Exception):
    """A request that is not answered.

    `param` names the field at fault. `again` says whether a retry can help; None leaves that to the
    status.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        should_retry: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.should_retry = should_retry
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Return the `error` object in its envelope."""
        kind = _TYPES.get(self.status, "server_error")
        return {
            "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        }

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell a client whether to retry, and when."""
        found: list[tuple[bytes, bytes]] = []
        if self.should_retry is not None:
            found.append((b"x-should-retry", b"true" if self.should_retry else b"false"))
        if self.retry_after is not None:
            found.append((b"retry-after", str(max(1, round(self.retry_after))).encode()))
        return found


def to_refusal(error: FerruleError, *, has_started: bool) -> RequestRefused:
    """Return the answer for one of our errors.

    `has_started`: an agent had started to work, so the client must not retry by itself.
    """
    again = False if has_started else None
    if isinstance(error, LimitReached) and error.limit in get_args(OwnerLimitName):
        # As providers answer whose quota is used up; a client's own retry does not help.
        return RequestRefused(
            error.detail, code="insufficient_quota", status=429, should_retry=False
        )
    if isinstance(error, LimitReached):
        return RequestRefused(
            f"{error.detail}; the session `{error.session}` is kept",
            code=error.code,
            status=422,
            should_retry=False,
        )
    if is_for_clients(error):
        words = _redactor().redact_text(error.detail)
        status = 403 if error.code == "hook_blocked" else 422
        return RequestRefused(words, code=error.code, status=status, should_retry=False)
    if not isinstance(error, ProviderError):
        # Internal details are for the server's owner.
        log_hidden_error("openai", error)
        return RequestRefused(
            f"the request cannot be processed now ({error.code})",
            code=error.code,
            status=500,
            should_retry=again,
        )
    status, code = _PROVIDER.get(error.code, (502, error.code))
    if error.code in _OURS:
        log_hidden_error("openai", error)
    words = (
        f"the model's provider refused this server ({error.code})"
        if error.code in _OURS
        else error.detail
    )
    return RequestRefused(
        _redactor().redact_text(words),
        code=code,
        status=status,
        should_retry=again,
        retry_after=error.retry_after,
    )


@cache
def _redactor() -> Redactor:
    return Redactor.for_environment(os.environ)


def redact(text: str) -> str:
    """Return a text of tools or providers without secrets of this process."""
    return _redactor().redact_text(text)


async def send_refusal(send: Send, refused: RequestRefused) -> None:
    """Send an error as a whole answer."""
    await send_json(send, encode_json(refused.body()), refused.status, refused.headers())


def shape_errors(app: Application) -> Application:
    """Wrap `app` so that refusals in plain text (from the HTTP guard) become error objects."""

    async def serve_shaped(scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []

        async def send_shaped(message: Message) -> None:
            if message["type"] == "http.response.start" and _plain(message):
                started.append(message)
            elif started:
                why = bytes(message.get("body", b"")).decode("utf-8", "replace")
                begun = started.pop()
                body = encode_json(RequestRefused(why, status=begun["status"]).body()).encode()
                kept = [
                    one
                    for one in begun["headers"]
                    if one[0] not in (b"content-type", b"content-length")
                ]
                headers = [*kept, (b"content-type", b"application/json")]
                await send({**begun, "headers": headers})
                await send({"type": "http.response.body", "body": body})
            else:
                await send(message)

        await app(scope, receive, send_shaped)

    return serve_shaped


def _plain(message: Message) -> bool:
    kinds = [value for name, value in message["headers"] if name == b"content-type"]
    return message["status"] >= 400 and any(kind.startswith(b"text/plain") for kind in kinds)
