"""HTTP/1.1 without I/O: writing the head of a request, and parsing one response.

Source: RFC 9112. Deliberately narrow: only what a client of model servers needs. Compressed bodies,
trailer values, upgrades and pipelining are not supported, and none is ever requested. The result
does not depend on how the bytes are split (a property test checks it). A read that brings a
thousand small chunks costs one join, because streams of deltas arrive that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from string import ascii_letters, digits

from ferrule.core.lazy_patterns import compile_lazily

HEAD_LIMIT = 65_536
"""Most bytes of a status line with its headers."""
LINE_LIMIT = 4_096
"""Most bytes of a chunk-size line or a trailer line."""

_MOST_DIGITS = 19
"""A length of this many digits is none: 64 bits do not hold it."""

# Bytes and not expressions: every process asks a model, and would first compile four of them.
_TOKEN = b"!#$%&'*+-.^_`|~" + (ascii_letters + digits).encode()
_VALUE = bytes([9, *range(0x20, 0x7F), *range(0x80, 0x100)])
_HEX = compile_lazily(rb"[0-9A-Fa-f]{1,16}")


class MalformedResponse(Exception):
    """The server sent something that is not HTTP/1.1. The connection must not be used again.

    `body` is the part of the body that came before the fault in the same bytes, so that what is
    lost does not depend on how the bytes were split.
    """

    body = b""


def encode_request_head(
    method: str, target: str, host: str, headers: Mapping[str, str], length: int | None
) -> bytes:
    """Return the head of a request, up to and including the empty line.

    Args:
        method: The HTTP method.
        target: The path with its query; for a proxy, the absolute URL.
        host: The value of the `Host` header.
        headers: Further headers.
        length: Bytes of the body; None sends no body.

    Raises:
        ValueError: A header, the target or the host has characters that cannot be sent.
    """
    head = _head_start(method, target, host, tuple(headers.items()))
    return head + (b"\r\n" if length is None else b"Content-Length: %d\r\n\r\n" % length)


@lru_cache(maxsize=128)
def _head_start(method: str, target: str, host: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the head without its length: the same for every turn of a session."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    for name, value in headers:
        if not _is_token(name.encode(errors="replace")) or not _is_value(value):
            # The value may be a key: it is not shown.
            raise ValueError(f"header {name!r} has characters that HTTP does not allow")
        lines.append(f"{name}: {value}")
    if any(c <= " " or c == "\x7f" for c in target + host):
        raise ValueError("the URL has characters that HTTP does not allow")
    return "\r\n".join((*lines, "")).encode("latin-1")


class ResponseParser:
    """Parses one response: pass bytes to `feed`, and call `feed_eof` when the server closes.

    `status` is 0 until the head is complete; `headers` have lower-case names. Once `done`,
    `reusable` says whether the connection may carry another request.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.done = False
        self.reusable = False
        self._unparsed = b""
        self._searched_bytes = 0
        # Bytes of the body or the chunk that are still to come; None if the length is unknown.
        self._remaining: int | None = None
        self._chunked = False
        # Plain functions, not bound methods: no reference cycle per response.
        self._next_step: _Step = ResponseParser._read_head

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body that these bytes contain.

        Raises:
            MalformedResponse: The bytes are not HTTP/1.1.
        """
        if self._unparsed:
            data = self._unparsed + data
            self._unparsed = b""
        out: list[bytes] = []
        position = 0
        while position < len(data) and not self.done:
            try:
                after = self._next_step(self, data, position, out)
            except MalformedResponse as problem:
                problem.body = b"".join(out)
                raise
            if after < 0:
                self._unparsed = data[position:]
                break
            position = after
        if self.done and position < len(data):
            # Bytes nobody asked for: they must not become the next answer.
            self.reusable = False
        return out[0] if len(out) == 1 else b"".join(out)

    def feed_eof(self) -> None:
        """Note that the server closed the connection.

        Raises:
            MalformedResponse: The response is incomplete.
        """
        if self.done:
            return
        if self.status and not self._chunked and self._remaining is None:
            self.done = True
            return
        if self.status:
            raise MalformedResponse("the connection closed in the middle of the answer")
        raise MalformedResponse("the connection closed without an answer")

    # Each step takes the data and a position, and returns the position after what it used, or -1
    # if it needs more bytes.

    def _read_head(self, data: bytes, position: int, out: list[bytes]) -> int:
        end = data.find(b"\r\n\r\n", position + self._searched_bytes)
        if end < 0:
            if len(data) - position > HEAD_LIMIT:
                raise MalformedResponse("the response head is too long")
            self._searched_bytes = max(0, len(data) - position - 3)
            return -1
        self._searched_bytes = 0
        first, *lines = data[position:end].split(b"\r\n")
        status = _parse_status(first)
        if status == 101:
            raise MalformedResponse("the server wants to switch protocols")
        if status >= 200:
            self.status = status
            self.headers = _parse_headers(lines)
            self._set_body_framing(keep=first.startswith(b"HTTP/1.1"))
        return end + 4

    def _set_body_framing(self, keep: bool) -> None:
        """Find out where the body ends (RFC 9112, section 6.3)."""
        fields = self.headers
        connection = fields.get("connection", "").lower()
        self.reusable = "close" not in connection and (keep or "keep-alive" in connection)
        encoding = fields.get("transfer-encoding", "").strip().lower()
        length = fields.get("content-length")
        if self.status in (204, 304):
            self.done = True
        elif encoding:
            if encoding != "chunked":
                raise MalformedResponse(f"transfer-encoding {encoding!r} is not supported")
            if length is not None:
                # Two lengths: an intermediary may have read the other one.
                self.reusable = False
            self._chunked = True
            self._next_step = ResponseParser._read_chunks
        elif length is not None:
            self._remaining = _parse_content_length(length)
            self.done = self._remaining == 0
            self._next_step = ResponseParser._read_counted
        else:
            self.reusable = False
            self._next_step = ResponseParser._read_until_close

    def _read_counted(self, data: bytes, position: int, out: list[bytes]) -> int:
        remaining = self._remaining or 0
        piece = data[position : position + remaining]
        out.append(piece)
        self._remaining = remaining - len(piece)
        self.done = self._remaining == 0 and not self._chunked
        if self._chunked and self._remaining == 0:
            self._next_step = ResponseParser._read_chunk_end
        return position + len(piece)

    def _read_until_close(self, data: bytes, position: int, out: list[bytes]) -> int:
        out.append(data[position:])
        return len(data)

    def _read_chunks(self, data: bytes, position: int, out: list[bytes]) -> int:
        """Parse complete chunks. A chunk that is cut off is left to the other steps."""
        total = len(data)
        first = position
        while True:
            end = data.find(b"\r\n", position)
            if end < 0:
                return position if position > first else self._require_short_line(data, position)
            size = _parse_chunk_size(data[position:end])
            if size == 0:
                self._next_step = ResponseParser._read_trailer
                return end + 2
            start = end + 2
            stop = start + size
            if stop + 2 > total:
                self._remaining = size
                self._next_step = ResponseParser._read_counted
                return start
            if data[stop : stop + 2] != b"\r\n":
                raise MalformedResponse("a chunk is longer than it says")
            out.append(data[start:stop])
            position = stop + 2
            if position == total:
                return position

    def _read_chunk_end(self, data: bytes, position: int, out: list[bytes]) -> int:
        if len(data) - position < 2:
            return -1
        if data[position : position + 2] != b"\r\n":
            raise MalformedResponse("a chunk is longer than it says")
        self._next_step = ResponseParser._read_chunks
        return position + 2

    def _read_trailer(self, data: bytes, position: int, out: list[bytes]) -> int:
        end = data.find(b"\r\n", position)
        if end < 0:
            return self._require_short_line(data, position)
        self.done = end == position
        return end + 2

    @staticmethod
    def _require_short_line(data: bytes, position: int) -> int:
        if len(data) - position > LINE_LIMIT:
            raise MalformedResponse("a line of the chunked body is too long")
        return -1


def _is_token(name: bytes) -> bool:
    return bool(name) and not name.translate(None, _TOKEN)


def _is_value(value: str) -> bool:
    try:
        return not value.encode("latin-1").translate(None, _VALUE)
    except UnicodeEncodeError:
        return False


def _parse_status(line: bytes) -> int:
    """Return the status of the first line of a response, which has no line break."""
    version, code, rest = line[:9], line[9:12], line[12:]
    is_known = version in (b"HTTP/1.1 ", b"HTTP/1.0 ") and len(code) == 3 and code.isdigit()
    is_clean = rest[:1] in (b"", b" ") and b"\n" not in rest and b"\r" not in rest
    if not is_known or not is_clean or not b"1" <= code[:1] <= b"5":
        raise MalformedResponse(f"not an HTTP/1.1 answer: {line[:60]!r}")
    return int(code)


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        start, colon, rest = line.partition(b":")
        name = _read_header_name(start) if colon else ""
        if not name:
            raise MalformedResponse(f"not a header: {line[:60]!r}")
        value = rest.decode("latin-1").strip(" \t")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


@lru_cache(maxsize=512)
def _read_header_name(start: bytes) -> str:
    """Return a header's name in lower case; "" if it is none. Answers repeat the same few."""
    return start.decode().lower() if _is_token(start) else ""


def _parse_content_length(value: str) -> int:
    """Parse a content length. Equal repetitions are tolerated, different values are not."""
    if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS:
        return int(value)
    lengths = {part.strip().encode("latin-1") for part in value.split(",")}
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) >= _MOST_DIGITS:
        raise MalformedResponse(f"content-length {value[:60]!r} is not a number of bytes")
    return int(length)


@lru_cache(maxsize=512)
def _parse_chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not _HEX.fullmatch(digits):
        raise MalformedResponse(f"not a chunk size: {line[:40]!r}")
    return int(digits, 16)


_Step = Callable[[ResponseParser, bytes, int, list[bytes]], int]
