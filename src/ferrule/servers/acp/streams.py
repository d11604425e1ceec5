"""Messages over standard streams: one JSON object per line, bounded.

A line that is no message is answered with the error that JSON-RPC has for it, and the next line is
read.

Standard output belongs to the protocol. From `claim_standard_streams` on, what anything else in
this process prints goes to standard error, and what it starts neither reads the editor's messages
nor writes between ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError

MAX_LINE = 16 << 20
"""Most bytes of a line; a longer one is skipped and refused."""
PARSE_ERROR = -32700
INVALID_REQUEST = -32600


class MessageStreams:
    """Messages in both directions. If the other side cannot be written to, reading ends, too."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._writing = asyncio.Lock()
        self._gone = False

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end. Invalid input does not end the reading."""
        while not self._gone and (line := await self._line()) is not None:
            found, problem = parse_line(line)
            if problem is not None:
                await self.send(problem)
            elif found is not None:
                return found
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Does nothing once the other side is gone."""
        data = encode_line(message)
        async with self._writing:
            if self._gone:
                return
            try:
                self._writer.write(data)
                await self._writer.drain()
            except (ConnectionError, OSError):
                self._gone = True
                self._reader.feed_eof()

    async def close(self) -> None:
        """Close the streams."""
        self._gone = True
        self._writer.close()

    async def _line(self) -> bytes | None:
        """Return a line, empty if it was too long; None at the end."""
        too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
                return b"" if too_long else line
            except asyncio.LimitOverrunError as error:
                too_long = True
                await self._reader.readexactly(error.consumed)
            except asyncio.IncompleteReadError as error:
                return error.partial if error.partial.strip() and not too_long else None


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Encode a message as a line. NaN and infinities, which JSON does not have, become texts."""
    try:
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    except ValueError:
        plain: Any = parse_json(json.dumps(message), parse_constant=str)
        text = json.dumps(plain, separators=(",", ":"))
    return text.encode() + b"\n"


def parse_line(line: bytes) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the message in a line, or the answer to an invalid one; neither for a blank line.

    `b""` stands for a line that was too long.
    """
    if not line:
        return None, error_message(INVALID_REQUEST, f"a message may have at most {MAX_LINE} bytes")
    if not line.strip():
        return None, None
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, error_message(PARSE_ERROR, f"this is not JSON: {type(error).__name__}")
    if not isinstance(value, dict):
        return None, error_message(INVALID_REQUEST, "a message is a JSON object")
    found = cast("dict[str, Any]", value)
    if "method" in found and not isinstance(found["method"], str):
        return None, error_message(INVALID_REQUEST, "`method` must be a string")
    if isinstance(found.get("id"), (dict, list)):
        return None, error_message(INVALID_REQUEST, "`id` must be a string or a number")
    return found, None


def error_message(code: int, why: str) -> dict[str, Any]:
    """Return the error answer to a message without an id."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}


@contextmanager
def claim_standard_streams() -> Generator[tuple[int, int]]:
    """Take over the standard streams and yield the descriptors of the editor's ends.

    Until the end, this process's own standard input is empty and its output goes to standard error.
    """
    sys.stdout.flush()
    reading = os.dup(0)
    writing = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield reading, writing
    finally:
        sys.stdout.flush()
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)


async def connect_streams(reading: int, writing: int) -> MessageStreams:
    """Return messages over these descriptors.

    Raises:
        ConfigError: they are neither pipes nor sockets.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    try:
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader),
            os.fdopen(os.dup(reading), "rb", buffering=0),
        )
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(os.dup(writing), "wb", buffering=0)
        )
    except ValueError as error:
        raise ConfigError(
            f"standard input and output must be pipes or sockets: {error}",
            hint="let an editor start this command",
        ) from error
    return MessageStreams(reader, asyncio.StreamWriter(transport, protocol, None, loop))
