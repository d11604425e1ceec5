"""Anthropic's Files API: a picture or a PDF is uploaded, and requests name its id.

Source: Anthropic's API reference (`POST /v1/files`) and the types of its SDK. It is a beta in the
version of the API that this client speaks, which the uploads and the requests say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ferrule.core.media import MediaReference
from ferrule.models.media_uploads import FILE_SECONDS, FormServer, upload_form

_FILES_BETA = "files-api-2025-04-14"


class FileServer(FormServer, Protocol):
    """The server that files are uploaded to (`client.Anthropic`)."""

    base_url: str


async def upload_file(server: FileServer, one: MediaReference, data: bytes) -> str:
    """Upload a medium and return its id. Raises ProviderError."""
    fields = {"expires_in_seconds": str(FILE_SECONDS)}
    headers = add_files_beta(server.headers)
    return await upload_form(server, f"{server.base_url}/v1/files", one, data, fields, headers)


def add_files_beta(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a request that uploads a file, or may name one."""
    betas = headers.get("anthropic-beta", "")
    return {**headers, "anthropic-beta": f"{betas},{_FILES_BETA}" if betas else _FILES_BETA}
