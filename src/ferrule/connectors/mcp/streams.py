"""The two bounded streams between a transport and the protocol library.

The library reads messages as they come (`Incoming`) and hands over what is to be sent (`Outgoing`);
both have the few methods of its stream protocols, so no library is needed to make them. An answer
that was too large becomes an error for the request that it belongs to. What is to be sent is queued
as whole lines and written by one task, so a request that is cancelled never leaves half a line.

A server that floods is ended, not queued. Two things are counted: what came and was not read yet
(`Incoming`), and the server's own requests that it has no answer to yet (`UnansweredRequests`),
since the library works on each in a task of its own. The library reads one message at a time: what
it began for one message goes on before it gets the next.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, cast

from ferrule.core.calls import parse_json
from ferrule.core.value_class import frozen

_transport_errors: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "ferrule_mcp_aside", default=None
)


def collect_errors() -> list[Any]:
    """Return a list of what a transport reports for requests from here on, in this context.

    It collects HTTP statuses (`HttpStatus`) and errors: the protocol library makes one error of all
    that goes wrong with HTTP. It carries a request out in a copy of the context that made it.
    """
    errors: list[Any] = []
    _transport_errors.set(errors)
    return errors


@frozen
class HttpStatus:
    """A status of 400 or above. `in_session`: the request named a session of the server."""

    code: int
    in_session: bool = False
    retry_after: str = ""


def report_error(error: Any) -> None:
    """Report an error or status to whoever made the request that is being carried out."""
    errors = _transport_errors.get()
    if errors is not None:
        errors.append(error)


TOO_LARGE = -32099
"""Code of the error for an answer that was too large (JSON-RPC leaves it to implementations)."""
MALFORMED = -32098
"""Code of the error for an answer that is not valid."""
ID_PATTERN = re.compile(rb'"id"\s*:\s*"?(\d{1,15})')
"""Finds the id of a line that cannot be read as JSON."""
ID_SEARCH_BYTES = 2_048
"""Number of bytes at the beginning of a line in which its id is searched."""
MESSAGE_COST = 1024
"""Bytes that a waiting message counts besides its line: read, it takes more than its text."""
MAX_UNANSWERED = 256
"""Requests of a server that may be unanswered at a time; all its running calls may ask one each."""
_MAX_UNSENT_LINES = 64


class _Stream(ABC):
    """A stream as the library has them: closed at the end of an `async with` block."""

    @abstractmethod
    async def aclose(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Incoming(_Stream):
    """Messages that came in. Iteration ends when `end` was called and all are read."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._items: deque[tuple[Any, int]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self.is_flooded = False
        """Whether more came than may wait to be read."""

    def put(self, message: Any, size: int) -> bool:
        """Pass on a message of `size` bytes.

        Return False if too many bytes wait already or nobody reads; the stream has ended then.
        """
        if self._ended:
            return False
        size += MESSAGE_COST
        self._waiting_bytes += size
        if self._waiting_bytes > self._max_bytes:
            self.is_flooded = True
            self._items.clear()  # its server is ended: answering what it asked is of no use
            self.end()
            return False
        self._items.append((message, size))
        self._changed.set()
        return True

    def end(self) -> None:
        """End the stream: nothing more will come."""
        self._ended = True
        self._changed.set()

    async def receive(self) -> Any:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            import anyio

            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        self.end()
        self._items.clear()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)  # otherwise whoever reads would hold the event loop until it is dry
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        message, size = self._items.popleft()
        self._waiting_bytes -= size
        return message


class Outgoing(_Stream):
    """Messages to be sent, as lines. `next_line` returns None at the end."""

    def __init__(self, pending: PendingRequests | None = None) -> None:
        self._pending = pending or PendingRequests()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_UNSENT_LINES)
        self._closed = False

    async def send(self, item: Any, /) -> None:
        """Queue one message of the library. Raises anyio.ClosedResourceError when closed."""
        import anyio

        if self._closed:
            raise anyio.ClosedResourceError
        self._pending.record_sent(item.message)
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._lines.put(text.encode("utf-8", "replace") + b"\n")

    async def next_line(self) -> bytes | None:
        return await self._lines.get()

    def close(self) -> None:
        """Accept nothing more. What is queued is still sent, if there is room for the end mark."""
        if not self._closed:
            self._closed = True
            if not self._lines.full():
                self._lines.put_nowait(None)

    async def aclose(self) -> None:
        self.close()


