"""Many streams over one pair of pipes: each is whole, in order, and waits for no other."""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.sandbox.inside.container.channels import Channels

pytestmark = pytest.mark.proves("sandbox.backend.container")


class Pair:
    """Two ends, and what each was opened with."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, dict[str, object]]] = []
        to_right, from_left = os.pipe()
        to_left, from_right = os.pipe()
        self.left = Channels(to_left, from_left, self._note)
        self.right = Channels(to_right, from_right, self._note)

    def _note(self, channel: int, value: dict[str, object]) -> None:
        self.opened.append((channel, value))

    def settle(self) -> None:
        """Pass on all that can be passed on now."""
        while True:
            moved = False
            for end in (self.left, self.right):
                for writes, wanted in ((False, end.readers()), (True, end.writers())):
                    poll = select.poll()
                    for descriptor in wanted:
                        poll.register(descriptor, select.POLLOUT if writes else select.POLLIN)
                    for descriptor, _ in poll.poll(0):
                        moved = True
                        (end.flush if writes else end.read)(wanted[descriptor])
                    if end.is_over:
                        return
            if not moved:
                return

    def close(self) -> None:
        for end in (self.left, self.right):
            for channel in list(end.streams):
                end.drop(channel)
            end.end()
            os.close(end.reader)


def take(descriptor: int) -> bytes:
    """What can be read now."""
    data = bytearray()
    os.set_blocking(descriptor, False)
    with suppress(BlockingIOError):
        while piece := os.read(descriptor, 1 << 16):
            data += piece
    return bytes(data)


def is_ended(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.binary(min_size=1, max_size=70_000)), min_size=1, max_size=8
    )
)
def test_streams_arrive_whole_whatever_their_order(pieces: list[tuple[int, bytes]]) -> None:
    pair = Pair()
    sent = {channel: bytearray() for channel in range(4)}
    got = {channel: bytearray() for channel in range(4)}
    ends: dict[int, tuple[int, int]] = {}
    for channel in range(4):
        source, writer = os.pipe()
        reader, sink = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        pair.left.attach(channel, source=source)
        pair.right.attach(channel, sink=sink)
        ends[channel] = (writer, reader)
    for channel, piece in pieces:
        writer, reader = ends[channel]
        rest = memoryview(piece)
        while rest:
            with suppress(BlockingIOError):
                rest = rest[os.write(writer, rest) :]
            pair.settle()
            got[channel] += take(reader)
        sent[channel] += piece
    for channel, (writer, reader) in ends.items():
        os.close(writer)
        pair.settle()
        got[channel] += take(reader)
        assert got[channel] == sent[channel] and is_ended(reader)
        os.close(reader)
    assert not pair.left.streams and not pair.right.streams
    pair.close()


def test_a_stream_that_nobody_reads_holds_no_more_than_its_window() -> None:
    pair = Pair()
    source, writer = os.pipe()
    reader, sink = os.pipe()
    os.set_blocking(writer, False)
    pair.left.attach(1, source=source)
    stream = pair.right.attach(1, sink=sink)
    other, other_writer = os.pipe()
    other_reader, other_sink = os.pipe()
    pair.left.attach(2, source=other)
    pair.right.attach(2, sink=other_sink)
    for _ in range(64):
        with suppress(BlockingIOError):
            os.write(writer, bytes(1 << 16))
        pair.settle()
    assert len(stream.waiting) <= 262_144
    os.write(other_writer, b"passes")
    pair.settle()
    assert take(other_reader) == b"passes"
    for descriptor in (writer, reader, other_writer, other_reader):
        os.close(descriptor)
    pair.settle()
    pair.close()


def test_who_writes_learns_that_nobody_reads() -> None:
    pair = Pair()
    source, writer = os.pipe()
    reader, sink = os.pipe()
    pair.left.attach(1, source=source)
    pair.right.attach(1, sink=sink)
    os.close(reader)
    os.write(writer, b"lost")
    pair.settle()
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"more")
    os.close(writer)
    pair.close()


def test_each_direction_of_a_socket_ends_by_itself() -> None:
    pair = Pair()
    one, here = socket.socketpair()
    other, there = socket.socketpair()
    over: list[str] = []
    pair.left.attach(1, *[here.detach()] * 2).on_over = lambda: over.append("left")
    pair.right.attach(1, *[there.detach()] * 2).on_over = lambda: over.append("right")
    one.sendall(b"question")
    one.shutdown(socket.SHUT_WR)
    pair.settle()
    assert (other.recv(100), other.recv(100)) == (b"question", b"")
    assert not over
    other.sendall(b"answer")
    other.close()
    pair.settle()
    assert (one.recv(100), one.recv(100)) == (b"answer", b"")
    assert sorted(over) == ["left", "right"]
    one.close()
    pair.close()


def test_the_end_of_a_pipe_is_seen_and_what_came_before_is_not_lost() -> None:
    pair = Pair()
    pair.left.open(7, {"value": [1, "\udcff"]})
    pair.left.end()
    pair.settle()
    assert pair.opened == [(7, {"value": [1, "\udcff"]})]
    pair.right.read(-1)
    assert pair.right.is_over
    pair.close()
