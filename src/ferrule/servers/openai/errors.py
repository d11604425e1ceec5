"""What goes wrong, as the API says it: a status and an `error` object with `message`, `type`,
`param` and `code`.

Clients of this API send a request again by themselves after 408, 409, 429 and 5xx. What an agent
has begun is not done twice because somebody asked twice: answers to it carry `x-should-retry:
false`, which the official clients obey.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from ferrule.core.calls import compact
from ferrule.core.errors import FerruleError, LimitReached, ProviderError
from ferrule.permissions.redaction import Redactor
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
"""Codes of a ProviderError that are not a 502, and how the API calls them."""
_OURS = ("unauthorized", "quota", "api_key")
"""What is between this server and its provider: its words may name accounts and keys."""


class Refused(Exception):
    """A request that is not answered. `param` names the field at fault; `again` says whether
    sending it again can help, None: as the status says.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
        again: bool | None = None,
        after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status
        self.again = again
        self.after = after

    def body(self) -> dict[str, Any]:
        """The `error` object, in its envelope."""
        kind = _TYPES.get(self.status, "server_error")
        return {
            "error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        }

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What tells a client whether to come again, and when."""
        found: list[tuple[bytes, bytes]] = []
        if self.again is not None:
            found.append((b"x-should-retry", b"true" if self.again else b"false"))
        if self.after is not None:
            found.append((b"retry-after", str(max(1, round(self.after))).encode()))
        return found


def refusal_of(error: FerruleError, *, begun: bool) -> Refused:
    """The answer for an error of ours. `begun`: an agent was at work, and is not to be asked again
    by itself.
    """
    again = False if begun else None
    if isinstance(error, LimitReached):
        return Refused(
            f"{error.detail}; the session `{error.session}` is kept",
            code=error.code,
            status=422,
            again=False,
        )
    if not isinstance(error, ProviderError):
        # What went wrong inside is for whoever runs the server, who has the journal.
        return Refused(
            f"this cannot be worked now ({error.code})", code=error.code, status=500, again=again
        )
    status, code = _PROVIDER.get(error.code, (502, error.code))
    words = (
        f"the model's provider refuses this server ({error.code})"
        if error.code in _OURS
        else error.detail
    )
    return Refused(
        _redactor().text(words), code=code, status=status, again=again, after=error.retry_after
    )


@cache
def _redactor() -> Redactor:
    return Redactor.of_process(os.environ)


def redacted(text: str) -> str:
    """Text of tools and providers, without secrets of this process."""
    return _redactor().text(text)


async def send_json(
    send: Send,
    value: dict[str, Any],
    status: int = 200,
    more: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """A whole answer."""
    body = compact(value).encode("utf-8", "replace")
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", b"application/json"), length, *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(send: Send, refused: Refused) -> None:
    """An error as a whole answer."""
    await send_json(send, refused.body(), refused.status, refused.headers())


def shaped(app: Application) -> Application:
    """`app`, whose refusals in plain text (those of the door) become error objects."""

    async def shaping(scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []

        async def send_shaped(message: Message) -> None:
            if message["type"] == "http.response.start" and _plain(message):
                started.append(message)
            elif started:
                why = bytes(message.get("body", b"")).decode("utf-8", "replace")
                begun = started.pop()
                body = compact(Refused(why, status=begun["status"]).body()).encode()
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

    return shaping


def _plain(message: Message) -> bool:
    kinds = [value for name, value in message["headers"] if name == b"content-type"]
    return message["status"] >= 400 and any(kind.startswith(b"text/plain") for kind in kinds)
