"""What a handler returns that is too large to be held: text or bytes, made piece by piece."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from ferrule.core.frozen import frozen

_PIECE = 262_144


@frozen
class Chunks:
    """A result that comes in pieces: `return Chunks(open(path, "rb"), mime="text/csv")`.

    It is read once, in a thread, after the handler has returned, within the tool's timeout, and
    never held as a whole: what is large goes to the run's artifacts and the model gets a stub.
    `parts` may raise; then the call has failed. If they have a `close`, it is called. `mime` says
    what the pieces joined are; text is UTF-8.
    """

    parts: Iterable[bytes | str]
    mime: str = "text/plain"

    def encoded(self) -> Generator[bytes, None, None]:
        """The pieces as bytes, a bounded number at a time; closing it closes `parts`."""
        try:
            for part in self.parts:
                for start in range(0, len(part), _PIECE):
                    piece = part[start : start + _PIECE]
                    yield (
                        piece.encode("utf-8", "replace") if isinstance(piece, str) else bytes(piece)
                    )
        finally:
            if close := getattr(self.parts, "close", None):
                close()
