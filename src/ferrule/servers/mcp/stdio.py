"""Standard streams as a connection to the client that started this process.

The library would read standard input in a thread that nothing can wake: a process that is told to
end would wait for its client. So if it is a pipe or a socket, it is read by the event loop, a line
of at most `MAX_LINE` bytes at a time; a longer one is skipped. Programs that tools start find
nothing on standard input.

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
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from ferrule.engine.threads import run_blocking

MAX_LINE = 16 * 1024 * 1024
GRACE_SECONDS = 1.0
"""Seconds that calls may take to end once the process is told to."""
_MAX_WAITING = 100
"""Lines that wait to be written before a writer is behind."""


class LineReader(asyncio.Protocol):
    """The lines of a stream, in the form the library expects.

    Reading pauses while the library has `MAX_LINE` bytes of lines to see.
    """

    def __init__(self) -> None:
        self.take: Callable[[bytes], bool] = lambda line: False
        """Is shown each line first. If it returns True, the library does not get the line."""
        self.on_end: Callable[[], None] = lambda: None
        """Called once, at the end of the input or of the library."""
        self.on_too_long: Callable[[], None] = lambda: None
        """Called for each line that is longer than `MAX_LINE`."""
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._partial = bytearray()
        self._is_skipping = False
        self._is_ended = False
        self._paused: asyncio.Task[None] | None = None
        self._has_more: asyncio.Future[None] | None = None
        self._transport: asyncio.ReadTransport | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while not self._lines:
            if self._is_ended:
                raise StopAsyncIteration
            self._has_more = asyncio.get_running_loop().create_future()
            await self._has_more
        line = self._lines.popleft()
        self._size -= len(line)
        if self._size <= MAX_LINE and self._paused is None and self._transport is not None:
            self._transport.resume_reading()
        return line.decode("utf-8", "replace")

    def add(self, line: bytes) -> None:
        """Give the library a line, after those that it has not seen yet. Nothing after the end."""
        if self._is_ended:
            return
        self._lines.append(line)
        self._size += len(line)
        if self._size > MAX_LINE and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def end(self) -> None:
        """End the stream after the lines that were added."""
        if not self._is_ended:
            self._is_ended = True
            self.on_end()
            self._wake()
            if self._transport is not None:
                self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the transport (asyncio)."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Split what was read into lines (asyncio)."""
        first, *more = data.split(b"\n")
        self._add_piece(first)
        for piece in more:
            if not self._is_skipping:
                self._partial += b"\n"
                self._add_complete()
            self._is_skipping = False
            self._add_piece(piece)

    def eof_received(self) -> bool:
        """End, after a last line that may have no end (asyncio). Returns False: it is over."""
        if self._partial:
            self._add_complete()
        self.end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End (asyncio)."""
        self.end()

    def pause_until(self, done: Coroutine[Any, Any, None]) -> None:
        """Read no more until something is done."""
        if self._paused is not None or self._transport is None:
            done.close()
            return
        self._transport.pause_reading()
        self._paused = asyncio.create_task(self._resume_after(done), name="pause reading")

    async def _resume_after(self, done: Coroutine[Any, Any, None]) -> None:
        await done
        self._paused = None
        if self._size <= MAX_LINE and self._transport is not None:
            self._transport.resume_reading()

    def _add_piece(self, piece: bytes) -> None:
        if self._is_skipping:
            return
        self._partial += piece
        if len(self._partial) > MAX_LINE:
            self._is_skipping = True
            self._partial = bytearray()
            self.on_too_long()

    def _add_complete(self) -> None:
        line = bytes(self._partial)
        self._partial = bytearray()
        if not self._is_ended and not self.take(line):
            self.add(line)

    def _wake(self) -> None:
        if self._has_more is not None and not self._has_more.done():
            self._has_more.set_result(None)


class LineWriter:
    """A pipe that lines are written to, in the form the library expects."""

    def __init__(self, descriptor: int) -> None:
        self.on_broken: Callable[[], object] = lambda: None
        """Called if a line of `write_soon` could not be written."""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._in_turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    @property
    def is_behind(self) -> bool:
        """Whether many lines wait for the client to read."""
        return len(self._writing) > _MAX_WAITING

    async def write(self, line: str) -> None:
        """Write a line: at once if the pipe takes it whole, else in a thread."""
        await self._write(line.encode("utf-8", "replace"))

    async def flush(self) -> None:
        """Do nothing: everything is written already."""

    def write_soon(self, line: bytes) -> None:
        """Write a line, at once if possible, without waiting for it."""
        try:
            if not self._in_turn.locked() and self._write_now(line):
                return
        except OSError:
            self.on_broken()
            return
        task = asyncio.create_task(self._write(line), name="write line")
        self._writing.add(task)
        task.add_done_callback(self._on_written)

    async def drain(self) -> None:
        """Wait until all lines of `write_soon` are written."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def _write(self, data: bytes) -> None:
        # A line that is written in a thread is written in pieces: no other may come between.
        async with self._in_turn:
            if not self._write_now(data):
                await run_blocking(partial(self._write_all, data))

    def _write_now(self, data: bytes) -> bool:
        """Write a line, if that cannot block."""
        # A pipe that can be written to takes this many bytes without blocking (POSIX).
        is_short = len(data) <= select.PIPE_BUF
        is_writable = is_short and any(events & select.POLLOUT for _, events in self._poll.poll(0))
        if is_writable:
            os.write(self._descriptor, data)
        return is_writable

    def _on_written(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.on_broken()

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]


