"""The outputs of a command: kept in files as they come, shown in part, read in parts.

There are three files per command, `stdout`, `stderr` and `combined` (in the order of arrival; exact
only if both outputs share a pipe, and then `stdout` is `combined` and `stderr` stays empty). They
hold `limit` bytes together: what exceeds that is counted and its end is kept for showing, and
`incomplete` says so. No cut splits a character.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, Literal

from ferrule.core.value_class import frozen

from .output_folder import OutputFolder, file_identity

StreamName = Literal["stdout", "stderr", "combined"]


@frozen
class OutputPiece:
    """A part of an output as text: `size` bytes from `offset` on, of a file of `total` bytes."""

    content: str
    offset: int
    size: int
    total: int


@dataclass(slots=True, eq=False)
class OutputStream:
    """One output.

    `size`, `lines` and `digest` cover everything that came, also what the file does not hold.
    """

    folder: OutputFolder
    name: str
    kept_bytes: int
    size: int = 0
    stored_bytes: int = 0
    lines: int = 0
    identity: tuple[int, ...] = ()
    _descriptor: int = -1
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        if not self.identity:
            self._descriptor = self.folder.create(self.name)
            self.identity = file_identity(os.fstat(self._descriptor))[:2]

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self.folder.path / self.name)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that came."""
        return self._digest.hexdigest()

    @property
    def line_count(self) -> int:
        """The number of lines, including a last one without its end."""
        last = self._last()
        return self.lines + (bool(last) and last != b"\n")

    def add(self, data: bytes, room: int) -> int:
        """Add output; the file gets at most `room` bytes of it. Return how many it got."""
        self.size += len(data)
        self.lines += data.count(b"\n")
        self._digest.update(data)
        taken = max(0, self.kept_bytes - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        if len(self._tail) > 2 * self.kept_bytes:
            del self._tail[: -self.kept_bytes or None]
        return self._write(memoryview(data)[:room])

    def _write(self, data: memoryview) -> int:
        written = 0
        while self._descriptor >= 0 and written < len(data):
            count = os.write(self._descriptor, data[written:])
            written += count
            self.stored_bytes += count
        return written

    def close(self) -> None:
        """Close the file: no more output will come."""
        if self._descriptor >= 0:
            # From here on nobody changes the file. Its inode may be reused once it is removed.
            self.identity = file_identity(os.fstat(self._descriptor))
            os.close(self._descriptor)
            self._descriptor = -1
            del self._tail[: -self.kept_bytes or None]

    def _last(self) -> bytes:
        return bytes((self._tail or self._head)[-1:])

    def text(self, most: int | None = None, where: str = "") -> str:
        """Return the beginning and the end as text, together at most `most` bytes.

        What is left out is marked, with `where` it is. Bytes that are not UTF-8 are replaced. With
        `most` None it is everything in memory.
        """
        head, tail = self._ends(most)
        missing = self.size - len(head) - len(tail)
        if not missing:
            return (head + tail).decode("utf-8", "replace")
        head = drop_cut_end(head)
        tail = drop_cut_start(tail)
        missing = self.size - len(head) - len(tail)
        gap = f"\n[... {missing} bytes left out{where} ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")

    def is_cut(self, most: int | None = None) -> bool:
        """Return whether `text` of so many bytes leaves something out."""
        head, tail = self._ends(most)
        return len(head) + len(tail) < self.size

    def _ends(self, most: int | None) -> tuple[bytes, bytes]:
        """Return what to show of the beginning and of the end.

        Everything is in the first if nothing has to be left out.
        """
        head = bytes(self._head)
        tail = bytes(self._tail[-self.kept_bytes :]) if self.kept_bytes else b""
        if len(head) + len(tail) == self.size:
            whole = head + tail
            if most is None or len(whole) <= most:
                return whole, b""
            head = whole
            tail = whole
        if most is None:
            return head, tail
        first = min(len(head), most // 2)
        last = min(len(tail), most - first)
        return head[:first], tail[len(tail) - last :]

    def shrink(self, keep: int) -> None:
        """Free memory: keep only `keep` bytes of the beginning and as many of the end."""
        if keep >= self.kept_bytes:
            return
        is_whole = len(self._head) + len(self._tail) == self.size
        held = self._head + self._tail if is_whole else self._tail
        if len(held) == self.size:
            self._tail = held[max(keep, len(held) - keep) :]
        else:
            self._tail = held[-keep or len(held) :]
        self._head = self._head[:keep]
        self.kept_bytes = keep

    def tail(self, most: int) -> str:
        """Return the last `most` bytes at most, as text."""
        is_whole = len(self._head) + len(self._tail) == self.size
        held = bytes(self._head + self._tail if is_whole else self._tail)
        end = held[max(0, len(held) - most) :]
        if len(end) < self.size:
            end = drop_cut_start(end)
        return end.decode("utf-8", "replace")

    def read(self, offset: int, length: int) -> OutputPiece:
        """Read `length` bytes of the file from `offset` on, adjusted to whole characters.

        Raises:
            OSError: The file is gone.
        """
        descriptor = self.folder.open(self.name, self.identity)
        try:
            total = os.fstat(descriptor).st_size
            offset = min(offset, total)
            start = max(0, offset - 3)
            data = os.pread(descriptor, offset - start + length + 3, start)
        finally:
            os.close(descriptor)
        begin = _character_start(data, offset - start)
        end = min(len(data), offset - start + length)
        if start + end < total:
            end = _character_start(data, end)
            if end <= begin:
                # At least one character, or reading on would never end.
                end = _character_end(data, begin)
        content = data[begin:end].decode("utf-8", "replace")
        return OutputPiece(content, start + begin, end - begin, total)


def _character_start(data: bytes, index: int) -> int:
    """Return where the character begins that the byte at `index` belongs to.

    It is `index` itself if the byte belongs to no character before it.
    """
    for back in range(1, min(3, index) + 1):
        byte = data[index - back]
        if byte & 0xC0 != 0x80:
            continues = index < len(data) and data[index] & 0xC0 == 0x80
            return index - back if continues and _character_size(byte) > back else index
    return index


def _character_end(data: bytes, index: int) -> int:
    end = index + 1
    while (
        end < len(data) and end - index < _character_size(data[index]) and data[end] & 0xC0 == 0x80
    ):
        end += 1
    return end


def _character_size(lead: int) -> int:
    """Return the number of bytes of the character that begins with this one."""
    if lead >= 0xF0:
        return 4
    if lead >= 0xE0:
        return 3
    return 2 if lead >= 0xC0 else 1


def drop_cut_end(data: bytes) -> bytes:
    """Drop a character that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            return data[:-back] if _character_size(byte) > back else data
    return data


def drop_cut_start(data: bytes) -> bytes:
    """Drop the rest of a character that was cut at the start."""
    skip = 0
    while skip < min(3, len(data)) and data[skip] & 0xC0 == 0x80:
        skip += 1
    return data[skip:]


class Outputs:
    """The three outputs of one command."""

    def __init__(
        self, folder: OutputFolder, name: str, *, keep: int, limit: int, merged: bool
    ) -> None:
        self._room = limit
        self.incomplete = ""
        """Why the files do not hold everything; empty if they do."""
        self._made: list[OutputStream] = []
        try:
            self.combined = self._stream(folder, f"{name}.combined", keep)
            self.stderr = self._stream(folder, f"{name}.stderr", keep)
            self.stdout = self.combined if merged else self._stream(folder, f"{name}.stdout", keep)
        except OSError:
            self.discard()
            raise

    def _stream(self, folder: OutputFolder, name: str, keep: int) -> OutputStream:
        stream = OutputStream(folder, name, keep)
        self._made.append(stream)
        return stream

    def take(self, data: bytes) -> bool:
        """Take standard output, or both outputs if they are merged. A sink."""
        return self._take(self.stdout, data)

    def take_error(self, data: bytes) -> bool:
        """Take standard error. A sink."""
        return self._take(self.stderr, data)

    def _take(self, stream: OutputStream, data: bytes) -> bool:
        streams = (self.combined,) if stream is self.combined else (stream, self.combined)
        share = self._room // len(streams)
        for target in streams:
            try:
                self._room -= target.add(data, min(share, len(data)))
            except OSError as error:
                # A full disk ends the recording, not the command.
                self._stop_storing(error.strerror or str(error))
        if share < len(data) and not self.incomplete:
            self._stop_storing("the command said more than its files may hold")
        return True

    def _stop_storing(self, reason: str) -> None:
        self.incomplete = reason
        self._room = 0

    def get(self, name: StreamName) -> OutputStream:
        """Return one of the three streams."""
        return {"stdout": self.stdout, "stderr": self.stderr, "combined": self.combined}[name]

    @property
    def stored_bytes(self) -> int:
        """The number of bytes in all files."""
        return sum(stream.stored_bytes for stream in self._made)

    def close(self) -> None:
        """Close the files: no more output will come."""
        for stream in self._made:
            stream.close()

    def shrink(self, keep: int) -> None:
        """Free memory: keep only a little of each output."""
        for stream in self._made:
            stream.shrink(keep)

    def discard(self) -> None:
        """Close and remove the files."""
        self.close()
        for stream in self._made:
            stream.folder.remove(stream.name)
