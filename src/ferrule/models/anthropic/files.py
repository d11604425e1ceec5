"""Anthropic's Files API: a picture or a PDF is uploaded, and requests name its id.

Source: Anthropic's API reference (`POST /v1/files`) and the types of its SDK. It is a beta in the
version of the API that this client speaks, which the uploads and the requests say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ferrule.core.media import MediaReference
from ferrule.models.http.transport import Transport
from ferrule.models.media_uploads import FILE_SECONDS, encode_form
from ferrule.models.provider_errors import error_from_response
from ferrule.models.request_encoding import parse_object

_FILES_BETA = "files-api-2025-04-14"


class FileServer(Protocol):
    """The server that files are uploaded to (`client.Anthropic`)."""

    base_url: str
    headers: dict[str, str]
    transport: Transport

    @property
    def model(self) -> str: ...


async def upload_file(server: FileServer, one: MediaReference, data: bytes) -> str:
    """Upload a medium and return its id. Raises ProviderError."""
    form, content_type = encode_form(one, data, {"expires_in_seconds": str(FILE_SECONDS)})
    headers = {**add_files_beta(server.headers), "Content-Type": content_type}
    url = f"{server.base_url}/v1/files"
    answer = await server.transport.retry(lambda: server.transport.post(url, form, headers))
    id = parse_object(answer.body).get("id") if answer.status == 200 else None
    if not isinstance(id, str):
        raise error_from_response(
            server.model, answer.status, answer.headers, answer.body, tools=False
        )
    return id


def add_files_beta(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that uploads a file, or may name one."""
    betas = headers.get("anthropic-beta", "")
    return {**headers, "anthropic-beta": f"{betas},{_FILES_BETA}" if betas else _FILES_BETA}
