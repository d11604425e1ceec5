"""Heads of HTTP/1.1 requests and answers for a proxy: parsed strictly and written anew. No I/O.

Source: RFC 9110 and 9112. Two programs that understand one message differently are how a request is
smuggled past a check. So whatever could be read in two ways is refused (a second or odd
`Content-Length`, a length beside `Transfer-Encoding`, folded lines, blanks before a colon), and
what passes is not passed on but written again: hop-by-hop fields are gone, the framing is ours and
`Host` is the host that was checked.

(`models.http.http1` reads answers for one client: it joins repeated fields and decodes bodies,
which a proxy must not.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from .allowed_hosts import split_authority

HEAD_LIMIT = 65_536
"""Bytes of a head at most."""
FIELDS_LIMIT = 256

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST = compile_lazily(rf"({_TOKEN}) ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS = compile_lazily(r"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD = compile_lazily(rf"({_TOKEN}):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = compile_lazily(r"[0-9]{1,18}")
_CHUNK = compile_lazily(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_HTTP = compile_lazily(r"http://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE)

_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip

Fields = tuple[tuple[str, str], ...]
"""Names as they were written, in order, repeated ones too."""


class MalformedMessage(Exception):
    """A message that is not passed on. `status` is the answer; the text says why."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class BodyEnd(Enum):
    """How a body ends that has no length."""

    CHUNKED = "chunked"
    CLOSE = "close"


Framing = int | BodyEnd
"""The length of a body in bytes, or how it ends."""


@frozen
class RequestHead:
    """A request's head.

    `path` is the target in the form for a server; empty with CONNECT. `host` is in canonical form.
    """

    method: str
    host: str
    port: int
    path: str
    fields: Fields
    framing: Framing
    keep_alive: bool
    reads_chunked: bool
    """Whether the client reads chunked answers."""

    @property
    def authority(self) -> str:
        """The host as `Host` has it; with the port only if it is not 80."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port == 80 else f"{shown}:{self.port}"

    def encode(self, via: str | None = None) -> bytes:
        """Return the head for the server, or with `via` for another proxy.

        `via` is the `Proxy-Authorization` value for that proxy (or empty).
        """
        target = self.path if via is None else f"http://{self.authority}{self.path}"
        fields = [
            ("Host", self.authority),
            *end_to_end_fields(self.fields, ("host", "content-length")),
        ]
        if self.framing or _has(self.fields, "content-length"):
            fields += _framing_fields(self.framing)
        if via:
            fields.append(("Proxy-Authorization", via))
        return encode_head(f"{self.method} {target} HTTP/1.1", [*fields, ("Connection", "close")])


@frozen
class ResponseHead:
    """An answer's head. `framing` is how its body arrives."""

    status: int
    reason: str
    fields: Fields
    framing: Framing

    def encode(self, *, chunks: bool, keep: bool) -> bytes:
        """Return the head for the client.

        Without a length, `chunks` decides whether the body ends by itself or with the connection.
        """
        fields = list(end_to_end_fields(self.fields))
        if self.framing is BodyEnd.CHUNKED and chunks:
            fields.append(("Transfer-Encoding", "chunked"))
        if not keep:
            fields.append(("Connection", "close"))
        return encode_head(f"HTTP/1.1 {self.status} {self.reason}", fields)


def parse_request(lines: list[bytes]) -> RequestHead:
    """Parse a request's head from lines without their ends.

    Raises:
        MalformedMessage: It cannot be passed on.
        InvalidHost: Only the host is at fault.
    """
    first = lines[0].decode("latin-1")
    match = _REQUEST.fullmatch(first)
    if match is None:
        raise MalformedMessage("the first line is not an HTTP/1.1 request")
    method = match[1]
    target = match[2]
    modern = match[3] == "1"
    fields = _parse_fields(lines[1:])
    if len(_values(fields, "host")) > 1:
        raise MalformedMessage("there are two `Host` fields")
    framing = _parse_request_framing(fields, modern)
    if method == "CONNECT":
        host, port = split_authority(target)
        if port is None:
            raise MalformedMessage("CONNECT needs a port")
        if framing:
            raise MalformedMessage("CONNECT has no body")
        return RequestHead(method, host, port, "", fields, 0, False, modern)
    host, port, path = _parse_target(target)
    keep = modern and "close" not in _listed_tokens(fields, "connection")
    return RequestHead(method, host, port, path, fields, framing, keep, modern)


