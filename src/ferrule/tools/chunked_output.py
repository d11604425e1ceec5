"""Return a result that is too large for memory: text or bytes, produced piece by piece."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from ferrule.core.value_class import frozen

_PIECE_SIZE = 262_144


@frozen
class Chunks:
    """A result that comes in pieces: `return Chunks(open(path, "rb"), mime="text/csv")`.

    The pieces are read once, in a thread, after the handler has returned and within the tool's
    timeout. They are never held in memory as a whole: a large result goes to the run's artifacts
    and the model gets a stub. If `parts` raises, the call fails. If `parts` has a `close`, it is
    called. `mime` is the type of the joined pieces; text is encoded as UTF-8.
    """

    parts: Iterable[bytes | str]
    mime: str = "text/plain"

    def encode_parts(self) -> Generator[bytes, None, None]:
        """Yield the pieces as bytes, of bounded size; closing the generator closes `parts`."""
        try:
            for part in self.parts:
                for start in range(0, len(part), _PIECE_SIZE):
                    piece = part[start : start + _PIECE_SIZE]
                    if isinstance(piece, str):
                        yield piece.encode("utf-8", "replace")
                    else:
                        yield bytes(piece)
        finally:
            close = getattr(self.parts, "close", None)
            if close is not None:
                close()
