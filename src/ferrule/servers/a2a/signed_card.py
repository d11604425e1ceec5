"""Sign an agent card with the person's Ed25519 key (`storage.audit.signing`).

Peers can check the card against a key that they got elsewhere.

Source: A2A 1.0, "Agent card signing" (JWS, RFC 7515, over the canonical JSON of RFC 8785; EdDSA,
RFC 8037), through the protocol library. `connectors.a2a.signatures` checks such signatures. No
address of keys (`jku`) is given: a key that arrives together with the card proves nothing.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage.audit.signing import Signer, public_key_path

_RAW = 32
"""Bytes of a public key: the last ones of its PEM form."""


def sign_card(card: Any, key: Path) -> None:
    """Add a signature to a card (a value of the protocol library).

    Raises:
        ConfigError: the key cannot be read.
        FerruleError: `missing_extra`, a library is not installed.
    """
    try:
        from a2a.utils.signing import create_agent_card_signer
    except ImportError as error:
        raise FerruleError(
            "signing a card needs a library that is not installed",
            code="missing_extra",
            hint='pip install "ferrule[a2a,sign]"',
        ) from error
    header: Any = {"kid": Signer.load(key).name, "alg": "EdDSA", "typ": "JOSE"}
    create_agent_card_signer(key.read_bytes(), header)(card)


def public_keys(key: Path) -> dict[str, Any]:
    """Return the JWK set that peers need (`keys` of their `a2a_peers`).

    It is read from the public half beside a private key.

    Raises:
        ConfigError: the public key cannot be read.
    """
    name = Signer.load(key).name
    beside = public_key_path(key)
    try:
        lines = beside.read_text(encoding="ascii").splitlines()
        raw = b64decode("".join(line for line in lines if not line.startswith("-")))[-_RAW:]
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read the public key `{beside}`: {error}", code="signing_key"
        ) from error
    x = urlsafe_b64encode(raw).rstrip(b"=").decode()
    return {
        "keys": [
            {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": name, "x": x}
        ]
    }
