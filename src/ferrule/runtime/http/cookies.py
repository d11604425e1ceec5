"""Visits that outlive a process: cookies that prove by themselves which token they stand for, and
until when.

    <ends>.<nonce>.<proof>      proof = HMAC-SHA-256(key, "<ends>.<nonce>")      key = HMAC-SHA-256(token, "ferrule visit")

A server that is started again with the same tokens so knows its visitors, and what their open pages
must repeat. Whoever has the token could make such a cookie, and nobody else; from a cookie nobody
learns the token. Another token ends all visits of the old one.

Not protected: a visit that was signed out is known again after a restart, until it ends, to
somebody who kept its cookie.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

from .http_security import Visitor, Who

_MOST = 200
"""Characters of a cookie at the most."""


def made(token: str, who: Who, ends: int) -> tuple[str, Visitor]:
    """A cookie for a token until `ends` (seconds since 1970), and who it is."""
    stands = f"{ends}.{secrets.token_urlsafe(18)}"
    return f"{stands}.{_proof(token, stands)}", _visitor(token, who, stands)


def known(cookie: str, people: Mapping[str, Who], now: float) -> tuple[Visitor, int] | None:
    """Who a cookie stands for among these, by token, and until when; None if it is none, or
    over.
    """
    stands, _, proof = cookie.rpartition(".")
    ends = stands.partition(".")[0]
    if len(cookie) > _MOST or not cookie.isascii() or not ends.isdigit() or int(ends) <= now:
        return None
    found: tuple[Visitor, int] | None = None
    # All of them: how long it takes says nothing of whose it is.
    for token, who in people.items():
        if hmac.compare_digest(proof.encode(), _proof(token, stands).encode()):
            found = _visitor(token, who, stands), int(ends)
    return found


def _visitor(token: str, who: Who, stands: str) -> Visitor:
    return Visitor(who.user, who.operator, who.tenant, csrf=_proof(token, f"csrf {stands}"))


def _proof(token: str, said: str) -> str:
    key = hmac.digest(token.encode(), b"ferrule visit", sha256)
    return urlsafe_b64encode(hmac.digest(key, said.encode(), sha256)).rstrip(b"=").decode()
