"""Ed25519 (RFC 8032) signatures with keys that lie in files: a private one that only its owner can
read, a public one to hand on.

Needs the extra `sign` (`cryptography`). The private key is PEM (PKCS 8, not encrypted), the public
one PEM (SubjectPublicKeyInfo) beside it, with `.pub`. A key is named by the first 16 hex digits of
the SHA-256 of its 32 public bytes.

Not protected: whoever can read the private key signs what they like. Keep it where the agent's own
user cannot read it (another user, another machine) if that user is whom you distrust.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage import paths

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )


def key_path() -> Path:
    """The person's own signing key, where no other is named."""
    return paths.state() / "keys" / "audit.pem"


def public_path(path: Path) -> Path:
    """Where the public half of a private key lies."""
    return path.with_name(path.name + ".pub")


class Verifier:
    """A public key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.name = sha256(key.public_bytes_raw()).hexdigest()[:16]

    @staticmethod
    def load(path: Path) -> Verifier:
        """The public key in a file, also if the file holds the private one. Raises ConfigError
        naming it.
        """
        needed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        data = _read(path)
        if b"PRIVATE KEY" in data:
            return Signer.load(path).verifier
        try:
            key = load_pem_public_key(data)
        except ValueError as error:
            raise _no_key(path, str(error)) from error
        if not isinstance(key, Ed25519PublicKey):
            raise _no_key(path, "it is of another kind")
        return Verifier(key)

    def holds(self, message: bytes, signature: bytes) -> bool:
        """Whether this key signed exactly this."""
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
        """The private key in a file that only its owner can read. Raises ConfigError naming it and
        what is wrong.
        """
        needed()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(_read(path, private=True), password=None)
        except (ValueError, TypeError) as error:
            raise _no_key(path, str(error)) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise _no_key(path, "it is of another kind")
        return Signer(key)

    @staticmethod
    def make(path: Path) -> Signer:
        """A new key in a file of mode 0600, its public half beside it. Raises ConfigError if the
        file is there.
        """
        needed()
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        public = key.public_key().public_bytes(
            form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        )
        _write_new(path, private)
        paths.write_private(public_path(path), public.decode("ascii"))
        return Signer(key)

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(message)


def needed() -> None:
    """Raises FerruleError, with the way to get it, where the library is not installed."""
    if find_spec("cryptography") is None:
        raise FerruleError(
            "signing needs the library `cryptography`, and it is not installed",
            code="missing_extra",
            hint='pip install "ferrule[sign]"',
        )


def _no_key(path: Path, why: str) -> ConfigError:
    return ConfigError(f"`{path}` holds no Ed25519 key that can be used: {why}", code="signing_key")


def _write_new(path: Path, data: bytes) -> None:
    paths.private_folder(path.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"there is a key in `{path}` already", hint="name another file"
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(file.fileno())
            if private and (about.st_uid != os.geteuid() or about.st_mode & 0o077):
                mode = stat.filemode(about.st_mode)
                raise ConfigError(
                    f"the key `{path}` is not used: others could read or replace it ({mode})",
                    code="signing_key",
                    hint=f"chmod 600 {path}, and make a new key if somebody may have read it",
                )
            return file.read(64 * 1024)
    except OSError as error:
        hint = "`ferrule audit key` makes one" if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(
            f"cannot read the key `{path}`: {error.strerror}", code="signing_key", hint=hint
        ) from error