def parse_response(lines: list[bytes], method: str) -> ResponseHead:
    """Parse the head of the answer to a request with this method.

    Raises:
        MalformedMessage: It cannot be passed on.
    """
    match = _STATUS.fullmatch(lines[0].decode("latin-1"))
    if match is None:
        raise MalformedMessage("the server's answer is not HTTP/1.1")
    status = int(match[2])
    if status == 101:
        raise MalformedMessage("the server switched protocols without being asked")
    fields = _parse_fields(lines[1:])
    has_no_body = status < 200 or status in (204, 304) or method == "HEAD"
    return ResponseHead(
        status, match[3] or "", fields, 0 if has_no_body else _parse_framing(fields, BodyEnd.CLOSE)
    )


def parse_chunk_size(line: bytes) -> int:
    """Parse the size of a chunk.

    Raises:
        MalformedMessage: It is not one.
    """
    match = _CHUNK.fullmatch(line)
    if match is None:
        raise MalformedMessage("a chunk's size cannot be read")
    return int(match[1], 16)


def end_to_end_fields(fields: Fields, also: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Return the fields that are passed on.

    Those for us only are left out: hop-by-hop ones, those that `Connection` names, and `also`.
    """
    removed = _HOP_BY_HOP | _listed_tokens(fields, "connection") | set(also)
    return [(name, value) for name, value in fields if name.lower() not in removed]


def encode_head(first: str, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return a head as bytes, up to and with its empty line."""
    lines = [first, *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _parse_target(target: str) -> tuple[str, int, str]:
    match = _HTTP.fullmatch(target)
    if match is None:
        raise MalformedMessage(
            "this is a proxy: it takes CONNECT, and requests whose target begins with `http://`"
        )
    if "@" in match[1]:
        raise MalformedMessage("the URL has a user name in it")
    host, port = split_authority(match[1].removesuffix(":"))
    path = match[2]
    return host, port or 80, path if path.startswith("/") else f"/{path}"


def _parse_fields(lines: list[bytes]) -> Fields:
    if len(lines) > FIELDS_LIMIT:
        raise MalformedMessage(f"there are more than {FIELDS_LIMIT} fields", 431)
    found: list[tuple[str, str]] = []
    for line in lines:
        match = _FIELD.fullmatch(line.decode("latin-1"))
        if match is None:
            raise MalformedMessage("a line is not a header field")
        found.append((match[1], match[2].rstrip(" \t")))
    return tuple(found)


def _parse_request_framing(fields: Fields, modern: bool) -> Framing:
    if not modern and _has(fields, "transfer-encoding"):
        raise MalformedMessage("HTTP/1.0 has no `Transfer-Encoding`")
    return _parse_framing(fields, 0)


def _parse_framing(fields: Fields, otherwise: Framing) -> Framing:
    """Return where a body ends, if only one reading is possible (RFC 9112, section 6.3)."""
    codings = _values(fields, "transfer-encoding")
    lengths = _values(fields, "content-length")
    if codings and lengths:
        raise MalformedMessage("there is a `Content-Length` beside `Transfer-Encoding`")
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"]:
            raise MalformedMessage("the only `Transfer-Encoding` that is passed on is `chunked`")
        return BodyEnd.CHUNKED
    if not lengths:
        return otherwise
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise MalformedMessage("`Content-Length` is not one number")
    return int(lengths[0])


def _framing_fields(framing: Framing) -> list[tuple[str, str]]:
    if isinstance(framing, int):
        return [("Content-Length", str(framing))]
    return [("Transfer-Encoding", "chunked")]


def _values(fields: Fields, wanted: str) -> list[str]:
    return [value for name, value in fields if name.lower() == wanted]


def _has(fields: Fields, wanted: str) -> bool:
    return bool(_values(fields, wanted))


def _listed_tokens(fields: Fields, wanted: str) -> set[str]:
    values = ",".join(_values(fields, wanted))
    return {part.strip().lower() for part in values.split(",")} if values else set()
