"""Reading a streamed answer: from its first byte to its end, and no further.

What follows an answer's end is not read: pings, comments, a second terminator, half an event. What
breaks behind it breaks nothing. An end that did not arrive is `interrupted`, also where the cut
went through an event.
"""

from __future__ import annotations

from typing import Protocol

from ferrule.core.errors import ProviderError

from .server_sent_events import Lines
from .transport import Stream


class Fold(Protocol):
    """What makes an answer of the items of a stream. It passes over items that follow its end."""

    @property
    def done(self) -> bool:
        """The protocol's end of a stream has come."""
        ...

    @property
    def whole(self) -> bool:
        """Nothing of the answer is missing, whether or not the protocol's end has come."""
        ...

    def add(self, items: list[bytes], /) -> None:
        """Take complete items in. Raises ProviderError, `not_understood` for what is no JSON."""
        ...


async def fold_stream(stream: Stream, splitter: Lines, fold: Fold) -> None:
    """Read the stream into the fold until the fold is done or the stream ends.

    Raises ProviderError: what the fold raises, and what the connection raises while a part of the
    answer is missing.
    """
    while not fold.done:
        try:
            data = await stream.chunk()
        except ProviderError:
            _add_last(splitter, fold)
            if fold.whole:
                return
            raise
        if not data:
            _add_last(splitter, fold)
            return
        fold.add(splitter.feed(data))


def _add_last(splitter: Lines, fold: Fold) -> None:
    """Add what stood at the end of a stream without the mark that ends an item.

    Servers forget that mark, so an item that can be read is one. A piece of one is the trace of a
    cut, which is the fold's to judge; what could not even have begun an item is said as it is.
    """
    for item in splitter.close():
        try:
            fold.add([item])
        except ProviderError as error:
            begun = item.lstrip()[:1] in (b"", b"{", b"[")
            if error.code != "not_understood" or not (begun or fold.whole):
                raise
