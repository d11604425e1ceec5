"""Deliver bytes to the real HTTP client in exact pieces, without sockets or timing.

    with arriving(answer):                       # replaces every new connection of this process
        await exchange.ask(history, sink=sink)

`answer` takes the bytes of a request and returns an `Arrival`. Each piece reaches the client in its
own iteration of the event loop, so a reader sees every cut. Effects of a kernel (a reset that
discards unread bytes) are not covered; `http_double` has real sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal
from unittest.mock import patch

from ferrule.core.value_class import frozen
from ferrule.models.http import connection as connections

Ending = Literal["stay", "close", "reset"]
"""What the server does after the last piece: keep the connection open, close it, or break it."""


@frozen
class Arrival:
    """The raw bytes of one HTTP response, in the pieces in which they arrive."""

    pieces: Sequence[bytes]
    ending: Ending = "stay"


def response_head(content_type: str, framing: Literal["chunked", "close"] = "chunked") -> bytes:
    """Return the head of a 200 response."""
    coding = "Transfer-Encoding: chunked\r\n" if framing == "chunked" else ""
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{coding}\r\n".encode()


def encode_chunks(pieces: Sequence[bytes]) -> bytes:
    """Encode a body as HTTP chunks, without the final chunk."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)


@contextmanager
def serve_in_pieces(answer: Callable[[bytes], Arrival]) -> Generator[None]:
    """Replace every connection that a client opens by one whose server answers like this."""

    async def connect(
        loop: asyncio.AbstractEventLoop, origin: Any, tls: Any, buffer: memoryview
    ) -> connections.Connection:
        connection = connections.Connection(loop, buffer)
        connection.connection_made(_Socket(loop, connection, answer))
        return connection

    with patch.object(connections, "connect", connect):
        yield


class _Socket(asyncio.Transport):
    """The server's end of a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: connections.Connection,
        answer: Callable[[bytes], Arrival],
    ) -> None:
        super().__init__()
        self._loop = loop
        self._client = client
        self._answer = answer
        self._left: list[bytes] = []
        self._ending: Ending = "stay"
        self._gone = False
        self._paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        arrival = self._answer(bytes(data))
        self._left = [piece for piece in arrival.pieces if piece]
        self._ending = arrival.ending
        self._loop.call_soon(self._arrive)

    def _arrive(self) -> None:
        if self._gone or self._paused:
            return
        if self._left:
            piece = self._left.pop(0)
            buffer = self._client.get_buffer(-1)
            buffer[: len(piece)] = piece
            self._client.buffer_updated(len(piece))
            self._loop.call_soon(self._arrive)
        elif self._ending != "stay":
            broke = ConnectionResetError("reset by peer") if self._ending == "reset" else None
            self._lose(broke)

    def _lose(self, error: Exception | None) -> None:
        if not self._gone:
            self._gone = True
            self._client.connection_lost(error)

    def abort(self) -> None:
        self._loop.call_soon(self._lose, None)

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self._gone

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._arrive)


def cut_at(data: bytes, ends: Sequence[int]) -> list[bytes]:
    """Split data into pieces that end at these offsets."""
    cuts = sorted({end for end in ends if 0 < end < len(data)})
    spans = zip([0, *cuts], [*cuts, len(data)], strict=True)
    return [data[start:end] for start, end in spans]
