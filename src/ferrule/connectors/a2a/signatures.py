"""Signed cards: a person's keys (a JWK set file) decide whether a card is from a known author.

At least one signature of a card must be made by a key of the file. The key is found by its id
(`kid`); if the file holds one key, that one is tried for signatures without an id. Addresses of key
sets that a card names (`jku`) are never asked, and only algorithms with a public key count: a
secret that both sides know signs nothing.

Source: A2A 1.0, "Agent card signing" (JWS, RFC 7515, over the canonical JSON of RFC 8785), by the
protocol library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ferrule.connectors.json_values import objects_in
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
_MAX_FILE_BYTES = 256 * 1024


class SignatureInvalid(Exception):
    """No known key signed a card."""


def verify_card(card: Any, keys: str) -> None:
    """Check that a key of a file signed a card, which is the protocol library's value.

    Raises:
        SignatureInvalid: No known key signed it; the message says why.
        ConfigError: The file cannot be used.
    """
    from a2a.utils.signing import SignatureVerificationError, create_signature_verifier

    known = _load_keys(keys)
    check = create_signature_verifier(lambda kid, jku: _find_key(known, kid), list(ALGORITHMS))
    try:
        check(card)
    except SignatureVerificationError as error:
        raise SignatureInvalid(
            f"{str(error).rstrip('.')}; only the keys of `{keys}` are accepted"
        ) from error


def _find_key(known: dict[str, Any], kid: str | None) -> Any:
    from jwt.exceptions import InvalidKeyError

    if not kid and len(known) == 1:
        return next(iter(known.values()))
    if kid not in known:
        raise InvalidKeyError("an unknown key")
    return known[kid]


def _load_keys(file: str) -> dict[str, Any]:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        with Path(file).open("rb") as opened:
            data = opened.read(_MAX_FILE_BYTES + 1)
        listed = objects_in(json.loads(data)["keys"]) if len(data) <= _MAX_FILE_BYTES else []
        keys = {str(key.get("kid", "")): PyJWK(dict(key)) for key in listed}
    except OSError as error:
        raise ConfigError(f"cannot read the keys in `{file}`: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError, PyJWTError) as error:
        raise ConfigError(
            f"`{file}` holds no usable keys", hint="write a JWK set of public keys"
        ) from error
    if not keys:
        raise ConfigError(f"`{file}` holds no keys", hint="write a JWK set of public keys")
    return keys
