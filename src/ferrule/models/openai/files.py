"""OpenAI's Files API: a picture or a document is uploaded, and requests name its id.

Source: OpenAI's API reference (`POST /files`) and the types of its SDK. Chat completions name
documents alone.
"""

from __future__ import annotations

from typing import Protocol

from ferrule.core.media import MediaReference
from ferrule.models.http.transport import Transport
from ferrule.models.media_uploads import FILE_SECONDS, encode_form
from ferrule.models.provider_errors import error_from_response
from ferrule.models.request_encoding import parse_object


class FileServer(Protocol):
    """The server that files are uploaded to (`chat.OpenAIChat`)."""

    base_url: str
    headers: dict[str, str]
    transport: Transport

    @property
    def model(self) -> str: ...


async def upload_file(server: FileServer, one: MediaReference, data: bytes) -> str:
    """Upload a medium and return its id. Raises ProviderError."""
    fields = {
        "purpose": "vision" if one.media_kind == "image" else "user_data",
        "expires_after[anchor]": "created_at",
        "expires_after[seconds]": str(FILE_SECONDS),
    }
    form, content_type = encode_form(one, data, fields)
    headers = {**server.headers, "Content-Type": content_type}
    url = f"{server.base_url}/files"
    answer = await server.transport.retry(lambda: server.transport.post(url, form, headers))
    id = parse_object(answer.body).get("id") if answer.status in (200, 201) else None
    if not isinstance(id, str):
        raise error_from_response(
            server.model, answer.status, answer.headers, answer.body, tools=False
        )
    return id
