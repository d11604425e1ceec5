"""Bodies that a server, or a proxy before it, compressed although that was not asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from ferrule.core.errors import ProviderError

_PIECE = 4 << 20
"""Most bytes that one chunk becomes: a small body must not become a huge one at once."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def make_decoder(coding: str, origin: str) -> Callable[[bytes], bytes] | None:
    """Return what decompresses the chunks of a body in order; None if it is not compressed.

    The decoder takes empty bytes for the end. It raises ProviderError for a body that is not what
    its header says, or that is cut.

    Args:
        coding: The header `Content-Encoding`.
        origin: The server, for errors.

    Raises:
        ProviderError: `not_understood`, the coding is another than gzip and deflate.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ProviderError(
            f"{origin} answered with a body in `content-encoding: {coding[:40]}`",
            code="not_understood",
            hint="turn compression off in the server, or in the proxy before it; gzip and deflate "
            "are read",
            retryable=False,
        )
    return _Decoder(name, origin)


class _Decoder:
    def __init__(self, coding: str, origin: str) -> None:
        self._coding = coding
        self._origin = origin
        self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False

    def __call__(self, data: bytes) -> bytes:
        try:
            return self._inflate(data)
        except zlib.error as problem:
            raise self._error(str(problem)) from problem

    def _inflate(self, data: bytes) -> bytes:
        if not data:
            if self._has_begun and not self._inflater.eof:
                raise self._error("it ends too early")
            return b""
        if not self._has_begun and self._coding == "deflate" and data[0] & 0x0F != 8:
            # Some servers leave the two bytes of zlib's header out.
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._has_begun = True
        pieces: list[bytes] = []
        size = 0
        while data:
            if self._inflater.eof:
                self._inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
            piece = self._inflater.decompress(data, _PIECE)
            size += len(piece)
            pieces.append(piece)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
            if size > _PIECE * 64:
                raise self._error("it becomes too large")
        return b"".join(pieces)

    def _error(self, why: str) -> ProviderError:
        detail = f"{self._origin} sent a `{self._coding}` body that cannot be read: {why}"
        return ProviderError(detail, code="not_understood", retryable=False)
