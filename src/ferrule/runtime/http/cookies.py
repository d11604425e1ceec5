"""Cookies that outlive a process: each proves which token it stands for, and until when.

    <ends>.<nonce>.<proof>
    proof = HMAC-SHA-256(key, "<ends>.<nonce>")
    key   = HMAC-SHA-256(token, "ferrule visit")

So a server that is restarted with the same tokens knows its visitors and the CSRF tokens of their
open pages. Only somebody who has the token can make such a cookie, and a cookie does not reveal the
token. Changing the token ends all its visits.

Not protected: after a restart, a cookie that somebody kept works again until it ends, even if its
owner signed out.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

from .http_security import Principal, Visitor

_MAX_LENGTH = 200
"""Longest cookie, in characters."""


def make_cookie(token: str, who: Principal, ends: int) -> tuple[str, Visitor]:
    """Make a cookie for a token, and the visitor it stands for.

    Args:
        token: The token.
        who: Whom the token stands for.
        ends: When the cookie ends, in seconds since 1970.
    """
    content = f"{ends}.{secrets.token_urlsafe(18)}"
    return f"{content}.{_prove(token, content)}", _make_visitor(token, who, content)


def read_cookie(
    cookie: str, people: Mapping[str, Principal], now: float
) -> tuple[Visitor, int] | None:
    """Return the visitor a cookie stands for, and when it ends; None if it is invalid or expired.

    Args:
        cookie: The cookie's value.
        people: Whom each token stands for.
        now: The time, in seconds since 1970.
    """
    content, _, proof = cookie.rpartition(".")
    ends = content.partition(".")[0]
    if len(cookie) > _MAX_LENGTH or not cookie.isascii():
        return None
    if not ends.isdigit() or int(ends) <= now:
        return None
    found: tuple[Visitor, int] | None = None
    # Compare with all tokens, so that the time it takes does not reveal whose cookie it is.
    for token, who in people.items():
        if hmac.compare_digest(proof.encode(), _prove(token, content).encode()):
            found = _make_visitor(token, who, content), int(ends)
    return found


def _make_visitor(token: str, who: Principal, content: str) -> Visitor:
    return Visitor(who.user, who.operator, who.tenant, csrf=_prove(token, f"csrf {content}"))


def _prove(token: str, content: str) -> str:
    key = hmac.digest(token.encode(), b"ferrule visit", sha256)
    return urlsafe_b64encode(hmac.digest(key, content.encode(), sha256)).rstrip(b"=").decode()
