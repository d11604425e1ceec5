"""Splits http and https addresses that people, files and strangers wrote.

`urllib.parse.urlsplit` raises ValueError for some texts, and takes others whose host no resolver
takes, or whose port raises ValueError when it is read.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

_MAX_LABEL = 63
"""Characters of one part of a host name (RFC 1035, section 2.3.4)."""


def split_web_address(url: str) -> SplitResult | None:
    """Return the parts of an http or https address; None if the text is no such address.

    Its host and port can be read, and the host can be looked up.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_usable = parts.scheme in ("http", "https") and parts.port != 0 and _is_host(host)
    except ValueError:
        return None
    return parts if is_usable else None


def _is_host(host: str) -> bool:
    if ":" in host:
        return True  # An IPv6 address, which `urlsplit` has checked.
    if not host.isascii():
        host.encode("idna")  # A UnicodeError is a ValueError.
        return True
    labels = host.removesuffix(".").split(".")
    return "\0" not in host and all(0 < len(label) <= _MAX_LABEL for label in labels)
