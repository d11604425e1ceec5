"""The address of a request as a template: read into its parts once, so that a value can only ever
fill the part it was meant for. No I/O.

    https://{{region}}.example.com/pets/{{id}}/photos?size={{size?}}

Rules of this file:

* Scheme, port and the names of query parameters are literal; there is no user name and no fragment.
* A value in the host is letters, digits, hyphens and dots; which hosts may then be reached is
  another question (`hosts.py`).
* A value in the path is percent-encoded, also `/`. It cannot add, leave out or go up a segment:
  what a server that decodes once too often would read as `.` or `..` is refused, and so are control
  characters.
* A value in the query is percent-encoded. A parameter whose optional argument is missing is left
  out.

So whatever the values are: the result has the scheme, the port and the number of segments that the
template has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from ferrule.sandbox.network.allowed_hosts import Unreadable, canonical, split_authority

from .templates import Hole, Template, Unfit, parse_template

LONGEST = 16_384
"""Characters of an address at the most."""
_FIRST = 0xE000
"""Places become characters of Unicode's private use while an address is taken apart: an address has
none of its own.
"""
_PLACE = re.compile(r"[\ue000-\uf8ff]")
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@\ue000-\uf8ff-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$'()*+,;:@/?\ue000-\uf8ff-]|%[0-9A-Fa-f]{2})*")
_HOST = re.compile(r"[A-Za-z0-9.\ue000-\uf8ff_-]+")
_LABELS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_UP = (".", "..")
_DECODED = 8
"""How often a path may be decoded on its way."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Address:
    """An address with places. `query` are pairs of a literal name and a value."""

    secure: bool
    host: Template
    port: int
    path: tuple[Template, ...]
    query: tuple[tuple[str, Template], ...] = ()

    @property
    def literal_host(self) -> str | None:
        """The host in its one spelling, if it is the same for every call."""
        host = self.host.literal
        return None if host is None else canonical(host)

    def holes(self) -> list[Hole]:
        """All places."""
        parts = (self.host, *self.path, *(value for _, value in self.query))
        return [hole for part in parts for hole in part.holes]

    def origin(self, arguments: Mapping[str, Any]) -> str:
        """`https://host:port`, the port only where it is not the usual one. Raises Unfit."""
        host = canonical_host(self.host.fill(arguments, label))
        shown = f"[{host}]" if ":" in host else host
        usual = self.port == (443 if self.secure else 80)
        return f"{'https' if self.secure else 'http'}://{shown}" + (
            "" if usual else f":{self.port}"
        )

    def pairs(self, arguments: Mapping[str, Any]) -> list[str]:
        """The parameters of the query that the template has, encoded. Raises Unfit."""
        filled = ((name, value.fill(arguments, encoded)) for name, value in self.query)
        return [f"{name}={text}" for name, text in filled if text is not None]


def parse_address(text: str) -> Address:
    """Raises Unfit saying what the address has that it must not."""
    holes: list[Hole] = []
    marked = "".join(_mark(part, holes) for part in parse_template(text).parts)
    scheme, colon, rest = marked.partition("://")
    if not colon or scheme not in ("http", "https"):
        raise Unfit("it must begin with `https://` (or `http://` for this machine)")
    if "#" in rest:
        raise Unfit("it has a fragment (`#`), which is never sent")
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    host, port = _authority(authority)

    def template(piece: str) -> Template:
        return _unmarked(piece, holes)

    segments = tuple(template(_segment(one)) for one in path.split("/"))
    return Address(
        scheme == "https",
        template(host),
        port or (443 if scheme == "https" else 80),
        segments,
        tuple(_pair(one, template) for one in query.split("&")) if query else (),
    )


def _mark(part: str | Hole, holes: list[Hole]) -> str:
    if isinstance(part, Hole):
        holes.append(part)
        return chr(_FIRST + len(holes) - 1)
    if _PLACE.search(part) or not part.isascii():
        raise Unfit("it has characters beyond ASCII; encode them, and write hosts as `xn--…`")
    if found := re.search(r"\{[A-Za-z_]\w*\}", part):
        raise Unfit(f"`{found[0]}` is no place; write `{{{found[0]}}}`")
    return part


def _unmarked(text: str, holes: list[Hole]) -> Template:
    parts: list[str | Hole] = []
    for piece in re.split(r"([\ue000-\uf8ff])", text):
        if piece:
            parts.append(holes[ord(piece) - _FIRST] if _PLACE.fullmatch(piece) else piece)
    return Template(tuple(parts))


def _authority(text: str) -> tuple[str, int | None]:
    if "@" in text:
        raise Unfit("it has a user name; credentials belong in the auth section")
    if not _PLACE.search(text):
        try:
            return split_authority(text)
        except Unreadable as problem:
            raise Unfit(f"its host cannot be used: {problem}") from None
    host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise Unfit("its port must be a literal number")
    if not _HOST.fullmatch(host):
        raise Unfit("its host has characters that a host has not")
    return host, int(port) if port else None


def _segment(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise Unfit(f"its path has characters that must be encoded: `{_PLACE.sub('…', text)[:60]}`")
    if unquote(text) in (".", ".."):
        raise Unfit("its path has a segment `.` or `..`")
    return text


def _pair(text: str, template: Callable[[str], Template]) -> tuple[str, Template]:
    name, _, value = text.partition("=")
    if _PLACE.search(name) or not name:
        raise Unfit("the names of its query parameters must be literal")
    if not _QUERY.fullmatch(name) or not _QUERY.fullmatch(value):
        raise Unfit("its query has characters that must be encoded")
    return name, template(value)


# ---- values


def encoded(text: str) -> str:
    """A value for the query, or for a form. Raises Unfit."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise Unfit("a value holds half of a character (a lone surrogate)") from None


def label(text: str) -> str:
    """A value for the host. Raises Unfit."""
    if len(text) > 253 or not _LABELS.fullmatch(text):
        raise Unfit(f"`{text[:60]}` cannot be part of a host name")
    return text


def canonical_host(text: str | None) -> str:
    """A filled in host in its one spelling. Raises Unfit."""
    if text is None:
        raise Unfit("a part of its host is missing")
    try:
        return canonical(text)
    except Unreadable as problem:
        raise Unfit(f"the host cannot be used: {problem}") from None


def within_segment(text: str) -> str:
    """A value for a segment of the path; what becomes of the whole segment is `whole_segment`'s
    question. Raises Unfit.
    """
    if _CONTROL.search(text):
        raise Unfit("a value for the path holds control characters")
    return encoded(text)


def whole_segment(text: str) -> str:
    """A segment with its values in it. Raises Unfit if they made it empty, or one that goes up."""
    if any(not read or _goes_up(read) for read in _readings(text)):
        raise Unfit("a value would leave a segment of the path empty, or lead to another path")
    return text


def _goes_up(text: str) -> bool:
    return any(part in _UP for part in re.split(r"[/\\]", text))


def _readings(text: str) -> Iterator[str]:
    """A text as it stands, and as it is after each time that somebody decodes it."""
    yield text
    for _ in range(_DECODED):
        before, text = text, unquote(text)
        if text == before:
            return
        yield text
