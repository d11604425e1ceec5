"""One end of a proxied connection: a socket that is read no faster than the other end takes it.

Sockets are used without asyncio's transports: nothing is read ahead and nothing waits to be
written, so a connection holds one head and two pieces of 64 KiB at most, however slow either side
is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable

from .http_heads import HEAD_LIMIT, BodyEnd, Framing, MalformedMessage, parse_chunk_size

PIECE = 65_536
LINE_LIMIT = 4_096
"""Bytes of a chunk-size line at most."""
LINGER_BYTES, LINGER_SECONDS = 1 << 20, 2.0

SendPiece = Callable[[bytes], Awaitable[None]]


def do_nothing() -> None:
    """Do nothing. `Peer.on_activity` while nobody watches."""


class Peer:
    """A connected stream socket, which it owns.

    `on_activity` is called whenever bytes went in or out; `quiet_since` is when that was last,
    by the loop's clock.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self.received = 0
        self.sent = 0
        self.quiet_since = self._loop.time()
        self.on_activity: Callable[[], None] = do_nothing

    async def read_some(self, most: int = PIECE) -> bytes:
        """Read what is there, waiting for something; empty when the other side has finished."""
        if self._buffer:
            data = self._buffer[:most]
            self._buffer = self._buffer[most:]
            return data
        data = await self._loop.sock_recv(self._sock, min(most, PIECE))
        self._note_received(data)
        return data

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)
        self.sent += len(data)
        self._note_activity()

    async def wait_for_data(self) -> bool:
        """Wait for the first byte of a message. Return False if the other side has finished."""
        if not self._buffer:
            self._buffer = await self.read_some()
        return bool(self._buffer)

    async def read_head(self) -> list[bytes]:
        """Read the lines of a head, without their ends, which must be CR LF.

        Raises:
            MalformedMessage: It is not a head.
        """
        lines: list[bytes] = []
        left = HEAD_LIMIT
        while line := await self._read_line(left):
            lines.append(line)
            left -= len(line) + 2
        if not lines:
            raise MalformedMessage("there is an empty line where a head should be")
        return lines

    async def copy_body(self, framing: Framing, give: SendPiece) -> None:
        """Hand on a body as it arrives, without its framing.

        Raises:
            MalformedMessage: Its framing is wrong.
            ConnectionError: It is cut off.
        """
        if framing is BodyEnd.CLOSE:
            while data := await self.read_some():
                await give(data)
        elif framing is BodyEnd.CHUNKED:
            await self._copy_chunks(give)
        else:
            await self._copy_counted(framing, give)

    def end_sending(self) -> None:
        """Signal that nothing more will be sent; the other side may go on."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def shut_down(self) -> None:
        """End both directions at once: whoever waits on this socket sees its end."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """Close so that the other side sees a failure, not an end."""
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def close(self) -> None:
        self._sock.close()

    async def linger(self) -> None:
        """Let a last answer arrive.

        Closing a socket with unread bytes would destroy what is still being sent.
        """
        self.end_sending()
        left = LINGER_BYTES
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while left > 0 and (data := await self.read_some()):
                    left -= len(data)

    def _note_received(self, data: bytes) -> None:
        self.received += len(data)
        self._note_activity()

    def _note_activity(self) -> None:
        self.quiet_since = self._loop.time()
        self.on_activity()

    async def _copy_counted(self, left: int, give: SendPiece) -> None:
        while left:
            data = await self.read_some(left)
            if not data:
                raise ConnectionError("the connection closed in the middle of a body")
            left -= len(data)
            await give(data)

    async def _copy_chunks(self, give: SendPiece) -> None:
        while size := parse_chunk_size(await self._read_line(LINE_LIMIT)):
            await self._copy_counted(size, give)
            if await self._read_line(0):
                raise MalformedMessage("a chunk is longer than it says")
        trailers = HEAD_LIMIT
        while line := await self._read_line(trailers):
            trailers -= len(line) + 2

    async def _read_line(self, most: int) -> bytes:
        """Read one line, without CR LF.

        Raises MalformedMessage if it is longer than `most` bytes or ends with LF alone.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > most + 1:
                break
            data = await self._loop.sock_recv(self._sock, PIECE)
            if not data:
                raise ConnectionError("the connection closed in the middle of a head")
            self._note_received(data)
            self._buffer += data
        if end > most + 1 or end < 0:
            raise MalformedMessage("the head is too large", 431)
        line = self._buffer[:end]
        self._buffer = self._buffer[end + 1 :]
        if not line.endswith(b"\r"):
            raise MalformedMessage("a line does not end with CR LF")
        return line[:-1]
