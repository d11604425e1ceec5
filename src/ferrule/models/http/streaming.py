"""Send a request to a model and read its answer, from its first byte to its end and no further.

What follows an answer's end is not read: pings, comments, a second terminator, half an event. What
breaks after it breaks nothing. An end that did not arrive is `interrupted`, also if the cut went
through an event.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ferrule.core.errors import ProviderError
from ferrule.core.value_class import frozen

from .server_sent_events import EventSplitter, LineSplitter
from .transport import ResponseStream, Transport

REST_SECONDS = 5.0
"""Seconds that a server has for what follows an answer that lacks nothing, such as its usage."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@frozen
class ModelRequest:
    """A request for a model's answer.

    Attributes:
        url: Where it is sent.
        body: What is sent.
        headers: Its headers.
        timeout: Seconds for the whole answer; None for those of the transport.
        streamed: Whether the answer is to come in pieces.
    """

    url: str
    body: bytes
    headers: Mapping[str, str]
    timeout: float | None
    streamed: bool


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


class FinishingParser(AnswerParser, Protocol[T_co]):
    """A parser that returns what it built."""

    def finish(self) -> T_co:
        """Return the answer.

        Raises:
            ProviderError: It is not complete.
        """
        ...


async def send_request(
    transport: Transport,
    request: ModelRequest,
    *,
    make_error: Callable[[int, Mapping[str, str], bytes], ProviderError],
    parse_whole: Callable[[bytes], T],
    open_parser: Callable[[], FinishingParser[T]],
    open_splitter: Callable[[], LineSplitter] = EventSplitter,
) -> T:
    """Send a request and return its answer.

    A server that cannot stream answers in one piece, which is read as such.

    Args:
        transport: How the server is reached.
        request: What is sent.
        make_error: Makes an error of the status, headers and body of a refusal.
        parse_whole: Parses the body of an answer that came in one piece.
        open_parser: Makes a parser for a streamed answer.
        open_splitter: Makes what splits the stream into items.

    Raises:
        ProviderError: The server refused, or its answer cannot be read.
    """
    where = (request.url, request.body, request.headers)

    def parse_body(body: bytes) -> T:
        return parse_whole(body.removeprefix(codecs.BOM_UTF8))

    if not request.streamed:
        answer = await transport.post(*where, timeout=request.timeout)
        if answer.status != 200:
            raise make_error(answer.status, answer.headers, answer.body)
        if "event-stream" in answer.headers.get("content-type", ""):
            # Some gateways stream whatever they were asked for.
            return _parse_stream(answer.body, open_parser(), open_splitter())
        return parse_body(answer.body)
    async with transport.stream(*where, timeout=request.timeout) as stream:
        if stream.status != 200:
            raise make_error(stream.status, stream.headers, await stream.read())
        if "json" in stream.headers.get("content-type", ""):
            return parse_body(await stream.read())
        start = b""
        while not start.strip() and (data := await stream.read_chunk()):
            start += data
        if start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[", b"<"):
            # No event begins so: an error, or a whole answer, under a wrong content type, or a page
            # of a proxy, which the error shows.
            return parse_body(start + await stream.read())
        parser = open_parser()
        splitter = open_splitter()
        parser.add(splitter.feed(start))
        await parse_stream(stream, splitter, parser)
        return parser.finish()


def _parse_stream(body: bytes, parser: FinishingParser[T], splitter: LineSplitter) -> T:
    parser.add(splitter.feed(body))
    if not parser.done:
        _add_unterminated(splitter, parser)
    return parser.finish()


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
            data = await (_read_rest(stream) if parser.is_complete else stream.read_chunk())
        except ProviderError:
            _add_unterminated(splitter, parser)
            if parser.is_complete:
                return
            raise
        if not data:
            _add_unterminated(splitter, parser)
            return
        parser.add(splitter.feed(data))


async def _read_rest(stream: ResponseStream) -> bytes:
    """Return what follows an answer that lacks nothing; b"" if the server only stays connected."""
    try:
        async with asyncio.timeout(REST_SECONDS):
            return await stream.read_chunk()
    except TimeoutError:
        return b""


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
