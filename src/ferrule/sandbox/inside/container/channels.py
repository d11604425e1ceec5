"""Many byte streams over one pair of pipes, with a window for each.

A frame is a header (channel, kind, length) and that many bytes. `OPEN` carries a JSON value and
comes first on a channel; `DATA` carries bytes; `END` says that no more come in this direction;
`CREDIT` returns part of the window, as a number; `STOP` says that nobody reads any more. Each
direction of a channel ends by itself.

Who sends may have `WINDOW` bytes under way that were not passed on: a stream that nobody reads
keeps no other one waiting, and needs no more memory than that.
"""

from __future__ import annotations

import json
import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 1 << 18
OPEN, DATA, END, CREDIT, STOP = range(5)

_CHUNK = 1 << 16
_FULL = 1 << 20
"""Bytes that wait to be sent, from which on no stream is read."""
_HEADER = struct.Struct("=IBI")
_NUMBER = struct.Struct("=I")


class Stream:
    """What is attached to a channel at this end.

    `source` is a descriptor whose bytes are sent, `sink` one that gets what comes; -1 for none.
    They may be the same socket.
    """

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.credit = WINDOW
        self.waiting = bytearray()
        self.is_sink_ending = False
        self.on_over: Callable[[], None] | None = None
        """Called once when both directions are over."""
        self.receive: Callable[[bytes], None] | None = None
        """Takes what comes in place of `sink`, which `write` then writes; nothing at the end."""

    @property
    def is_over(self) -> bool:
        return self.source < 0 and self.sink < 0


