"""URLs with placeholders, parsed once so that a value can only fill its own part. No I/O.

    https://{{region}}.example.com/pets/{{id}}/photos?size={{size?}}

Rules of this file:

* Scheme, port and the names of query parameters are literal; there is no user name and no fragment.
* A value in the host is letters, digits, hyphens and dots; which hosts may then be reached is
  another question (`hosts.py`).
* A value in the path is percent-encoded, including `/`. It cannot add, remove or go up a segment:
  what a server that decodes once too often would read as `.` or `..` is refused, and so are control
  characters.
* A value in the query is percent-encoded. A parameter whose optional argument is missing is left
  out.

So whatever the values are, the result has the scheme, the port and the number of segments that the
template has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from ferrule.core.value_class import frozen
from ferrule.sandbox.network.allowed_hosts import InvalidHost, canonicalize_host, split_authority

from .templates import Placeholder, Template, TemplateError, parse_template

MAX_URL = 16_384
"""The most characters of a URL."""
_FIRST_MARK = 0xE000
"""Placeholders become private use characters while a URL is parsed: a URL has none itself."""
_MARK = re.compile(r"[\ue000-\uf8ff]")
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@\ue000-\uf8ff-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$'()*+,;:@/?\ue000-\uf8ff-]|%[0-9A-Fa-f]{2})*")
_HOST = re.compile(r"[A-Za-z0-9.\ue000-\uf8ff_-]+")
_HOST_LABELS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PARENT_SEGMENTS = (".", "..")
_MAX_DECODINGS = 8
"""How often servers may decode a path."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@frozen
class UrlTemplate:
    """A URL with placeholders. `query` are pairs of a literal name and a value."""

    is_secure: bool
    host: Template
    port: int
    path: tuple[Template, ...]
    query: tuple[tuple[str, Template], ...] = ()

    @property
    def literal_host(self) -> str | None:
        """The host in its canonical spelling, if it is the same for every call."""
        host = self.host.literal
        return None if host is None else canonicalize_host(host)

    def placeholders(self) -> list[Placeholder]:
        """Return all placeholders."""
        holes = list(self.host.placeholders)
        for segment in self.path:
            holes += segment.placeholders
        for _, value in self.query:
            holes += value.placeholders
        return holes

    def origin(self, arguments: Mapping[str, Any]) -> str:
        """Return `https://host:port`, the port only if it is not the default.

        Raises TemplateError.
        """
        host = canonical_host(self.host.fill(arguments, check_host_label))
        if ":" in host:
            host = f"[{host}]"
        scheme = "https" if self.is_secure else "http"
        default_port = 443 if self.is_secure else 80
        port = "" if self.port == default_port else f":{self.port}"
        return f"{scheme}://{host}{port}"

    def query_pairs(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the encoded parameters of the template's query. Raises TemplateError."""
        filled = ((name, value.fill(arguments, percent_encode)) for name, value in self.query)
        return [f"{name}={text}" for name, text in filled if text is not None]


def parse_url_template(text: str) -> UrlTemplate:
    """Parse a URL with placeholders. Raises TemplateError saying what the URL must not have."""
    holes: list[Placeholder] = []
    marked = "".join(_mark_placeholders(part, holes) for part in parse_template(text).parts)
    scheme, colon, rest = marked.partition("://")
    if not colon or scheme not in ("http", "https"):
        raise TemplateError("it must begin with `https://` (or `http://` for this machine)")
    if "#" in rest:
        raise TemplateError("it has a fragment (`#`), which is never sent")
    before_query, _, query = rest.partition("?")
    authority, _, path = before_query.partition("/")
    host, port = _parse_authority(authority)

    def template(piece: str) -> Template:
        return _restore_placeholders(piece, holes)

    default_port = 443 if scheme == "https" else 80
    pairs = query.split("&") if query else []
    return UrlTemplate(
        is_secure=scheme == "https",
        host=template(host),
        port=port or default_port,
        path=tuple(template(_check_segment(segment)) for segment in path.split("/")),
        query=tuple(_parse_pair(pair, template) for pair in pairs),
    )


def _mark_placeholders(part: str | Placeholder, holes: list[Placeholder]) -> str:
    if isinstance(part, Placeholder):
        holes.append(part)
        return chr(_FIRST_MARK + len(holes) - 1)
    if _MARK.search(part) or not part.isascii():
        raise TemplateError(
            "it has characters beyond ASCII; encode them, and write hosts as `xn--…`"
        )
    single_braces = re.search(r"\{[A-Za-z_]\w*\}", part)
    if single_braces:
        found = single_braces[0]
        raise TemplateError(f"`{found}` is not a placeholder; write `{{{found}}}`")
    return part


def _restore_placeholders(text: str, holes: list[Placeholder]) -> Template:
    parts: list[str | Placeholder] = []
    for piece in re.split(r"([\ue000-\uf8ff])", text):
        if piece:
            parts.append(holes[ord(piece) - _FIRST_MARK] if _MARK.fullmatch(piece) else piece)
    return Template(tuple(parts))


def _parse_authority(text: str) -> tuple[str, int | None]:
    if "@" in text:
        raise TemplateError("it has a user name; credentials belong in the auth section")
    if not _MARK.search(text):
        try:
            return split_authority(text)
        except InvalidHost as problem:
            raise TemplateError(f"its host cannot be used: {problem}") from None
    host, _, port = text.partition(":")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise TemplateError("its port must be a literal number")
    if not _HOST.fullmatch(host):
        raise TemplateError("its host has characters that are not allowed in a host")
    return host, int(port) if port else None


def _check_segment(text: str) -> str:
    if not _PATH.fullmatch(text):
        raise TemplateError(
            f"its path has characters that must be encoded: `{_MARK.sub('…', text)[:60]}`"
        )
    if unquote(text) in (".", ".."):
        raise TemplateError("its path has a segment `.` or `..`")
    return text


def _parse_pair(text: str, template: Callable[[str], Template]) -> tuple[str, Template]:
    name, _, value = text.partition("=")
    if _MARK.search(name) or not name:
        raise TemplateError("the names of its query parameters must be literal")
    if not _QUERY.fullmatch(name) or not _QUERY.fullmatch(value):
        raise TemplateError("its query has characters that must be encoded")
    return name, template(value)


# ---- values


def percent_encode(text: str) -> str:
    """Percent-encode a value for the query or a form. Raises TemplateError."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise TemplateError("a value has half of a character (a lone surrogate)") from None


def check_host_label(text: str) -> str:
    """Check a value for the host. Raises TemplateError."""
    if len(text) > 253 or not _HOST_LABELS.fullmatch(text):
        raise TemplateError(f"`{text[:60]}` cannot be part of a host name")
    return text


def canonical_host(text: str | None) -> str:
    """Return a filled in host in its canonical spelling. Raises TemplateError."""
    if text is None:
        raise TemplateError("a part of its host is missing")
    try:
        return canonicalize_host(text)
    except InvalidHost as problem:
        raise TemplateError(f"the host cannot be used: {problem}") from None


def encode_in_segment(text: str) -> str:
    """Encode a value for a segment of the path. Raises TemplateError.

    What the whole segment becomes is checked by `check_filled_segment`.
    """
    if _CONTROL.search(text):
        raise TemplateError("a value for the path has control characters")
    return percent_encode(text)


def check_filled_segment(text: str) -> str:
    """Check a filled in segment.

    Raises TemplateError if values made it empty or make it lead up.
    """
    if any(not reading or _leads_up(reading) for reading in _decodings(text)):
        raise TemplateError(
            "a value would leave a segment of the path empty, or lead to another path"
        )
    return text


def _leads_up(text: str) -> bool:
    return any(part in _PARENT_SEGMENTS for part in re.split(r"[/\\]", text))


def _decodings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as it is after each time that somebody decodes it."""
    yield text
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(text)
        if decoded == text:
            return
        text = decoded
        yield text
