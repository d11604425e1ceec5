"""The two streams between a transport of ours and the protocol library, bounded.

The library reads messages as they come (`Incoming`) and hands over what is to be sent (`Outgoing`); both have the few methods of its stream
protocols, so no library is needed to make them. Bytes that came and were not read yet are counted: a server that floods is ended,
not queued. An answer that was too large becomes an error for the request that it belongs to. What is to be sent is queued as whole
lines and written by one task, so that a request that is cancelled never leaves half of one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_aside: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar("ferrule_mcp_aside", default=None)


def listen() -> list[Any]:
    """What a transport leaves aside for the request that is made from here on, in this context: statuses and errors.

    The protocol library makes one error of all that goes wrong with HTTP. It carries a request out in a copy of the context that made it.
    """
    heard: list[Any] = []
    _aside.set(heard)
    return heard


def leave_aside(what: Any) -> None:
    """Tell whoever made the request that is carried out."""
    heard = _aside.get()
    if heard is not None:
        heard.append(what)


TOO_LARGE = -32099
"""Code of the error that stands for an answer which was not taken (JSON-RPC leaves it to implementations)."""
_UNSENT = 64


class Incoming:
    """Messages that came. Ends once `over` was called and all is read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[tuple[Any, int]] = deque()
        self._waiting = 0
        self._more = asyncio.Event()
        self._ended = False

    def put(self, message: Any, size: int) -> bool:
        """Hand on a message that took `size` bytes. False: too many wait already, or nobody listens; the stream has ended then."""
        if self._ended:
            return False
        self._waiting += size
        if self._waiting > self._most:
            self.over()
            return False
        self._items.append((message, size))
        self._more.set()
        return True

    def over(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._more.set()

    async def receive(self) -> Any:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            import anyio

            raise anyio.EndOfStream from None

    async def aclose(self) -> None:
        self.over()
        self._items.clear()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> Any:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        message, size = self._items.popleft()
        self._waiting -= size
        return message

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Outgoing:
    """What is to be sent, as lines. `next_line` gives None at the end."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_UNSENT)
        self._closed = False

    async def send(self, item: Any, /) -> None:
        """Queue one message of the library. Raises anyio.ClosedResourceError once closed."""
        import anyio

        if self._closed:
            raise anyio.ClosedResourceError
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._lines.put(text.encode("utf-8", "replace") + b"\n")

    async def next_line(self) -> bytes | None:
        return await self._lines.get()

    def close(self) -> None:
        """Nothing more is taken; what is queued is still sent, if there is room to say so."""
        if not self._closed:
            self._closed = True
            if not self._lines.full():
                self._lines.put_nowait(None)

    async def aclose(self) -> None:
        self.close()

    async def __aenter__(self) -> Outgoing:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Ends:
    """A transport's streams. `over` is set when it ended by itself; `why` then says how, in words."""

    read: Any
    write: Any
    over: asyncio.Event
    why: Callable[[], Awaitable[str]]


def take_line(incoming: Incoming, line: bytes) -> bool:
    """A line that came, handed on if it is a message. False: enough."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError):
        return True  # not a message: dropped
    return incoming.put(SessionMessage(message), len(line))


def oversized(incoming: Incoming, request: int | None) -> bool:
    """An answer that was thrown away for its size, and whose it was if that could be seen."""
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    if request is None:
        return True
    error = ErrorData(code=TOO_LARGE, message="its answer is too large to be taken")
    return incoming.put(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=error)), 256)
