"""Standard streams as a connection: the client started this process and talks with it here.

The library takes standard output for itself and lets everything else that writes there write to
standard error. Standard input it would read in a thread that nothing can wake: a process that is
told to end would wait for its client. So where it is a pipe or a socket, it is read by the event
loop, a line of at most `LINE` bytes at a time; a longer one ends the connection. Programs that
tools start find nothing on it.
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

LINE = 16 * 1024 * 1024


class Lines:
    """The lines of a stream, as the library wants them."""

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
async def streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The client's messages and ours. SIGTERM ends the current task in an orderly way, as Ctrl-C
    does, and then the process (SystemExit).
    """
    from mcp.server.stdio import stdio_server

    async with _until_told(), _input() as lines:
        given: Any = lines
        async with stdio_server(stdin=given) as (read, write):
            yield read, write


@asynccontextmanager
async def _input() -> AsyncGenerator[Lines | None]:
    """Standard input, away from its place; None where the library has to read it."""
    if not _ours():
        yield None
        return
    private = os.dup(0)
    os.set_inheritable(private, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    reader = asyncio.StreamReader(limit=LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(private, "rb", buffering=0)
    )
    try:
        yield Lines(reader)
    finally:
        transport.close()


def _ours() -> bool:
    """Whether standard input is a pipe or a socket of its own: what waits must not make others'
    writing wait as well.
    """
    if sys.platform == "win32":
        return False
    try:
        given, taken = os.fstat(0), os.fstat(1)
    except OSError:
        return False
    same = (given.st_dev, given.st_ino) == (taken.st_dev, taken.st_ino)
    return not same and (stat.S_ISFIFO(given.st_mode) or stat.S_ISSOCK(given.st_mode))


@asynccontextmanager
async def _until_told() -> AsyncGenerator[None]:
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), list[int]()
    assert task is not None

    def end() -> None:
        told.append(signal.SIGTERM)
        task.cancel()

    # Not on the main thread, or not on this system: then whoever runs the loop ends it.
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
