"""The two streams between a transport of ours and the protocol library, bounded.

The library reads messages as they come (`Incoming`) and hands over what is to be sent (`Outgoing`);
both have the few methods of its stream protocols, so no library is needed to make them. Bytes that
came and were not read yet are counted: a server that floods is ended, not queued. An answer that
was too large becomes an error for the request that it belongs to. What is to be sent is queued as
whole lines and written by one task, so that a request that is cancelled never leaves half of one.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

_aside: contextvars.ContextVar[list[Any] | None] = contextvars.ContextVar(
    "ferrule_mcp_aside", default=None
)


def listen() -> list[Any]:
    """What a transport leaves aside for the request that is made from here on, in this context:
    statuses and errors.

    The protocol library makes one error of all that goes wrong with HTTP. It carries a request out
    in a copy of the context that made it.
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
"""Code of the error that stands for an answer which was not taken (JSON-RPC leaves it to
implementations).
"""
MALFORMED = -32098
"""Code of the error that stands for an answer which is no answer."""
ID = re.compile(rb'"id"\s*:\s*"?(\d{1,15})')
"""Whose answer a line is, where it cannot be read as JSON."""
ID_WITHIN = 2_048
"""Bytes at the beginning of a line in which its id is looked for."""
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
        """Hand on a message that took `size` bytes. False: too many wait already, or nobody
        listens; the stream has ended then.
        """
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Outgoing:
    """What is to be sent, as lines. `next_line` gives None at the end."""

    def __init__(self, pending: Pending | None = None) -> None:
        self._pending = pending or Pending()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue(_UNSENT)
        self._closed = False

    async def send(self, item: Any, /) -> None:
        """Queue one message of the library. Raises anyio.ClosedResourceError once closed."""
        import anyio

        if self._closed:
            raise anyio.ClosedResourceError
        self._pending.sent(item.message)
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Ends:
    """A transport's streams. `over` is set when it ended by itself; `why` then says how, in
    words.
    """

    read: Any
    write: Any
    over: asyncio.Event
    why: Callable[[], Awaitable[str]]


class Pending:
    """Requests of ours that are owed an answer, by id."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def sent(self, message: Any) -> None:
        """Note a message that goes out."""
        number = getattr(message, "id", None)
        if hasattr(message, "method") and isinstance(number, int):
            self._ids.add(number)

    def answered(self, message: Any) -> None:
        """Note a message that came in."""
        if not hasattr(message, "method"):
            number = getattr(message, "id", None)
            if isinstance(number, str) and number.isdigit():
                number = int(number)
            self._ids.discard(number)  # pyright: ignore[reportArgumentType]  of whatever type the server sent

    def meant(self, number: object) -> list[int]:
        """Return whose answer a broken one is: that of its id, else of every request, since it may
        be any of them.
        """
        if isinstance(number, str) and number.isdigit():
            number = int(number)
        if isinstance(number, int) and number in self._ids:
            return [number]
        return sorted(self._ids)


def take_line(incoming: Incoming, pending: Pending, line: bytes) -> bool:
    """Hand on a line that is a message. Return False if that is enough.

    A line that was meant to be an answer and is none fails the request that waits for it. What is
    no message at all is
    dropped: many servers print such lines by mistake.
    """
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except (ValueError, RecursionError) as problem:
        return _malformed(incoming, pending, line, problem)
    pending.answered(message)
    return incoming.put(SessionMessage(message), len(line))


def _malformed(incoming: Incoming, pending: Pending, line: bytes, problem: Exception) -> bool:
    text = line.strip()
    if text[:1] not in (b"{", b"["):
        return True
    try:
        value: Any = json.loads(
            text
        )  # It takes what JSON does not have (NaN), so the id can still be read.
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        owed = "method" not in fields and ("jsonrpc" in fields or "id" in fields)
        number = fields.get("id")
    else:
        # A batch, which the protocol does not have, or what cannot be read: whose it was may stand
        # at its beginning.
        found = ID.search(text[:ID_WITHIN])
        owed = b'"jsonrpc"' in text and b'"method"' not in text[:ID_WITHIN]
        number = int(found[1]) if found else None
    if not owed:
        return True
    why = str(problem).strip().splitlines()
    return _fail(
        incoming,
        pending,
        number,
        MALFORMED,
        f"its answer is not valid: {_reason(why, cast('object', value))}",
    )


def _reason(lines: list[str], value: object) -> str:
    """Return what is wrong with an answer, in words for people."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if "result" in fields and not isinstance(fields["result"], dict):
        return f"its `result` is {type(fields['result']).__name__}, not an object"
    if value is not None:
        return "it is no JSON-RPC message"
    said = next((line.strip() for line in lines if "Invalid JSON" in line), "it is no JSON")
    return said.split(" [type=")[0][:200]


def oversized(incoming: Incoming, pending: Pending, number: int | None) -> bool:
    """Fail the request whose answer was thrown away for its size. Return False if that is
    enough.
    """
    return _fail(incoming, pending, number, TOO_LARGE, "its answer is too large to be taken")


def _fail(incoming: Incoming, pending: Pending, number: object, code: int, why: str) -> bool:
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    going = True
    for request in pending.meant(number):
        error = JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=code, message=why))
        pending.answered(error)
        going = going and incoming.put(SessionMessage(error), 256)
    return going
