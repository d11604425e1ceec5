"""Lines on standard output: whole, in order, and never waited for by the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from ferrule.servers.mcp import stdio
from ferrule.servers.mcp.stdio import LineWriter

SECONDS = 30


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.mark.proves("serve.mcp.lines")
async def test_short_lines_are_written_in_place_and_long_ones_whole(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    threads = 0
    in_thread = stdio.run_blocking

    def count(work: object) -> object:
        nonlocal threads
        threads += 1
        return in_thread(work)  # type: ignore[arg-type]

    monkeypatch.setattr(stdio, "run_blocking", count)
    found: list[bytes] = []
    lines = [b"short\n", b"x" * 300_000 + b"\n", "ä\n".encode(), b"end\n"]

    def read() -> None:
        left = sum(map(len, lines))
        while left:
            found.append(os.read(reading, left))
            left -= len(found[-1])

    reader = threading.Thread(target=read)
    reader.start()
    writer = LineWriter(writing)
    async with asyncio.timeout(SECONDS):
        for line in lines:
            await writer.write(line.decode())
            await writer.flush()
    await asyncio.to_thread(reader.join, SECONDS)
    assert b"".join(found) == b"".join(lines)
    assert threads >= 1


@pytest.mark.proves("serve.mcp.lines")
async def test_a_client_that_does_not_read_holds_up_no_event_loop(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.set_blocking(writing, False)
    filled = 0
    try:
        while True:
            filled += os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    writing_line = asyncio.create_task(LineWriter(writing).write("late\n"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not writing_line.done()
    while filled:
        filled -= len(os.read(reading, filled))
    async with asyncio.timeout(SECONDS):
        await writing_line
    assert os.read(reading, 10) == b"late\n"


@pytest.mark.proves("serve.mcp.lines")
async def test_a_short_line_takes_no_thread(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: object) -> object:
        raise AssertionError("no thread is needed for a short line")

    monkeypatch.setattr(stdio, "run_blocking", refuse)
    await LineWriter(pipe[1]).write("short\n")
    assert os.read(pipe[0], 10) == b"short\n"
