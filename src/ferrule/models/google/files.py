"""Gemini's Files API: media are uploaded, and requests name their addresses.

Source: Google's reference (`media.upload`) and the types of `google-genai`. An upload has two
requests: the first says what comes and is told where to; the second has the bytes. Google keeps
files for two days. Vertex AI has no such files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from ferrule.core.errors import ProviderError
from ferrule.core.media import MediaReference
from ferrule.core.web_addresses import split_web_address
from ferrule.models.http.transport import Response, Transport
from ferrule.models.media_uploads import name_file
from ferrule.models.request_encoding import encode_json_bytes, parse_object

from .addresses import GEMINI_VERSION

_LOOKS = 60
"""How often a file is looked at until it can be used, a second apart."""


class FileServer(Protocol):
    """The server that files are uploaded to (`client.Google`)."""

    base_url: str
    transport: Transport

    @property
    def model(self) -> str: ...

    async def request_headers(self) -> Mapping[str, str]: ...

    def read_refusal(
        self, status: int, headers: Mapping[str, str], body: bytes, *, tools: bool
    ) -> ProviderError: ...


async def upload_file(server: FileServer, one: MediaReference, data: bytes) -> str:
    """Upload a medium and return the address that names it. Raises ProviderError."""
    target = await _begin(server, one)
    headers = {
        "Content-Type": one.mime,
        "X-Goog-Upload-Offset": "0",
        "X-Goog-Upload-Command": "upload, finalize",
    }
    answer = await server.transport.post(target, data, headers)
    file = _read_file(server, answer).get("file")
    return await _wait(server, cast("dict[str, Any]", file) if isinstance(file, dict) else {})


async def _begin(server: FileServer, one: MediaReference) -> str:
    """Return where the bytes are to be sent."""
    transport = server.transport
    url = f"{server.base_url}/upload/{GEMINI_VERSION}/files"
    headers = {
        **await server.request_headers(),
        "X-Goog-Upload-Protocol": "resumable",
        "X-Goog-Upload-Command": "start",
        "X-Goog-Upload-Header-Content-Length": str(one.size),
        "X-Goog-Upload-Header-Content-Type": one.mime,
    }
    about = encode_json_bytes({"file": {"displayName": name_file(one)}})
    answer = await transport.retry(lambda: transport.post(url, about, headers))
    target = answer.headers.get("x-goog-upload-url", "") if answer.status == 200 else ""
    if not target:
        raise server.read_refusal(answer.status, answer.headers, answer.body, tools=False)
    # The bytes are sent to the server that was chosen, whatever it answers.
    path = split_web_address(target)
    if path is None:
        raise server.read_refusal(answer.status, answer.headers, answer.body, tools=False)
    return f"{server.base_url}{path.path}?{path.query}"


async def _wait(server: FileServer, file: dict[str, Any]) -> str:
    """Return the address of a file once it can be used."""
    for _ in range(_LOOKS):
        uri = file.get("uri")
        state = file.get("state", "ACTIVE")
        if isinstance(uri, str) and state == "ACTIVE":
            return uri
        if state != "PROCESSING":
            break
        await server.transport.pause(1)
        url = f"{server.base_url}/{GEMINI_VERSION}/{file.get('name')}"
        answer = await server.transport.get(url, await server.request_headers(), timeout=10.0)
        file = _read_file(server, answer)
    raise ProviderError(
        f"{server.model}: the file is {file.get('state', 'not there')}", code="upload"
    )


def _read_file(server: FileServer, answer: Response) -> dict[str, Any]:
    if answer.status != 200:
        raise server.read_refusal(answer.status, answer.headers, answer.body, tools=False)
    return parse_object(answer.body)
