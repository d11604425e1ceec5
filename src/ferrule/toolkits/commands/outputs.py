"""What a command says: kept in files as it comes, shown in part, read in parts.

Three files per command, `stdout`, `stderr` and `combined` (in the order of arrival; exact only
where both outputs share a pipe, and then `stdout` is `combined` and `stderr` stays empty). They
hold `limit` bytes together: what comes beyond is counted and its end is kept for showing, and
`incomplete` says so. No cut splits a character.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Any, Literal

from .output_folder import Folder, identity_of

Name = Literal["stdout", "stderr", "combined"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an output: `content` is `size` bytes of the file from `offset` on, as text; the
    file holds `total`.
    """

    content: str
    offset: int
    size: int
    total: int


@dataclass(slots=True, eq=False)
class Stream:
    """One output. `size`, `lines` and `digest` count all that came, also what the file does not
    hold.
    """

    folder: Folder
    name: str
    keep: int
    size: int = 0
    stored: int = 0
    lines: int = 0
    identity: tuple[int, ...] = ()
    _descriptor: int = -1
    _head: bytearray = field(default_factory=bytearray)
    _tail: bytearray = field(default_factory=bytearray)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        if not self.identity:
            self._descriptor = self.folder.create(self.name)
            self.identity = identity_of(os.fstat(self._descriptor))[:2]

    @property
    def path(self) -> str:
        """Where the file is."""
        return str(self.folder.path / self.name)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of all that came."""
        return self._digest.hexdigest()

    @property
    def line_count(self) -> int:
        """Lines, a last one without its end included."""
        return self.lines + (bool(self._last()) and self._last() != b"\n")

    def add(self, data: bytes, room: int) -> int:
        """Take output in; the file gets at most `room` bytes of it. Returns how many it got."""
        self.size += len(data)
        self.lines += data.count(b"\n")
        self._digest.update(data)
        taken = max(0, self.keep - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        if len(self._tail) > 2 * self.keep:
            del self._tail[: -self.keep or None]
        return self._write(memoryview(data)[:room])

    def _write(self, data: memoryview) -> int:
        written = 0
        while self._descriptor >= 0 and written < len(data):
            count = os.write(self._descriptor, data[written:])
            written += count
            self.stored += count
        return written

    def close(self) -> None:
        """No more will come."""
        if self._descriptor >= 0:
            # From here on nobody changes it; and its inode may be given to another file, once it is
            # removed.
            self.identity = identity_of(os.fstat(self._descriptor))
            os.close(self._descriptor)
            self._descriptor = -1
            del self._tail[: -self.keep or None]

    def _last(self) -> bytes:
        return bytes((self._tail or self._head)[-1:])

    def text(self, most: int | None = None, where: str = "") -> str:
        """Its beginning and its end, `most` bytes together, as text; what is missing is said, and
        `where` it is.

        Bytes that are not UTF-8 are replaced. With `most` None all that was kept.
        """
        head, tail = self._ends(most)
        missing = self.size - len(head) - len(tail)
        if not missing:
            return (head + tail).decode("utf-8", "replace")
        head, tail = whole_end(head), whole_start(tail)
        missing = self.size - len(head) - len(tail)
        gap = f"\n[... {missing} bytes left out{where} ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")

    def is_cut(self, most: int | None = None) -> bool:
        """Whether `text` of so many bytes leaves something out."""
        head, tail = self._ends(most)
        return len(head) + len(tail) < self.size

    def _ends(self, most: int | None) -> tuple[bytes, bytes]:
        """What to show of the beginning and of the end. All in the first if nothing has to be left
        out.
        """
        head, tail = bytes(self._head), bytes(self._tail[-self.keep :]) if self.keep else b""
        if len(head) + len(tail) == self.size:
            head, tail = head + tail, b""
            if most is None or len(head) <= most:
                return head, tail
            tail = head
        if most is None:
            return head, tail
        first = min(len(head), most // 2)
        last = min(len(tail), most - first)
        return head[:first], tail[len(tail) - last :]

    def shrink(self, keep: int) -> None:
        """Let go of what is held for showing, but for `keep` bytes of its beginning and of its
        end.
        """
        if keep < self.keep:
            both = (
                self._head + self._tail
                if len(self._head) + len(self._tail) == self.size
                else self._tail
            )
            self._tail = (
                both[max(keep, len(both) - keep) :]
                if len(both) == self.size
                else both[-keep or len(both) :]
            )
            self._head, self.keep = self._head[:keep], keep

    def end(self, most: int) -> str:
        """Its last `most` bytes at the most, as text."""
        whole = len(self._head) + len(self._tail) == self.size
        held = bytes(self._head + self._tail if whole else self._tail)
        cut = held[len(held) - most :] if most < len(held) else held
        return (cut if len(cut) == self.size else whole_start(cut)).decode("utf-8", "replace")

    def read(self, offset: int, length: int) -> Piece:
        """`length` bytes of the file from `offset` on, moved to whole characters. Raises OSError if
        it is gone.
        """
        descriptor = self.folder.open(self.name, self.identity)
        try:
            total = os.fstat(descriptor).st_size
            offset = min(offset, total)
            start = max(0, offset - 3)
            data = os.pread(descriptor, offset - start + length + 3, start)
        finally:
            os.close(descriptor)
        begin = _character(data, offset - start)
        end = min(len(data), offset - start + length)
        if start + end < total:
            # At least one character, or reading on would never end.
            end = _character(data, end) if _character(data, end) > begin else _next(data, begin)
        content = data[begin:end].decode("utf-8", "replace")
        return Piece(content, start + begin, end - begin, total)


def _character(data: bytes, index: int) -> int:
    """Where the character begins that the byte at `index` belongs to; `index` if it belongs to none
    before it.
    """
    for back in range(1, min(3, index) + 1):
        byte = data[index - back]
        if byte & 0xC0 != 0x80:
            whole = index < len(data) and data[index] & 0xC0 == 0x80
            return index - back if whole and _size(byte) > back else index
    return index


def _next(data: bytes, index: int) -> int:
    end = index + 1
    while end < len(data) and end - index < _size(data[index]) and data[end] & 0xC0 == 0x80:
        end += 1
    return end


def _size(lead: int) -> int:
    """Bytes of the character that begins with this one."""
    return 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1


def whole_end(data: bytes) -> bytes:
    """Without a character that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            return data[:-back] if _size(byte) > back else data
    return data


