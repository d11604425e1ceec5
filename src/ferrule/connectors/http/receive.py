"""One answer as it arrives, bounded: its head (`models.http.http1`), its body as it is sent and as
it is unpacked, the bytes around it.

Only gzip and deflate are unpacked, and never further than one byte beyond the bound, so a small
answer cannot become a large one.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferrule.models.http.http1 import MalformedResponse, ResponseParser

FAILURE_BYTES = 65_536
"""Bytes that are read of the body of an answer that says that the request failed."""
_EMPTY = (204, 205, 304)
_CODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back at last. `url` is without credentials; `cut`: the body is longer than what is
    here.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    cut: bool = False


async def receive(reader: asyncio.StreamReader, url: str, max_bytes: int) -> Answer:
    parser = ResponseParser()
    body: Body | None = None
    received = 0
    while not parser.done and (body is None or not body.full):
        data = await reader.read(65_536)
        if not data:
            _ended(parser)
            break
        received += len(data)
        piece = parser.feed(data)
        if body is None and parser.status:
            failed = parser.status >= 300
            body = Body(
                parser.headers.get("content-encoding", ""), FAILURE_BYTES if failed else max_bytes
            )
        if body is not None:
            body.add(piece)
        if received > 2 * max_bytes + (1 << 20):
            raise MalformedResponse("far more around its answer than in it")
    if body is None:
        body = Body("", 0)
    if parser.status in _EMPTY:
        return Answer(parser.status, parser.headers, b"", url)
    return Answer(parser.status, parser.headers, body.whole(parser.done), url, body.full)


def _ended(parser: ResponseParser) -> None:
    try:
        parser.eof()
    except MalformedResponse as problem:
        raise ConnectionResetError(0, str(problem)) from None


class Body:
    """A body as it arrives: unpacked, and never more than `most` bytes of it. `full`: there is
    more.
    """

    def __init__(self, coding: str, most: int) -> None:
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0
        self.full = False
        name = coding.strip().lower()
        if name not in ("", "identity", *_CODINGS):
            raise MalformedResponse("its answer is packed in a way that was not asked for")
        self._unpack: Any = zlib.decompressobj(_CODINGS[name]) if name in _CODINGS else None

    def add(self, data: bytes) -> None:
        """Raises MalformedResponse for what cannot be unpacked."""
        if self._unpack is not None:
            data = self._unpacked(data)
        room = self._most - self._size
        self.full = self.full or len(data) > room
        self._pieces.append(data[:room])
        self._size += min(len(data), room)

    def _unpacked(self, data: bytes) -> bytes:
        # One byte beyond the bound is enough to know that there is more; the rest is never
        # unpacked.
        try:
            return self._unpack.decompress(data, self._most - self._size + 1)
        except zlib.error:
            raise MalformedResponse("its answer is damaged and cannot be unpacked") from None

    def whole(self, ended: bool) -> bytes:
        """All of it. Raises MalformedResponse if it was cut off."""
        if (
            self._unpack is not None
            and ended
            and self._size
            and not self.full
            and not self._unpack.eof
        ):
            raise MalformedResponse("its answer is cut off")
        return b"".join(self._pieces)
