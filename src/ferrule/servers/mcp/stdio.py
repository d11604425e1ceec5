"""Standard streams as a connection to the client that started this process.

The library takes over standard output and redirects everything else that writes there to standard
error. It would read standard input in a thread that nothing can wake: a process that is told to end
would wait for its client. So if it is a pipe or a socket, it is read by the event loop, a line of
at most `MAX_LINE` bytes at a time; a longer one ends the connection. Programs that tools start find
nothing on standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

MAX_LINE = 16 * 1024 * 1024


class LineReader:
    """The lines of a stream, in the form the library expects."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except (ValueError, ConnectionError):
            line = b""
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


@asynccontextmanager
async def open_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of the client's messages and ours.

    SIGTERM cancels the current task cleanly, as Ctrl-C does, and then ends the process
    (SystemExit).
    """
    from mcp.server.stdio import stdio_server

    async with _cancel_when_terminated(), _open_input() as lines:
        given: Any = lines
        async with stdio_server(stdin=given) as (read, write):
            yield read, write


@asynccontextmanager
async def _open_input() -> AsyncGenerator[LineReader | None]:
    """Yield standard input, moved to another descriptor; None if the library must read it."""
    if not _can_read_input():
        yield None
        return
    private = os.dup(0)
    os.set_inheritable(private, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    reader = asyncio.StreamReader(limit=MAX_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(private, "rb", buffering=0)
    )
    try:
        yield LineReader(reader)
    finally:
        transport.close()


def _can_read_input() -> bool:
    """Return whether standard input is a pipe or a socket of its own.

    If it is shared with standard output, making it non-blocking would affect other writers.
    """
    if sys.platform == "win32":
        return False
    try:
        given = os.fstat(0)
        taken = os.fstat(1)
    except OSError:
        return False
    same = (given.st_dev, given.st_ino) == (taken.st_dev, taken.st_ino)
    return not same and (stat.S_ISFIFO(given.st_mode) or stat.S_ISSOCK(given.st_mode))


@asynccontextmanager
async def _cancel_when_terminated() -> AsyncGenerator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    told = list[int]()
    assert task is not None

    def end() -> None:
        told.append(signal.SIGTERM)
        task.cancel()

    # Fails outside the main thread and on some systems; then the owner of the loop must end it.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if not told:
            raise
        raise SystemExit(128 + told[0]) from None
    finally:
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)
