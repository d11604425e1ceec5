"""Ed25519 (RFC 8032) signatures with keys in files: a private one, and a public one to share.

Needs the extra `sign` (`cryptography`). The private key is PEM (PKCS 8, not encrypted), the public
one PEM (SubjectPublicKeyInfo) in a file beside it, with `.pub`. The name of a key is the first 16
hex digits of the SHA-256 of its 32 public bytes.

Not protected: whoever can read the private key can sign anything. If you distrust the agent's own
user, keep the key where that user cannot read it (another user, another machine).
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.permissions.filesystem.opened_files import open_for_reading
from ferrule.storage import paths

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
else:
    Ed25519PrivateKey = Ed25519PublicKey = Any


def default_key_path() -> Path:
    """Return the path of the user's own signing key, used if no other is named."""
    return paths.state() / "keys" / "audit.pem"


def public_key_path(path: Path) -> Path:
    """Return the path of the public half of a private key."""
    return path.with_name(path.name + ".pub")


class Verifier:
    """A public key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.name = sha256(key.public_bytes_raw()).hexdigest()[:16]

    @staticmethod
    def load(path: Path) -> Verifier:
        """Load the public key from a file, which may also contain the private one.

        Raises:
            ConfigError: The file cannot be read, or contains no such key. The message names the
                file.
        """
        require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        data = _read_key(path)
        if b"PRIVATE KEY" in data:
            return Signer.load(path).verifier
        try:
            key = load_pem_public_key(data)
        except ValueError as error:
            raise _unusable_key(path, str(error)) from error
        if not isinstance(key, Ed25519PublicKey):
            raise _unusable_key(path, "it is of another kind")
        return Verifier(key)

    def is_valid(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key signed exactly this message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Signer:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.verifier = Verifier(key.public_key())
        self.name = self.verifier.name

    @staticmethod
    def load(path: Path) -> Signer:
        """Load the private key from a file that only its owner can read.

        Raises:
            ConfigError: The key cannot be used. The message names the file and the reason.
        """
        require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(_read_key(path, private=True), password=None)
        except (ValueError, TypeError) as error:
            raise _unusable_key(path, str(error)) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _unusable_key(path, "it is of another kind")
        return Signer(key)

    @staticmethod
    def create(path: Path) -> Signer:
        """Create a key in a file of mode 0600, with its public half beside it.

        Raises:
            ConfigError: The file exists.
        """
        require_cryptography()
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        _write_new(path, private)
        paths.write_private(public_key_path(path), public.decode("ascii"))
        return Signer(key)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes."""
        return self._key.sign(message)


def require_cryptography() -> None:
    """Raise FerruleError, with a hint how to install it, if the library is missing."""
    if find_spec("cryptography") is None:
        raise FerruleError(
            "signing needs the library `cryptography`, which is not installed",
            code="missing_extra",
            hint='pip install "ferrule[sign]"',
        )


def _unusable_key(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"`{path}` contains no usable Ed25519 key: {reason}", code="signing_key")


def _write_new(path: Path, data: bytes) -> None:
    paths.make_private_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"the key `{path}` already exists", hint="choose another file") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read_key(path: Path, *, private: bool = False) -> bytes:
    try:
        with open_for_reading(path, follow_links=True) as file:
            status = os.fstat(file.fileno())
            if private and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                mode = stat.filemode(status.st_mode)
                raise ConfigError(
                    f"the key `{path}` is not used: others could read or replace it ({mode})",
                    code="signing_key",
                    hint=f"chmod 600 {path}, and create a new key if somebody may have read it",
                )
            return file.read(64 * 1024)
    except OSError as error:
        hint = "`ferrule audit key` creates one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(
            f"cannot read the key `{path}`: {error.strerror}", code="signing_key", hint=hint
        ) from error
