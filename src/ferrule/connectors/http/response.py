"""One answer as it arrives, bounded: its head, its body compressed and decompressed, the framing.

The head is read by `models.http.http1`. Only gzip and deflate are decompressed, and never further
than one byte beyond the bound, so a small answer cannot become a large one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

from ferrule.core.value_class import frozen
from ferrule.models.http.http1 import MalformedResponse, ResponseParser

FAILURE_BYTES = 65_536
"""Bytes that are read of the body of an answer with a failure status."""
_BODILESS = (204, 205, 304)
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


@frozen
class Response:
    """The final answer.

    `url` is without credentials; `cut` means that the body is longer than what was read.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    is_truncated: bool = False


async def read_response(reader: asyncio.StreamReader, url: str, max_bytes: int) -> Response:
    """Read one answer from a connection.

    Raises:
        MalformedResponse: The answer is not valid, or far too large around its body.
        ConnectionResetError: The connection ended before the answer did.
    """
    parser = ResponseParser()
    body: ResponseBody | None = None
    received = 0
    while not parser.done and (body is None or not body.is_full):
        data = await reader.read(65_536)
        if not data:
            _check_end(parser)
            break
        received += len(data)
        piece = parser.feed(data)
        if body is None and parser.status:
            is_failure = parser.status >= 300
            body = ResponseBody(
                parser.headers.get("content-encoding", ""),
                FAILURE_BYTES if is_failure else max_bytes,
            )
        if body is not None:
            body.add(piece)
        if received > 2 * max_bytes + (1 << 20):
            raise MalformedResponse("far more around its answer than in it")
    if body is None:
        body = ResponseBody("", 0)
    if parser.status in _BODILESS:
        return Response(parser.status, parser.headers, b"", url)
    return Response(parser.status, parser.headers, body.content(parser.done), url, body.is_full)


def _check_end(parser: ResponseParser) -> None:
    try:
        parser.feed_eof()
    except MalformedResponse as problem:
        raise ConnectionResetError(0, str(problem)) from None


class ResponseBody:
    """A body as it arrives, decompressed and bounded. `is_full` means that there is more."""

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.is_full = False
        name = coding.strip().lower()
        if name not in ("", "identity", *_WINDOW_BITS):
            raise MalformedResponse("its answer is compressed in a way that was not asked for")
        self._decompressor: Any = (
            zlib.decompressobj(_WINDOW_BITS[name]) if name in _WINDOW_BITS else None
        )

    def add(self, data: bytes) -> None:
        """Add received bytes. Raises MalformedResponse for what cannot be decompressed."""
        if self._decompressor is not None:
            data = self._decompress(data)
        room = self._max_bytes - self._size
        self.is_full = self.is_full or len(data) > room
        self._pieces.append(data[:room])
        self._size += min(len(data), room)

    def _decompress(self, data: bytes) -> bytes:
        # One byte beyond the bound tells that there is more; the rest is never decompressed.
        try:
            return self._decompressor.decompress(data, self._max_bytes - self._size + 1)
        except zlib.error:
            raise MalformedResponse("its answer is damaged and cannot be decompressed") from None

    def content(self, ended: bool) -> bytes:
        """Return the whole body. Raises MalformedResponse if it was cut off."""
        if (
            self._decompressor is not None
            and ended
            and self._size
            and not self.is_full
            and not self._decompressor.eof
        ):
            raise MalformedResponse("its answer is cut off")
        return b"".join(self._pieces)
