"""Read lines that a person types, outside of the chat. Waiting for one can be cancelled."""

from __future__ import annotations

import asyncio
import os
import sys


def discard_typed_input() -> None:
    """Drop what was typed before now, since it was not meant as an answer to the next question."""
    import termios

    if sys.stdin.isatty():
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def read_line(text: str) -> str:
    """Print `text` to standard error and read a line from the terminal on standard input.

    No thread waits for the line: one would keep the process from ending after Ctrl-C.

    Raises:
        EOFError: The input ended.
    """
    discard_typed_input()
    sys.stderr.write(text)
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    # A terminal in line mode hands out one line at a time.
    line = os.read(descriptor, 65536)
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace")
