"""HTTP/1.1 as bytes in and bytes out, without I/O: a request's head, and a parser for one response.

Source: RFC 9112. What is deliberately narrow: only what a client of model servers needs. Bodies
that come compressed, trailers' values, upgrades and pipelining are not supported; none is ever
asked for. The result does not depend on how the bytes are cut (a property test holds it to that),
and a read that brings a thousand small chunks costs one join, because streams of deltas arrive that
way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from ferrule.core.lazy_patterns import expression

HEAD_LIMIT = 65_536
"""Bytes of status line and headers at the most."""
LINE_LIMIT = 4_096
"""Bytes of a chunk-size line or a trailer line at the most."""

_TOKEN = expression(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = expression(r"[\t\x20-\x7e\x80-\xff]*")
_STATUS = expression(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?")
_DIGITS = expression(rb"\d+")
_HEX = expression(rb"[0-9A-Fa-f]{1,16}")


class MalformedResponse(Exception):
    """The server sent something that is not HTTP/1.1. The connection must not be used again.

    `body` is the part of the body that came before it in the same bytes: what is lost does not
    depend on the cuts.
    """

    body = b""


def request_head(
    method: str, target: str, host: str, headers: Mapping[str, str], length: int | None
) -> bytes:
    """The head of a request, up to and with the empty line. Raises ValueError for a header that
    cannot be sent.

    `target` is the path with its query (or the absolute URL, for a proxy); `length` None sends no
    body.
    """
    head = _head_start(method, target, host, tuple(headers.items()))
    return head + (b"\r\n" if length is None else b"Content-Length: %d\r\n\r\n" % length)


@lru_cache(maxsize=128)
def _head_start(method: str, target: str, host: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Everything before the length: the same for every round of a session."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            # The value may be a key: it is not shown.
            raise ValueError(f"header {name!r} has characters that HTTP does not allow")
        lines.append(f"{name}: {value}")
    if any(c <= " " or c == "\x7f" for c in target + host):
        raise ValueError("the URL has characters that HTTP does not allow")
    return "\r\n".join((*lines, "")).encode("latin-1")


class ResponseParser:
    """One response. `feed` bytes as they come; `eof` when the server has closed.

    `status` is 0 until the head is complete; `headers` have lower-case names. `reusable` says, once
    `done`, whether the connection may carry another request.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self.reusable = False
        self._held = b""
        self._searched = 0
        self._left: int | None = None
        self._chunked = False
        # Plain functions, not bound methods: no reference cycle per response.
        self._step: _Step = ResponseParser._head

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body that these bytes hold. Raises MalformedResponse."""
        if self._held:
            data, self._held = self._held + data, b""
        out: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            try:
                after = self._step(self, data, at, out)
            except MalformedResponse as problem:
                problem.body = b"".join(out)
                raise
            if after < 0:
                self._held = data[at:]
                break
            at = after
        if self.done and at < len(data):
            self.reusable = False  # Bytes nobody asked for: they must not become the next answer.
        return out[0] if len(out) == 1 else b"".join(out)

    def eof(self) -> None:
        """The server closed. Raises MalformedResponse if that leaves the response incomplete."""
        if self.done:
            return
        if self.status and not self._chunked and self._left is None:
            self.done = True
            return
        raise MalformedResponse(
            "the connection closed in the middle of the answer"
            if self.status
            else "closed without an answer"
        )

    # Each step takes the data and a position, and returns the position after what it used, -1 if it
    # needs more bytes.

    def _head(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = data.find(b"\r\n\r\n", at + self._searched)
        if end < 0:
            if len(data) - at > HEAD_LIMIT:
                raise MalformedResponse("the response head is too long")
            self._searched = max(0, len(data) - at - 3)
            return -1
        self._searched = 0
        first, *lines = data[at:end].split(b"\r\n")
        match = _STATUS.fullmatch(first)
        if match is None:
            raise MalformedResponse(f"not an HTTP/1.1 answer: {first[:60]!r}")
        status = int(match[2])
        if status == 101:
            raise MalformedResponse("the server wants to switch protocols")
        if status >= 200:
            self.status = status
            self.headers = _fields(lines)
            self._frame(keep=match[1] == b"1")
        return end + 4

    def _frame(self, keep: bool) -> None:
        """Where the body ends (RFC 9112, section 6.3)."""
        fields = self.headers
        connection = fields.get("connection", "").lower()
        self.reusable = "close" not in connection and (keep or "keep-alive" in connection)
        coding = fields.get("transfer-encoding", "").strip().lower()
        length = fields.get("content-length")
        if self.status in (204, 304):
            self.done = True
        elif coding:
            if coding != "chunked":
                raise MalformedResponse(f"transfer-encoding {coding!r} is not supported")
            if length is not None:
                self.reusable = (
                    False  # Two lengths: somebody on the way may have read the other one.
                )
            self._chunked, self._step = True, ResponseParser._chunk_size
        elif length is not None:
            self._left = _length(length)
            self.done, self._step = self._left == 0, ResponseParser._counted
        else:
            self.reusable, self._step = False, ResponseParser._until_close

    def _counted(self, data: bytes, at: int, out: list[bytes]) -> int:
        left = self._left or 0
        piece = data[at : at + left]
        out.append(piece)
        self._left = left - len(piece)
        self.done = self._left == 0 and not self._chunked
        if self._chunked and self._left == 0:
            self._step = ResponseParser._chunk_end
        return at + len(piece)

    def _until_close(self, data: bytes, at: int, out: list[bytes]) -> int:
        out.append(data[at:])
        return len(data)

    def _chunk_size(self, data: bytes, at: int, out: list[bytes]) -> int:
        """One or many whole chunks; what is cut off is left to the single steps."""
        total, begin = len(data), at
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                return at if at > begin else self._need_line(data, at)
            size = _chunk_length(data[at:end])
            if size == 0:
                self._step = ResponseParser._trailer
                return end + 2
            start = end + 2
            stop = start + size
            if stop + 2 > total:
                self._left, self._step = size, ResponseParser._counted
                return start
            if data[stop : stop + 2] != b"\r\n":
                raise MalformedResponse("a chunk is longer than it says")
            out.append(data[start:stop])
            at = stop + 2
            if at == total:
                return at

    def _chunk_end(self, data: bytes, at: int, out: list[bytes]) -> int:
        if len(data) - at < 2:
            return -1
        if data[at : at + 2] != b"\r\n":
            raise MalformedResponse("a chunk is longer than it says")
        self._step = ResponseParser._chunk_size
        return at + 2

    def _trailer(self, data: bytes, at: int, out: list[bytes]) -> int:
        end = data.find(b"\r\n", at)
        if end < 0:
            return self._need_line(data, at)
        self.done = end == at
        return end + 2

    @staticmethod
    def _need_line(data: bytes, at: int) -> int:
        if len(data) - at > LINE_LIMIT:
            raise MalformedResponse("a line of the chunked body is too long")
        return -1


def _fields(lines: list[bytes]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise MalformedResponse(f"not a header: {line[:60]!r}")
        name, value = name.lower(), value.strip(" \t")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def _length(value: str) -> int:
    """A content length; the same one said twice is tolerated, two different ones are not."""
    said = {part.strip().encode("latin-1") for part in value.split(",")}
    first = said.pop()
    if said or not _DIGITS.fullmatch(first):
        raise MalformedResponse(f"content-length {value!r} is not a number")
    return int(first)


@lru_cache(maxsize=512)
def _chunk_length(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not _HEX.fullmatch(digits):
        raise MalformedResponse(f"not a chunk size: {line[:40]!r}")
    return int(digits, 16)


_Step = Callable[[ResponseParser, bytes, int, list[bytes]], int]
