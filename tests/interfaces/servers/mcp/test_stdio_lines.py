"""Lines at the standard streams: whole, in order, and never waited for by the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from ferrule.servers.mcp import stdio
from ferrule.servers.mcp.stdio import LineReader, LineWriter

SECONDS = 30


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


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


async def test_a_short_line_takes_no_thread(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(work: object) -> object:
        raise AssertionError("no thread is needed for a short line")

    monkeypatch.setattr(stdio, "run_blocking", refuse)
    await LineWriter(pipe[1]).write("short\n")
    assert os.read(pipe[0], 10) == b"short\n"


async def read_all(reader: LineReader) -> list[str]:
    async with asyncio.timeout(SECONDS):
        return [line async for line in reader]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
async def test_lines_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    data = "one\n\nä\r\ntaken\nlast".encode() + b"\xff"
    reader = LineReader()
    taken: list[bytes] = []
    reader.take = lambda line: line.startswith(b"taken") and not taken.append(line)
    ends: list[bool] = []
    reader.on_end = lambda: ends.append(True)
    reading = asyncio.create_task(read_all(reader))
    for at in range(0, len(data), size):
        reader.data_received(data[at : at + size])
        await asyncio.sleep(0)
    reader.eof_received()
    reader.connection_lost(None)
    reader.add(b"late\n")
    assert await reading == ["one\n", "\n", "ä\r\n", "last\ufffd"]
    assert (taken, ends) == ([b"taken\n"], [True])


async def test_a_line_that_is_too_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 10)
    for pieces in (
        [b"first\n", b"x" * 11, b"x" * 50, b"x\n", b"x" * 10 + b"\n"],
        [b"first\n" + b"x" * 11 + b"\n" + b"x" * 10 + b"\n"],
    ):
        reader = LineReader()
        skipped: list[bool] = []
        reader.on_too_long = lambda skipped=skipped: skipped.append(True)
        for piece in pieces:
            reader.data_received(piece)
        reader.eof_received()
        assert await read_all(reader) == ["first\n", "x" * 10 + "\n"]
        assert skipped == [True]


def is_reading(transport: asyncio.ReadTransport) -> bool:
    """Whether a transport reads. In the first releases of Python 3.11 those of pipes cannot say."""
    try:
        return transport.is_reading()
    except NotImplementedError:
        return not vars(transport)["_paused"]


async def test_nothing_is_read_until_what_was_waited_for_is_done(pipe: tuple[int, int]) -> None:
    reader = LineReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: reader, os.fdopen(os.dup(pipe[0]), "rb", buffering=0)
    )
    written = asyncio.Event()

    async def wait() -> None:
        await written.wait()

    reader.add(b"here\n")
    reader.pause_until(wait())
    reader.pause_until(wait())
    assert await anext(reader) == "here\n" and not is_reading(transport)
    written.set()
    os.write(pipe[1], b"later\n")
    async with asyncio.timeout(SECONDS):
        assert await anext(reader) == "later\n"
    transport.close()


async def test_what_the_library_does_not_read_is_not_read_from_the_client(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "MAX_LINE", 100)
    reader = LineReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: reader, os.fdopen(os.dup(pipe[0]), "rb", buffering=0)
    )
    os.write(pipe[1], b"line 12\n" * 20)
    async with asyncio.timeout(SECONDS):
        while is_reading(transport):
            await asyncio.sleep(0)
    os.write(pipe[1], b"later\n")
    lines = [await anext(reader) for _ in range(21)]
    transport.close()
    assert lines == ["line 12\n"] * 20 + ["later\n"]


async def test_answers_nobody_reads_any_more_are_noticed(pipe: tuple[int, int]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    writer = LineWriter(writing)
    broken: list[bool] = []
    writer.on_broken = lambda: broken.append(True)
    writer.write_soon(b"short\n")
    writer.write_soon(b"x" * 100_000)
    async with asyncio.timeout(SECONDS):
        await writer.drain()
        await asyncio.sleep(0)
    os.close(writing)
    assert broken == [True, True]


async def test_no_line_comes_between_the_pieces_of_a_long_one(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = pipe
    go_on = asyncio.Event()
    in_thread = stdio.run_blocking

    async def write_later(work: object) -> None:
        await go_on.wait()
        await in_thread(work)  # type: ignore[arg-type]

    monkeypatch.setattr(stdio, "run_blocking", write_later)
    long = b"x" * 10_000 + b"\n"
    writer = LineWriter(writing)
    writer.write_soon(long)
    await asyncio.sleep(0)
    writer.write_soon(b"short\n")
    asked = asyncio.create_task(writer.write("asked\n"))
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(SECONDS):
        await writer.drain()
        await asked
    assert os.read(reading, 20_000) == long + b"short\nasked\n"