def whole_start(data: bytes) -> bytes:
    """Without the rest of a character that was cut at the start."""
    skip = 0
    while skip < min(3, len(data)) and data[skip] & 0xC0 == 0x80:
        skip += 1
    return data[skip:]


class Outputs:
    """The three outputs of one command."""

    def __init__(self, folder: Folder, name: str, *, keep: int, limit: int, merged: bool) -> None:
        self._room = limit
        self.incomplete = ""
        """Why the files do not hold everything; empty if they do."""
        self._made: list[Stream] = []
        try:
            self.combined = self._stream(folder, f"{name}.combined", keep)
            self.stderr = self._stream(folder, f"{name}.stderr", keep)
            self.stdout = self.combined if merged else self._stream(folder, f"{name}.stdout", keep)
        except OSError:
            self.discard()
            raise

    def _stream(self, folder: Folder, name: str, keep: int) -> Stream:
        stream = Stream(folder, name, keep)
        self._made.append(stream)
        return stream

    def take(self, data: bytes) -> bool:
        """A sink for standard output, or for both where they are merged."""
        return self._take(self.stdout, data)

    def take_error(self, data: bytes) -> bool:
        """A sink for standard error."""
        return self._take(self.stderr, data)

    def _take(self, stream: Stream, data: bytes) -> bool:
        streams = (self.combined,) if stream is self.combined else (stream, self.combined)
        share = self._room // len(streams)
        for one in streams:
            try:
                self._room -= one.add(data, min(share, len(data)))
            except OSError as error:
                # A full disk ends the keeping, not the command.
                self.incomplete, self._room = error.strerror or str(error), 0
        if share < len(data) and not self.incomplete:
            self.incomplete, self._room = "the command said more than its files may hold", 0
        return True

    def named(self, name: Name) -> Stream:
        """One of the three."""
        return {"stdout": self.stdout, "stderr": self.stderr, "combined": self.combined}[name]

    @property
    def stored(self) -> int:
        """Bytes in all files."""
        return sum(stream.stored for stream in self._made)

    def close(self) -> None:
        """No more will come."""
        for stream in self._made:
            stream.close()

    def shrink(self, keep: int) -> None:
        """Let go of what is held in memory, but for a little."""
        for stream in self._made:
            stream.shrink(keep)

    def discard(self) -> None:
        """Close and remove the files."""
        self.close()
        for stream in self._made:
            stream.folder.remove(stream.name)
