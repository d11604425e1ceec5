"""Signed cards: a person's keys (a JWK set file) say whether a card is from whom they know.

A card has to carry at least one signature that a key of the file made. Which key is found by its id
(`kid`); where the file holds one key, that one is tried for signatures without an id. Addresses of
key sets that a card names (`jku`) are never asked, and only algorithms with a public key count: a
secret that both sides know signs nothing.

Source: A2A 1.0, "Agent card signing" (JWS, RFC 7515, over the canonical JSON of RFC 8785), by the
    protocol library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ferrule.connectors.json_values import objects_of
from ferrule.core.errors import ConfigError

ALGORITHMS = (
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
)
_MOST = 256 * 1024


class NotSigned(Exception):
    """No known key signed a card."""


def verify(card: Any, keys: str) -> None:
    """That one of the keys in a file signed a card (the protocol library's value). Raises NotSigned
    saying why, ConfigError for the file.
    """
    from a2a.utils.signing import SignatureVerificationError, create_signature_verifier

    known = _load(keys)
    check = create_signature_verifier(lambda kid, jku: _pick(known, kid), list(ALGORITHMS))
    try:
        check(card)
    except SignatureVerificationError as error:
        raise NotSigned(
            f"{str(error).rstrip('.')}; the keys of `{keys}` are the ones that count"
        ) from error


def _pick(known: dict[str, Any], kid: str | None) -> Any:
    from jwt.exceptions import InvalidKeyError

    if not kid and len(known) == 1:
        return next(iter(known.values()))
    if kid not in known:
        raise InvalidKeyError("a key that is not known")
    return known[kid]


def _load(file: str) -> dict[str, Any]:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_MOST + 1)
        listed = objects_of(json.loads(data)["keys"]) if len(data) <= _MOST else []
        found = {str(one.get("kid", "")): PyJWK(dict(one)) for one in listed}
    except OSError as error:
        raise ConfigError(f"cannot read the keys in `{file}`: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError, PyJWTError) as error:
        raise ConfigError(
            f"`{file}` holds no keys that can be used", hint="write a JWK set of public keys"
        ) from error
    if not found:
        raise ConfigError(f"`{file}` holds no keys", hint="write a JWK set of public keys")
    return found