class UnansweredRequests:
    """Counts the requests of a server that it has no answer to yet, and reports a flood of them.

    Counted is what each of them holds here: a question that nobody has answered, and an answer that
    the server has not taken. Ids would prove nothing, since a server may repeat and cancel them.
    """

    def __init__(self, on_flood: Callable[[], None]) -> None:
        self._on_flood = on_flood
        self._count = 0
        self._is_over = False

    @contextmanager
    def count_one(self) -> Generator[None]:
        """Count a request while it is worked on.

        Raises:
            anyio.ClosedResourceError: There are too many, now or before: nothing is answered.
        """
        if self._count >= MAX_UNANSWERED and not self._is_over:
            self._is_over = True
            self._on_flood()
        if self._is_over:
            import anyio

            raise anyio.ClosedResourceError
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class CountedAnswers(_Stream):
    """The stream to a server, which counts the answers that it has not taken."""

    def __init__(self, inner: Any, unanswered: UnansweredRequests) -> None:
        self._inner = inner
        self._unanswered = unanswered

    async def send(self, item: Any, /) -> None:
        """Send a message. Raises anyio.ClosedResourceError when closed, or after a flood."""
        if hasattr(item.message, "method"):
            await self._inner.send(item)
            return
        with self._unanswered.count_one():
            await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()


@frozen
class TransportStreams:
    """The two streams of a transport.

    `ended` is set when the transport ended by itself; `describe_end` then says how, in words.
    """

    read: Any
    write: Any
    ended: asyncio.Event
    describe_end: Callable[[], Awaitable[str]]


class PendingRequests:
    """The ids of our requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def record_sent(self, message: Any) -> None:
        """Record a message that is sent."""
        request_id = getattr(message, "id", None)
        if hasattr(message, "method") and isinstance(request_id, int):
            self._ids.add(request_id)

    def record_answered(self, message: Any) -> None:
        """Record a message that came in."""
        if not hasattr(message, "method"):
            request_id = getattr(message, "id", None)
            if isinstance(request_id, str) and request_id.isdigit():
                request_id = int(request_id)
            self._ids.discard(request_id)  # pyright: ignore[reportArgumentType]  any type the server sent

    def affected_ids(self, request_id: object) -> list[int]:
        """Return the ids that a broken answer may belong to: its own if known, else all of them."""
        if isinstance(request_id, str) and request_id.isdigit():
            request_id = int(request_id)
        if isinstance(request_id, int) and request_id in self._ids:
            return [request_id]
        return sorted(self._ids)


def accept_line(incoming: Incoming, pending: PendingRequests, line: bytes) -> bool:
    """Pass on a line if it is a message. Return whether to go on reading.

    An invalid answer fails the request that waits for it. A line that is no message at all is
    dropped: many servers print such lines by mistake.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError) as problem:
        return _take_malformed(incoming, pending, line, problem)
    pending.record_answered(message)
    return incoming.put(SessionMessage(message), len(line))


def _take_malformed(
    incoming: Incoming, pending: PendingRequests, line: bytes, problem: Exception
) -> bool:
    text = line.strip()
    if text[:1] not in (b"{", b"["):
        return True
    try:
        # Python's reader accepts what JSON does not have (NaN), so the id can still be read.
        value: Any = parse_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        is_answer = "method" not in fields and ("jsonrpc" in fields or "id" in fields)
        request_id = fields.get("id")
    else:
        # A batch, which the protocol does not have, or unreadable: its beginning may name the id.
        found = ID_PATTERN.search(text[:ID_SEARCH_BYTES])
        is_answer = b'"jsonrpc"' in text and b'"method"' not in text[:ID_SEARCH_BYTES]
        request_id = int(found[1]) if found else None
    if not is_answer:
        return True
    reason = _reason(str(problem).strip().splitlines(), cast("object", value))
    return _fail(incoming, pending, request_id, MALFORMED, f"its answer is not valid: {reason}")


def _reason(lines: list[str], value: object) -> str:
    """Return what is wrong with an answer, in plain words."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if "result" in fields and not isinstance(fields["result"], dict):
        return f"its `result` is {type(fields['result']).__name__}, not an object"
    if value is not None:
        return "it is not a JSON-RPC message"
    message = next((line.strip() for line in lines if "Invalid JSON" in line), "it is not JSON")
    return message.split(" [type=")[0][:200]


def fail_oversized(incoming: Incoming, pending: PendingRequests, request_id: int | None) -> bool:
    """Fail the request whose answer was dropped for its size. Return whether to go on reading."""
    return _fail(incoming, pending, request_id, TOO_LARGE, "its answer is too large")


def _fail(
    incoming: Incoming, pending: PendingRequests, request_id: object, code: int, why: str
) -> bool:
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    is_open = True
    for owed_id in pending.affected_ids(request_id):
        error = JSONRPCError(jsonrpc="2.0", id=owed_id, error=ErrorData(code=code, message=why))
        pending.record_answered(error)
        is_open = is_open and incoming.put(SessionMessage(error), 256)
    return is_open