@asynccontextmanager
async def open_streams(
    on_lines: Callable[[LineReader, LineWriter], object],
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of the client's messages and ours, for the library.

    SIGTERM ends the input, so that calls end and are answered as when the client closes it, and
    then the process (SystemExit). After `GRACE_SECONDS` the current task is cancelled.

    Args:
        on_lines: Gets the reader and the writer before the first line is read, if both are ours.
    """
    from mcp.server.stdio import stdio_server

    # Asked first: then standard output is still where it was.
    reader = LineReader() if _can_read_input() else None
    async with _end_when_terminated(reader), _open_output() as output:
        if reader is not None and output is not None:
            on_lines(reader, output)
        async with _read_input(reader):
            given: Any = reader
            taken: Any = output
            async with stdio_server(stdin=given, stdout=taken) as (read, write):
                yield read, write


@asynccontextmanager
async def _read_input(reader: LineReader | None) -> AsyncGenerator[None]:
    """Let a reader have standard input, moved to another descriptor; the library if it is None."""
    if reader is None:
        yield
        return
    private = os.dup(0)
    os.set_inheritable(private, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: reader, os.fdopen(private, "rb", buffering=0)
    )
    try:
        yield
    finally:
        reader.end()
        transport.close()


@asynccontextmanager
async def _open_output() -> AsyncGenerator[LineWriter | None]:
    """Yield standard output, if it is a pipe, moved to another descriptor; else None."""
    if not _is_output_pipe():
        yield None
        return
    sys.stdout.flush()
    private = os.dup(1)
    os.set_inheritable(private, False)
    os.dup2(2, 1)
    writer = LineWriter(private)
    try:
        yield writer
        await writer.drain()
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
async def _end_when_terminated(reader: LineReader | None) -> AsyncGenerator[None]:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    told = list[asyncio.Handle]()
    assert task is not None

    def end() -> None:
        if reader is not None:
            reader.end()
        told.append(loop.call_later(GRACE_SECONDS if reader else 0, task.cancel))

    # Fails outside the main thread and on some systems; then the owner of the loop must end it.
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except (asyncio.CancelledError, BaseExceptionGroup):
        if not told:
            raise
    finally:
        for cancelling in told:
            cancelling.cancel()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGTERM)
    if told:
        raise SystemExit(128 + signal.SIGTERM)
