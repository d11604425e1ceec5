"""What clients of models behind a server share: connections, the key, and uploads.

A client of another provider begins here: it adds `model`, `capabilities` and `open`
(`client.ModelClient`), and `upload_file` if its API takes files.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from ferrule.core.errors import ConfigError
from ferrule.core.media import MediaReference

from .client import ModelOptions
from .http.transport import Transport


class ServerClient:
    """The part of a client that does not depend on the provider's protocol.

    Args:
        transport: Its owner closes it. Without one, the client makes and closes its own.
    """

    def __init__(self, transport: Transport | None) -> None:
        self._owns_transport = transport is None
        self.transport = transport or Transport()
        self.files: Any = None

    async def close(self) -> None:
        if self._owns_transport:
            await self.transport.close()

    async def upload_file(self, one: MediaReference, data: bytes) -> str:
        """Upload a medium and return its id. Raises ProviderError."""
        raise NotImplementedError


class FileOwner(Protocol):
    """A client that remembers what it has uploaded (`ServerClient`)."""

    files: Any
    """What was uploaded (`media_uploads.UploadedFiles`), or None."""

    async def upload_file(self, one: MediaReference, data: bytes, /) -> str: ...


def open_uploads(client: FileOwner, protocol: Any, options: ModelOptions) -> Any:
    """Return the `MediaUploads` of one conversation; None if it uploads nothing.

    Conversations of a client share what was uploaded.

    Args:
        client: The client.
        protocol: The protocol of the conversation's requests (`media_encoding.Protocol`).
        options: Its options; `upload_media_from` says what is uploaded.
    """
    if options.upload_media_from is None:
        return None
    # Most conversations upload nothing.
    from .media_uploads import MediaUploads, UploadedFiles

    if client.files is None:
        client.files = UploadedFiles(client.upload_file)
    return MediaUploads(client.files, protocol, options.upload_media_from)


def find_key(given: str | None, variables: tuple[str, ...], model: str, *, required: bool) -> str:
    """Return the API key, "" if there is none.

    Args:
        given: The key that a program gave.
        variables: Environment variables that are read without one, the first one first.
        model: The model's full name.
        required: Whether the server refuses requests without a key.

    Raises:
        ConfigError: A key is required, and there is none.
    """
    key = given
    if key is None:
        key = next(filter(None, map(os.environ.get, variables)), "")
    if required and not key:
        raise ConfigError(
            f"`{model}` needs an API key",
            code="api_key",
            hint=f"set {variables[0]}, or `base_url`",
        )
    return key.strip()
