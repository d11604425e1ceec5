"""Reading a streamed answer, from its first byte to its end and no further.

What follows an answer's end is not read: pings, comments, a second terminator, half an event. What
breaks after it breaks nothing. An end that did not arrive is `interrupted`, also if the cut went
through an event.
"""

from __future__ import annotations

from typing import Protocol

from ferrule.core.errors import ProviderError

from .server_sent_events import LineSplitter
from .transport import ResponseStream


class AnswerParser(Protocol):
    """Builds an answer from the items of a stream. It ignores items after the answer's end."""

    @property
    def done(self) -> bool:
        """Whether the protocol's end of a stream has come."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the answer is missing, even if the protocol's end has not come."""
        ...

    def add(self, items: list[bytes], /) -> None:
        """Add complete items.

        Raises:
            ProviderError: An item is an error, or not JSON (`not_understood`).
        """
        ...


async def parse_stream(
    stream: ResponseStream, splitter: LineSplitter, parser: AnswerParser
) -> None:
    """Read the stream into the parser until the parser is done or the stream ends.

    Raises:
        ProviderError: The parser raised it, or the connection failed while a part of the answer
            was missing.
    """
    while not parser.done:
        try:
            data = await stream.read_chunk()
        except ProviderError:
            _add_unterminated(splitter, parser)
            if parser.is_complete:
                return
            raise
        if not data:
            _add_unterminated(splitter, parser)
            return
        parser.add(splitter.feed(data))


def _add_unterminated(splitter: LineSplitter, parser: AnswerParser) -> None:
    """Add what stood at the end of a stream without the mark that ends an item.

    Servers forget that mark, so an item that can be read counts as one. A fragment means that the
    stream was cut, which the parser judges. What could not have begun an item raises the error.
    """
    for item in splitter.close():
        try:
            parser.add([item])
        except ProviderError as error:
            is_fragment = item.lstrip()[:1] in (b"", b"{", b"[")
            if error.code != "not_understood" or not (is_fragment or parser.is_complete):
                raise
