"""Standard streams as a connection to the client that started this process.

The library would read standard input in a thread that nothing can wake: a process that is told to
end would wait for its client. So if it is a pipe or a socket, it is read by the event loop, a line
of at most `MAX_LINE` bytes at a time; a longer one ends the connection. Programs that tools start
find nothing on standard input.

Standard output is taken over, and everything else that writes there writes to standard error. The
library hands each line to a thread three times; a short line is written by the event loop instead,
where that cannot block: into a pipe that has room for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from ferrule.engine.threads import run_blocking

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


class LineWriter:
    """A pipe that lines are written to, in the form the library expects."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    async def write(self, line: str) -> None:
        """Write a line: at once if the pipe takes it whole, else in a thread."""
        data = line.encode("utf-8", "replace")
        # A pipe that can be written to takes this many bytes without blocking (POSIX).
        if len(data) <= select.PIPE_BUF and self._is_writable():
            os.write(self._descriptor, data)
        else:
            await run_blocking(partial(self._write_all, data))

    async def flush(self) -> None:
        """Do nothing: everything is written already."""

    def _is_writable(self) -> bool:
        return any(events & select.POLLOUT for _, events in self._poll.poll(0))

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]


@asynccontextmanager
async def open_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of the client's messages and ours.

    SIGTERM cancels the current task cleanly, as Ctrl-C does, and then ends the process
    (SystemExit).
    """
    from mcp.server.stdio import stdio_server

    async with _cancel_when_terminated(), _open_input() as lines:
        with _open_output() as output:
            given: Any = lines
            taken: Any = output
            async with stdio_server(stdin=given, stdout=taken) as (read, write):
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


@contextmanager
def _open_output() -> Generator[LineWriter | None]:
    """Yield standard output, if it is a pipe, moved to another descriptor; else None."""
    if not _is_output_pipe():
        yield None
        return
    sys.stdout.flush()
    private = os.dup(1)
    os.set_inheritable(private, False)
    os.dup2(2, 1)
    try:
        yield LineWriter(private)
    finally:
        # Not closed: a thread may still be blocked on it.
        os.dup2(private, 1)


def _is_output_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(1).st_mode) and sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        return False


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
