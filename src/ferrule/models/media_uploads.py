"""Media that are uploaded once to a provider, and named by an id in its requests.

`ModelOptions.upload_media_from` says from how many bytes on. Without it, media are in each request,
in base64: a picture of 3 MB is sent again with every turn. What was uploaded is said in the journal
(the notice `upload`), stays at the provider for a day, and is uploaded again if a conversation goes
on that long. Replay sends nothing, and so uploads nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from json.encoder import encode_basestring as quote
from typing import Protocol

from ferrule.core.errors import ProviderError
from ferrule.core.media import LoadedMedia, MediaReference
from ferrule.core.messages import Message, ToolMessage, UserMessage
from ferrule.core.value_class import frozen

from .http.transport import Transport
from .media_encoding import Protocol as MediaProtocol
from .media_encoding import can_upload, read_bytes
from .provider_errors import error_from_response
from .request_encoding import parse_object

FILE_SECONDS = 86_400
"""How long a provider is asked to keep a file."""
RENEW_SECONDS = 3_600
"""What is kept for less than this is uploaded again before it is named."""


@frozen
class UploadedFile:
    """A file at a provider.

    Attributes:
        id: How requests name it.
        expires_at: When it is gone, in seconds since 1970.
    """

    id: str
    expires_at: float


Upload = Callable[[MediaReference, bytes], Awaitable[str]]
"""Uploads a medium, kept for `FILE_SECONDS`. Returns its id. Raises ProviderError."""


class UploadedFiles:
    """The files that a client has uploaded, by the hash of their bytes; its conversations share it.

    Args:
        upload: What uploads one.
        now: Seconds since 1970.
    """

    def __init__(self, upload: Upload, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._upload = upload
        self._files: dict[str, UploadedFile] = {}

    def find(self, one: MediaReference) -> UploadedFile | None:
        """Return the file of a medium; None if it is not there, or not for long any more."""
        file = self._files.get(one.sha256)
        if file is None or self.is_ending(file):
            return None
        return file

    def is_ending(self, file: UploadedFile) -> bool:
        """Return whether a file may be gone before a request that names it is answered."""
        return file.expires_at - self.now() < RENEW_SECONDS

    async def upload(self, one: MediaReference) -> UploadedFile:
        """Upload a medium. Raises ProviderError."""
        began = self.now()
        try:
            id = await self._upload(one, read_bytes(one))
        except ProviderError as error:
            error.detail = f"{one.describe()} cannot be uploaded: {error.detail}"
            error.hint = "leave out `upload_media_from`, and it is sent in requests"
            raise
        file = UploadedFile(id, began + FILE_SECONDS)
        self._files[one.sha256] = file
        return file


class MediaUploads:
    """What one conversation names by an id.

    Args:
        files: The files of its client.
        protocol: The protocol of its requests.
        least: The bytes from which a medium is uploaded.
    """

    def __init__(self, files: UploadedFiles, protocol: MediaProtocol, least: int) -> None:
        self._files = files
        self._protocol: MediaProtocol = protocol
        self._least = least
        self._count = 0
        self._used: dict[str, UploadedFile] = {}

    async def prepare(self, history: Sequence[Message], notice: Callable[[str, str], None]) -> bool:
        """Upload what is new in a history.

        Returns:
            Whether what was encoded before names files that are gone soon: it is encoded anew.

        Raises:
            ProviderError: A medium cannot be uploaded.
        """
        is_stale = any(self._files.is_ending(file) for file in self._used.values())
        if is_stale or len(history) < self._count:
            self._used.clear()
            self._count = 0
        for message in history[self._count :]:
            if isinstance(message, UserMessage | ToolMessage):
                for one in message.media:
                    await self._take(one, notice)
        self._count = len(history)
        return is_stale

    def find_file(self, one: MediaReference) -> str:
        """Return the id of a medium; "" if it is sent in the request."""
        file = self._used.get(one.sha256)
        return "" if file is None else file.id

    async def _take(self, one: MediaReference, notice: Callable[[str, str], None]) -> None:
        if one.sha256 in self._used or not self._is_uploaded(one):
            return
        file = self._files.find(one)
        if file is None:
            file = await self._files.upload(one)
            hours = FILE_SECONDS // 3_600
            notice(
                "upload",
                f"{one.describe()} ({one.reference}) was uploaded as {file.id}, for {hours} hours",
            )
        self._used[one.sha256] = file

    def _is_uploaded(self, one: MediaReference) -> bool:
        if one.size < self._least:
            return False
        is_read = isinstance(one, LoadedMedia) and bool(one.text)
        return not is_read and can_upload(self._protocol, one)


class FormServer(Protocol):
    """A server that takes files as forms."""

    headers: dict[str, str]
    transport: Transport

    @property
    def model(self) -> str: ...


async def upload_form(
    server: FormServer,
    url: str,
    one: MediaReference,
    data: bytes,
    fields: dict[str, str],
    headers: Mapping[str, str],
    accepted: tuple[int, ...] = (200,),
) -> str:
    """Upload a medium as a form and return the id that the server gives it.

    Args:
        server: The server, named in the error.
        url: Where it takes files.
        one: The medium; its name is the file's.
        data: Its bytes.
        fields: Further fields of the form.
        headers: Those of the server's requests.
        accepted: Statuses that say that it has the file.

    Raises:
        ProviderError: It took no file.
    """
    form, content_type = encode_form(one, data, fields)
    sent = {**headers, "Content-Type": content_type}
    answer = await server.transport.retry(lambda: server.transport.post(url, form, sent))
    id = parse_object(answer.body).get("id") if answer.status in accepted else None
    if not isinstance(id, str):
        raise error_from_response(
            server.model, answer.status, answer.headers, answer.body, tools=False
        )
    return id


def encode_form(one: MediaReference, data: bytes, fields: dict[str, str]) -> tuple[bytes, str]:
    """Return a file and fields as `multipart/form-data`, and the content type with its boundary.

    Args:
        one: The medium; its name is the file's.
        data: Its bytes.
        fields: Further fields of the form.
    """
    boundary = f"ferrule-{one.sha256}"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; '
        f"filename={quote(name_file(one))}\r\nContent-Type: {one.mime}\r\n\r\n"
    )
    body = "".join(parts).encode() + head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
    return body, f"multipart/form-data; boundary={boundary}"


def name_file(one: MediaReference) -> str:
    """Return the name of a medium for a header: without control characters and quotes."""
    name = "".join(letter for letter in one.name if letter.isprintable() and letter not in '"\\')
    ending = one.mime.rpartition("/")[2].rpartition(".")[2]
    return name or f"{one.media_kind}.{ending}"
