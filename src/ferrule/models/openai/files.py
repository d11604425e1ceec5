"""OpenAI's Files API: a picture or a document is uploaded, and requests name its id.

Source: OpenAI's API reference (`POST /files`) and the types of its SDK. Chat completions name
documents alone.
"""

from __future__ import annotations

from typing import Protocol

from ferrule.core.media import MediaReference
from ferrule.models.media_uploads import FILE_SECONDS, FormServer, upload_form


class FileServer(FormServer, Protocol):
    """The server that files are uploaded to (`chat.OpenAIChat`)."""

    base_url: str


async def upload_file(server: FileServer, one: MediaReference, data: bytes) -> str:
    """Upload a medium and return its id. Raises ProviderError."""
    fields = {
        "purpose": "vision" if one.media_kind == "image" else "user_data",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": str(FILE_SECONDS),
    }
    url = f"{server.base_url}/files"
    return await upload_form(server, url, one, data, fields, server.headers, accepted=(200, 201))