class Channels:
    """All channels over a pair of pipes: `reader` brings frames, `writer` takes them.

    `on_open` is called with the channel and the value of each `OPEN`. When `reader` ends, `is_over`
    becomes true; nothing is closed by that.
    """

    def __init__(
        self, reader: int, writer: int, on_open: Callable[[int, dict[str, object]], None]
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.on_open = on_open
        self.streams: dict[int, Stream] = {}
        self.is_over = False
        self._received = bytearray()
        self._outgoing = bytearray()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)

    def open(self, channel: int, value: dict[str, object]) -> None:
        """Open a channel: the other end is given the value."""
        self._send(channel, OPEN, json.dumps(value).encode())

    def attach(self, channel: int, source: int = -1, sink: int = -1) -> Stream:
        """Attach descriptors to a channel. They are closed when their direction is over."""
        stream = self.streams[channel] = Stream(source, sink)
        for descriptor in {source, sink} - {-1}:
            os.set_blocking(descriptor, False)
        return stream

    def write(self, channel: int, data: bytes) -> None:
        """Write to the sink of a channel, after what it was sent before."""
        stream = self.streams.get(channel)
        if stream is not None and stream.sink >= 0:
            stream.waiting += data
            self._flush(channel, stream)

    def readers(self) -> dict[int, int]:
        """Return the descriptors to wait for until they can be read, with their channels."""
        found = {} if self.is_over else {self.reader: -1}
        if len(self._outgoing) < _FULL and self.writer >= 0:
            for channel, stream in self.streams.items():
                if stream.source >= 0 and stream.credit > 0:
                    found[stream.source] = channel
        return found

    def writers(self) -> dict[int, int]:
        """Return the descriptors to wait for until they can be written, with their channels."""
        found = {self.writer: -1} if self._outgoing and self.writer >= 0 else {}
        for channel, stream in self.streams.items():
            if stream.waiting and stream.sink >= 0:
                found[stream.sink] = channel
        return found

    def read(self, channel: int) -> None:
        """Read what is ready: frames, or the source of a channel."""
        if channel < 0:
            self._read_frames()
            return
        stream = self.streams.get(channel)
        if stream is None or stream.source < 0:
            return
        try:
            data = os.read(stream.source, min(_CHUNK, stream.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._send(channel, END, b"")
            self._end_source(channel, stream)
            return
        stream.credit -= len(data)
        self._send(channel, DATA, data)

    def flush(self, channel: int) -> None:
        """Write what waits: frames, or what a channel's sink is to get."""
        if channel < 0:
            self._send_waiting()
            return
        stream = self.streams.get(channel)
        if stream is not None:
            self._flush(channel, stream)

    def close_sink(self, channel: int) -> None:
        """Close the sink of a channel once it has what waits for it."""
        stream = self.streams.get(channel)
        if stream is not None:
            stream.is_sink_ending = True
            self._flush(channel, stream)

    def drop(self, channel: int) -> None:
        """End both directions of a channel at once, whatever is under way."""
        stream = self.streams.get(channel)
        if stream is None:
            return
        for kind, descriptor in ((END, stream.source), (STOP, stream.sink)):
            if descriptor >= 0:
                self._send(channel, kind, b"")
        self._end_source(channel, stream)
        self._end_sink(channel, stream)

    def end(self) -> None:
        """Send nothing more: the other end sees that this was all."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def _read_frames(self) -> None:
        try:
            data = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return
        self._received += data
        position = 0
        while len(self._received) - position >= _HEADER.size:
            channel, kind, length = _HEADER.unpack_from(self._received, position)
            start = position + _HEADER.size
            if len(self._received) - start < length:
                break
            position = start + length
            self._take(channel, kind, bytes(self._received[start:position]))
        del self._received[:position]

    def _take(self, channel: int, kind: int, data: bytes) -> None:
        if kind == OPEN:
            self.on_open(channel, json.loads(data))
            return
        stream = self.streams.get(channel)
        if stream is None:
            return  # it is over here: what the other end still had to say of it comes too late
        if kind == DATA and stream.receive is not None:
            stream.receive(data)
            self._send(channel, CREDIT, _NUMBER.pack(len(data)))
        elif kind == DATA and stream.sink >= 0:
            stream.waiting += data
            self._flush(channel, stream)
        elif kind == END and stream.receive is not None:
            stream.receive(b"")
        elif kind == END:
            stream.is_sink_ending = True
            self._flush(channel, stream)
        elif kind == CREDIT:
            stream.credit += _NUMBER.unpack(data)[0]
        elif kind == STOP:
            self._end_source(channel, stream)

    def _flush(self, channel: int, stream: Stream) -> None:
        """Write to a sink what it takes, and give back the window that this frees."""
        before = len(stream.waiting)
        while stream.waiting and stream.sink >= 0:
            try:
                del stream.waiting[: os.write(stream.sink, stream.waiting)]
            except BlockingIOError:
                break
            except OSError:
                # Nobody reads any more.
                self._send(channel, STOP, b"")
                self._end_sink(channel, stream)
                return
        freed = before - len(stream.waiting)
        if freed and stream.receive is None:
            self._send(channel, CREDIT, _NUMBER.pack(freed))
        if stream.is_sink_ending and not stream.waiting:
            self._end_sink(channel, stream)

    def _end_source(self, channel: int, stream: Stream) -> None:
        source = stream.source
        stream.source = -1
        if source >= 0 and source != stream.sink:
            os.close(source)
        self._forget_if_over(channel, stream)

    def _end_sink(self, channel: int, stream: Stream) -> None:
        sink = stream.sink
        stream.sink = -1
        stream.waiting.clear()
        if sink >= 0 and sink == stream.source:
            _shut_down_writing(sink)
        elif sink >= 0:
            os.close(sink)
        self._forget_if_over(channel, stream)

    def _forget_if_over(self, channel: int, stream: Stream) -> None:
        if stream.is_over and self.streams.get(channel) is stream:
            del self.streams[channel]
            if stream.on_over is not None:
                stream.on_over()

    def _send(self, channel: int, kind: int, data: bytes) -> None:
        if self.writer < 0:
            return
        self._outgoing += _HEADER.pack(channel, kind, len(data)) + data
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._outgoing and self.writer >= 0:
            try:
                del self._outgoing[: os.write(self.writer, self._outgoing)]
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()
                self.end()


def _shut_down_writing(descriptor: int) -> None:
    """Say over a socket that no more comes; it can still be read."""
    with socket.socket(fileno=os.dup(descriptor)) as channel:
        try:
            channel.shutdown(socket.SHUT_WR)
        except OSError:
            return  # the other end is closed
